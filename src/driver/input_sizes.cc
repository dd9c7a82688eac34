#include "lathe/driver/input_sizes.h"

#include <algorithm>

#include "lathe/transform/keep_constraints.h"
#include "src/driver/find_constraints.h"

namespace lathe {
namespace {

int64_t UsualSize(AnyTensorType type, size_t axis) {
  constexpr int64_t kSide = 224, kLength = 32;
  if (axis == 0) return 1;
  const bool is_picture =
      type.rank() == 4 && type.dims()[2].is_symbol() && type.dims()[3].is_symbol();
  return is_picture && axis >= 2 ? kSide : kLength;
}

}  // namespace

void CheckSizes(const Program& program, std::span<const runtime::BoundSymbol> sizes) {
  Program copy = program.Clone();
  NameUnknownExtents(copy);
  runtime::CheckConstraints(PlanConstraintsOf(FindConstraintsWithCalls(copy)), sizes);
}

void AddUsualSizes(Type input, std::vector<Dim::Binding>& sizes) {
  const auto tensor = input.dyn_cast<AnyTensorType>();
  if (!tensor) return;
  for (size_t i = 0; i < tensor.rank(); ++i) {
    const Dim dim = tensor.dims()[i];
    if (!dim.is_symbol()) continue;
    const std::string name(dim.symbol_name());
    if (std::ranges::find(sizes, name, &Dim::Binding::first) != sizes.end()) continue;
    sizes.emplace_back(name, UsualSize(tensor, i));
  }
}

}  // namespace lathe
