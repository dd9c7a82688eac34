// Operations on elements: on their own, and as part of what computes their operand.
#include <algorithm>
#include <limits>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/support/tensor.h"
#include "lathe/support/text.h"
#include "src/external/onednn/node.h"

namespace lathe::onednn {
namespace {

using dnnl::algorithm;

struct Unary {
  algorithm kind;
  float alpha = 0, beta = 0;
};

std::optional<float> ScalarOf(Value v, float absent) {
  if (!v) return absent;
  const Operation* maker = v.defining_op();
  if (maker == nullptr || !maker->isa<builtin::ConstantOp>()) return std::nullopt;
  const auto value = maker->attribute("value").dyn_cast<TensorAttribute>();
  if (!value || value.value().num_elements() != 1) return std::nullopt;
  return static_cast<float>(ToDoubles(value.value())[0]);
}

std::optional<Unary> ActivationOf(Operation* op) {
  if (op->isa<nn::ReluOp>()) return Unary{algorithm::eltwise_relu};
  if (op->isa<nn::SigmoidOp>()) return Unary{algorithm::eltwise_logistic};
  if (op->isa<nn::MishOp>()) return Unary{algorithm::eltwise_mish};
  if (op->isa<nn::HardSwishOp>()) return Unary{algorithm::eltwise_hardswish, 1.0F / 6, 0.5F};
  if (const auto f = op->dyn_cast<nn::LeakyReluOp>()) {
    return Unary{algorithm::eltwise_relu, static_cast<float>(f.alpha())};
  }
  if (const auto f = op->dyn_cast<nn::EluOp>()) {
    return Unary{algorithm::eltwise_elu, static_cast<float>(f.alpha())};
  }
  if (const auto f = op->dyn_cast<nn::GeluOp>()) {
    const bool exact = f.approximate() == "none";
    return Unary{exact ? algorithm::eltwise_gelu_erf : algorithm::eltwise_gelu_tanh};
  }
  if (const auto f = op->dyn_cast<nn::SwishOp>()) {
    return Unary{algorithm::eltwise_swish, static_cast<float>(f.alpha())};
  }
  if (const auto f = op->dyn_cast<nn::HardSigmoidOp>()) {
    return Unary{algorithm::eltwise_hardsigmoid, static_cast<float>(f.alpha()),
                 static_cast<float>(f.beta())};
  }
  return std::nullopt;
}

std::optional<Unary> UnaryOf(Operation* op) {
  if (const auto activation = ActivationOf(op)) return activation;
  if (op->isa<nn::TanhOp>()) return Unary{algorithm::eltwise_tanh};
  if (op->isa<nn::AbsOp>()) return Unary{algorithm::eltwise_abs};
  if (op->isa<nn::SqrtOp>()) return Unary{algorithm::eltwise_sqrt};
  if (op->isa<nn::ExpOp>()) return Unary{algorithm::eltwise_exp};
  if (const auto clip = op->dyn_cast<nn::ClipOp>()) {
    constexpr float kMost = std::numeric_limits<float>::max();
    const auto low = ScalarOf(clip.min(), -kMost), high = ScalarOf(clip.max(), kMost);
    if (low && high && *low <= *high) return Unary{algorithm::eltwise_clip, *low, *high};
  }
  return std::nullopt;
}

std::optional<algorithm> BinaryOf(const Operation* op) {
  if (op->isa<nn::AddOp>()) return algorithm::binary_add;
  if (op->isa<nn::SubOp>()) return algorithm::binary_sub;
  if (op->isa<nn::MulOp>()) return algorithm::binary_mul;
  if (op->isa<nn::DivOp>()) return algorithm::binary_div;
  return std::nullopt;
}

bool Commutes(algorithm kind) {
  return kind == algorithm::binary_add || kind == algorithm::binary_mul;
}

Dims WithRank(Dims dims, size_t rank) {
  dims.insert(dims.begin(), rank - dims.size(), 1);
  return dims;
}

Layout Arranged(const Dims& dims, bool channels_last) {
  return channels_last ? ChannelsLast(dims) : RowMajor(dims);
}

// How a primitive reads the other operand: `full`, the type of the result, may be a matrix of its
// rows to the primitive.
std::optional<Dims> OtherOf(const Node& node, const Dims& full, Dims other) {
  other = WithRank(std::move(other), full.size());
  if (node.dims == full) return other;
  if (other == full) return node.dims;
  const auto is_one = [](int64_t extent) { return extent == 1; };
  if (!std::all_of(other.begin(), other.end() - 1, is_one)) return std::nullopt;
  return Dims{1, other.back()};
}

Described DescribeUnary(const dnnl::engine& engine, Operation* op, Unary unary,
                        bool channels_last) {
  const Dims dims = DimsOf(op->result(0));
  const Layout layout = Arranged(dims, channels_last);
  Node node{{{DNNL_ARG_SRC, op->operand(0), RowMajor(dims), layout}}, dims, channels_last};
  node.make = [=](const dnnl::primitive_attr& attributes) -> dnnl::primitive_desc {
    return dnnl::eltwise_forward::primitive_desc(engine, dnnl::prop_kind::forward_inference,
                                                 unary.kind, layout, layout, unary.alpha,
                                                 unary.beta, attributes);
  };
  return {"", std::move(node)};
}

Described DescribeBinary(const dnnl::engine& engine, Operation* op, algorithm kind,
                         bool channels_last) {
  const Dims dims = DimsOf(op->result(0));
  Value a = op->operand(0), b = op->operand(1);
  if (DimsOf(a) != dims && Commutes(kind)) std::swap(a, b);
  if (DimsOf(a) != dims) return {"its first operand is broadcast", {}};
  const Dims other = WithRank(DimsOf(b), dims.size());
  const Layout layout = Arranged(dims, channels_last);
  const Layout second = other == dims ? layout : RowMajor(other);
  Node node{
      {{DNNL_ARG_SRC_0, a, RowMajor(dims), layout}, {DNNL_ARG_SRC_1, b, RowMajor(other), second}},
      dims,
      channels_last};
  node.make = [=](const dnnl::primitive_attr& attributes) -> dnnl::primitive_desc {
    return dnnl::binary::primitive_desc(engine, kind, layout, second, layout, attributes);
  };
  return {"", std::move(node)};
}

}  // namespace

bool Follow(Node& node, Operation* op, Value result) {
  if (const auto unary = UnaryOf(op)) {
    if (op->operand(0) != result) return false;
    node.post.push_back({unary->kind, unary->alpha, unary->beta});
    return true;
  }
  const auto kind = BinaryOf(op);
  if (!kind || TensorOf(op->result(0)) != TensorOf(result)) return false;
  const bool first = op->operand(0) == result;
  if (!first && !Commutes(*kind)) return false;
  const Value other = op->operand(first ? 1 : 0);
  if (other == result) return false;
  const Dims full = DimsOf(result);
  const auto dims = OtherOf(node, full, DimsOf(other));
  if (!dims) return false;
  const bool whole = *dims == node.dims;
  const Layout layout = whole ? Arranged(*dims, node.channels_last) : RowMajor(*dims);
  const int name =
      DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(node.post.size())) | DNNL_ARG_SRC_1;
  node.inputs.push_back({name, other, RowMajor(*dims), layout});
  node.post.push_back({*kind, 0, 0, layout, whole});
  return true;
}

