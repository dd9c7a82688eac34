// Softmax and layer normalization.
#include "lathe/dialect/nn/norm.h"
#include "src/external/onednn/node.h"

namespace lathe::onednn {
namespace {

template <class OpT>
Described DescribeSoftmax(const dnnl::engine& engine, OpT softmax, dnnl::algorithm kind) {
  const Dims dims = DimsOf(softmax.x());
  const auto rank = static_cast<int64_t>(dims.size());
  const auto axis = static_cast<int>(softmax.axis() < 0 ? softmax.axis() + rank : softmax.axis());
  Node node{{{DNNL_ARG_SRC, softmax.x(), RowMajor(dims)}}, dims};
  node.make = [=](const dnnl::primitive_attr& attributes) -> dnnl::primitive_desc {
    return dnnl::softmax_forward::primitive_desc(engine, dnnl::prop_kind::forward_inference, kind,
                                                 RowMajor(dims), RowMajor(dims), axis, attributes);
  };
  return {"", std::move(node)};
}

}  // namespace

Described DescribeRows(const dnnl::engine& engine, Operation* op) {
  if (const auto softmax = op->dyn_cast<nn::SoftmaxOp>()) {
    return DescribeSoftmax(engine, softmax, dnnl::algorithm::softmax_accurate);
  }
  if (const auto softmax = op->dyn_cast<nn::LogSoftmaxOp>()) {
    return DescribeSoftmax(engine, softmax, dnnl::algorithm::softmax_log);
  }
  const auto norm = op->cast<nn::LayerNormalizationOp>();
  const Dims dims = DimsOf(norm.x());
  const auto rank = static_cast<int64_t>(dims.size());
  if (op->num_results() > 1) return {"it gives the mean", {}};
  if (norm.axis() != -1 && norm.axis() != rank - 1) return {"it is over more than one axis", {}};
  if (rank < 2) return {"it has one row", {}};
  const Dims row{dims.back()};
  if (DimsOf(norm.scale()) != row || (norm.b() && DimsOf(norm.b()) != row)) {
    return {"its scale or shift is not a row", {}};
  }
  Node node{
      {{DNNL_ARG_SRC, norm.x(), RowMajor(dims)}, {DNNL_ARG_SCALE, norm.scale(), RowMajor(row)}},
      dims};
  auto flags = dnnl::normalization_flags::use_scale;
  if (norm.b()) {
    flags = flags | dnnl::normalization_flags::use_shift;
    node.inputs.push_back({DNNL_ARG_SHIFT, norm.b(), RowMajor(row)});
  }
  const auto epsilon = static_cast<float>(norm.epsilon());
  node.make = [=](const dnnl::primitive_attr& attributes) -> dnnl::primitive_desc {
    return dnnl::layer_normalization_forward::primitive_desc(
        engine, dnnl::prop_kind::forward_inference, RowMajor(dims), RowMajor(dims), epsilon, flags,
        attributes);
  };
  return {"", std::move(node)};
}

}  // namespace lathe::onednn
