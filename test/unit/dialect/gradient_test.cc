#include "lathe/dialect/gradient.h"

#include <cmath>

#include "lathe/ir/block.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

// The gradients of a program's first output with respect to its inputs, beside central differences.
class GradientTest : public ProgramTest {
 protected:
  // Adds an output per input, in order.
  void Differentiate(Program& program) {
    Operation* fetch = program.fetches()[0];
    Builder b = Builder::Before(fetch);
    std::vector<Value> xs;
    for (Operation* feed : program.feeds()) xs.push_back(feed->result(0));
    const std::vector<Value> gradients = BuildGradients(b, fetch->operand(0), xs);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const NamedAttribute name[] = {b.Named("name", b.Attr(std::string_view(StrCat("d", i))))};
      const Value operand[] = {gradients[i]};
      b.Create("nn.fetch", operand, name);
    }
  }

  double SumOfFirst(const std::string& body, const NamedValues& inputs) {
    Program program = Parse(body);
    double sum = 0;
    for (double v : ValuesOf<double>(Interpreter(program).Run(inputs)[0].second)) sum += v;
    return sum;
  }

  void ExpectNumeric(const std::string& body, const NamedValues& inputs) {
    Program program = Parse(body);
    Differentiate(program);
    Verify(program);
    NamedValues outputs = Interpreter(program).Run(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto name = StrCat("d", i);
      const auto at = std::find_if(outputs.begin(), outputs.end(),
                                   [&](const auto& output) { return output.first == name; });
      ASSERT_NE(at, outputs.end());
      const std::vector<double> gradient = ValuesOf<double>(at->second);
      ASSERT_EQ(at->second.tensor().shape(), inputs[i].second.tensor().shape());
      for (size_t k = 0; k < gradient.size(); ++k) {
        EXPECT_NEAR(gradient[k], Slope(body, inputs, i, k), 1e-5)
            << name << "[" << k << "]" << body;
      }
    }
  }

  double Slope(const std::string& body, const NamedValues& inputs, size_t i, size_t k) {
    constexpr double kStep = 1e-5;
    const auto moved = [&](double by) {
      NamedValues other = inputs;
      other[i].second.mutable_tensor().mutable_data<double>()[k] += by;
      return SumOfFirst(body, other);
    };
    return (moved(kStep) - moved(-kStep)) / (2 * kStep);
  }

  static std::string Feeds(const std::vector<std::string>& shapes) {
    std::string text;
    for (size_t i = 0; i < shapes.size(); ++i) {
      text += StrCat("%x", i, " = nn.feed() {name = \"x", i, "\"} : () -> v_tensor<", shapes[i],
                     ", f64>\n");
    }
    return text;
  }
  static std::string Fetch(const std::string& value, const std::string& shape) {
    return StrCat("nn.fetch(", value, ") {name = \"y\"} : (v_tensor<", shape, ", f64>) -> ()\n");
  }
};

RtValue Doubles(Shape shape, uint64_t first) {
  std::vector<double> values;
  for (int64_t i = 0; i < NumElements(shape); ++i) {
    values.push_back(0.3 + 0.37 * static_cast<double>((first + static_cast<uint64_t>(i) * 7) % 5));
  }
  return Tensor::Of<double>(std::move(shape), values);
}

TEST_F(GradientTest, BinaryOpsSumOverWhatWasBroadcast) {
  for (const char* op : {"nn.add", "nn.sub", "nn.mul", "nn.div"}) {
    const std::string body = StrCat(
        Feeds({"[2, 3]", "[3]", "[2, 1]"}), "%a = ", op,
        "(%x0, %x1) : (v_tensor<[2, 3], f64>, v_tensor<[3], f64>) -> v_tensor<[2, 3], f64>\n%b = ",
        op, "(%x2, %a) : (v_tensor<[2, 1], f64>, v_tensor<[2, 3], f64>) -> v_tensor<[2, 3], f64>\n",
        Fetch("%b", "[2, 3]"));
    ExpectNumeric(
        body, {{"x0", Doubles({2, 3}, 1)}, {"x1", Doubles({3}, 2)}, {"x2", Doubles({2, 1}, 4)}});
  }
}

