#include "src/lower/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lathe/lower/lowering.h"
#include "lathe/support/random.h"

namespace lathe::lower {
namespace {

// Element by element, as PackedLayout says it.
Tensor Spelled(const Tensor& tensor, const PackedLayout& layout) {
  const auto strides_of = [](const Shape& shape) {
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    return strides;
  };
  const Shape shape = layout.shape();
  Tensor result(ElementType::kF32, shape);
  const auto out = strides_of(shape), split = strides_of(layout.split);
  const auto padded = strides_of(layout.padded), in = strides_of(tensor.shape());
  for (int64_t i = 0; i < result.num_elements(); ++i) {
    int64_t at = 0;  // in the split, which is the padded tensor's order
    for (size_t k = 0; k < shape.size(); ++k) {
      at += i / out[k] % shape[k] * split[static_cast<size_t>(layout.order[k])];
    }
    int64_t from = 0;
    bool inside = true;
    for (size_t k = 0; k < padded.size(); ++k) {
      const int64_t index = at / padded[k] % layout.padded[k];
      inside = inside && index < tensor.shape()[k];
      from += index * in[k];
    }
    if (!inside) continue;
    const auto source = static_cast<size_t>(from);
    result.mutable_data<float>()[static_cast<size_t>(i)] = tensor.data<float>()[source];
  }
  return result;
}

void Check(const Shape& shape, const PackedLayout& layout) {
  const Tensor tensor = RandomTensor(ElementType::kF32, shape, 1);
  EXPECT_EQ(Pack(tensor, layout), Spelled(tensor, layout)) << ShapeToString(shape);
}

TEST(PackTest, WhatIsNoMultipleIsZeroed) {
  for (const int64_t rows : {1, 15, 16, 17, 31, 48}) {
    for (const int64_t columns : {1, 3, 4, 7}) {
      Check({rows, columns}, {.padded = {48, 8}, .split = {3, 16, 2, 4}, .order = {0, 2, 3, 1}});
      Check({rows, columns}, {.padded = {48, 8}, .split = {48, 8}, .order = {1, 0}});
    }
  }
}

TEST(PackTest, AxesAreSplitIntoMoreThanTwo) {
  for (const int64_t extent : {1, 5, 6, 7, 23, 24, 47}) {
    Check({extent, 5}, {.padded = {48, 6}, .split = {2, 4, 6, 3, 2}, .order = {3, 0, 2, 4, 1}});
  }
}

TEST(PackTest, AxesOfOne) {
  Check({33, 20, 1, 1},
        {.padded = {48, 32, 1, 1}, .split = {3, 16, 2, 16, 1, 1}, .order = {0, 2, 4, 5, 3, 1}});
  Check({33, 1, 3, 3},
        {.padded = {48, 1, 3, 3}, .split = {3, 16, 1, 3, 3}, .order = {0, 3, 4, 1, 2}});
  Check({1, 1}, {.padded = {1, 1}, .split = {1, 1}, .order = {1, 0}});
  Check({33, 1, 3}, {.padded = {48, 1, 3}, .split = {3, 16, 3, 1}, .order = {0, 2, 3, 1}});
}

TEST(PackTest, ASplitAcrossAxes) {
  Check({5, 6}, {.padded = {6, 6}, .split = {4, 9}, .order = {1, 0}});
  Check({5, 6}, {.padded = {5, 6}, .split = {2, 15}, .order = {1, 0}});
}

TEST(PackTest, SeveralOrdersLieBehindOneAnother) {
  const Tensor tensor = RandomTensor(ElementType::kF32, {5, 7}, 1);
  const PackedLayout turned{.padded = {8, 7}, .split = {8, 7}, .order = {1, 0}};
  const PackedLayout split{.padded = {6, 8}, .split = {2, 3, 8}, .order = {0, 2, 1}};
  PackedLayout both;
  both.parts = {turned, split};
  EXPECT_EQ(both.shape(), Shape{128});
  EXPECT_EQ(both.part_begin(1), 64);
  const Tensor packed = Pack(tensor, both);
  for (size_t i = 0; i < 2; ++i) {
    const Tensor part = Pack(tensor, both.parts[i]);
    const auto from = static_cast<size_t>(both.part_begin(i));
    EXPECT_TRUE(std::ranges::equal(
        packed.data<float>().subspan(from, static_cast<size_t>(part.num_elements())),
        part.data<float>()));
  }
  PackedLayout swapped = both;
  std::swap(swapped.parts[0], swapped.parts[1]);
  EXPECT_TRUE(IsSameOrder(both, both));
  EXPECT_FALSE(IsSameOrder(both, swapped));
}

// Computed side by side for sixteen rows of two axes: each is the sum by itself, in the order of
// its elements; what a factor of zero leaves out may be infinite.
TEST(PackTest, SumsOfTheLastAxes) {
  const std::vector<double> factors = {1, 0, 0.1, -3, 0, 0, 1e-3, 7, 0, 0, 0, 2};
  const PackedLayout order{.padded = {0, 2}, .split = {0, 2}, .order = {1, 0}};
  for (const int64_t rows : {1, 15, 16, 17, 37}) {
    Tensor tensor = RandomTensor(ElementType::kF32, {rows, 2, 3}, 1);
    for (int64_t r = 0; r < rows; ++r) {
      tensor.mutable_data<float>()[static_cast<size_t>(r) * 6 + 4] = INFINITY;
    }
    PackedLayout layout = order;
    layout.padded[0] = layout.split[0] = rows;
    layout.sums = factors;
    layout.summed = 6;
    Tensor expected(ElementType::kF32, {2, rows});
    for (int64_t i = 0; i < rows * 2; ++i) {
      const auto row = static_cast<size_t>(i / 2), which = static_cast<size_t>(i % 2);
      double sum = 0;
      for (size_t k = 0; k < 6; ++k) {
        const double factor = factors[which * 6 + k];
        if (factor != 0) sum += factor * static_cast<double>(tensor.data<float>()[row * 6 + k]);
      }
      expected.mutable_data<float>()[which * static_cast<size_t>(rows) + row] =
          static_cast<float>(sum);
    }
    EXPECT_EQ(Pack(tensor, layout), expected) << rows;
  }
}

TEST(PackTest, NothingIsPackedToNothing) {
  Check({0, 4}, {.padded = {0, 4}, .split = {0, 2, 2}, .order = {1, 0, 2}});
}

TEST(PackTest, SmallElements) {
  const Tensor bytes = RandomTensor(ElementType::kU8, {37, 19}, 1);
  const PackedLayout layout{.padded = {48, 20}, .split = {3, 16, 5, 4}, .order = {0, 2, 1, 3}};
  const Tensor packed = Pack(bytes, layout);
  const Tensor wide = Spelled(Cast(bytes, ElementType::kF32), layout);
  EXPECT_EQ(Cast(packed, ElementType::kF32), wide);
}

// Strips of a large tensor: together all of it, none before it was read.
TEST(PackTest, LargeTensorsInStrips) {
  const PackedLayout by_rows{.padded = {3008, 1000}, .split = {188, 16, 1000}, .order = {0, 2, 1}};
  const PackedLayout by_columns{
      .padded = {3001, 1008}, .split = {3001, 63, 16}, .order = {1, 0, 2}};
  const PackedLayout rows_last{
      .padded = {1, 3001, 1000}, .split = {1, 3001, 1000}, .order = {0, 2, 1}};
  for (const auto& [shape, layout] : {std::pair<Shape, PackedLayout>{{3001, 1000}, by_rows},
                                      {{3001, 1000}, by_columns},
                                      {{1, 3001, 1000}, rows_last}}) {
    const Tensor tensor = RandomTensor(ElementType::kF32, shape, 1);
    const Tensor whole = Pack(tensor, layout);
    EXPECT_EQ(whole, Spelled(tensor, layout));
    Tensor own = tensor.Clone(), packed(ElementType::kF32, layout.shape());
    size_t strips = 0, bytes = 0;
    PackInto(own, layout, packed, [&](std::span<const std::byte> done) {
      ++strips;
      bytes += done.size();
      std::memset(const_cast<std::byte*>(done.data()), 0xff, done.size());
    });
    EXPECT_EQ(packed, whole);
    EXPECT_EQ(bytes, tensor.byte_size());
    EXPECT_EQ(strips > 1, shape.size() == 2);
  }
}

}  // namespace
}  // namespace lathe::lower
