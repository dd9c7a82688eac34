#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "lathe/driver/executable.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/lower/fusion_util.h"

// What compiled programs must not do otherwise than the interpreter, whichever strategy takes them.
namespace lathe::testing {
namespace {

class SemanticsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    codegen::NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  void ExpectAsInterpreted(Program& program, const NamedValues& inputs, double rtol,
                           const std::string& what, bool each_target = true) {
    const NamedValues wanted = Interpreter(program).Run(inputs);
    for (const codegen::Target* target : codegen::RunnableTargets()) {
      if (!each_target && target != &codegen::Target::Host()) continue;
      const Executable executable(program, {.target = target->name, .threads = 1});
      const NamedValues got = executable.Run(inputs);
      for (size_t i = 0; i < wanted.size(); ++i) {
        const Closeness close =
            AllClose(got[i].second.tensor(), wanted[i].second.tensor(), rtol, rtol);
        EXPECT_TRUE(close) << what << ", " << target->name << ": " << close.description;
      }
    }
  }

  IrContext context_;
};

// ---- integers ----

// The norm of integers and the logarithm of powers are cut off at 64 bits, then to fewer.
TEST_F(SemanticsTest, NormsOfLargeIntegers) {
  const auto check = [&](ElementType element, const std::vector<int64_t>& values) {
    for (const char* op : {"reduce_l2", "reduce_log_sum_exp"}) {
      Net net(context_);
      const Shape shape{1, std::ssize(values)};
      const Value x = net.Feed(SymShape::FromConstants(shape), element);
      net.Output(net.Op(op, {x, net.Ints({1})}));
      const Tensor data = Cast(Tensor::Of<int64_t>(shape, values), element);
      ExpectAsInterpreted(net.program(), {{"x0", data}}, 0, StrCat(op, " ", data.TypeString()));
    }
  };
  check(ElementType::kI32, {2147483647, -2147483647, 5});
  check(ElementType::kU32, {4294967295, 4294967295});
  check(ElementType::kI64, {INT64_MAX, INT64_MAX});
  check(ElementType::kI64, {INT64_MIN, 3});
  check(ElementType::kU64, {-1, -1});
  check(ElementType::kI32, {});
  check(ElementType::kU32, {});
}

// Sums of integers wrap as the tensors' type does; a mean is the quotient of such a sum, of 64 bits
// for shorter integers.
TEST_F(SemanticsTest, ReductionsOfIntegersNextToTheLimits) {
  const auto check = [&](ElementType element, int64_t near, int64_t far) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < 3 * 40; ++i) values.push_back(i % 40 < 30 ? near - i % 7 : far + i % 3);
    const Shape shape{3, 40};
    const Tensor data = Cast(Tensor::Of<int64_t>(shape, values), element);
    for (const char* op : {"reduce_mean", "reduce_sum", "reduce_l1", "reduce_sum_square",
                           "reduce_prod", "reduce_max", "reduce_min"}) {
      for (const int64_t axis : {0, 1}) {
        for (const SymShape& dims :
             {SymShape{3, 40}, SymShape{Dim::Symbol("M"), Dim::Symbol("N")}}) {
          Net net(context_);
          net.Output(net.Op(op, {net.Feed(dims, element), net.Ints({axis})}));
          ExpectAsInterpreted(net.program(), {{"x0", data}}, 0,
                              StrCat(op, " ", data.TypeString(), ", axis ", axis));
        }
      }
    }
  };
  check(ElementType::kI64, INT64_MAX, INT64_MIN);
  check(ElementType::kU64, -1, INT64_MIN);
  check(ElementType::kI32, INT32_MAX, INT32_MIN);
}

// ---- directions ----

// What was flattened, from its end to its beginning.
TEST_F(SemanticsTest, FlattenedBackwards) {
  const Tensor data = RandomTensor(ElementType::kF32, {3, 4}, 5);
  for (const SymShape& shape : {SymShape{Dim::Symbol("A"), Dim::Symbol("B")}, SymShape{3, 4},
                                SymShape{Dim::Symbol("A"), 4}, SymShape{3, Dim::Symbol("B")}}) {
    for (const int64_t step : {-1, -2}) {
      Net net(context_);
      const Value x = net.Feed(shape);
      const Value flat = net.Op("reshape", {x, net.Ints({-1})});
      net.Output(net.Op(
          "slice", {flat, net.Ints({-1}), net.Ints({INT64_MIN}), net.Ints({0}), net.Ints({step})}));
      ExpectAsInterpreted(net.program(), {{"x0", data}}, 0, shape.ToString());
    }
  }
}