TEST_F(GradientTest, UnaryOpsInAChain) {
  for (const char* op : {"nn.neg", "nn.exp", "nn.log", "nn.sqrt", "nn.tanh", "nn.sigmoid",
                         "nn.relu", "nn.identity"}) {
    const std::string body = StrCat(
        Feeds({"[5]"}), "%a = ", op, "(%x0) : (v_tensor<[5], f64>) -> v_tensor<[5], f64>\n",
        "%b = nn.mul(%a, %a) : (v_tensor<[5], f64>, v_tensor<[5], f64>) -> v_tensor<[5], f64>\n",
        Fetch("%b", "[5]"));
    ExpectNumeric(body, {{"x0", Doubles({5}, 3)}});
  }
}

TEST_F(GradientTest, MatrixProductsOfAnyOrientation) {
  for (const bool tx : {false, true}) {
    for (const bool ty : {false, true}) {
      const std::string x = tx ? "[2, 3, 4]" : "[2, 4, 3]";
      const std::string y = ty ? "[5, 3]" : "[3, 5]";
      const std::string body =
          StrCat(Feeds({x, y}), "%z = nn.matmul(%x0, %x1) {transpose_x = ", tx ? "true" : "false",
                 ", transpose_y = ", ty ? "true" : "false", "} : (v_tensor<", x,
                 ", f64>, v_tensor<", y, ", f64>) -> v_tensor<[2, 4, 5], f64>\n",
                 "%w = nn.exp(%z) : (v_tensor<[2, 4, 5], f64>) -> v_tensor<[2, 4, 5], f64>\n",
                 Fetch("%w", "[2, 4, 5]"));
      ExpectNumeric(body, {{"x0", Doubles(tx ? Shape{2, 3, 4} : Shape{2, 4, 3}, 1)},
                           {"x1", Doubles(ty ? Shape{5, 3} : Shape{3, 5}, 2)}});
    }
  }
}

// Steps have no slope: what flows is what would without rounding.
TEST_F(GradientTest, StraightThroughRoundedRows) {
  const auto gradient = [&](int64_t level) {
    Program program = Parse(StrCat(
        R"(
        %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 4], f32>
        %w = builtin.constant() {value = tensor<[3, 2, 1], u8> [18, 52, 86, 120, 154, 11]} : () -> v_tensor<[3, 2, 1], u8>
        %s = builtin.constant() {value = tensor<[3, 2], f32> [1.0, 2.0, -3.0, 0.5, 0.25, 4.0]} : () -> v_tensor<[3, 2], f32>
        %y = nn.matmul_nbits(%x, %w, %s) {K = 4, N = 3, accuracy_level = )",
        level,
        R"(, block_size = 2} : (v_tensor<[2, 4], f32>, v_tensor<[3, 2, 1], u8>, v_tensor<[3, 2], f32>) -> v_tensor<[2, 3], f32>
        nn.fetch(%y) {name = "y"} : (v_tensor<[2, 3], f32>) -> ()
)"));
    Differentiate(program);
    Verify(program);
    const std::vector<float> x{0.3F, -1.7F, 2.5F, 0.1F, 0, 4, -0.6F, 1.1F};
    const NamedValues inputs{{"x", Tensor::Of<float>({2, 4}, x)}};
    return ValuesOf<float>(Interpreter(program).Run(inputs)[0].second);
  };
  const std::vector<float> exact = gradient(0), rounded = gradient(4);
  ASSERT_EQ(exact.size(), 8u);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], 1e-5) << i;
}

TEST_F(GradientTest, MatrixProductsOfVectors) {
  struct Case {
    const char *x, *y, *z;
    Shape x_shape, y_shape;
  };
  for (const Case& c :
       {Case{"[3]", "[3, 2]", "[2]", {3}, {3, 2}}, Case{"[2, 3]", "[3]", "[2]", {2, 3}, {3}},
        Case{"[3]", "[3]", "[]", {3}, {3}}, Case{"[3]", "[4, 3, 2]", "[4, 2]", {3}, {4, 3, 2}},
        Case{"[4, 2, 3]", "[3]", "[4, 2]", {4, 2, 3}, {3}}}) {
    ExpectNumeric(
        StrCat(Feeds({c.x, c.y}), "%m = nn.matmul(%x0, %x1) : (v_tensor<", c.x, ", f64>, v_tensor<",
               c.y, ", f64>) -> v_tensor<", c.z, ", f64>\n", "%e = nn.sin(%m) : (v_tensor<", c.z,
               ", f64>) -> v_tensor<", c.z, ", f64>\n", Fetch("%e", c.z)),
        {{"x0", Doubles(c.x_shape, 1)}, {"x1", Doubles(c.y_shape, 2)}});
  }
}

