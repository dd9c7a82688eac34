#include "lathe/dialect/loop/loop.h"
#include "lathe/lower/schedule.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/nest.h"

namespace lathe::lower {

void WholeTensorEmitter::Fill(const std::vector<Dim>& dims, Value into,
                              const Filler& element) const {
  Nest(e, function, body, machine)
      .Visit(dims, into, [&](Elements& elements, const Place& at, Value to) {
        elements.Store(to, elements.space().Flatten(at, dims), element(elements, at));
      });
}

void WholeTensorEmitter::ForLanes(const Dim& extent,
                                  const std::function<void(const Dim& i)>& step) const {
  const Operation* before = e.lb().b().block()->back();
  e.For(extent, false, step);
  Operation* loop = e.lb().b().block()->back();
  if (loop == before || loop->name() != loop::ForOp::kName) return;  // at most one element
  if (!schedule::WhyNotVectorize(loop).empty()) return;
  schedule::Vectorize(loop, schedule::SuitableLanes(loop, machine.vector_bytes));
}

std::string NeedSizes(const Operation& op) {
  const Extents extents(*op.block());
  std::string why;
  const auto visit = [&](Value v) {
    for (const Dim& dim : v ? DimsOf(v) : std::vector<Dim>()) {
      if (!extents.Resolve(dim)) why = StrCat("no argument has extent ", dim.ToString());
    }
  };
  for (size_t i = 0; i < op.num_operands() && why.empty(); ++i) visit(op.operand(i));
  for (size_t i = 0; i < op.num_results() && why.empty(); ++i) visit(op.result(i));
  return why;
}

bool WholeTensorEmitter::IsWorthParallelizing(const Dim& elements) {
  constexpr int64_t kMinParallelElements = 1 << 15;
  return !elements.is_constant() || elements.value() >= kMinParallelElements;
}

}  // namespace lathe::lower