// ---- permutations ----

/// An operation on operands whose axes are letters with an extent; digits are extents.
struct Permuted {
  std::string op;
  std::vector<std::string> operands;
  std::string attributes = "";  // name=integer or name=[integers], by spaces
  std::string constant = "";    // names of axes that a last operand lists
};

// How an operand's axes are known: all of them, none, or all but those of the first operand, which
// has symbols of its own.
enum class Known : uint8_t { kAll, kNone, kOthers };

class PermutationTest : public SemanticsTest {
 protected:
  static int64_t ExtentOf(char letter, bool equal) {
    if (letter >= '0' && letter <= '9') return letter - '0';
    return equal ? 4 : 2 + static_cast<int64_t>(std::string_view("BCHWMKNOSDT").find(letter));
  }

  Value Operand(Net& net, const std::string& axes, const std::vector<size_t>& perm, bool symbolic,
                bool apart, bool equal, NamedValues& inputs) {
    std::vector<Dim> dims(axes.size());
    Shape shape(axes.size());
    for (size_t i = 0; i < axes.size(); ++i) {
      const int64_t extent = ExtentOf(axes[i], equal);
      shape[perm[i]] = extent;
      const bool is_letter = axes[i] > '9';
      dims[perm[i]] = symbolic && is_letter
                          ? Dim::Symbol(StrCat(apart ? "own" : "", std::string(1, axes[i])))
                          : Dim(extent);
    }
    const Value fed = net.Feed(SymShape(dims));
    const size_t number = inputs.size();
    inputs.emplace_back(StrCat("x", number), RandomTensor(ElementType::kF32, shape, 5, number));
    if (std::is_sorted(perm.begin(), perm.end())) return fed;
    return net.Op("transpose", {fed}, {net.IntList("perm", {perm.begin(), perm.end()})});
  }

  static Net::Attr Parsed(Net& net, const std::string& text) {
    const size_t at = text.find('=');
    const std::string name = text.substr(0, at), value = text.substr(at + 1);
    if (value[0] != '[') return net.Int(name, std::stoll(value));
    std::vector<int64_t> numbers;
    for (const char c : value) {
      if (c >= '0' && c <= '9') numbers.push_back(c - '0');
    }
    return net.IntList(name, numbers);
  }

  void Check(const Permuted& p, size_t which, const std::vector<size_t>& perm, Known known,
             bool equal) {
    Net net(context_);
    NamedValues inputs;
    std::vector<Value> operands;
    std::string what = StrCat(p.op, " operand ", which, " perm");
    for (const size_t axis : perm) what += StrCat(" ", axis);
    what += StrCat(" known ", static_cast<int>(known), equal ? " equal extents" : "");
    for (size_t i = 0; i < p.operands.size(); ++i) {
      std::vector<size_t> order(p.operands[i].size());
      std::iota(order.begin(), order.end(), 0);
      if (i == which) order = perm;
      const bool symbolic = known == Known::kNone || (known == Known::kOthers && i == which);
      operands.push_back(
          Operand(net, p.operands[i], order, symbolic, known == Known::kOthers, equal, inputs));
    }
    std::vector<Net::Attr> attributes;
    for (size_t at = 0; at < p.attributes.size();) {
      const size_t end = std::min(p.attributes.find(' ', at), p.attributes.size());
      attributes.push_back(Parsed(net, p.attributes.substr(at, end - at)));
      at = end + 1;
    }
    if (!p.constant.empty()) operands.push_back(net.Ints({std::stoll(p.constant)}));
    net.Output(net.Op(p.op, operands, attributes));
    ExpectAsInterpreted(net.program(), inputs, 1e-4, what, p.operands[which].size() < 4);
  }

