#include "lathe/transform/quantization.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <unordered_set>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/value_names.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "src/transform/name_pattern.h"
#include "src/transform/quantized_values.h"

namespace lathe {

namespace {

// Their result has the elements of operand 0, or the greatest of some of them.
constexpr std::string_view kMoves[] = {
    nn::kDepthToSpace, nn::kFlatten,      nn::kIdentity, nn::kMaxPool,   nn::kReshape,
    nn::kSlice,        nn::kSpaceToDepth, nn::kSqueeze,  nn::kTranspose, nn::kUnsqueeze};
// They compute little, so that bytes between them are worth more than what they compute.
constexpr std::string_view kLight[] = {nn::kAdd,    nn::kAveragePool,       nn::kClip,
                                       nn::kConcat, nn::kGlobalAveragePool, nn::kRelu,
                                       nn::kResize};
constexpr std::string_view kKinds[] = {"conv", "matmul", "gemm"};
constexpr std::string_view kOfIntegers[] = {
    nn::kQuantizeLinear, nn::kDequantizeLinear, nn::kDynamicQuantizeLinear, nn::kConvInteger,
    nn::kMatmulInteger,  nn::kMatmulNbits,      nn::kQlinearConv,           nn::kQlinearMatmul};

bool IsOneOf(const Operation* op, std::span<const std::string_view> names) {
  return op != nullptr && std::ranges::find(names, op->name()) != names.end();
}

bool IsF32(Value v) { return TensorOrNull(v) && TensorOrNull(v).element() == ElementType::kF32; }

std::string LayerKindOf(const Operation* op) {
  if (op->isa<nn::ConvOp>()) return "conv";
  if (op->isa<nn::MatmulOp>()) return "matmul";
  return op->isa<nn::GemmOp>() ? "gemm" : "";
}

std::string FormObstacle(Operation* op) {
  if (op->isa<nn::ConvOp>()) {
    const bool is_plain = nn::ConvOp(op).layout().value_or("NCHW") == "NCHW";
    return is_plain ? "" : "its channels are not the second axis";
  }
  if (op->isa<nn::MatmulOp>()) {
    return nn::MatmulOp(op).transpose_x() ? "its left matrix is transposed" : "";
  }
  const nn::GemmOp gemm(op);
  if (gemm.transA()) return "its left matrix is transposed";
  return gemm.alpha() == 1 && gemm.beta() == 1 ? "" : "alpha or beta is not 1";
}

std::string ObstacleOf(const Program& program, Operation* op) {
  if (!IsF32(op->result(0))) return "it does not compute in f32";
  const Tensor* weights = ConstantValue(program, op->operand(1));
  if (weights == nullptr) return "its weights are not constant";
  const bool has_rank = op->isa<nn::ConvOp>() ? weights->rank() >= 3 : weights->rank() == 2;
  if (!has_rank || weights->num_elements() == 0) return "its weights are not a matrix or filters";
  if (!std::ranges::all_of(ToDoubles(*weights), [](double v) { return std::isfinite(v); })) {
    return "its weights are not finite";
  }
  return FormObstacle(op);
}

std::string NodeName(const Operation* op) {
  const Location location = op->location();
  if (location.is_name()) return std::string(location.name());
  if (!location.is_fused()) return {};
  for (const Location part : location.parts()) {
    if (part.is_name()) return std::string(part.name());
  }
  return {};
}

// `name` with what makes it one that is not taken.
std::string Unique(const std::string& name, std::set<std::string>& taken) {
  std::string unique = name;
  for (int i = 2; !taken.insert(unique).second; ++i) unique = StrCat(name, ".", i);
  return unique;
}

void CheckKinds(const std::vector<std::string>& kinds) {
  for (const std::string& kind : kinds) {
    if (std::ranges::find(kKinds, kind) != std::end(kKinds)) continue;
    Error error(ErrorCode::kNotFound, "quantize/ops",
                StrCat("no layer is of the kind '", kind, "'"));
    if (const std::string near = DidYouMean(kind, kKinds); !near.empty()) error.Hint(near);
    throw std::move(error).Hint("the kinds are conv, matmul and gemm");
  }
}

// Marks values in program order.
class Marking {
 public:
  Marking(const Program& program, const std::vector<QuantizationLayer>& layers)
      : program_(program) {
    for (const QuantizationLayer& layer : layers) {
      layers_.insert(layer.op);
      Mark(layer.op->operand(0));
    }
    for (Operation& op : *program.block()) Visit(&op);
  }

