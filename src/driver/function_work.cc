#include "src/driver/function_work.h"

#include <unordered_map>

#include "lathe/dialect/arithmetic.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/block.h"
#include "lathe/ir/traits.h"

namespace lathe {
namespace {

// How many elements of each value are looked at: an op whose results come from at most one element
// of each operand looks at no more than it gives.
class Reads {
 public:
  explicit Reads(const Block& body) {
    const Operation* end = body.back();
    for (size_t i = 0; i < end->num_operands(); ++i) Add(end->operand(i), All(end->operand(i)));
    for (const Operation* op = end->prev(); op != nullptr; op = op->prev()) Visit(op);
  }

  Dim Of(Value v) const {
    const auto found = elements_.find(v);
    return found == elements_.end() ? Dim(0) : found->second;
  }

 private:
  static Dim All(Value v) { return ElementsOf(v.type()); }

  void Visit(const Operation* op) {
    Dim given = 0;
    for (size_t i = 0; i < op->num_results(); ++i) given += Of(op->result(i));
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value v = op->operand(i);
      if (!v) continue;
      const bool one_each = KindOf(op) <= OpKind::kInjective && !NeedsWhole(op, i);
      Add(v, one_each ? given : All(v));
    }
  }

  // Expressions that become too large are unknown: then all is looked at.
  void Add(Value v, const Dim& elements) {
    const Dim all = All(v), least = Min(all, Of(v) + elements);
    elements_[v] = least.is_unknown() || all == elements ? all : least;
  }

  std::unordered_map<Value, Dim> elements_;  // looked up, never iterated
};

Dim BytesOfElements(Value v, const Dim& elements) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  if (!type) return Dim::Unknown();
  const int bits = BitWidth(type.element());
  return bits % 8 == 0 ? elements * (bits / 8) : CeilDiv(elements * bits, 8);
}

}  // namespace

FunctionWork WorkOf(const Operation* function) {
  FunctionWork work{0, 0};
  const Block& body = *function->region(0).front();
  const Reads reads(body);
  for (size_t i = 0; i < body.num_arguments(); ++i) {
    work.bytes += BytesOfElements(body.argument(i), reads.Of(body.argument(i)));
  }
  for (size_t i = 0; i < body.back()->num_operands(); ++i) {
    const Value v = body.back()->operand(i);
    work.bytes += BytesOfElements(v, ElementsOf(v.type()));
  }
  for (Operation& op : *function->region(0).front()) {
    if (!op.HasTrait<Terminator>()) work.flops += ArithmeticOf(&op);
  }
  return work;
}

}  // namespace lathe
