#include <algorithm>
#include <bit>
#include <string_view>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/nn/pool.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/traits.h"
#include "src/external/onednn/node.h"

namespace lathe::onednn {
namespace {

// oneDNN has no more axes.
constexpr size_t kMaxRank = DNNL_MAX_NDIMS;

std::string WhyNot(Value v) {
  if (!v) return {};
  const auto type = v.type().dyn_cast<AnyTensorType>();
  if (!type) return "an operand is not a tensor";
  if (type.element() != ElementType::kF32) return "it is not all f32";
  if (!type.is_static()) return "its shape is known only when the program runs";
  const auto is_empty = [](const Dim& d) { return d.IsConstant(0); };
  if (std::ranges::any_of(type.dims(), is_empty)) return "it has no elements";
  return type.rank() > kMaxRank ? "it has too many axes" : "";
}

std::string WhyNot(Operation* op) {
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (std::string why = WhyNot(op->operand(i)); !why.empty()) return why;
  }
  if (op->num_results() == 0 || !op->result(0)) return "it has no result";
  if (std::string why = WhyNot(op->result(0)); !why.empty()) return why;
  return TensorOf(op->result(0)).rank() == 0 ? "it is a scalar" : "";
}

bool IsPool(const Operation* op) {
  return op->isa<nn::MaxPoolOp>() || op->isa<nn::AveragePoolOp>() ||
         op->isa<nn::GlobalMaxPoolOp>() || op->isa<nn::GlobalAveragePoolOp>();
}

bool IsRows(const Operation* op) {
  return op->isa<nn::SoftmaxOp>() || op->isa<nn::LogSoftmaxOp>() ||
         op->isa<nn::LayerNormalizationOp>();
}

}  // namespace

bool IsConstant(Value v) {
  const Operation* maker = v.defining_op();
  return maker != nullptr &&
         (maker->HasTrait<ConstantLike>() || maker->isa<builtin::GetParameterOp>());
}

bool TakesFollowers(const Operation* op) {
  return op->isa<nn::ConvOp>() || op->isa<nn::MatmulOp>() || op->isa<nn::GemmOp>();
}

bool IsAnchor(const Operation* op) { return TakesFollowers(op) || IsPool(op) || IsRows(op); }

bool IsFast(const dnnl::primitive_desc& primitive) {
  return !std::string_view(primitive.impl_info_str()).starts_with("ref");
}

dnnl::primitive_attr Node::AttributesOf(const Dims& result) const {
  dnnl::post_ops ops;
  for (const Post& p : post) {
    if (!p.other) {
      ops.append_eltwise(p.kind, p.alpha, p.beta);
    } else if (!p.whole) {
      ops.append_binary(p.kind, *p.other);
    } else {
      ops.append_binary(p.kind, channels_last ? ChannelsLast(result) : RowMajor(result));
    }
  }
  return AttributesWith(ops);
}

Part Node::MakePart(Rows part, const Layout& weights) const {
  Dims result = dims;
  // The rows are those of the first axis, or of the third if the first is 1.
  result[result[0] == rows ? 0 : 2] = part.end - part.begin;
  return make_part(part, weights, AttributesOf(result));
}

int64_t Node::NumParts() const {
  constexpr double kFlops = 8e6;      // some 30 microseconds
  constexpr int64_t kPositions = 64;  // that share what is read of the weights
  constexpr int64_t kMost = 8;
  if (!make_part) return 1;
  int64_t positions = 1;
  for (const int64_t extent : dims) positions *= extent;
  positions /= channels_last ? dims[1] : dims.back();
  const int64_t most =
      std::min({kMost, rows, positions / kPositions, static_cast<int64_t>(flops / kFlops)});
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(most, 1))));
}

Described Describe(const dnnl::engine& engine, Operation* op, const DescribeOptions& options) {
  if (std::string why = WhyNot(op); !why.empty()) return {std::move(why), {}};
  if (op->isa<nn::ConvOp>()) return DescribeConv(engine, op);
  if (op->isa<nn::MatmulOp>() || op->isa<nn::GemmOp>()) {
    return DescribeProduct(engine, op, options.bias);
  }
  if (IsPool(op)) return DescribePool(engine, op);
  if (IsRows(op)) return DescribeRows(engine, op);
  if (op->isa<nn::ConcatOp>()) return DescribeConcat(engine, op, options.channels_last);
  return DescribeElementwise(engine, op, options.channels_last);
}

}  // namespace lathe::onednn
