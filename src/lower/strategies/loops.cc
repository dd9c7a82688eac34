#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/view.h"
#include "src/lower/compute/nest.h"
#include "src/lower/strategies/list.h"

// Any operations whose elements are known one by one (src/lower/compute): a nest of loops per
// result, with everything before it computed where it is read.
namespace lathe::lower {

bool LowerLoops(Lowering& l) {
  l.why = Elements::Refusal(l.function, l.machine);
  if (!l.why.empty()) return false;
  LoopBuilder lb(l.body);
  Elements elements(lb, l.function, *l.body);
  const Operation* end = l.function.terminator();
  std::vector<Value> results;
  for (size_t i = 0; i < end->num_operands(); ++i) {
    const Value value = end->operand(i);
    results.push_back(elements.Alloc(value));
    const Value flat = FlatView(lb, results.back());
    Nest(elements, l.function, *l.body, l.machine).Write(value, flat);
  }
  for (Value& v : results) v = builtin::ToVtensorOp::Create(lb.b(), v).y();
  lb.b().Create(end->info(), results, end->attributes().entries(), {});
  return true;
}

}  // namespace lathe::lower
