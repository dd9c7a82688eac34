#include "src/driver/reduce_data.h"

#include <algorithm>
#include <array>
#include <set>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/driver/intermediate_values.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/value_names.h"
#include "lathe/support/error.h"
#include "lathe/support/repeat.h"

namespace lathe::reduction {
namespace {

constexpr int64_t kUsualExtent = 2;
/// Constants of no more elements stay: they are thresholds, scales and the like.
constexpr int64_t kSmallConstant = 8;
/// Neither neutral nor absorbing, so that no simplification waits for it.
constexpr double kSplat = 0.5;

std::vector<Operation*> OpenFeeds(const FailingCase& c) {
  std::vector<Operation*> open;
  for (Operation* feed : c.program.feeds()) {
    const auto tensor = feed->result(0).type().dyn_cast<AnyTensorType>();
    if (tensor && !tensor.is_static()) open.push_back(feed);
  }
  return open;
}

std::vector<std::string> OpenSymbols(const FailingCase& c) {
  std::vector<std::string> symbols;
  for (const Operation* feed : OpenFeeds(c)) {
    for (const Dim& dim : feed->result(0).type().cast<AnyTensorType>().dims()) {
      dim.CollectSymbols(symbols);
    }
  }
  std::ranges::sort(symbols);
  symbols.erase(std::ranges::unique(symbols).begin(), symbols.end());
  return symbols;
}

// ---- extents ----

bool IsLeafOfData(const Operation& op) {
  return op.name() == nn::kFeed || op.name() == builtin::kGetParameter;
}

// Of what is fed and of weights; and those that values at hand have.
std::set<int64_t> ExtentsOf(const FailingCase& c) {
  std::set<int64_t> extents;
  for (const Operation& op : *c.program.block()) {
    if (!IsLeafOfData(op)) continue;
    const auto tensor = op.result(0).type().dyn_cast<AnyTensorType>();
    if (!tensor || !tensor.has_rank()) continue;
    for (const Dim& dim : tensor.dims()) {
      if (dim.is_constant()) extents.insert(dim.value());
    }
  }
  for (const LabeledInputs& set : c.inputs) {
    for (const auto& [name, value] : set.values) {
      if (value.is_tensor())
        extents.insert(value.tensor().shape().begin(), value.tensor().shape().end());
    }
  }
  return extents;
}

struct Smaller {
  int64_t extent, becomes;
};

// Extents that are tried in place of one, the smallest first: steps by parts of it, so that their
// number is logarithmic, and by one only where it is small.
std::set<int64_t> SmallerThan(int64_t extent) {
  constexpr int64_t kSmall = 8;
  std::set<int64_t> smaller = {1, 2, extent / 2, extent - extent / 4, extent - extent / 8};
  if (extent <= kSmall) smaller.insert(extent - 1);
  std::erase_if(smaller, [&](int64_t s) { return s < 1 || s >= extent; });
  return smaller;
}

// The last is tried first.
std::vector<Smaller> SmallerExtents(const FailingCase& c) {
  std::vector<Smaller> all;
  for (const int64_t extent : ExtentsOf(c)) {
    const std::set<int64_t> smaller = SmallerThan(extent);
    for (auto s = smaller.rbegin(); s != smaller.rend(); ++s) all.push_back({extent, *s});
  }
  return all;
}

Tensor Shrunk(const Tensor& data, const Smaller& size) {
  Shape shape = data.shape();
  std::ranges::replace(shape, size.extent, size.becomes);
  return Repeated(data, shape);
}

void ShrinkType(Value value, const Smaller& size) {
  const auto type = value.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank()) return;
  SymShape shape = type.shape();
  for (Dim& d : shape.dims) {
    if (d.IsConstant(size.extent)) d = size.becomes;
  }
  value.set_type(type.With(type.element(), shape));
}

// ---- weights ----

bool IsConstantWeight(const Operation& op) {
  const auto value = op.attribute("value").dyn_cast<TensorAttribute>();
  return value && value.value().num_elements() > kSmallConstant;
}

bool IsFixedParameter(const Operation& op, const Program& program) {
  const Variable* variable = program.parameters().Find(PortName(&op));
  return variable != nullptr && !variable->is_mutable;
}

std::vector<Operation*> Weights(const Program& program) {
  std::vector<Operation*> ops;
  for (Operation& op : *program.block()) {
    const bool is_weight = op.name() == builtin::kConstant       ? IsConstantWeight(op)
                           : op.name() == builtin::kGetParameter ? IsFixedParameter(op, program)
                                                                 : false;
    if (!is_weight) continue;
    const auto type = op.result(0).type().dyn_cast<AnyTensorType>();
    if (type && type.is_static() && IsFloat(type.element())) ops.push_back(&op);
  }
  return ops;
}

void SplatWeight(Operation* op) {
  const auto type = op->result(0).type().cast<AnyTensorType>();
  const Shape extents = *type.shape().Constants();
  Builder b = Builder::Before(op);
  const std::string name =
      op->name() == builtin::kConstant ? std::string(NameInFile(op->result(0))) : PortName(op);
  const NamedAttribute shape = b.Named(
      "value", b.Attr(Tensor::Of<int64_t>({std::ssize(extents)},
                                          std::vector<int64_t>(extents.begin(), extents.end()))));
  const Value shape_value = b.Create(builtin::kConstant, {}, {&shape, 1})->result(0);
  if (!name.empty()) b.set_location(LocationOfNode(b.context(), name, {&name, 1}));
  const NamedAttribute number =
      b.Named("value", b.Attr(Cast(Tensor::Of<double>({1}, {kSplat}), type.element())));
  const Type result = type;
  Operation* splat = b.Create(nn::kConstantOfShape, {&shape_value, 1}, {&number, 1}, {&result, 1});
  op->result(0).ReplaceAllUsesWith(splat->result(0));
}

}  // namespace

