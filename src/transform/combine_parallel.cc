#include <algorithm>
#include <map>

#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

/// `parts` one after the other along `axis`; equal types and other extents.
Tensor Concatenate(const std::vector<Tensor>& parts, int64_t axis) {
  Shape shape = parts[0].shape();
  auto& extent = shape[static_cast<size_t>(axis)];
  extent = 0;
  for (const Tensor& p : parts) extent += p.dim(axis);
  Tensor out(parts[0].element_type(), shape);
  size_t outer = 1;
  for (int64_t i = 0; i < axis; ++i) outer *= static_cast<size_t>(parts[0].dim(i));
  std::byte* to = out.mutable_raw();
  for (size_t row = 0; row < outer; ++row) {
    for (const Tensor& p : parts) {
      const size_t bytes = p.byte_size() / outer;
      to = std::copy_n(p.raw() + row * bytes, bytes, to);
    }
  }
  return out;
}

}  // namespace

/// Layers of one kind that read the same value become one layer with the weights side by side, and
/// a split of its result. Source: TVM's CombineParallelConv2D and CombineParallelDense.
class CombineParallelPass : public Pass {
 public:
  /// `weight_axis` holds the output channels of the weights, `result_axis` those of the result.
  CombineParallelPass(const char* op, int64_t weight_axis, int64_t result_axis)
      : op_(op), weight_axis_(weight_axis), result_axis_(result_axis) {}

 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    std::vector<std::vector<Operation*>> groups;  // in program order of their first member
    std::map<std::pair<size_t, std::string>, size_t> group_of;
    std::unordered_map<Value, size_t> input_number;  // look-up only
    for (Operation& op : *graph.block()) {
      if (op.name() != op_ || !CanJoin(graph.program(), &op)) continue;
      const size_t input = input_number.emplace(op.operand(0), input_number.size()).first->second;
      const auto key = std::pair(input, KindOf(graph.program(), &op));
      const auto [at, fresh] = group_of.emplace(key, groups.size());
      if (fresh) groups.emplace_back();
      groups[at->second].push_back(&op);
    }
    const auto least = static_cast<size_t>(option_int("min"));
    for (const auto& group : groups) {
      if (group.size() >= least) Combine(group, rewriter);
    }
  }

 private:
  static bool HasBias(const Operation* op) { return op->num_operands() > 2 && op->operand(2); }

  bool CanJoin(const Program& program, const Operation* op) const {
    const Tensor* w = ConstantValue(program, op->operand(1));
    const auto type = op->result(0).type().dyn_cast<AnyTensorType>();
    if (w == nullptr || w->rank() < 2 || !type || !type.has_rank()) return false;
    if (op->name() == "nn.conv" && op->attribute("layout")) return false;
    const auto transposed = op->attribute("transpose_y").dyn_cast<BoolAttribute>();
    if (op->name() == "nn.matmul" && (w->rank() != 2 || transposed.value())) return false;
    const auto group = op->attribute("group").dyn_cast<IntAttribute>();
    if (group && group.value() != 1) return false;
    if (!HasBias(op)) return true;
    const Tensor* b = ConstantValue(program, op->operand(2));
    return b != nullptr && b->rank() == 1;
  }

  /// Equal for layers that differ in their number of output channels only.
  std::string KindOf(const Program& program, const Operation* op) const {
    const Tensor& w = *ConstantValue(program, op->operand(1));
    Shape shape = w.shape();
    shape[static_cast<size_t>(weight_axis_)] = -1;
    return StrCat(op->attributes().ToString(), Name(w.element_type()), ShapeToString(shape),
                  HasBias(op) ? "bias" : "");
  }

  void Combine(const std::vector<Operation*>& group, Rewriter& rewriter) {
    const Program& program = rewriter.program();
    std::vector<Tensor> weights, biases;  // new parameters move those that are there
    std::vector<int64_t> pieces;
    for (const Operation* op : group) {
      weights.push_back(*ConstantValue(program, op->operand(1)));
      if (HasBias(op)) biases.push_back(*ConstantValue(program, op->operand(2)));
      pieces.push_back(weights.back().dim(weight_axis_));
    }
    const Rewriter::Replacing scope(rewriter, group);
    rewriter.SetInsertionPoint(group.front());
    std::vector<Value> operands{
        group[0]->operand(0),
        rewriter.Parameter("combined_weights", Concatenate(weights, weight_axis_))};
    if (!biases.empty())
      operands.push_back(rewriter.Parameter("combined_bias", Concatenate(biases, 0)));
    const auto attributes = group[0]->attributes().entries();
    const Value all = rewriter.Create(op_, operands, attributes, 1)->result(0);
    const auto rank = static_cast<int64_t>(all.type().cast<AnyTensorType>().rank());
    const Value sizes =
        rewriter.Constant(Tensor::Of<int64_t>({static_cast<int64_t>(pieces.size())}, pieces));
    const NamedAttribute axis = rewriter.Named("axis", rewriter.Attr((result_axis_ + rank) % rank));
    const Value split_operands[] = {all, sizes};
    Operation* split = rewriter.Create("nn.split", split_operands, {&axis, 1}, pieces.size());
    for (size_t i = 0; i < group.size(); ++i) rewriter.ReplaceOp(group[i], split->result(i));
    Count("combined", static_cast<int64_t>(group.size()));
  }

  const char* op_;
  int64_t weight_axis_;
  int64_t result_axis_;
};

class CombineParallelConvPass : public CombineParallelPass {
 public:
  CombineParallelConvPass() : CombineParallelPass("nn.conv", 0, 1) {}
};
class CombineParallelDensePass : public CombineParallelPass {
 public:
  CombineParallelDensePass() : CombineParallelPass("nn.matmul", 1, -1) {}
};

REGISTER_PASS(combine_parallel_conv, CombineParallelConvPass)
    .Doc("makes convolutions of one input that differ in their output channels one convolution")
    .Option("min", PassOption::Kind::kInt, "2", "fewest layers worth combining");
REGISTER_PASS(combine_parallel_dense, CombineParallelDensePass)
    .Doc("makes matrix products of one input with constant matrices one product")
    .Option("min", PassOption::Kind::kInt, "2", "fewest layers worth combining");

}  // namespace lathe
