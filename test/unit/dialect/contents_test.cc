#include "lathe/ir/builder.h"
#include "test/unit/dialect/program_util.h"

/// Shapes that programs compute themselves, as exporters write them.
namespace lathe::testing {
namespace {

class ContentsTest : public ProgramTest {
 protected:
  ContentsTest() : program_(context_), builder_(Builder::AtEnd(program_.block())) {
    builder_.set_facts(&facts_);
  }

  Value Feed(std::string_view name, SymShape shape, ElementType element = ElementType::kF32) {
    const Type type = VTensorType::Get(context_, shape, element);
    const NamedAttribute attribute = builder_.Named("name", builder_.Attr(name));
    return Visit(builder_.Create("nn.feed", {}, {&attribute, 1}, {&type, 1}));
  }
  Value Constant(const Tensor& value) {
    const NamedAttribute attribute = builder_.Named("value", builder_.Attr(value));
    return Visit(builder_.Create("builtin.constant", {}, {&attribute, 1}));
  }
  Value Int(int64_t value) { return Constant(Tensor::Scalar<int64_t>(value)); }
  Value Ints(const std::vector<int64_t>& values) {
    return Constant(Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
  }
  Value Op(std::string_view name, const std::vector<Value>& operands,
           const std::vector<NamedAttribute>& attributes = {}) {
    return Visit(builder_.Create(name, operands, attributes));
  }
  NamedAttribute Attr(std::string_view name, int64_t value) {
    return builder_.Named(name, builder_.Attr(value));
  }
  std::string TypeText(Value value) { return value.type().ToString(); }

  ShapeInferencer facts_;
  Program program_;
  Builder builder_;

 private:
  Value Visit(Operation* op) {
    facts_.Visit(op);
    return op->result(0);
  }
};

TEST_F(ContentsTest, HeadsAreSplitBySizesOfTheInput) {
  const Value x = Feed("x", {Dim::Symbol("N"), Dim::Symbol("S"), 768});
  const Value shape = Op("nn.shape", {x});
  const Value batch = Op("nn.gather", {shape, Int(0)}, {Attr("axis", 0)});
  const Value steps = Op("nn.slice", {shape, Ints({1}), Ints({2})});
  const Value batch1 = Op("nn.unsqueeze", {batch, Ints({0})});
  const Value target = Op("nn.concat", {batch1, steps, Ints({12}), Ints({-1})}, {Attr("axis", 0)});
  const Value heads = Op("nn.reshape", {x, target});
  EXPECT_EQ(TypeText(heads), "v_tensor<[N, S, 12, 64], f32>");
  const Value back = Op("nn.reshape", {heads, Ints({0, -1, 768})});
  EXPECT_EQ(TypeText(back), "v_tensor<[N, S, 768], f32>");
}

TEST_F(ContentsTest, ExpandByWhereOverMinusOne) {
  const Value x = Feed("x", {Dim::Symbol("N"), 1});
  const Value given = Ints({-1, 5});
  const Value ones = Op("nn.constant_of_shape", {Ints({2})},
                        {builder_.Named("value", builder_.Attr(Tensor::Of<int64_t>({1}, {1})))});
  const Value minus = Op("nn.mul", {ones, Int(-1)});
  const Value is_minus = Op("nn.equal", {given, minus});
  const Value target = Op("nn.where", {is_minus, ones, given});
  EXPECT_EQ(TypeText(Op("nn.expand", {x, target})), "v_tensor<[N, 5], f32>");
}

TEST_F(ContentsTest, ProductsRangesAndCasts) {
  const Value x = Feed("x", {Dim::Symbol("N"), 3, 8});
  const Value shape = Op("nn.shape", {x}, {Attr("start", 1)});
  const Value size =
      Op("nn.reduce_prod", {shape}, {builder_.Named("keepdims", builder_.Attr(false))});
  EXPECT_EQ(TypeText(Op("nn.range", {Int(0), size, Int(1)})), "v_tensor<[24], i64>");
  const Value batch = Op("nn.gather", {Op("nn.shape", {x}), Int(0)});
  EXPECT_EQ(TypeText(Op("nn.range", {Int(0), batch, Int(1)})), "v_tensor<[N], i64>");
  const Type i64 = ElemType::Get(context_, ElementType::kI64);
  const NamedAttribute to = builder_.Named("to", TypeAttribute::Get(i64));
  const Value doubled = Op(
      "nn.mul",
      {Op("nn.cast", {Op("nn.squeeze", {Op("nn.unsqueeze", {batch, Ints({0})})})}, {to}), Int(2)});
  const Value vector = Op("nn.unsqueeze", {doubled, Ints({0})});
  EXPECT_EQ(TypeText(Op("nn.constant_of_shape", {vector})), "v_tensor<[2*N], f32>");
  EXPECT_EQ(TypeText(Op("nn.tile", {Feed("y", {4}), vector})), "v_tensor<[8*N], f32>");
}

TEST_F(ContentsTest, NothingIsLeftOfADivisionByZero) {
  const Value shape = Op("nn.shape", {Feed("x", {Dim::Symbol("N"), Dim::Symbol("L")})});
  const Value n = Op("nn.gather", {shape, Int(0)}, {Attr("axis", 0)});
  const Value l = Op("nn.gather", {shape, Int(1)}, {Attr("axis", 0)});
  const Value less = Op("nn.sub", {n, Int(2)}), next = Op("nn.add", {n, Int(1)});
  const auto size = [&](const char* op, Value a, Value b) {
    return TypeText(Op("nn.range", {Int(0), Op(op, {a, b}), Int(1)}));
  };
  EXPECT_EQ(size("nn.div", n, n), "v_tensor<[min(1, N)], i64>");
  EXPECT_EQ(size("nn.div", Op("nn.mul", {n, l}), n), "v_tensor<[L*min(1, N)], i64>");
  EXPECT_EQ(size("nn.div", l, n), "v_tensor<[floordiv(L, max(1, N))*min(1, N)], i64>");
  EXPECT_EQ(size("nn.div", l, next), "v_tensor<[floordiv(L, N + 1)], i64>");
  EXPECT_EQ(size("nn.mod", n, n), "v_tensor<[0], i64>");
  EXPECT_EQ(size("nn.mod", l, n), "v_tensor<[mod(L, max(1, N))], i64>");
  EXPECT_EQ(size("nn.mod", l, next), "v_tensor<[mod(L, N + 1)], i64>");
  EXPECT_EQ(size("nn.mod", l, less), "v_tensor<[?], i64>");
}

TEST_F(ContentsTest, LimitsOfSizes) {
  const Value shape = Op("nn.shape", {Feed("x", {Dim::Symbol("N"), Dim::Symbol("L")})});
  const Value n = Op("nn.gather", {shape, Int(0)}, {Attr("axis", 0)});
  const auto size = [&](Value count) { return TypeText(Op("nn.range", {Int(0), count, Int(1)})); };
  EXPECT_EQ(size(Op("nn.clip", {n, Value(), Int(300)})), "v_tensor<[min(300, N)], i64>");
  EXPECT_EQ(size(Op("nn.clip", {n, Int(1), Int(300)})), "v_tensor<[min(300, max(1, N))], i64>");
  const Value less = Op("nn.sub", {n, Int(2)});
  EXPECT_EQ(size(Op("nn.clip", {less, Int(0)})), "v_tensor<[max(0, N - 2)], i64>");
  EXPECT_EQ(size(Op("nn.clip", {n, Feed("low", {}, ElementType::kI64)})), "v_tensor<[?], i64>");
}

TEST_F(ContentsTest, UnknownSizesStayUnknown) {
  const Value x = Feed("x", SymShape::Unranked());
  const Value target = Feed("target", {3}, ElementType::kI64);
  EXPECT_EQ(TypeText(Op("nn.reshape", {x, target})), "v_tensor<[?, ?, ?], f32>");
  EXPECT_EQ(TypeText(Op("nn.reshape", {x, Feed("other", {Dim::Symbol("R")}, ElementType::kI64)})),
            "v_tensor<*, f32>");
  EXPECT_EQ(TypeText(Op("nn.gather", {x, Int(0)})), "v_tensor<*, f32>");
}

TEST_F(ContentsTest, SlicesOfSymbolicExtents) {
  const Value x = Feed("x", {Dim::Symbol("N"), 10});
  const auto sliced = [&](int64_t start, int64_t end, int64_t step) {
    return TypeText(Op("nn.slice", {x, Ints({start}), Ints({end}), Ints({0}), Ints({step})}));
  };
  EXPECT_EQ(sliced(0, INT64_MAX, 1), "v_tensor<[N, 10], f32>");
  EXPECT_EQ(sliced(-1, INT64_MIN, -1), "v_tensor<[N, 10], f32>");
  EXPECT_EQ(sliced(1, INT64_MAX, 1), "v_tensor<[max(0, N - 1), 10], f32>");
  const Value grown = Op("nn.concat", {x, Feed("y", {2, 10})}, {Attr("axis", 0)});
  const Value tail = Op("nn.slice", {grown, Ints({2}), Ints({INT64_MAX}), Ints({0})});
  EXPECT_EQ(TypeText(tail), "v_tensor<[N, 10], f32>");
}

// Bounds that only a run knows say nothing about the axes that are not cut.
TEST_F(ContentsTest, SlicesWithBoundsOfTheRun) {
  const Value x = Feed("x", {Dim::Symbol("N"), 10, 3});
  const Value one = Feed("one", {1}, ElementType::kI64),
              some = Feed("some", {{}}, ElementType::kI64);
  EXPECT_EQ(TypeText(Op("nn.slice", {x, one, some, Ints({1})})), "v_tensor<[N, ?, 3], f32>");
  EXPECT_EQ(TypeText(Op("nn.slice", {x, Ints({2}), one, Ints({-1}), one})),
            "v_tensor<[N, 10, ?], f32>");
  EXPECT_EQ(TypeText(Op("nn.slice", {x, some, one})), "v_tensor<[?, 10, 3], f32>");
  EXPECT_EQ(TypeText(Op("nn.slice", {x, one, one, one})), "v_tensor<[?, ?, ?], f32>");
  EXPECT_EQ(TypeText(Op("nn.slice", {x, some, some})), "v_tensor<[?, ?, ?], f32>");
  const Value many = Feed("many", {int64_t{1} << 60}, ElementType::kI64);
  EXPECT_THROW(Op("nn.slice", {x, many, many}), Error);
}

}  // namespace
}  // namespace lathe::testing