size_t CountOpenSizes(const FailingCase& c) {
  if (c.inputs.size() > 1) return 0;
  return c.inputs.empty() ? OpenSymbols(c).size() : OpenFeeds(c).size();
}

bool FixSize(FailingCase& c, size_t begin, size_t /*end*/, CaseValues& /*values*/) {
  if (c.inputs.empty()) {
    SpecializeShapes(c.program, {.symbols = {{OpenSymbols(c)[begin], kUsualExtent}}});
    return true;
  }
  const std::string name = PortName(OpenFeeds(c)[begin]);
  const RtValue* value = Find(c.inputs[0].values, name);
  if (value == nullptr || !value->is_tensor()) return false;
  SpecializeShapes(c.program, {.inputs = {{name, value->tensor().shape()}}});
  return true;
}

size_t CountSmallerExtents(const FailingCase& c) {
  return c.inputs.size() > 1 ? 0 : SmallerExtents(c).size();
}

bool ShrinkExtent(FailingCase& c, size_t begin, size_t /*end*/, CaseValues& /*values*/) {
  const Smaller size = SmallerExtents(c)[begin];
  for (LabeledInputs& set : c.inputs) {
    for (auto& [name, value] : set.values) {
      if (value.is_tensor()) value = Shrunk(value.tensor(), size);
    }
  }
  for (auto& entry : c.program.parameters()) {
    entry.variable.data = Shrunk(entry.variable.data, size);
  }
  for (const Operation& op : *c.program.block()) {
    if (IsLeafOfData(op)) ShrinkType(op.result(0), size);
  }
  ShapeInferencer(&c.program.parameters()).Visit(c.program);
  return true;
}

bool IsSplat(const Operation& op) {
  if (op.name() != nn::kConstantOfShape) return false;
  const Operation* shape = op.operand(0).defining_op();
  return shape != nullptr && shape->name() == builtin::kConstant;
}

size_t CountWeights(const FailingCase& c) { return Weights(c.program).size(); }

bool SplatWeights(FailingCase& c, size_t begin, size_t end, CaseValues& /*values*/) {
  const std::vector<Operation*> ops = Weights(c.program);
  for (size_t i = begin; i < end; ++i) SplatWeight(ops[i]);
  return true;
}

}  // namespace lathe::reduction