  void CheckAll(const Permuted& p) {
    for (size_t which = 0; which < p.operands.size(); ++which) {
      std::vector<size_t> perm(p.operands[which].size());
      std::iota(perm.begin(), perm.end(), 0);
      do {
        for (const Known known : {Known::kAll, Known::kNone, Known::kOthers}) {
          Check(p, which, perm, known, known == Known::kOthers);
        }
      } while (std::next_permutation(perm.begin(), perm.end()));
    }
  }
};

TEST_F(PermutationTest, Products) {
  CheckAll({"matmul", {"MK", "KN"}});
  CheckAll({"matmul", {"BMK", "KN"}});
  CheckAll({"matmul", {"BMK", "BKN"}});
  CheckAll({"gemm", {"MK", "KN", "N"}});
}

TEST_F(PermutationTest, Convolutions) {
  CheckAll({"conv", {"BCH", "OC3"}, "pads=[11]"});
  CheckAll({"conv_transpose", {"BCH", "CO3"}});
  CheckAll({"conv", {"BCHW", "OC23"}, "pads=[1111]"});
}

TEST_F(PermutationTest, Attention) { CheckAll({"attention", {"BHSD", "BHTD", "BHTD"}}); }

TEST_F(PermutationTest, RowsAndPools) {
  CheckAll({"softmax", {"BMK"}});
  CheckAll({"layer_normalization", {"BMK", "K"}});
  CheckAll({"reduce_sum", {"BMK"}, "", "1"});
  CheckAll({"instance_normalization", {"BCH", "C", "C"}});
  CheckAll({"max_pool", {"BCH"}, "kernel_shape=[2]"});
  CheckAll({"average_pool", {"BCHW"}, "kernel_shape=[22] pads=[1111]"});
  CheckAll({"global_average_pool", {"BCH"}});
}

TEST_F(PermutationTest, Recurrent) { CheckAll({"gru", {"SB3", "163", "162"}, "hidden_size=2"}); }

// ---- floats of 16 bits ----

class HalvesTest : public SemanticsTest {
 protected:
  // f16 numbers around 0 that go up to `size`.
  static Tensor Large(const Shape& shape, double size, uint64_t seed, ElementType element) {
    const Tensor uniform = RandomTensor(ElementType::kF64, shape, seed);
    std::vector<double> values = ToDoubles(uniform);
    for (double& v : values) v *= size;
    return Cast(Tensor::Of<double>(shape, values), element);
  }

  using Build = std::function<Value(Net& net, const std::vector<Value>& x)>;
  void Check(const std::string& what, const std::vector<Shape>& shapes, double size,
             const Build& build) {
    for (const ElementType element : {ElementType::kF16, ElementType::kBF16}) {
      Net net(context_);
      NamedValues inputs;
      std::vector<Value> x;
      for (size_t i = 0; i < shapes.size(); ++i) {
        x.push_back(net.X(shapes[i], element));
        inputs.emplace_back(StrCat("x", i), Large(shapes[i], i == 0 ? size : 1, i, element));
      }
      net.Output(build(net, x));
      const double rtol = element == ElementType::kF16 ? 2e-3 : 1.6e-2;
      ExpectAsInterpreted(net.program(), inputs, rtol, StrCat(what, " of ", Name(element)));
    }
  }
};

TEST_F(HalvesTest, Norms) {
  for (const double size : {1.0, 700.0, 30000.0}) {
    for (const char* op : {"instance_normalization", "group_normalization"}) {
      Check(op, {{1, 4, 3000}, {4}, {4}}, size, [&](Net& net, const std::vector<Value>& x) {
        const bool groups = op[0] == 'g';
        return net.Op(op, x,
                      groups ? std::vector{net.Int("num_groups", 2)} : std::vector<Net::Attr>());
      });
    }
    Check("layer_normalization", {{3, 3000}, {3000}}, size,
          [](Net& net, const auto& x) { return net.Op("layer_normalization", x); });
    Check("rms_normalization", {{3, 3000}, {3000}}, size,
          [](Net& net, const auto& x) { return net.Op("rms_normalization", x); });
    for (const char* op : {"lp_normalization", "softmax", "log_softmax"}) {
      Check(op, {{3, 3000}}, size, [&](Net& net, const auto& x) { return net.Op(op, x); });
    }
    Check("mean_variance_normalization", {{2, 3, 30, 50}}, size,
          [](Net& net, const auto& x) { return net.Op("mean_variance_normalization", x); });
  }
}

