// Matrix products.
#include <algorithm>
#include <numeric>

#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/matmul.h"
#include "src/external/onednn/node.h"

namespace lathe::onednn {
namespace {

// The last two axes change places in memory.
Layout Matrix(const Dims& dims, bool transposed) {
  if (!transposed) return RowMajor(dims);
  Dims swapped = dims;
  std::swap(swapped[dims.size() - 1], swapped[dims.size() - 2]);
  Dims strides = RowMajor(swapped).get_strides();
  std::swap(strides[dims.size() - 1], strides[dims.size() - 2]);
  return {dims, dnnl::memory::data_type::f32, strides};
}

Dims WithRank(Dims dims, size_t rank) {
  dims.insert(dims.begin(), rank - dims.size(), 1);
  return dims;
}

// An operand of a product: its extents as the product reads it.
struct Factor {
  Value value;
  Dims dims;
  bool transposed;
};

Factor FactorOf(Value value, bool transposed) {
  Factor f{value, DimsOf(value), transposed};
  if (transposed) std::swap(f.dims[f.dims.size() - 1], f.dims[f.dims.size() - 2]);
  return f;
}

Described Product(const dnnl::engine& engine, Factor a, Factor b, Dims y, Value bias) {
  if (a.dims.size() < 2 || b.dims.size() < 2) return {"an operand is a vector", {}};
  if (b.dims.size() == 2 && !a.transposed) {  // all rows of a are rows of one matrix
    const int64_t rows =
        std::accumulate(a.dims.begin(), a.dims.end() - 1, int64_t{1}, std::multiplies<>());
    a.dims = {rows, a.dims.back()};
    y = {rows, y.back()};
  }
  const size_t rank = y.size();
  a.dims = WithRank(a.dims, rank);
  b.dims = WithRank(b.dims, rank);
  const Layout left = Matrix(a.dims, a.transposed), right = Matrix(b.dims, b.transposed);
  Node node{{{DNNL_ARG_SRC, a.value, left}, {DNNL_ARG_WEIGHTS, b.value, right}}, y};
  Layout added;
  if (bias) {
    Dims dims(rank, 1);
    dims.back() = y.back();
    added = RowMajor(dims);
    node.inputs.push_back({DNNL_ARG_BIAS, bias, added});
  }
  // What is the same in every run is packed.
  const Layout weights = IsConstant(b.value) ? AnyLayout(b.dims) : right;
  node.make = [=](const dnnl::primitive_attr& attributes) -> dnnl::primitive_desc {
    return dnnl::matmul::primitive_desc(engine, left, weights, added, RowMajor(y), attributes);
  };
  if (rank == 2 && !a.transposed) {
    node.rows = y[0];
    node.flops = 2.0 * static_cast<double>(y[0]) * static_cast<double>(y[1]) *
                 static_cast<double>(a.dims[1]);
    node.make_part = [=](Rows rows, const Layout& packed, const dnnl::primitive_attr& attributes) {
      const int64_t count = rows.end - rows.begin, depth = a.dims[1];
      return Part{dnnl::matmul::primitive_desc(engine, RowMajor({count, depth}), packed, added,
                                               RowMajor({count, y[1]}), attributes),
                  rows.begin * depth * static_cast<int64_t>(sizeof(float))};
    };
  }
  return {"", std::move(node)};
}

void Scale(Node& node, float factor) {
  if (factor != 1) node.post.push_back({dnnl::algorithm::eltwise_linear, factor});
}

// alpha * a * b + beta * c.
Described DescribeGemm(const dnnl::engine& engine, nn::GemmOp gemm, Value bias) {
  const Dims y = DimsOf(gemm.y());
  const Factor a = FactorOf(gemm.a(), gemm.transA()), b = FactorOf(gemm.b(), gemm.transB());
  const auto alpha = static_cast<float>(gemm.alpha()), beta = static_cast<float>(gemm.beta());
  Value c = beta == 0 ? Value() : gemm.c();
  const bool is_row = c && TensorOf(c).rank() > 0 && DimsOf(c).back() == y[1] &&
                      (TensorOf(c).rank() == 1 || DimsOf(c)[0] == 1);
  if (!c && alpha == 1) return Product(engine, a, b, y, bias);
  if (bias) return {"it adds two biases", {}};
  if (is_row && alpha == 1 && beta == 1) return Product(engine, a, b, y, c);
  Described d = Product(engine, a, b, y, {});
  if (!d.why_not.empty()) return d;
  Scale(d.node, c ? alpha / beta : alpha);
  if (c) {
    const Layout other = RowMajor(WithRank(DimsOf(c), 2));
    const int name =
        DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(d.node.post.size())) | DNNL_ARG_SRC_1;
    d.node.inputs.push_back({name, c, other, other});
    d.node.post.push_back(
        {dnnl::algorithm::binary_add, 0, 0, other, other.get_dims() == d.node.dims});
    Scale(d.node, beta);
  }
  return d;
}

}  // namespace

bool IsBiasOf(const Operation* product, const Operation* next) {
  if (!product->isa<nn::MatmulOp>() && !product->isa<nn::GemmOp>()) return false;
  if (!next->isa<nn::AddOp>()) return false;
  const Value y = product->result(0);
  const Value other = next->operand(next->operand(0) == y ? 1 : 0);
  return TensorOf(next->result(0)) == TensorOf(y) && DimsOf(other) == Dims{DimsOf(y).back()};
}

Described DescribeProduct(const dnnl::engine& engine, Operation* op, Value bias) {
  if (const auto gemm = op->dyn_cast<nn::GemmOp>()) return DescribeGemm(engine, gemm, bias);
  const auto product = op->cast<nn::MatmulOp>();
  if (TensorOf(product.x()).rank() < 2 || TensorOf(product.y()).rank() < 2) {
    return {"an operand is a vector", {}};
  }
  return Product(engine, FactorOf(product.x(), product.transpose_x()),
                 FactorOf(product.y(), product.transpose_y()), DimsOf(product.z()), bias);
}

}  // namespace lathe::onednn
