#include "src/dialect/cf/loop_sizes.h"

#include "lathe/dialect/cf/cf.h"
#include "lathe/ir/block.h"
#include "lathe/support/error.h"

namespace lathe::cf {
namespace {

std::string RoundName(const std::string& name, size_t axis) { return StrCat(name, "_", axis); }
std::string EndName(const std::string& name, size_t axis) {
  return StrCat(name, "_", axis, "_end");
}

template <class Change>
Type Changed(Type type, const std::string& name, const Change& change) {
  const auto tensor = type ? type.dyn_cast<AnyTensorType>() : AnyTensorType();
  if (name.empty() || !tensor || !tensor.has_rank()) return type;
  SymShape shape = tensor.shape();
  for (size_t axis = 0; axis < shape.rank(); ++axis) change(shape.dims[axis], axis);
  return tensor.With(tensor.element(), shape);
}

bool IsNamed(const Dim& dim, const std::string& name) {
  return dim.is_symbol() && dim.symbol_name() == name;
}

}  // namespace

std::string SizesName(const Operation* loop, size_t i) {
  const auto names = WhileOp(loop).sizes();
  return names && i < names->size() ? (*names)[i] : std::string();
}

Type InRound(Type type, const std::string& name) {
  return Changed(type, name, [&](Dim& dim, size_t axis) {
    if (dim.is_unknown()) dim = Dim::Symbol(RoundName(name, axis));
  });
}

Type AtEnd(Type type, const std::string& name, size_t axes) {
  return Changed(type, name, [&](Dim& dim, size_t axis) {
    if (dim.is_unknown() && axis < axes) dim = Dim::Symbol(EndName(name, axis));
  });
}

Type WithoutRound(Type type, const std::string& name) {
  return Changed(type, name, [&](Dim& dim, size_t axis) {
    if (IsNamed(dim, RoundName(name, axis))) dim = Dim::Unknown();
  });
}

std::vector<LoopSize> LoopSizes(const Operation* loop) {
  std::vector<LoopSize> sizes;
  const auto names = WhileOp(loop).sizes();
  if (!names) return sizes;
  const Block& body = *loop->region(0).front();
  for (size_t i = 0; i < names->size() && kLoopArguments + i < body.num_arguments(); ++i) {
    const auto type = body.argument(kLoopArguments + i).type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) continue;
    for (size_t axis = 0; axis < type.rank(); ++axis) {
      const std::string round = RoundName((*names)[i], axis);
      if (!IsNamed(type.dims()[axis], round)) continue;
      sizes.push_back({i, axis, round, EndName((*names)[i], axis)});
    }
  }
  return sizes;
}

std::vector<StackSize> StackSizes(const Operation* loop) {
  std::vector<StackSize> sizes;
  const auto names = WhileOp(loop).sizes();
  const size_t carried = loop->region(0).front()->num_arguments() - kLoopArguments;
  for (size_t i = carried; names && i < names->size() && i < loop->num_results(); ++i) {
    const auto type = loop->result(i).type().dyn_cast<AnyTensorType>();
    const std::string end = EndName((*names)[i], 0);
    if (!type || !type.has_rank() || type.rank() == 0) continue;
    if (IsNamed(type.dims()[0], end)) sizes.push_back({i, end});
  }
  return sizes;
}

}  // namespace lathe::cf
