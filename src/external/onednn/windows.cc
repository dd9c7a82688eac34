// Convolutions and pooling.
#include <algorithm>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/pool.h"
#include "src/dialect/nn/window.h"
#include "src/external/onednn/node.h"

namespace lathe::onednn {
namespace {

using dnnl::algorithm;
using dnnl::prop_kind;

Dims SpatialOf(const Dims& dims) { return {dims.begin() + 2, dims.end()}; }

// As oneDNN has it: dilations less one, and ends such that all windows fit.
struct Steps {
  Dims strides, dilations, begins, ends;
  bool cut = false;      // the last window is larger than the padding
  bool outside = false;  // a window may hold nothing but padding
};

Steps StepsOf(const nn::Window& w) {
  Steps steps{w.strides, {}, w.begins, w.ends};
  for (size_t d = 0; d < w.rank(); ++d) {
    steps.dilations.push_back(w.dilations[d] - 1);
    const int64_t reach = (w.kernel[d] - 1) * w.dilations[d] + 1;
    steps.outside |= w.begins[d] >= reach || w.ends[d] >= reach;
    const int64_t room = w.in[d] + w.begins[d] + w.ends[d] - reach;
    if (room >= 0 && room / w.strides[d] + 1 == w.out[d]) continue;
    steps.ends[d] = (w.out[d] - 1) * w.strides[d] + reach - w.in[d] - w.begins[d];
    steps.cut = true;
  }
  return steps;
}

std::string WhyNotImage(const Dims& dims) {
  return dims.size() >= 3 && dims.size() <= 5 ? "" : "it has no one to three spatial axes";
}

// Rows of images or, of a single one, of its outermost axis.
struct ConvRows {
  Dims x, y;
  Steps steps;
  int64_t read = 0;
};

ConvRows RowsOf(const Dims& x, const Dims& y, const nn::Window& w, const Steps& all, Rows rows) {
  ConvRows part{x, y, all};
  auto bytes = static_cast<int64_t>(sizeof(float));
  for (const int64_t extent : x) bytes *= extent;
  const int64_t count = rows.end - rows.begin;
  if (x[0] > 1) {
    part.x[0] = part.y[0] = count;
    part.read = bytes / x[0] * rows.begin;
    return part;
  }
  const int64_t reach = (w.kernel[0] - 1) * w.dilations[0] + 1;
  const int64_t begin = rows.begin * w.strides[0] - w.begins[0];
  const int64_t end = (rows.end - 1) * w.strides[0] - w.begins[0] + reach;
  part.steps.begins[0] = std::max<int64_t>(-begin, 0);
  part.steps.ends[0] = std::max<int64_t>(end - x[2], 0);
  part.x[2] = std::min(end, x[2]) - std::max<int64_t>(begin, 0);
  part.y[2] = count;
  part.read = bytes / x[2] * std::max<int64_t>(begin, 0);
  return part;
}

template <class OpT>
Described DescribeWindows(const dnnl::engine& engine, OpT pool, algorithm kind) {
  const Dims x = DimsOf(pool.x()), y = DimsOf(pool.y());
  const Dims kernel = pool.kernel_shape();
  const nn::Window w = nn::ResolveWindow(nn::WindowOf(pool), SpatialOf(x), kernel);
  const Steps steps = StepsOf(w);
  if (kind == algorithm::pooling_avg_include_padding && steps.cut) {
    return {"windows that are cut off count what is inside only", {}};
  }
  if (steps.outside) return {"a window may hold nothing but padding", {}};
  Node node{{{DNNL_ARG_SRC, pool.x(), RowMajor(x)}}, y, true};
  node.make = [=](const dnnl::primitive_attr& attributes) -> dnnl::primitive_desc {
    return dnnl::pooling_forward::primitive_desc(
        engine, prop_kind::forward_inference, kind, ChannelsLast(x), ChannelsLast(y), steps.strides,
        kernel, steps.dilations, steps.begins, steps.ends, attributes);
  };
  return {"", std::move(node)};
}

template <class OpT>
Described DescribeGlobal(const dnnl::engine& engine, OpT pool, algorithm kind) {
  const Dims x = DimsOf(pool.x()), y = DimsOf(pool.y());
  const Dims ones(x.size() - 2, 1), zeros(x.size() - 2, 0);
  Node node{{{DNNL_ARG_SRC, pool.x(), RowMajor(x)}}, y, true};
  node.make = [=](const dnnl::primitive_attr& attributes) -> dnnl::primitive_desc {
    return dnnl::pooling_forward::primitive_desc(engine, prop_kind::forward_inference, kind,
                                                 ChannelsLast(x), ChannelsLast(y), ones,
                                                 SpatialOf(x), zeros, zeros, zeros, attributes);
  };
  return {"", std::move(node)};
}

template <class OpT>
std::string WhyNotPool(OpT pool) {
  if (pool.layout() == "NHWC") return "it has its channels last";
  return WhyNotImage(DimsOf(pool.x()));
}

}  // namespace

Described DescribeConv(const dnnl::engine& engine, Operation* op) {
  const auto conv = op->cast<nn::ConvOp>();
  if (conv.layout() == "NHWC") return {"it has its channels last", {}};
  const Dims x = DimsOf(conv.x()), y = DimsOf(conv.y());
  Dims w = DimsOf(conv.w());
  if (const std::string why = WhyNotImage(x); !why.empty()) return {why, {}};
  const nn::Window window = nn::ResolveWindow(nn::WindowOf(conv), SpatialOf(x), SpatialOf(w));
  const Steps steps = StepsOf(window);
  if (conv.group() > 1) {
    w[0] /= conv.group();
    w.insert(w.begin(), conv.group());
  }
  Node node{
      {{DNNL_ARG_SRC, conv.x(), RowMajor(x)}, {DNNL_ARG_WEIGHTS, conv.w(), RowMajor(w)}}, y, true};
  const Layout bias = conv.b() ? RowMajor({y[1]}) : Layout();
  if (conv.b()) node.inputs.push_back({DNNL_ARG_BIAS, conv.b(), bias});
  const auto make = [=](const Dims& from, const Layout& weights, const Dims& to, const Steps& how,
                        const dnnl::primitive_attr& attributes) -> dnnl::primitive_desc {
    // Direct: no transform that rounds otherwise.
    return dnnl::convolution_forward::primitive_desc(
        engine, prop_kind::forward_inference, algorithm::convolution_direct, ChannelsLast(from),
        weights, bias, ChannelsLast(to), how.strides, how.dilations, how.begins, how.ends,
        attributes);
  };
  node.make = [=](const dnnl::primitive_attr& attributes) {
    return make(x, AnyLayout(w), y, steps, attributes);
  };
  if (steps.outside) return {"", std::move(node)};
  node.rows = x[0] > 1 ? y[0] : y[2];
  node.flops = 2.0 / static_cast<double>(y[1]);
  for (const int64_t extent : y) node.flops *= static_cast<double>(extent);
  for (const int64_t extent : w) node.flops *= static_cast<double>(extent);
  node.make_part = [=](Rows rows, const Layout& weights, const dnnl::primitive_attr& attributes) {
    const ConvRows part = RowsOf(x, y, window, steps, rows);
    return Part{make(part.x, weights, part.y, part.steps, attributes), part.read};
  };
  return {"", std::move(node)};
}

Described DescribePool(const dnnl::engine& engine, Operation* op) {
  if (const auto pool = op->dyn_cast<nn::MaxPoolOp>()) {
    if (op->num_results() > 1) return {"it gives indices", {}};
    if (const std::string why = WhyNotPool(pool); !why.empty()) return {why, {}};
    return DescribeWindows(engine, pool, algorithm::pooling_max);
  }
  if (const auto pool = op->dyn_cast<nn::AveragePoolOp>()) {
    if (const std::string why = WhyNotPool(pool); !why.empty()) return {why, {}};
    return DescribeWindows(engine, pool,
                           pool.count_include_pad() ? algorithm::pooling_avg_include_padding
                                                    : algorithm::pooling_avg_exclude_padding);
  }
  if (const auto pool = op->dyn_cast<nn::GlobalMaxPoolOp>()) {
    if (const std::string why = WhyNotPool(pool); !why.empty()) return {why, {}};
    return DescribeGlobal(engine, pool, algorithm::pooling_max);
  }
  const auto pool = op->cast<nn::GlobalAveragePoolOp>();
  if (const std::string why = WhyNotPool(pool); !why.empty()) return {why, {}};
  return DescribeGlobal(engine, pool, algorithm::pooling_avg_exclude_padding);
}

}  // namespace lathe::onednn
