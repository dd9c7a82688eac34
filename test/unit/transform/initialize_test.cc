// Startup programs: what parameters are filled with.
#include <gtest/gtest.h>

#include <cmath>

#include "lathe/pass/pass_manager.h"
#include "lathe/transform/optimizer.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

class InitializeTest : public ProgramTest {
 protected:
  static Program Startup(const Program& main, const std::string& passes) {
    Program startup = main.Clone();
    PassManager manager({.verify_each = true});
    manager.Add(passes);
    manager.Run(startup);
    return startup;
  }

  /// A product of [4, rows] with a parameter of [rows, columns].
  Program Layer(int64_t rows, int64_t columns, const char* element = "f64") {
    const auto type = [&](int64_t a, int64_t b) {
      return StrCat("v_tensor<[", a, ", ", b, "], ", element, ">");
    };
    return Parse(StrCat("%x = nn.feed() {name = \"x\"} : () -> ", type(4, rows), "\n",
                        "%w = builtin.get_parameter() {name = \"w\"} : () -> ", type(rows, columns),
                        "\n%y = nn.matmul(%x, %w) : (", type(4, rows), ", ", type(rows, columns),
                        ") -> ", type(4, columns), "\nnn.fetch(%y) {name = \"y\"} : (",
                        type(4, columns), ") -> ()"));
  }

  std::vector<double> Fill(int64_t rows, int64_t columns, const std::string& options,
                           const char* element = "f64") {
    Program main = Layer(rows, columns, element);
    Program startup = Startup(main, StrCat("initialize{", options, "}"));
    RunStartup(startup, main);
    EXPECT_TRUE(startup.parameters().empty());
    const Variable* w = main.parameters().Find("w");
    EXPECT_NE(w, nullptr);
    EXPECT_FALSE(w->is_mutable);
    return ToDoubles(w->data);
  }
};

struct Moments {
  double mean = 0, deviation = 0, most = 0;
};

Moments MomentsOf(const std::vector<double>& values) {
  Moments m;
  const auto n = static_cast<double>(values.size());
  for (const double v : values) m.mean += v / n;
  for (const double v : values) {
    m.deviation += (v - m.mean) * (v - m.mean) / n;
    m.most = std::max(m.most, std::abs(v));
  }
  m.deviation = std::sqrt(m.deviation);
  return m;
}

// 128 inputs, 64 outputs: deviations as torch.nn.init documents them.
TEST_F(InitializeTest, DeviationsAndBounds) {
  struct Case {
    const char* options;
    double deviation, bound;
  };
  const double inf = HUGE_VAL;
  const std::vector<Case> cases = {
      {"method=xavier_uniform", std::sqrt(2.0 / 192), std::sqrt(6.0 / 192)},
      {"method=xavier_normal,gain=2", 2 * std::sqrt(2.0 / 192), inf},
      {"method=kaiming_uniform", std::sqrt(2.0 / 128), std::sqrt(6.0 / 128)},
      {"method=kaiming_uniform,mode=fan_out,gain=1", std::sqrt(1.0 / 64), std::sqrt(3.0 / 64)},
      {"method=kaiming_normal", std::sqrt(2.0 / 128), inf},
      {"method=normal,std=0.02", 0.02, inf},
      {"method=truncated_normal,std=0.02", 0.02 * 0.87962566103, 0.04},
      {"method=uniform,std=3", 3, 3 * std::sqrt(3.0)},
      {"method=auto", std::sqrt(1.0 / 384), std::sqrt(1.0 / 128)},
      {"method=orthogonal", std::sqrt(1.0 / 128), inf},
      {"method=orthogonal,gain=2", std::sqrt(4.0 / 128), inf},
  };
  for (const char* element : {"f64", "f16"}) {
    for (const Case& c : cases) {
      const Moments m = MomentsOf(Fill(128, 64, c.options, element));
      EXPECT_NEAR(m.mean, 0, 4 * c.deviation / std::sqrt(128 * 64)) << c.options;
      EXPECT_NEAR(m.deviation / c.deviation, 1, 0.03) << c.options << " " << element;
      EXPECT_LE(m.most, c.bound * 1.001) << c.options;
      if (std::isfinite(c.bound)) {
        EXPECT_GE(m.most, c.bound * 0.99) << c.options;
      }
    }
  }
}

TEST_F(InitializeTest, OrthogonalMatricesAre) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{7, 7}, {12, 5}, {5, 12}, {1, 3}}) {
    const std::vector<double> w = Fill(rows, columns, "method=orthogonal");
    const bool tall = rows >= columns;
    const int64_t n = std::min(rows, columns), length = std::max(rows, columns);
    const auto at = [&](int64_t vector, int64_t i) {
      return w[static_cast<size_t>(tall ? i * columns + vector : vector * columns + i)];
    };
    for (int64_t a = 0; a < n; ++a) {
      for (int64_t b = 0; b < n; ++b) {
        double dot = 0;
        for (int64_t i = 0; i < length; ++i) dot += at(a, i) * at(b, i);
        EXPECT_NEAR(dot, a == b ? 1 : 0, 1e-9) << rows << " x " << columns;
      }
    }
  }
}

// A truncated normal distribution has the quantiles of its formula.
TEST_F(InitializeTest, QuantilesOfTheTruncatedNormal) {
  std::vector<double> w = Fill(128, 128, "method=truncated_normal,std=1,mean=5");
  std::sort(w.begin(), w.end());
  const double inside = std::erf(std::sqrt(2.0));
  for (const double x : {-1.5, -1.0, -0.3, 0.0, 0.7, 1.9}) {
    const double expected = (std::erf(x / std::sqrt(2.0)) / inside + 1) / 2;
    const auto below = static_cast<double>(std::lower_bound(w.begin(), w.end(), x + 5) - w.begin());
    EXPECT_NEAR(below / static_cast<double>(w.size()), expected, 0.015) << x;
  }
}