TEST_F(HalvesTest, Reductions) {
  for (const char* op : {"reduce_sum", "reduce_mean", "reduce_l1", "reduce_l2",
                         "reduce_log_sum_exp", "reduce_sum_square"}) {
    for (const double size : {1.0, 300.0}) {
      Check(op, {{3, 3000}}, size,
            [&](Net& net, const auto& x) { return net.Op(op, {x[0], net.Ints({1})}); });
    }
  }
  Check("reduce_log_sum", {{3, 3000}}, 300, [](Net& net, const auto& x) {
    return net.Op("reduce_log_sum", {net.Op("abs", {x[0]}), net.Ints({1})});
  });
}

TEST_F(HalvesTest, ActivationsOfLargeNumbers) {
  for (const char* op :
       {"gelu", "mish", "softplus", "hard_swish", "swish", "elu", "selu", "celu", "softsign"}) {
    for (const double size : {1.0, 300.0}) {
      Check(op, {{3, 100}}, size, [&](Net& net, const auto& x) { return net.Op(op, x); });
    }
  }
}

// exp(x) - 1 and log(1 + x) as they stand have no digit of a result that is almost zero.
TEST_F(SemanticsTest, ActivationsKeepTheDigitsOfSmallResults) {
  std::vector<double> points;
  for (double x = 1e-30; x < 80; x *= 3) points.insert(points.end(), {x, -x});
  const Shape shape{std::ssize(points)};
  for (const ElementType element : {ElementType::kF32, ElementType::kF64}) {
    const double precision = element == ElementType::kF64 ? 1e-14 : 1e-6;
    const NamedValues inputs{{"x0", Cast(Tensor::Of<double>(shape, points), element)}};
    for (const char* op : {"elu", "selu", "celu", "softplus", "mish", "swish", "sigmoid", "tanh"}) {
      Net net(context_);
      const Value x = net.Feed(SymShape::FromConstants(shape), element);
      net.Output(net.Op(op, {x}));
      const Tensor meant = Interpreter(net.program()).Run(inputs)[0].second.tensor();
      for (const codegen::Target* target : codegen::RunnableTargets()) {
        const Executable executable(net.program(), {.target = target->name, .threads = 1});
        const Closeness close =
            AllClose(executable.Run(inputs)[0].second.tensor(), meant, precision, 1e-37);
        EXPECT_TRUE(close) << op << ", " << target->name << ": " << close.description;
      }
    }
  }
}

TEST_F(HalvesTest, WindowsAndProducts) {
  for (const char* op : {"average_pool", "lp_pool"}) {
    Check(op, {{1, 2, 300}}, 30000, [&](Net& net, const auto& x) {
      return net.Op(op, {x[0]}, {net.IntList("kernel_shape", {64})});
    });
  }
  Check("lrn", {{1, 9, 30}}, 3000,
        [](Net& net, const auto& x) { return net.Op("lrn", x, {net.Int("size", 5)}); });
  Check("matmul", {{3, 3000}, {3000, 4}}, 100,
        [](Net& net, const auto& x) { return net.Op("matmul", x); });
  Check("gemm", {{3, 3000}, {3000, 4}, {4}}, 30000, [](Net& net, const auto& x) {
    return net.Op("gemm", x, {{"alpha", net.builder().Attr(1e-3)}});
  });
  Check("conv", {{1, 3, 40}, {5, 3, 3}, {5}}, 10000,
        [](Net& net, const auto& x) { return net.Op("conv", x); });
  Check("cum_sum", {{2, 3000}}, 10, [](Net& net, const auto& x) {
    return net.Op("cum_sum", {x[0], net.Constant(Tensor::Scalar<int64_t>(1))});
  });
}

