#include "src/dialect/bound_sizes.h"

#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/cf/loop_sizes.h"

namespace lathe {

std::vector<std::string> BoundSizes(const Operation* op) {
  std::vector<std::string> names;
  if (const auto bind = const_cast<Operation*>(op)->dyn_cast<nn::BindSizesOp>()) {
    names = bind.names();
    std::erase(names, "");
  } else if (op->isa<cf::WhileOp>()) {
    const std::vector<cf::LoopSize> sizes = cf::LoopSizes(op);
    for (const cf::LoopSize& size : sizes) names.push_back(size.round);
    for (const cf::LoopSize& size : sizes) names.push_back(size.end);
    for (const cf::StackSize& size : cf::StackSizes(op)) names.push_back(size.end);
  }
  return names;
}

}  // namespace lathe
