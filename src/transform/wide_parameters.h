#pragma once

#include <vector>

#include "lathe/ir/program.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

/// Reads of parameters of f16 and bf16 that the program does not set, those in regions, too.
std::vector<Operation*> NarrowParameterReads(const Program& program);

/// Makes the parameters f32, all of whose reads are given, and rounds them where they are read.
/// Returns how many they are.
int64_t HoldInF32(Rewriter& rewriter, const std::vector<Operation*>& reads);

}  // namespace lathe