TEST_F(InitializeTest, SeedsDecide) {
  const std::vector<double> first = Fill(8, 8, "seed=3");
  EXPECT_EQ(first, Fill(8, 8, "seed=3"));
  EXPECT_NE(first, Fill(8, 8, "seed=4"));
}

// What is not named keeps its value: a new head on a network that has been loaded.
TEST_F(InitializeTest, OthersKeepTheirValues) {
  Program main = Parse(R"(
    %a = builtin.get_parameter() {name = "a"} : () -> v_tensor<[2], f32>
    %b = builtin.get_parameter() {name = "b"} : () -> v_tensor<[2], f32>
    %s = nn.add(%a, %b) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    nn.fetch(%s) {name = "loss"} : (v_tensor<[2], f32>) -> ()
  )");
  for (const char* name : {"a", "b"}) {
    main.parameters().Insert(StrAttribute::Get(context_, name),
                             {.data = Tensor::Of<float>({2}, {1, 2})});
  }
  Program startup = Startup(main, "initialize{parameters=[b],method=constant,value=7}");
  RunStartup(startup, main);
  EXPECT_EQ(ToDoubles(main.parameters().Find("a")->data), (std::vector<double>{1, 2}));
  EXPECT_EQ(ToDoubles(main.parameters().Find("b")->data), (std::vector<double>{7, 7}));
}

// Nor is what is not a weight initialized anew.
TEST_F(InitializeTest, ConstantsKeepTheirValues) {
  Program main = Parse(R"(
    %a = builtin.get_parameter() {name = "a"} : () -> v_tensor<[2], f32>
    %b = builtin.get_parameter() {name = "b", constant = true} : () -> v_tensor<[2], f32>
    %m = builtin.get_parameter() {name = "mask"} : () -> v_tensor<[2], f32>
    %s = nn.add(%a, %b) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %t = nn.add(%s, %m) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    nn.fetch(%t) {name = "loss"} : (v_tensor<[2], f32>) -> ()
  )");
  const std::vector<double> mask = {0, -HUGE_VAL};
  for (const char* name : {"a", "b", "mask"}) {
    const std::vector<double> values = name[0] == 'm' ? mask : std::vector<double>{1, 2};
    main.parameters().Insert(StrAttribute::Get(context_, name),
                             {.data = Cast(Tensor::Of<double>({2}, values), ElementType::kF32)});
  }
  Program startup = Startup(main, "initialize{method=constant,value=7}");
  RunStartup(startup, main);
  EXPECT_EQ(ToDoubles(main.parameters().Find("a")->data), (std::vector<double>{7, 7}));
  EXPECT_EQ(ToDoubles(main.parameters().Find("b")->data), (std::vector<double>{1, 2}));
  EXPECT_EQ(ToDoubles(main.parameters().Find("mask")->data), mask);
}

// A layer's scale and variance are ones; its other vectors, zeros.
TEST_F(InitializeTest, LayersSayWhatTheirVectorsAre) {
  Program main = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 3, 4], f32>
    %s = builtin.get_parameter() {name = "s"} : () -> v_tensor<[3], f32>
    %b = builtin.get_parameter() {name = "b"} : () -> v_tensor<[3], f32>
    %m = builtin.get_parameter() {name = "m"} : () -> v_tensor<[3], f32>
    %v = builtin.get_parameter() {name = "v"} : () -> v_tensor<[3], f32>
    %y = nn.batch_normalization(%x, %s, %b, %m, %v) : (v_tensor<[2, 3, 4], f32>, v_tensor<[3], f32>, v_tensor<[3], f32>, v_tensor<[3], f32>, v_tensor<[3], f32>) -> v_tensor<[2, 3, 4], f32>
    nn.fetch(%y) {name = "loss"} : (v_tensor<[2, 3, 4], f32>) -> ()
  )");
  Program startup = Startup(main, "initialize");
  RunStartup(startup, main);
  for (const auto& [name, expected] :
       {std::pair<const char*, double>{"s", 1}, {"b", 0}, {"m", 0}, {"v", 1}}) {
    EXPECT_EQ(ToDoubles(main.parameters().Find(name)->data), std::vector<double>(3, expected))
        << name;
  }
}

TEST_F(InitializeTest, StateBeginsAsTheOptimizerSays) {
  Program main = Layer(3, 2, "f32");
  PassManager manager({.verify_each = true});
  manager.Add("append_backward,adagrad{initial_accumulator_value=0.5,schedule=plateau}");
  manager.Run(main);
  Program startup = Startup(main, "initialize");
  RunStartup(startup, main);
  const auto values = [&](std::string_view name) {
    return ToDoubles(main.parameters().Find(name)->data);
  };
  EXPECT_EQ(values("w@adagrad.sum"), std::vector<double>(6, 0.5));
  EXPECT_EQ(values(kStepCounter), std::vector<double>{0});
  EXPECT_EQ(values(kRateFactor), std::vector<double>{1});
  EXPECT_TRUE(main.parameters().Find("w")->is_mutable);
  const NamedValues inputs = {{"x", Tensor::Of<float>({4, 3}, std::vector<float>(12, 1))}};
  (void)Interpreter(main).Run(inputs);
  EXPECT_EQ(values(kStepCounter), std::vector<double>{1});
}

}  // namespace
}  // namespace lathe::testing