// The difference to the mean is small: what is added to x * s is as large as that, and rounded
// later.
TEST_F(SemanticsTest, BatchNormsOfHalvesAreRoundedOnce) {
  for (const ElementType element : {ElementType::kF16, ElementType::kBF16}) {
    const auto of = [&](const Shape& shape, double from, double size, uint64_t seed) {
      std::vector<double> values = ToDoubles(RandomTensor(ElementType::kF64, shape, seed));
      for (double& v : values) v = from + size * std::fabs(v);
      return Cast(Tensor::Of<double>(shape, values), element);
    };
    Net net(context_);
    std::vector<Value> x{net.X({2, 5, 9, 7}, element)};
    NamedValues inputs{{"x0", of({2, 5, 9, 7}, 100, 3, 1)}};
    for (size_t i = 1; i < 5; ++i) {  // scale, B, mean, var
      x.push_back(net.X({5}, element));
      inputs.emplace_back(StrCat("x", i), of({5}, i == 3 ? 100 : 0.1, 1, i + 1));
    }
    net.Output(net.Op("batch_normalization", x));
    const double unit = element == ElementType::kF16 ? 1e-3 : 8e-3;
    ExpectAsInterpreted(net.program(), inputs, unit, std::string(Name(element)));
  }
}

// The sums here are integers beyond what halves hold, and their difference to C is not: it is right
// only if nothing is rounded before the end.
TEST_F(SemanticsTest, GemmsOfHalvesAreRoundedOnce) {
  constexpr int64_t kRows = 7, kDepth = 150, kColumns = 35;
  const auto whole = [](const Shape& shape, double size, uint64_t seed, ElementType element) {
    std::vector<double> values = ToDoubles(RandomTensor(ElementType::kF64, shape, seed));
    for (double& v : values) v = std::round(v * size);
    return Cast(Tensor::Of<double>(shape, values), element);
  };
  const std::vector<Shape> addends{{}, {kColumns}, {kRows, 1}, {kRows, kColumns}};
  for (const ElementType element : {ElementType::kF16, ElementType::kBF16}) {
    for (const Shape& addend : addends) {
      for (const auto& [alpha, beta] : {std::pair{1.0, 1.0}, {0.5, -0.25}}) {
        for (const bool constant : {false, true}) {
          Net net(context_);
          const Tensor b = whole({kDepth, kColumns}, 20, 2, element);
          const SymShape rows{Dim::Symbol("M"), kDepth};
          const Value x = net.Feed(constant ? SymShape{kRows, kDepth} : rows, element);
          const Value w = constant ? net.Constant(b) : net.X({kDepth, kColumns}, element);
          NamedValues inputs{{"x0", whole({kRows, kDepth}, 20, 1, element)}};
          if (!constant) inputs.emplace_back("x1", b);
          const Value c = net.X(addend, element);
          inputs.emplace_back(StrCat("x", inputs.size()), whole(addend, 3000, 3, element));
          net.Output(
              net.Op("gemm", {x, w, c},
                     {{"alpha", net.builder().Attr(alpha)}, {"beta", net.builder().Attr(beta)}}));
          ExpectAsInterpreted(
              net.program(), inputs, 0,
              StrCat(Name(element), ", C ", SymShape::FromConstants(addend).ToString(), ", alpha ",
                     alpha, constant ? ", a weight" : ""));
        }
      }
    }
  }
}

// ---- attributes of any size ----

class HugeAttributeTest : public SemanticsTest {
 protected:
  static constexpr int64_t kHuge = int64_t{1} << 40;

  using Attributes = std::function<std::vector<Net::Attr>(Net& net)>;
  void Check(const std::string& op, const Shape& shape, const Attributes& attributes) {
    for (const bool symbolic : {false, true}) {
      Net net(context_);
      SymShape dims = SymShape::FromConstants(shape);
      for (size_t i = 2; symbolic && i < shape.size(); ++i)
        dims.dims[i] = Dim::Symbol(StrCat("D", i));
      if (symbolic && op == "lrn") dims.dims[1] = Dim::Symbol("C");
      const Value x = net.Feed(dims);
      net.Output(net.Op(op, {x}, attributes(net)));
      const NamedValues inputs{{"x0", RandomTensor(ElementType::kF32, shape, 1)}};
      ExpectAsInterpreted(net.program(), inputs, 1e-5, op);
    }
  }
};