TEST_F(GradientTest, ZeroWithoutAPath) {
  const std::string body =
      StrCat(Feeds({"[2]", "[3]"}),
             "%a = nn.exp(%x0) : (v_tensor<[2], f64>) -> v_tensor<[2], f64>\n", Fetch("%a", "[2]"));
  ExpectNumeric(body, {{"x0", Doubles({2}, 1)}, {"x1", Doubles({3}, 1)}});
}

// What an operation is made of is computed in f32: squares of 300 are not finite in f16.
TEST_F(GradientTest, PartsOfHalvesAreFloats) {
  for (const char* op : {"nn.lp_normalization", "nn.mean_variance_normalization"}) {
    Program program = Parse(
        StrCat("%x0 = nn.feed() {name = \"x0\"} : () -> v_tensor<[2, 3, 2, 2], f16>\n%a = ", op,
               "(%x0) : (v_tensor<[2, 3, 2, 2], f16>) -> v_tensor<[2, 3, 2, 2], f16>\n"
               "nn.fetch(%a) {name = \"y\"} : (v_tensor<[2, 3, 2, 2], f16>) -> ()\n"));
    Differentiate(program);
    Verify(program);
    std::vector<double> values(24);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = 300 + 50 * static_cast<double>(i * 7 % 5);
    const Tensor x = Cast(Tensor::Of<double>({2, 3, 2, 2}, values), ElementType::kF16);
    for (const auto& [name, value] : Interpreter(program).Run({{"x0", x}})) {
      EXPECT_EQ(value.tensor().element_type(), ElementType::kF16);
      double most = 0;
      for (const double v : ToDoubles(value.tensor())) {
        EXPECT_TRUE(std::isfinite(v)) << op << " " << name;
        most = std::max(most, std::fabs(v));
      }
      if (name == "y") {
        EXPECT_GT(most, 0.1) << op;
      }
    }
  }
}

TEST_F(GradientTest, AnOpWithoutARuleIsNamed) {
  Program program = Parse(
      StrCat(Feeds({"[2]"}),
             "%a = nn.optional_get_element(%x0) : (v_tensor<[2], f64>) -> v_tensor<[2], f64>\n",
             Fetch("%a", "[2]")));
  const Error e = ErrorOf([&] { Differentiate(program); });
  EXPECT_EQ(e.id(), "gradient/unsupported");
  EXPECT_EQ(e.message(), "nn.optional_get_element has no gradient");
}

// Each product without one of its factors is found without dividing by that.
TEST_F(GradientTest, ProductsWithZeros) {
  const NamedValues x = {
      {"x0", RtValue(Tensor::Of<double>({2, 4}, {2, 0, 3, 4, 0, 5, 0, 2}))},
  };
  const std::string axes =
      "%axes = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>\n";
  ExpectNumeric(
      StrCat(Feeds({"[2, 4]"}), axes,
             "%a = nn.reduce_prod(%x0, %axes) {keepdims = false} : (v_tensor<[2, 4], f64>, "
             "v_tensor<[1], i64>) -> v_tensor<[2], f64>\n",
             Fetch("%a", "[2]")),
      x);
  for (const char* form :
       {"", " {exclusive = true}", " {reverse = true}", " {exclusive = true, reverse = true}"}) {
    ExpectNumeric(
        StrCat(Feeds({"[2, 4]"}), axes, "%a = nn.cum_prod(%x0, %axes)", form,
               " : (v_tensor<[2, 4], f64>, v_tensor<[1], i64>) -> v_tensor<[2, 4], f64>\n",
               Fetch("%a", "[2, 4]")),
        x);
  }
  const std::string scatter =
      StrCat(Feeds({"[3]", "[4]"}),
             "%at = builtin.constant() {value = tensor<[4], i64> [0, 0, 1, 1]} : () -> "
             "v_tensor<[4], i64>\n"
             "%a = nn.scatter_elements(%x0, %at, %x1) {reduction = \"mul\"} : (v_tensor<[3], f64>, "
             "v_tensor<[4], i64>, v_tensor<[4], f64>) -> v_tensor<[3], f64>\n",
             Fetch("%a", "[3]"));
  for (const auto& updates : {std::vector<double>{2, 0, 3, 4}, {0, 0, 5, 0}, {1, 2, 3, 4}}) {
    ExpectNumeric(scatter, {{"x0", RtValue(Tensor::Of<double>({3}, {7, 8, 9}))},
                            {"x1", RtValue(Tensor::Of<double>({4}, updates))}});
  }
}

