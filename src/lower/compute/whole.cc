#include "lathe/dialect/loop/loop.h"
#include "lathe/lower/schedule.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/nest.h"

namespace lathe::lower {

void WholeOf::Fill(const std::vector<Dim>& dims, Value into, const Filler& element) const {
  Nest(e, function, body, machine)
      .Visit(dims, into, [&](Elements& elements, const Place& at, Value to) {
        elements.Store(to, elements.space().Flatten(at, dims), element(elements, at));
      });
}

void WholeOf::ForLanes(const Dim& extent, const std::function<void(const Dim& i)>& step) const {
  const Operation* before = e.lb().b().block()->back();
  e.For(extent, false, step);
  Operation* loop = e.lb().b().block()->back();
  if (loop == before || loop->name() != loop::ForOp::kName) return;  // at most one element
  if (!schedule::WhyNotVectorise(loop).empty()) return;
  schedule::Vectorise(loop, schedule::SuitableLanes(loop, machine.vector_bytes));
}

std::string NeedSizes(const Operation& op) {
  std::vector<std::string> used;
  for (size_t i = 0; i < op.num_operands(); ++i) {
    if (!op.operand(i)) continue;
    for (const Dim& dim : DimsOf(op.operand(i))) dim.CollectSymbols(used);
  }
  for (size_t i = 0; i < op.num_results(); ++i) {
    for (const Dim& dim : DimsOf(op.result(i))) dim.CollectSymbols(used);
  }
  for (const std::string& name : used) {
    bool known = false;
    for (size_t i = 0; i < op.block()->num_arguments() && !known; ++i) {
      for (const Dim& dim : DimsOf(op.block()->argument(i))) {
        known = known || (dim.is_symbol() && dim.symbol_name() == name);
      }
    }
    if (!known) return StrCat("no argument has extent ", name);
  }
  return "";
}

bool WholeOf::IsMuch(const Dim& elements) {
  constexpr int64_t kMuch = 1 << 15;
  return !elements.is_constant() || elements.value() >= kMuch;
}

}  // namespace lathe::lower