TEST_F(SemanticsTest, GridPointsThatAreNoNumbers) {
  const float none = std::nanf(""), far = INFINITY;
  const Tensor grid = Tensor::Of<float>({1, 2, 3, 2}, {none, 0.5F, 0.5F, none, none, none,  //
                                                       far, 0, -far, 0.25F, far, none});
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      Net net(context_);
      Builder& b = net.builder();
      const Value x = net.Feed(SymShape::FromConstants(Shape{1, 2, 4, 5}));
      const Value points = net.Feed(SymShape::FromConstants(Shape{1, 2, 3, 2}));
      net.Output(net.Op("grid_sample", {x, points},
                        {{"mode", b.Attr(mode)}, {"padding_mode", b.Attr(padding)}}));
      const NamedValues inputs{{"x0", RandomTensor(ElementType::kF32, {1, 2, 4, 5}, 1)},
                               {"x1", grid}};
      ExpectAsInterpreted(net.program(), inputs, 1e-5, StrCat(mode, ", ", padding));
    }
  }
}

// Subnormal probabilities and gates are zeros, for whoever multiplies them; other powers are kept.
TEST_F(SemanticsTest, FactorsAreNotSubnormal) {
  const Tensor x = Tensor::Of<float>({1, 6}, {0, -30, -87.2F, -87.4F, -100, -INFINITY});
  const auto run = [&](const char* op, const codegen::Target* target) {
    Net net(context_);
    net.Output(net.Op(op, {net.Feed(SymShape::FromConstants(Shape{1, 6}))}));
    const Executable executable(net.program(), {.target = target->name, .threads = 1});
    const Tensor got = executable.Run({{"x0", x}})[0].second.tensor();
    return std::vector<float>(got.data<float>().begin(), got.data<float>().end());
  };
  for (const codegen::Target* target : codegen::RunnableTargets()) {
    for (const char* op : {"softmax", "swish"}) {
      const std::vector<float> got = run(op, target);
      EXPECT_GT(std::fabs(got[2]), 1e-38F) << op << ", " << target->name;
      EXPECT_EQ(got[3], 0) << op << ", " << target->name;
      EXPECT_EQ(got[4], 0) << op << ", " << target->name;
    }
    EXPECT_EQ(run("softmax", target)[5], 0) << target->name;
    for (const char* op : {"exp", "sigmoid"}) {
      EXPECT_FLOAT_EQ(run(op, target)[4] * 1e30F, std::exp(-100.0F) * 1e30F) << op;
    }
  }
}

// The greatest of a row with a NaN, wherever it stands, is NaN; that of infinities is one.
TEST_F(SemanticsTest, ExtremesOfRowsWithNan) {
  constexpr int64_t kLength = 37;
  for (const ElementType element : {ElementType::kF32, ElementType::kF64, ElementType::kF16}) {
    std::vector<double> values(size_t{kLength + 2} * size_t{kLength});
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i));
    for (size_t row = 0; row < kLength; ++row) values[row * kLength + row] = std::nan("");
    for (size_t i = 0; i < kLength; ++i) {
      values[size_t{kLength} * kLength + i] = -INFINITY;
      values[size_t{kLength + 1} * kLength + i] = i == 20 ? INFINITY : 1;
    }
    const Tensor x = Cast(Tensor::Of<double>({kLength + 2, kLength}, values), element);
    for (const char* op : {"reduce_max", "reduce_min"}) {
      for (const bool is_static : {true, false}) {
        Net net(context_);
        SymShape dims = SymShape::FromConstants(Shape{kLength + 2, kLength});
        if (!is_static) dims.dims = {Dim::Symbol("N"), Dim::Symbol("L")};
        net.Output(net.Op(op, {net.Feed(dims, element), net.Ints({1})}));
        ExpectAsInterpreted(net.program(), {{"x0", x}}, 0, StrCat(op, ", ", Name(element)));
      }
    }
  }
}

// Rows of nothing are a few bytes, however many there are: nobody walks them.
TEST_F(SemanticsTest, ReductionsOfManyEmptyRows) {
  constexpr int64_t kMany = int64_t{1} << 40;
  for (const Shape& shape : {Shape{kMany, 0}, Shape{kMany, 0, 3}, Shape{3, kMany, 0}}) {
    for (const char* op : {"reduce_sum", "reduce_max", "reduce_l2", "reduce_log_sum_exp"}) {
      Net net(context_);
      SymShape dims;
      for (size_t i = 0; i < shape.size(); ++i) dims.dims.push_back(Dim::Symbol(StrCat("D", i)));
      net.Output(net.Op(op, {net.Feed(dims)}, {{"keepdims", net.builder().Attr(false)}}));
      const NamedValues inputs{{"x0", RandomTensor(ElementType::kF32, shape, 1)}};
      ExpectAsInterpreted(net.program(), inputs, 0, StrCat(op, " of ", ShapeToString(shape)));
    }
  }
}

