#pragma once

#include <cstdint>
#include <string>

#include "lathe/ir/operation.h"

namespace lathe {

/// What a region computes, as text: operations with the attributes that matter, values numbered by
/// position, types. Equal texts compute the same; names of values, locations, runtime attributes
/// and addresses do not count, nor does which op ends the region. Values from outside are numbered
/// by first use. Not recursive.
std::string StructureText(const Region& region);

/// Of the text: the same in every run and on every machine.
uint64_t StructureHash(const Region& region);

}  // namespace lathe