Described DescribeElementwise(const dnnl::engine& engine, Operation* op, bool channels_last) {
  if (const auto unary = UnaryOf(op)) return DescribeUnary(engine, op, *unary, channels_last);
  if (const auto kind = BinaryOf(op)) return DescribeBinary(engine, op, *kind, channels_last);
  if (op->isa<nn::ClipOp>()) return {"its limits are not constants", {}};
  return {StrCat("it does not know ", op->name()), {}};
}

Described DescribeConcat(const dnnl::engine& engine, Operation* op, bool channels_last) {
  const auto concat = op->cast<nn::ConcatOp>();
  const Dims dims = DimsOf(op->result(0));
  const auto rank = static_cast<int64_t>(dims.size());
  const auto axis = static_cast<int>(concat.axis() < 0 ? concat.axis() + rank : concat.axis());
  std::vector<Layout> sources;
  Node node{{}, dims, channels_last};
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Dims part = DimsOf(op->operand(i));
    sources.push_back(Arranged(part, channels_last));
    node.inputs.push_back({DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i), op->operand(i),
                           RowMajor(part), sources.back()});
  }
  const Layout result = Arranged(dims, channels_last);
  node.make = [=](const dnnl::primitive_attr& attributes) -> dnnl::primitive_desc {
    return Generic(dnnl::concat::primitive_desc(engine, result, axis, sources, attributes));
  };
  return {"", std::move(node)};
}

}  // namespace lathe::onednn