TEST_F(HugeAttributeTest, PowersOfNorms) {
  for (const int64_t p : {int64_t{1}, int64_t{3}, int64_t{64}, kHuge}) {
    Check("lp_pool", {1, 2, 9},
          [&](Net& net) { return std::vector{net.Int("p", p), net.IntList("kernel_shape", {3})}; });
    Check("global_lp_pool", {1, 2, 9}, [&](Net& net) { return std::vector{net.Int("p", p)}; });
  }
}

TEST_F(HugeAttributeTest, Windows) {
  for (const int64_t size : {int64_t{5}, int64_t{200}, kHuge}) {
    Check("lrn", {1, 6, 4}, [&](Net& net) { return std::vector{net.Int("size", size)}; });
  }
  const int64_t kernel = (int64_t{1} << 30) + 1;
  for (const char* op : {"max_pool", "average_pool", "lp_pool"}) {
    Check(op, {1, 2, 9}, [&](Net& net) {
      return std::vector{net.IntList("kernel_shape", {kernel}),
                         net.IntList("pads", {kernel - 4, 0})};
    });
    Check(op, {1, 2, 9, 5}, [&](Net& net) {
      return std::vector{net.IntList("kernel_shape", {2, 2}), net.IntList("dilations", {kernel, 2}),
                         net.IntList("pads", {kernel - 4, 0, 0, 1})};
    });
    Check(op, {1, 2, 9, 5}, [&](Net& net) {
      return std::vector{net.IntList("kernel_shape", {40, 2}), net.IntList("dilations", {3, 1}),
                         net.IntList("pads", {110, 0, 5, 0}), net.IntList("strides", {2, 1})};
    });
  }
}

// ---- algebra ----

// Chains of arithmetic with constants of all sizes keep every bit at the levels that there are.
TEST_F(SemanticsTest, DefaultLevelsKeepBits) {
  const std::vector<float> constants{12582912.0F, -12582912.0F, 0.1F,       3.0F, 0.0F,
                                     -0.0F,       1e30F,        1e-30F,     7.0F, 1.0F,
                                     -1.0F,       0.5F,         16777217.0F};
  const std::vector<std::string> binary{"add", "sub", "mul", "div", "add", "sub", "max", "min"};
  const std::vector<std::string> unary{"neg", "abs", "relu", "reciprocal", "floor", "sqrt"};
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomStream random(seed);
    const auto pick = [&](const auto& list) {
      return list[static_cast<size_t>(random.Int(0, static_cast<int64_t>(list.size()) - 1))];
    };
    Net net(context_);
    Value x = net.X({64});
    const Value first = x;
    for (int i = 0; i < 6; ++i) {
      if (random.Int(0, 3) == 0) {
        x = net.Op(pick(unary), {x});
        continue;
      }
      const std::string op = pick(binary);
      float constant = pick(constants);
      if ((op == "max" || op == "min") && constant == 0)
        constant = 2;  // of two zeros either is the greater one
      const Value other = random.Int(0, 5) == 0 ? first : net.Scalar(constant);
      const bool left = random.Int(0, 3) == 0;
      x = net.Op(op, left ? std::vector{other, x} : std::vector{x, other});
    }
    net.Output(x);
    const NamedValues inputs = RandomInputs(net.program(), seed);
    const Tensor wanted = Interpreter(net.program()).Run(inputs)[0].second.tensor();
    const std::string before = Print(net.program());
    Optimize(net.program(), "inference", 2);
    const Tensor got = Interpreter(net.program()).Run(inputs)[0].second.tensor();
    for (int64_t i = 0; i < 64; ++i) {
      const float a = got.data<float>()[static_cast<size_t>(i)],
                  b = wanted.data<float>()[static_cast<size_t>(i)];
      const bool same =
          std::isnan(b) ? std::isnan(a) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
      ASSERT_TRUE(same) << a << " instead of " << b << " after optimizing\n" << before;
    }
  }
}