// A reduction over no axes is one over all; a pool over none is none.
TEST_F(GradientTest, PoolsWithoutSpatialDims) {
  for (const char* op : {"nn.global_average_pool", "nn.global_max_pool", "nn.global_lp_pool"}) {
    ExpectNumeric(
        StrCat(Feeds({"[2, 3]"}), "%a = ", op,
               "(%x0) : (v_tensor<[2, 3], f64>) -> v_tensor<[2, 3], f64>\n", Fetch("%a", "[2, 3]")),
        {{"x0", Doubles({2, 3}, 2)}});
  }
}

// A parameter of zeros must not make its gradient NaN.
TEST_F(GradientTest, NormsOfNothingHaveNoSlope) {
  Program program = Parse(
      StrCat(Feeds({"[3]"}),
             "%a = nn.reduce_l2(%x0, none) {keepdims = false} : (v_tensor<[3], f64>, none) -> "
             "v_tensor<[], f64>\n",
             Fetch("%a", "[]")));
  Differentiate(program);
  const NamedValues outputs =
      Interpreter(program).Run({{"x0", RtValue(Tensor::Of<double>({3}, {0, 0, 0}))}});
  EXPECT_EQ(ValuesOf<double>(*Find(outputs, "d0")), std::vector<double>(3, 0.0));
}

// One value that is two operands of an op gets the gradients of both.
TEST_F(GradientTest, AnOperandThatOccursTwice) {
  ExpectNumeric(
      StrCat(Feeds({"[1, 2, 3, 4]"}),
             "%a = nn.attention(%x0, %x0, %x0) : (v_tensor<[1, 2, 3, 4], f64>, "
             "v_tensor<[1, 2, 3, 4], f64>, v_tensor<[1, 2, 3, 4], f64>) -> v_tensor<[1, 2, 3, 4], "
             "f64>\n",
             Fetch("%a", "[1, 2, 3, 4]")),
      {{"x0", Doubles({1, 2, 3, 4}, 2)}});
}

// Nothing is recursive: depth is no limit.
TEST_F(GradientTest, LongChains) {
  constexpr int kOps = 100000;
  Program program(context_);
  Builder b = Builder::AtEnd(program.block());
  const Type type = VTensorType::Get(context_, SymShape::FromConstants({}), ElementType::kF64);
  const NamedAttribute name[] = {b.Named("name", b.Attr(std::string_view("x")))};
  const Value x = b.Create("nn.feed", {}, name, {&type, 1})->result(0);
  Value y = x;
  for (int i = 0; i < kOps; ++i) y = b.Create("nn.sin", {&y, 1})->result(0);
  const std::vector<Value> gradients = BuildGradients(b, y, {&x, 1});
  for (const auto& [value, text] : {std::pair{y, "y"}, {gradients[0], "d"}}) {
    const NamedAttribute fetch[] = {b.Named("name", b.Attr(std::string_view(text)))};
    b.Create("nn.fetch", {&value, 1}, fetch);
  }
  const NamedValues outputs =
      Interpreter(program, {.verify = false}).Run({{"x", Tensor::Scalar<double>(0.5)}});
  double expected_y = 0.5, expected_d = 1;
  for (int i = 0; i < kOps; ++i) {
    expected_d *= std::cos(expected_y);
    expected_y = std::sin(expected_y);
  }
  EXPECT_NEAR(ValuesOf<double>(outputs[0].second)[0], expected_y, 1e-12);
  EXPECT_NEAR(ValuesOf<double>(outputs[1].second)[0], expected_d, 1e-9 * expected_d);
}