  bool Has(Value v) const { return marked_.contains(v); }

 private:
  void Mark(Value v) {
    if (IsF32(v) && ConstantValue(program_, v) == nullptr) marked_.insert(v);
  }

  void Visit(Operation* op) {
    if (op->num_results() == 0) return;
    const Value end = EndOf(program_, op->result(0));
    if (layers_.contains(op)) {
      if (op->isa<nn::ConvOp>() || IsReadAsIntegers(end)) Mark(end);
    } else if ((IsMove(op) || IsOneOf(op, kLight)) && ReadsMarked(op) && IsReadAsIntegers(end)) {
      Mark(end);
    }
  }

  // All of its operands that are data.
  bool ReadsMarked(const Operation* op) const {
    bool any = false;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value v = op->operand(i);
      if (!IsF32(v) || ConstantValue(program_, v) != nullptr) continue;
      if (!Has(v)) return false;
      any = true;
    }
    return any;
  }

  bool IsReadAsIntegers(Value v) const {
    return std::ranges::any_of(UsersOf(v), [&](Operation* user) {
      return layers_.contains(user) || IsMove(user) || IsOneOf(user, kLight);
    });
  }

  static std::vector<Operation*> UsersOf(Value v) {
    std::vector<Operation*> users;
    for (const OpOperand use : v.uses()) users.push_back(use.owner());
    return users;
  }

  const Program& program_;
  std::unordered_set<const Operation*> layers_;  // looked up only
  std::unordered_set<Value> marked_;             // looked up only
};

}  // namespace

bool IsMove(const Operation* op) { return IsOneOf(op, kMoves); }

Value EndOf(const Program& program, Value v) {
  for (;;) {
    if (!v.has_one_use()) return v;
    Operation* user = (*v.uses().begin()).owner();
    const Operation* maker = v.defining_op();
    if (user->block() != maker->block()) return v;
    const bool is_bias = user->name() == nn::kAdd && maker->isa<nn::MatmulOp>() &&
                         ConstantValue(program, user->operand(user->operand(0) == v)) != nullptr;
    if (!is_bias && user->name() != nn::kRelu && user->name() != nn::kClip) return v;
    if (user->operand(0) != v && !is_bias) return v;
    v = user->result(0);
  }
}

std::vector<QuantizationLayer> QuantizationLayers(const Program& program) {
  std::vector<QuantizationLayer> layers;
  std::map<std::string, size_t> numbers;
  std::set<std::string> taken;
  for (Operation& op : *program.block()) {
    const std::string kind = LayerKindOf(&op);
    if (kind.empty()) continue;
    std::string name = NodeName(&op);
    if (name.empty()) name = NameInFile(op.result(0));
    if (name.empty()) name = StrCat(kind, "_", numbers[kind]);
    ++numbers[kind];
    layers.push_back({Unique(name, taken), kind, &op, ObstacleOf(program, &op)});
  }
  return layers;
}

std::vector<QuantizationLayer> SelectLayers(const std::vector<QuantizationLayer>& layers,
                                            const std::vector<std::string>& kinds,
                                            const std::vector<std::string>& exclude) {
  CheckKinds(kinds);
  std::vector<std::string> names;
  for (const QuantizationLayer& layer : layers) names.push_back(layer.name);
  CheckPatterns(exclude, names, "quantize/exclude", "layer");
  std::vector<QuantizationLayer> selected;
  for (const QuantizationLayer& layer : layers) {
    const bool is_asked = std::ranges::find(kinds, layer.kind) != kinds.end();
    if (is_asked && layer.obstacle.empty() && !MatchesAny(layer.name, exclude)) {
      selected.push_back(layer);
    }
  }
  return selected;
}

const Operation* QuantizedOperation(const Program& program) {
  for (OpWalker w(program.module()); const Operation* op = w.Next();) {
    if (IsOneOf(op, kOfIntegers)) return op;
  }
  return nullptr;
}

std::vector<Value> ResultsOf(const Program& program) {
  std::vector<Value> results;
  for (Operation& op : *program.block()) {
    for (size_t i = 0; i < op.num_results(); ++i) results.push_back(op.result(i));
  }
  return results;
}

std::vector<bool> QuantizedResults(const Program& program,
                                   const std::vector<QuantizationLayer>& layers) {
  const Marking marking(program, layers);
  std::vector<bool> quantized;
  for (const Value v : ResultsOf(program)) quantized.push_back(marking.Has(v));
  return quantized;
}

}  // namespace lathe