TEST_F(SemanticsTest, RoundingIdiomsRound) {
  Net net(context_);
  const Value magic = net.Scalar(12582912.0F);
  net.Output(net.Op("sub", {net.Op("add", {net.X({4}), magic}), magic}));
  const NamedValues inputs{{"x0", Tensor::Of<float>({4}, {0.3F, 1.5F, 2.5F, -1.7F})}};
  for (const codegen::Target* target : codegen::RunnableTargets()) {
    const Executable executable(net.program(), {.target = target->name, .threads = 1});
    const Tensor y = executable.Run(inputs)[0].second.tensor();
    EXPECT_TRUE(std::ranges::equal(y.data<float>(), std::vector<float>{0, 2, 2, -2}))
        << target->name;
  }
  const Executable fast(net.program(), {.enabled = {kFastMath}, .threads = 1});
  EXPECT_EQ(fast.Run(inputs)[0].second.tensor().data<float>()[1], 1.5F);
}

// ---- 8-bit floats ----

// What only moves elements takes them as they are, whatever it is fused with.
TEST_F(SemanticsTest, SmallFloatsAreMovedAndCast) {
  using Make = std::function<Value(Net & net, Value x)>;
  const std::pair<const char*, Make> moves[] = {
      {"transpose", [](Net& n, Value x) { return n.Op("transpose", {x}); }},
      {"concat", [](Net& n, Value x) { return n.Op("concat", {x, x}, {n.Int("axis", 1)}); }},
      {"slice",
       [](Net& n, Value x) {
         return n.Op("slice", {x, n.Ints({3}), n.Ints({0}), n.Ints({1}), n.Ints({-2})});
       }},
      {"gather",
       [](Net& n, Value x) { return n.Op("gather", {x, n.Ints({2, 0, 2})}, {n.Int("axis", 1)}); }},
      {"pad", [](Net& n, Value x) { return n.Op("pad", {x, n.Ints({1, 0, 0, 2})}); }},
      {"expand", [](Net& n, Value x) { return n.Op("expand", {x, n.Ints({2, 4, 6})}); }},
      {"tile", [](Net& n, Value x) { return n.Op("tile", {x, n.Ints({1, 3})}); }},
      {"trilu", [](Net& n, Value x) { return n.Op("trilu", {x}); }},
      {"center_crop_pad",
       [](Net& n, Value x) { return n.Op("center_crop_pad", {x, n.Ints({3, 9})}); }},
      {"where",
       [](Net& n, Value x) {
         const Value all = n.Op("cast", {x}, {n.Type_("to", ElementType::kF32)});
         const Value large = n.Op("greater", {all, n.Scalar(0.5F)});
         return n.Op("where", {large, x, n.Op("transpose", {n.Op("transpose", {x})})});
       }},
      {"bit_cast",
       [](Net& n, Value x) { return n.Op("bit_cast", {x}, {n.Type_("to", ElementType::kU8)}); }},
      {"scatter_nd",
       [](Net& n, Value x) {
         const Value at = n.Constant(Tensor::Of<int64_t>({1, 1}, {2}));
         const Value row = n.Op("slice", {x, n.Ints({0}), n.Ints({1})});
         return n.Op("scatter_nd", {x, at, row});
       }},
  };
  for (const ElementType element :
       {ElementType::kF8E4M3FN, ElementType::kF8E5M2FNUZ, ElementType::kF8E8M0}) {
    for (const auto& [name, make] : moves) {
      for (const SymShape& shape : {SymShape{4, 6}, SymShape{Dim::Symbol("M"), 6}}) {
        Net net(context_);
        const Value x = net.Op("relu", {net.Feed(shape)});
        const Value y = make(net, net.Op("cast", {x}, {net.Type_("to", element)}));
        net.Output(y);
        net.Output(net.Op("cast", {y}, {net.Type_("to", ElementType::kF32)}));
        const Tensor data = RandomTensor(ElementType::kF32, {4, 6}, 5);
        ExpectAsInterpreted(net.program(), {{"x0", data}}, 0, StrCat(name, " of ", Name(element)));
      }
    }
  }
}

}  // namespace
}  // namespace lathe::testing
