#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "lathe/ir/type.h"
#include "lathe/lower/lowering.h"

namespace lathe::lower {

/// The type of a tensor that was packed.
Type PackedType(AnyTensorType type, const PackedLayout& layout);
/// The same order of elements, of whatever arguments.
bool IsSameOrder(const PackedLayout& a, const PackedLayout& b);

/// Variants that a function has for different extents read the same arguments: one that they pack
/// differently is packed in all these orders, of which each variant reads its own. `function` is
/// what they lower.
void ShareArguments(const Block& function, std::span<Lowering* const> variants);

/// As Pack, into a tensor of the layout's shape and elements that holds zeros. A large tensor is
/// read in strips; `done` is told the bytes of each, of which none is read again.
void PackInto(const Tensor& tensor, const PackedLayout& layout, Tensor& packed,
              const std::function<void(std::span<const std::byte>)>& done = {});

}  // namespace lathe::lower
