#include "src/dialect/nn/product.h"

#include <algorithm>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/parallel.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/gemm.h"

namespace lathe::nn {
namespace {

// An operand as a stack of matrices; a vector gets a dim of 1 on its outer side.
template <class Extent>
struct Stack {
  std::vector<Extent> batch;
  Extent rows, columns;
};

template <class Extent>
Stack<Extent> StackOf(std::span<const Extent> dims, bool is_left, bool transposed) {
  if (dims.empty()) eval::FailShape("shape/matmul", "an operand of a matrix product is a scalar");
  if (dims.size() == 1) {
    return is_left ? Stack<Extent>{{}, 1, dims[0]} : Stack<Extent>{{}, dims[0], 1};
  }
  const Extent& a = dims[dims.size() - 2];
  const Extent& b = dims.back();
  return {{dims.begin(), dims.end() - 2}, transposed ? b : a, transposed ? a : b};
}

// The matrices of all batches: where each starts, and the layout that they share.
struct Side {
  const Tensor& tensor;
  int64_t rows, columns;
  bool transposed;

  template <class Acc>
  [[nodiscard]] eval::BlockReader<Acc> At(int64_t offset) const {
    return transposed ? eval::MatrixOf<Acc>(tensor, offset, 1, rows)
                      : eval::MatrixOf<Acc>(tensor, offset, columns, 1);
  }
};

struct Batch {
  int64_t x, y;  // element offsets
};

std::vector<Batch> BatchesOf(const Shape& x, const Shape& y, const Shape& all, int64_t x_size,
                             int64_t y_size) {
  const Shape shapes[] = {x, y};
  const eval::Broadcaster rows(shapes, all);
  std::vector<Batch> batches;
  rows.ForEachRow([&](int64_t, std::span<const int64_t> at) {
    for (int64_t i = 0; i < rows.row_length(); ++i) {
      batches.push_back(
          {(at[0] + i * rows.stride(0)) * x_size, (at[1] + i * rows.stride(1)) * y_size});
    }
  });
  return batches;
}

template <class Acc>
void MultiplyOne(const Side& x, const Side& y, const Batch& at, Tensor& result, std::byte* data,
                 int64_t offset) {
  eval::MatrixProduct<Acc> product{x.rows, y.columns, x.columns, {}, {}, {}};
  product.a = x.At<Acc>(at.x);
  product.b = y.At<Acc>(at.y);
  const ElementType type = result.element_type();
  product.c = [&, type](int64_t r0, int64_t r1, int64_t c0, int64_t c1, const Acc* in, int64_t ld) {
    for (int64_t r = r0; r < r1; ++r, in += ld) {
      eval::Store<Acc>(type, data, offset + r * y.columns + c0, c1 - c0, in);
    }
  };
  eval::Multiply(product);
}

template <class Acc>
void MultiplyAll(const Side& x, const Side& y, const std::vector<Batch>& batches, Tensor& result) {
  std::byte* data = result.mutable_raw();
  const int64_t size = x.rows * y.columns;
  if (batches.size() == 1) return MultiplyOne<Acc>(x, y, batches[0], result, data, 0);
  ParallelFor(0, static_cast<int64_t>(batches.size()), 1, [&](int64_t i, int64_t) {
    MultiplyOne<Acc>(x, y, batches[static_cast<size_t>(i)], result, data, i * size);
  });
}

}  // namespace

SymShape ProductShape(const SymShape& x, const SymShape& y, bool transpose_x, bool transpose_y) {
  if (!x.ranked || !y.ranked) return {};
  const auto left = StackOf<Dim>(x.dims, true, transpose_x);
  const auto right = StackOf<Dim>(y.dims, false, transpose_y);
  Assume(
      SizeCondition::Equal(left.columns, right.rows), "shape/matmul",
      [&] {
        return StrCat("the operands ", x.ToString(), " and ", y.ToString(),
                      " do not fit: ", left.columns.ToString(), " columns on the left, ",
                      right.rows.ToString(), " rows on the right");
      },
      "transpose one of them, or check which weights go with which input");
  SymShape result = Broadcast(SymShape(left.batch), SymShape(right.batch));
  if (x.rank() > 1) result.dims.push_back(left.rows);
  if (y.rank() > 1) result.dims.push_back(right.columns);
  return result;
}

Tensor Product(const Tensor& x, const Tensor& y, bool transpose_x, bool transpose_y,
               ElementType type) {
  const SymShape shape = ProductShape(SymShape::FromConstants(x.shape()),
                                      SymShape::FromConstants(y.shape()), transpose_x, transpose_y);
  Tensor result(type, shape.Constants().value());
  if (result.num_elements() == 0) return result;
  auto left = StackOf<int64_t>(x.shape(), true, transpose_x);
  auto right = StackOf<int64_t>(y.shape(), false, transpose_y);
  const bool transposed = transpose_x && x.rank() > 1;
  if (right.batch.empty() && !transposed) {  // one matrix on the right: stack the rows on the left
    left.rows *= NumElements(left.batch);
    left.batch.clear();
  }
  const Shape shapes[] = {left.batch, right.batch};
  const Side a{x, left.rows, left.columns, transposed};
  const Side b{y, right.rows, right.columns, transpose_y && y.rank() > 1};
  const auto batches = BatchesOf(left.batch, right.batch, eval::BroadcastShapes(shapes),
                                 left.rows * left.columns, right.rows * right.columns);
  if (IsFloat(x.element_type())) {
    MultiplyAll<double>(a, b, batches, result);
  } else {
    MultiplyAll<uint64_t>(a, b, batches, result);
  }
  return result;
}

Dim ProductFlops(const SymShape& result, const SymShape& x, bool transpose_x) {
  if (x.dims.empty()) return Dim::Unknown();
  return 2 * result.NumElements() * StackOf<Dim>(x.dims, true, transpose_x).columns;
}

}  // namespace lathe::nn
