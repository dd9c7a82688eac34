#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/quantize.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

constexpr size_t kMostOps = 64;  // of a function of a byte

// Without one of them, arithmetic takes less than to look a byte up.
constexpr std::string_view kLong[] = {nn::kElu,  nn::kErf,      nn::kExp,   nn::kGelu,
                                      nn::kLog,  nn::kMish,     nn::kSelu,  nn::kSigmoid,
                                      nn::kTanh, nn::kSoftplus, nn::kSwish, nn::kPow};

// Two divisions are as long: quantized parts of a hard swish have them.
bool IsLong(const std::vector<Operation*>& ops) {
  int64_t divisions = 0;
  for (const Operation* op : ops) {
    if (std::ranges::find(kLong, op->name()) != std::end(kLong)) return true;
    divisions += op->name() == nn::kDiv ? 1 : 0;
  }
  return divisions > 1;
}

bool IsByte(Value v) {
  const AnyTensorType type = TensorOrNull(v);
  return type && (type.element() == ElementType::kU8 || type.element() == ElementType::kI8);
}

}  // namespace

/// What only depends on a byte is looked up.
class ByteTablesPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    rewriter_.emplace(graph.program(), this);
    std::vector<Operation*> casts;
    for (OpWalker w(graph.program().module()); Operation* op = w.Next();) {
      if (op->isa<nn::CastOp>() && IsByte(op->result(0)) && !IsByte(op->operand(0))) {
        casts.push_back(op);
      }
    }
    // The last ones first: what a table holds needs none of its own.
    for (size_t i = casts.size(); i-- > 0;) {
      if (!casts[i]->result(0).use_empty()) Tabulate(casts[i]);
    }
  }

 private:
  // The operations of a function of one byte, in order.
  struct Function {
    Value byte;
    std::vector<Operation*> ops;
  };

  const Tensor* ConstantOf(Value v) const { return ConstantValue(rewriter_->program(), v); }

  bool IsNumber(Value v) const {
    const Tensor* t = ConstantOf(v);
    return t != nullptr && t->num_elements() == 1;
  }

  static bool IsElementwise(const Operation* op) {
    const OpKind kind = KindOf(op);
    return (kind == OpKind::kElementwise || kind == OpKind::kBroadcast) && op->num_results() == 1 &&
           op->num_regions() == 0 && op->HasInterface<EvalInterface>() && IsMergeable(op) &&
           !op->isa<nn::LookupOp>();
  }

  // Adds `op` and what it is computed by up to bytes. False: from more than numbers and bytes.
  bool Add(Operation* op, std::vector<Operation*>& ops, std::vector<Value>& bytes) const {
    std::vector<Operation*> open{op};
    while (!open.empty()) {
      Operation* next = open.back();
      open.pop_back();
      if (std::ranges::find(ops, next) != ops.end()) continue;
      if (!IsElementwise(next) || ops.size() == kMostOps) return false;
      ops.push_back(next);
      for (size_t i = 0; i < next->num_operands(); ++i) {
        const Value v = next->operand(i);
        if (!v || IsNumber(v)) continue;
        if (IsByte(v)) {
          if (std::ranges::find(bytes, v) == bytes.end()) bytes.push_back(v);
        } else if (v.defining_op() == nullptr || v.defining_op()->block() != op->block()) {
          return false;
        } else {
          open.push_back(v.defining_op());
        }
      }
    }
    return true;
  }

  // Bytes that are computed by others are part of the function until one is left.
  std::optional<Function> FunctionOf(Operation* cast) const {
    std::vector<Operation*> ops;
    std::vector<Value> bytes;
    if (!Add(cast, ops, bytes)) return std::nullopt;
    while (bytes.size() > 1) {
      const auto last = std::ranges::max_element(bytes, [](Value a, Value b) {
        const Operation *x = a.defining_op(), *y = b.defining_op();
        if (x == nullptr || y == nullptr) return x == nullptr && y != nullptr;
        return x != y && x->IsBefore(y);
      });
      Operation* maker = last->defining_op();
      bytes.erase(last);
      if (maker == nullptr || maker->block() != cast->block()) return std::nullopt;
      if (!Add(maker, ops, bytes)) return std::nullopt;
    }
    if (bytes.size() != 1) return std::nullopt;
    std::ranges::sort(
        ops, [](const Operation* a, const Operation* b) { return a != b && a->IsBefore(b); });
    const AnyTensorType from = TensorOrNull(bytes[0]), to = TensorOrNull(cast->result(0));
    const bool fits = from.has_rank() && to.has_rank() &&
                      std::ranges::equal(from.dims(), to.dims(), ProvablyEqual);
    if (!fits || !IsLong(ops)) return std::nullopt;
    return Function{bytes[0], std::move(ops)};
  }

  // What it gives for all bytes, in the order of their bits.
  Tensor TableOf(const Function& f) const {
    std::vector<double> numbers(256);
    std::iota(numbers.begin(), numbers.end(), 0);
    const Tensor bits = lathe::Cast(Tensor::Of<double>({256}, numbers), ElementType::kU8);
    const ElementType type = TensorOrNull(f.byte).element();
    std::vector<std::pair<Value, Tensor>> known;
    known.emplace_back(f.byte, Tensor::FromBytes(type, {256}, bits.bytes()));
    const auto value_of = [&](Value v) -> RtValue {
      if (!v) return {};
      for (const auto& [value, tensor] : known) {
        if (value == v) return tensor;
      }
      return ConstantOf(v)->Reshaped({1});
    };
    for (Operation* op : f.ops) {
      std::vector<RtValue> inputs;
      for (size_t i = 0; i < op->num_operands(); ++i) inputs.push_back(value_of(op->operand(i)));
      known.emplace_back(op->result(0), EvalOp(op, inputs)[0].tensor());
    }
    return known.back().second;
  }

  void Tabulate(Operation* cast) {
    const auto function = FunctionOf(cast);
    if (!function) return;
    rewriter_->SetInsertionPoint(cast);
    rewriter_->set_location(cast->location());
    const Tensor values = TableOf(*function);
    if (values.num_elements() != 256) return;
    const Value table = rewriter_->Parameter("table", values);
    Value byte = function->byte;
    if (TensorOrNull(byte).element() == ElementType::kI8) {
      byte = nn::CastOp::Create(*rewriter_, byte, {.to = ElementType::kU8}).output();
    }
    rewriter_->Applied(cast, "a byte decides it");
    rewriter_->ReplaceOp(cast, nn::LookupOp::Create(*rewriter_, byte, table).y());
    Count("tables");
  }

  std::optional<Rewriter> rewriter_;
};

REGISTER_PASS(byte_tables, ByteTablesPass)
    .Doc("looks up what is computed element by element of one byte and is a byte again")
    .Details(
        "Between quantized tensors an activation is a function of 256 values. Where one of its "
        "operations is long (a sigmoid, an exponential), or two divide, a table takes its place, "
        "so the result "
        "is that of the interpreter.");

}  // namespace lathe
