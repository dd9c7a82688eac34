#include "src/lower/element_layout.h"

#include <algorithm>

#include "lathe/support/random.h"
#include "test/unit/lower/fusion_util.h"

namespace lathe::lower {
namespace {

using lathe::testing::Net;
using lathe::testing::NetTest;
using Part = ElementLayout::Part;

class Layouts : public NetTest {
 protected:
  // The op that gives it and those before, applied in order; false if some cannot be.
  static bool Apply(ElementLayout& layout, const std::vector<Value>& chain) {
    return std::ranges::all_of(chain, [&](Value v) { return layout.Apply(*v.defining_op()); });
  }
  Value Reshape(Value x, const std::vector<int64_t>& extents) {
    return net_.Op("reshape", {x, net_.Ints(extents)});
  }
  Value Transpose(Value x, const std::vector<int64_t>& perm) {
    return net_.Op("transpose", {x}, {net_.IntList("perm", perm)});
  }
  Net net_{context_};
};

TEST_F(Layouts, ShuffleMovesPartsOfAnAxis) {
  const Value x = net_.X({1, 6, 4, 5}), a = Reshape(x, {1, 2, 3, 4, 5}),
              b = Transpose(a, {0, 2, 1, 3, 4}), c = Reshape(b, {1, 6, 20});
  const std::vector<int64_t> extents{1, 6, 4, 5};
  ElementLayout merged(extents, std::vector<size_t>{0, 1, 2, 2});
  ASSERT_TRUE(Apply(merged, {a, b, c}));
  EXPECT_EQ(merged.Parts(), (std::vector<Part>{{1, 3, 1}, {1, 2, 3}, {2, 20, 1}}));
  ElementLayout apart(extents, std::vector<size_t>{0, 1, 2, 3});
  ASSERT_TRUE(Apply(apart, {a, b, c}));
  EXPECT_EQ(apart.Parts(), (std::vector<Part>{{1, 3, 1}, {1, 2, 3}, {2, 4, 1}, {3, 5, 1}}));
}

TEST_F(Layouts, ThereAndBackIsNothing) {
  const Value x = net_.X({4, 6}), a = Transpose(x, {1, 0}), b = Transpose(a, {1, 0});
  ElementLayout layout(std::vector<int64_t>{4, 6}, std::vector<size_t>{0, 0});
  ASSERT_TRUE(Apply(layout, {a, b}));
  EXPECT_EQ(layout.Parts(), (std::vector<Part>{{0, 24, 1}}));
}

TEST_F(Layouts, AxesThatDoNotDivide) {
  const Value x = net_.X({4, 6}), a = Transpose(x, {1, 0}), b = Reshape(a, {3, 8});
  ElementLayout layout(std::vector<int64_t>{4, 6}, std::vector<size_t>{0, 1});
  EXPECT_TRUE(Apply(layout, {a}));
  const Value c = Reshape(x, {3, 8});
  ElementLayout odd(std::vector<int64_t>{4, 6}, std::vector<size_t>{0, 1});
  EXPECT_FALSE(Apply(odd, {c}));
  EXPECT_TRUE(Apply(layout, {b}));  // 6 x 4 as 3 x (2 x 4)
  EXPECT_EQ(layout.Parts(), (std::vector<Part>{{1, 6, 1}, {0, 4, 1}}));
}

// By the interpreter: the element that the parts say is the one that is there.
TEST_F(Layouts, RandomChains) {
  RandomStream random(3);
  int checked = 0;
  for (int round = 0; round < 100; ++round) {
    Net net(context_);
    const Shape shape{2, 6, 4, 3};
    const Value x = net.X(shape);
    std::vector<Value> chain{x};
    for (int i = 0; i < 4; ++i) {
      const auto dims = chain.back().type().cast<AnyTensorType>().dims();
      std::vector<int64_t> perm;
      for (size_t a = 0; a < dims.size(); ++a) {
        const auto at = random.Int(0, static_cast<int64_t>(a));
        perm.insert(perm.begin() + at, static_cast<int64_t>(a));
      }
      const std::vector<std::vector<int64_t>> shapes{{2, 6, 4, 3}, {12, 12},     {2, 2, 3, 12},
                                                     {144},        {4, 3, 3, 4}, {1, 24, 6}};
      const auto& to = shapes[static_cast<size_t>(random.Int(0, 5))];
      chain.push_back(i % 2 == 0 ? net.Op("transpose", {chain.back()}, {net.IntList("perm", perm)})
                                 : net.Op("reshape", {chain.back(), net.Ints(to)}));
    }
    net.Output(chain.back());
    ElementLayout layout(shape, std::vector<size_t>{0, 1, 2, 2});
    chain.erase(chain.begin());
    if (!Apply(layout, chain)) continue;
    ++checked;
    Tensor input(ElementType::kF32, shape);
    for (size_t i = 0; i < 144; ++i) input.mutable_data<float>()[i] = static_cast<float>(i);
    const NamedValues out = Interpreter(net.program()).Run({{"x0", input}});
    const int64_t strides[] = {72, 12, 1};  // of the loops
    for (int64_t at = 0; at < 144; ++at) {
      int64_t rest = at, element = 0;
      const std::vector<Part> parts = layout.Parts();
      for (size_t p = parts.size(); p-- > 0;) {
        element += rest % parts[p].extent * parts[p].stride * strides[parts[p].loop];
        rest /= parts[p].extent;
      }
      ASSERT_EQ(out[0].second.tensor().data<float>()[static_cast<size_t>(at)],
                static_cast<float>(element));
    }
  }
  EXPECT_GT(checked, 10);
}

}  // namespace
}  // namespace lathe::lower