TEST_F(GradientTest, BroadcastOfUnknownExtents) {
  const std::string body = StrCat(
      Feeds({"[?]", "[2, ?]"}),
      "%a = nn.mul(%x0, %x1) : (v_tensor<[?], f64>, v_tensor<[2, ?], f64>) -> v_tensor<[2, ?], "
      "f64>\n",
      Fetch("%a", "[2, ?]"));
  ExpectNumeric(body, {{"x0", Doubles({3}, 1)}, {"x1", Doubles({2, 3}, 2)}});
  ExpectNumeric(body, {{"x0", Doubles({1}, 1)}, {"x1", Doubles({2, 3}, 2)}});
  ExpectNumeric(body, {{"x0", Doubles({3}, 1)}, {"x1", Doubles({2, 1}, 2)}});
}

// Models are trained with a batch of any size.
TEST_F(GradientTest, SymbolicBatches) {
  const auto ints = [](const char* name, const std::string& values, int count) {
    return StrCat("%", name, " = builtin.constant() {value = tensor<[", count, "], i64> [", values,
                  "]} : () -> v_tensor<[", count, "], i64>\n");
  };
  const std::string layer =
      StrCat(Feeds({"[3, N, 2]", "[1, 12, 2]", "[1, 12, 3]", "[1, 24]"}),
             "%y, %h, %c = nn.lstm(%x0, %x1, %x2, %x3) : (v_tensor<[3, N, 2], f64>, v_tensor<[1, "
             "12, 2], f64>, v_tensor<[1, 12, 3], f64>, v_tensor<[1, 24], f64>) -> (v_tensor<[3, 1, "
             "N, 3], f64>, v_tensor<[1, N, 3], f64>, v_tensor<[1, N, 3], f64>)\n",
             Fetch("%y", "[3, 1, N, 3]"));
  ExpectNumeric(layer, {{"x0", Doubles({3, 2, 2}, 1)},
                        {"x1", Doubles({1, 12, 2}, 2)},
                        {"x2", Doubles({1, 12, 3}, 3)},
                        {"x3", Doubles({1, 24}, 4)}});
  const std::string resize =
      StrCat(Feeds({"[N, 2, 3]"}),
             "%s = builtin.constant() {value = tensor<[3], f32> [1, 1, 2]} : () -> v_tensor<[3], "
             "f32>\n%y = nn.resize(%x0, none, %s) {mode = \"linear\"} : (v_tensor<[N, 2, 3], f64>, "
             "none, v_tensor<[3], f32>) -> v_tensor<[N, 2, 6], f64>\n%z = nn.mul(%y, %y) : "
             "(v_tensor<[N, 2, 6], f64>, v_tensor<[N, 2, 6], f64>) -> v_tensor<[N, 2, 6], f64>\n",
             Fetch("%z", "[N, 2, 6]"));
  ExpectNumeric(resize, {{"x0", Doubles({2, 2, 3}, 1)}});
  const std::string pieces = StrCat(
      Feeds({"[N, 4, 5]"}), ints("b", "-3, 1", 2), ints("e", "4, 9", 2), ints("a", "-2, 2", 2),
      "%i = builtin.constant() {value = tensor<[], i64> [-1]} : () -> "
      "v_tensor<[], i64>\n%y = nn.slice(%x0, %b, %e, %a) : (v_tensor<[N, 4, 5], f64>, "
      "v_tensor<[2], i64>, v_tensor<[2], i64>, v_tensor<[2], i64>) -> v_tensor<[N, 3, 4], "
      "f64>\n%z = nn.gather(%y, %i) {axis = 1} : (v_tensor<[N, 3, 4], f64>, v_tensor<[], "
      "i64>) -> v_tensor<[N, 4], f64>\n%w = nn.mul(%z, %z) : (v_tensor<[N, 4], f64>, "
      "v_tensor<[N, 4], f64>) -> v_tensor<[N, 4], f64>\n",
      Fetch("%w", "[N, 4]"));
  ExpectNumeric(pieces, {{"x0", Doubles({2, 4, 5}, 1)}});
}

}  // namespace
}  // namespace lathe::testing
