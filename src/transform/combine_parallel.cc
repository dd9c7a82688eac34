#include <algorithm>
#include <map>
#include <optional>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/ir/context.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

/// `parts` one after the other along `axis`; equal types and other extents.
Tensor ConcatenatedTensor(const std::vector<Tensor>& parts, int64_t axis) {
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
    if (op->name() == nn::kConv && op->attribute("layout")) return false;
    const auto transposed = op->attribute("transpose_y").dyn_cast<BoolAttribute>();
    if (op->name() == nn::kMatmul && (w->rank() != 2 || transposed.value())) return false;
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
        rewriter.Parameter("combined_weights", ConcatenatedTensor(weights, weight_axis_))};
    if (!biases.empty())
      operands.push_back(rewriter.Parameter("combined_bias", ConcatenatedTensor(biases, 0)));
    const auto attributes = group[0]->attributes().entries();
    const Value all = rewriter.Create(op_, operands, attributes, 1)->result(0);
    const auto rank = static_cast<int64_t>(all.type().cast<AnyTensorType>().rank());
    const Value sizes =
        rewriter.Constant(Tensor::Of<int64_t>({static_cast<int64_t>(pieces.size())}, pieces));
    const NamedAttribute axis = rewriter.Named("axis", rewriter.Attr((result_axis_ + rank) % rank));
    const Value split_operands[] = {all, sizes};
    Operation* split = rewriter.Create(nn::kSplit, split_operands, {&axis, 1}, pieces.size());
    for (size_t i = 0; i < group.size(); ++i) rewriter.ReplaceOp(group[i], split->result(i));
    Count("combined", static_cast<int64_t>(group.size()));
    while (split != nullptr) split = RideAlong(split, rewriter);
  }

  /// Where each piece goes into the same elementwise operation and nowhere else, that operation
  /// moves before the split, its constants side by side. The new split, or null.
  Operation* RideAlong(Operation* split, Rewriter& rewriter) {
    const auto axis = split->attribute("axis").cast<IntAttribute>().value();
    std::vector<Operation*> users;
    for (size_t i = 0; i < split->num_results(); ++i) {
      Operation* user = OnlyElementwiseUser(split->result(i));
      if (user == nullptr || !AreAlike(user, users.empty() ? user : users[0])) return nullptr;
      users.push_back(user);
    }
    const size_t at = (*split->result(0).uses().begin()).index();
    std::vector<std::optional<Tensor>> constants;
    for (size_t k = 0; k < users[0]->num_operands(); ++k) {
      constants.emplace_back();
      if (k == at || !users[0]->operand(k)) continue;
      constants[k] = Joined(rewriter.program(), users, k, axis);
      if (!constants[k]) return nullptr;
    }
    const Rewriter::Replacing scope(rewriter, users);
    rewriter.SetInsertionPoint(split);
    std::vector<Value> operands;
    for (size_t k = 0; k < constants.size(); ++k) {
      operands.push_back(k == at        ? split->operand(0)
                         : constants[k] ? rewriter.Parameter("combined_constant", *constants[k])
                                        : Value());
    }
    const auto attributes = users[0]->attributes().entries();
    const Value all = rewriter.Create(users[0]->name(), operands, attributes, 1)->result(0);
    const Value split_operands[] = {all, split->operand(1)};
    Operation* after = rewriter.Create(nn::kSplit, split_operands, split->attributes().entries(),
                                       split->num_results());
    for (size_t i = 0; i < users.size(); ++i) rewriter.ReplaceOp(users[i], after->result(i));
    Count("ride along", static_cast<int64_t>(users.size()));
    return after;
  }

  /// The one reader of a piece, if it computes each of its elements from the same one of the piece.
  static Operation* OnlyElementwiseUser(Value piece) {
    if (!piece.has_one_use()) return nullptr;
    Operation* user = (*piece.uses().begin()).owner();
    const OpKind kind = lathe::KindOf(user);
    const bool keeps = (kind == OpKind::kElementwise || kind == OpKind::kBroadcast) &&
                       user->num_results() == 1 && SameKnownType(user->result(0), piece);
    return keeps && user->block() == piece.parent_block() ? user : nullptr;
  }

  static bool AreAlike(const Operation* a, const Operation* b) {
    if (a->info() != b->info() || a->attributes() != b->attributes() ||
        a->num_operands() != b->num_operands()) {
      return false;
    }
    for (size_t k = 0; k < a->num_operands(); ++k) {
      const bool piece_of_a = a->operand(k) && IsPiece(a->operand(k));
      const bool piece_of_b = b->operand(k) && IsPiece(b->operand(k));
      if (!a->operand(k) != !b->operand(k) || piece_of_a != piece_of_b) return false;
    }
    return true;
  }
  static bool IsPiece(Value v) {
    return v.defining_op() != nullptr && v.defining_op()->name() == nn::kSplit;
  }

  /// Operand k of all users as one constant: the same scalar for each, or pieces along the axis.
  static std::optional<Tensor> Joined(const Program& program, const std::vector<Operation*>& users,
                                      size_t k, int64_t axis) {
    std::vector<Tensor> parts;
    for (const Operation* user : users) {
      const Tensor* t = ConstantValue(program, user->operand(k));
      if (t == nullptr) return std::nullopt;
      parts.push_back(*t);
    }
    const auto rank = static_cast<int64_t>(users[0]->result(0).type().cast<AnyTensorType>().rank());
    const int64_t own_axis = axis - rank + parts[0].rank();
    bool equal = true, pieces = own_axis >= 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      equal &= parts[i].num_elements() == 1 && parts[i] == parts[0];
      if (!pieces) continue;
      Shape shape = parts[0].shape();
      pieces = parts[i].rank() == parts[0].rank();
      const Dim extent =
          users[i]->result(0).type().cast<AnyTensorType>().dims()[static_cast<size_t>(axis)];
      if (!pieces || !extent.is_constant()) return std::nullopt;
      shape[static_cast<size_t>(own_axis)] = extent.value();
      pieces = parts[i].shape() == shape;
    }
    if (equal) return parts[0];
    return pieces ? std::optional(ConcatenatedTensor(parts, own_axis)) : std::nullopt;
  }

  const char* op_;
  int64_t weight_axis_;
  int64_t result_axis_;
};

class CombineParallelConvPass : public CombineParallelPass {
 public:
  CombineParallelConvPass() : CombineParallelPass(nn::kConv, 0, 1) {}
};
class CombineParallelDensePass : public CombineParallelPass {
 public:
  CombineParallelDensePass() : CombineParallelPass(nn::kMatmul, 1, -1) {}
};

REGISTER_PASS(combine_parallel_conv, CombineParallelConvPass)
    .Doc("makes convolutions of one input that differ in their output channels one convolution")
    .Option("min", PassOption::Kind::kInt, "2", "fewest layers worth combining")
    .AtLeast(2);
REGISTER_PASS(combine_parallel_dense, CombineParallelDensePass)
    .Doc("makes matrix products of one input with constant matrices one product")
    .Option("min", PassOption::Kind::kInt, "2", "fewest layers worth combining")
    .AtLeast(2);

}  // namespace lathe
