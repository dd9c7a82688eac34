// What oneDNN computes against the interpreter, and what it refuses. Without oneDNN the error of a
// missing compiler is what is left to test.
#include <array>
#include <atomic>
#include <optional>
#include <sstream>
#include <thread>

#include "lathe/driver/executable.h"
#include "lathe/driver/pass_checks.h"
#include "lathe/lower/external.h"
#include "lathe/support/random.h"
#include "lathe/support/tensor.h"
#include "test/unit/lower/fusion_util.h"

namespace lathe::testing {
namespace {

#ifdef LATHE_WITH_ONEDNN
constexpr bool kPresent = true;
#else
constexpr bool kPresent = false;
#endif

class OneDnn : public NetTest {
 protected:
  void SetUp() override {
    if (!kPresent) GTEST_SKIP() << "built without oneDNN";
    net_.emplace(context_);
  }

  Value Weight(const Shape& shape, uint64_t seed = 7) {
    return net_->Constant(RandomTensor(ElementType::kF32, shape, seed));
  }

  static Executable Compile(const Program& program, int threads = 1) {
    return Executable(program, {.level = 0, .threads = threads, .external = "onednn"});
  }

  // The primitives that the functions of oneDNN became, without their code: "conv relu -> [...]".
  static std::string StepsOf(const Executable& executable) {
    std::string steps;
    for (const CompiledFunctionInfo& f : executable.functions()) {
      if (f.strategy != "onednn") continue;
      std::istringstream lines(f.candidates);
      for (std::string line; std::getline(lines, line);) {
        steps += StrCat(steps.empty() ? "" : "; ", line.substr(0, line.find(" ->")));
      }
    }
    return steps;
  }

  static void ExpectClose(const NamedValues& got, const NamedValues& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Closeness close = AllClose(got[i].second, wanted[i].second, 1e-4, 1e-4);
      EXPECT_TRUE(close) << wanted[i].first << ": " << close.description;
    }
  }

  // The outputs agree with the interpreter, with the same bits for any threads; the primitives.
  std::string Check(const std::vector<Value>& outputs) {
    for (const Value v : outputs) net_->Output(v);
    const NamedValues inputs = RandomInputs(net_->program(), 3);
    Program copy = net_->program().Clone();
    const NamedValues wanted = Interpreter(copy).Run(inputs);
    const Executable executable = Compile(net_->program());
    const NamedValues first = executable.Run(inputs);
    ExpectClose(first, wanted);
    EXPECT_EQ(executable.Run(inputs), first);
    EXPECT_EQ(Compile(net_->program(), 3).Run(inputs), first);
    return StepsOf(executable);
  }

  static Shape ShapeOf(Value v) {
    Shape shape;
    for (const Dim& d : v.type().cast<AnyTensorType>().dims()) shape.push_back(d.value());
    return shape;
  }

  std::string Refusal(Value output) {
    return ExternalCompilers::Global().Find("onednn").refuse(output.defining_op());
  }

  std::optional<Net> net_;
};

struct ConvCase {
  Shape x, w;
  int64_t group = 1;
  std::vector<int64_t> strides = {}, pads = {}, dilations = {};
  std::string auto_pad = "NOTSET";
};

TEST_F(OneDnn, Convolutions) {
  const std::vector<ConvCase> cases = {
      {{1, 16, 9, 9}, {32, 16, 1, 1}},
      {{2, 3, 11, 13}, {8, 3, 3, 3}, 1, {}, {1, 1, 1, 1}},
      {{1, 3, 23, 21}, {64, 3, 7, 7}, 1, {2, 2}, {3, 3, 3, 3}},
      {{1, 16, 10, 9}, {24, 16, 3, 3}, 1, {2, 1}, {1, 0, 0, 2}},
      {{1, 16, 12, 12}, {16, 16, 3, 3}, 1, {}, {2, 2, 2, 2}, {2, 2}},
      {{1, 24, 8, 8}, {24, 1, 3, 3}, 24, {}, {1, 1, 1, 1}},
      {{1, 7, 8, 8}, {7, 1, 5, 5}, 7, {2, 2}, {2, 2, 2, 2}},
      {{2, 12, 6, 6}, {8, 3, 1, 1}, 4},
      {{1, 16, 10, 10}, {16, 16, 3, 3}, 1, {2, 2}, {}, {}, "SAME_UPPER"},
      {{1, 16, 10, 10}, {16, 16, 3, 3}, 1, {2, 2}, {}, {}, "SAME_LOWER"},
      {{1, 8, 20}, {8, 8, 3}, 1, {}, {1, 1}},
      {{1, 8, 4, 6, 5}, {8, 8, 3, 3, 3}, 1, {}, {1, 1, 1, 1, 1, 1}},
  };
  for (const ConvCase& c : cases) {
    SCOPED_TRACE(StrCat(ShapeToString(c.x), " ", ShapeToString(c.w)));
    net_.emplace(context_);
    std::vector<Net::Attr> attributes = {net_->Int("group", c.group)};
    if (!c.strides.empty()) attributes.push_back(net_->IntList("strides", c.strides));
    if (!c.pads.empty()) attributes.push_back(net_->IntList("pads", c.pads));
    if (!c.dilations.empty()) attributes.push_back(net_->IntList("dilations", c.dilations));
    attributes.push_back({"auto_pad", StrAttribute::Get(context_, c.auto_pad)});
    const Value y = net_->Op("conv", {net_->X(c.x), Weight(c.w), Weight({c.w[0]}, 8)}, attributes);
    EXPECT_EQ(Check({y}), "reorder; conv; reorder");
  }
}

TEST_F(OneDnn, WeightsThatAreNoConstants) {
  const Value y = net_->Op("conv", {net_->X({1, 16, 8, 8}), net_->X({32, 16, 3, 3})});
  EXPECT_EQ(Check({y}), "reorder; reorder; conv; reorder");
}

TEST_F(OneDnn, WhatFollowsAConvolution) {
  const Value x = net_->X({1, 16, 9, 9});
  const Value first = net_->Op("relu", {net_->Op("conv", {x, Weight({16, 16, 1, 1})})});
  const Value second = net_->Op("conv", {first, Weight({16, 16, 3, 3}, 9), Weight({16})},
                                {net_->IntList("pads", {1, 1, 1, 1})});
  const Value scaled = net_->Op("mul", {Weight({16, 1, 1}, 5), second});
  const Value sum = net_->Op("relu", {net_->Op("add", {scaled, first})});
  EXPECT_EQ(Check({sum}), "reorder; conv relu; conv mul add relu; reorder");
}

// Of two convolutions that a sum adds the first takes it along; both are read where they are.
TEST_F(OneDnn, ASumOfTwoConvolutions) {
  const Value x = net_->X({1, 16, 9, 9});
  const Value a = net_->Op("conv", {x, Weight({16, 16, 1, 1})});
  const Value b = net_->Op("conv", {x, Weight({16, 16, 1, 1}, 9)});
  EXPECT_EQ(Check({net_->Op("relu", {net_->Op("add", {b, a})})}),
            "reorder; conv; conv add relu; reorder");
}

// What is read elsewhere, too, or is a result, is not computed in passing.
TEST_F(OneDnn, WhatIsNeededElsewhereIsKept) {
  const Value c = net_->Op("conv", {net_->X({1, 16, 9, 9}), Weight({16, 16, 1, 1})});
  const Value r = net_->Op("relu", {c});
  EXPECT_EQ(Check({r, c, net_->Op("mul", {r, c})}),
            "reorder; conv; relu; mul; reorder; reorder; reorder");
}

TEST_F(OneDnn, Activations) {
  const std::vector<std::pair<std::string, std::vector<std::pair<std::string, double>>>> cases = {
      {"relu", {}},
      {"sigmoid", {}},
      {"mish", {}},
      {"gelu", {}},
      {"hard_swish", {}},
      {"leaky_relu", {{"alpha", 0.1}}},
      {"tanh", {}},
      {"abs", {}},
      {"elu", {{"alpha", 0.7}}},
      {"exp", {}},
      {"swish", {{"alpha", 1.5}}},
      {"hard_sigmoid", {{"alpha", 0.3}, {"beta", 0.4}}},
  };
  for (const auto& [name, values] : cases) {
    SCOPED_TRACE(name);
    net_.emplace(context_);
    std::vector<Net::Attr> attributes;
    for (const auto& [key, value] : values) {
      attributes.push_back({key, net_->builder().Attr(value)});
    }
    const Value c = net_->Op("conv", {net_->X({1, 16, 5, 5}), Weight({16, 16, 1, 1})});
    EXPECT_EQ(Check({net_->Op(name, {c}, attributes)}),
              StrCat("reorder; conv ", name, "; reorder"));
  }
  net_.emplace(context_);
  const Value c = net_->Op("conv", {net_->X({1, 16, 5, 5}), Weight({16, 16, 1, 1})});
  EXPECT_EQ(Check({net_->Op("clip", {c, net_->Scalar(0), net_->Scalar(6)})}),
            "reorder; conv clip; reorder");
}

TEST_F(OneDnn, Products) {
  const std::vector<std::array<Shape, 2>> cases = {
      {Shape{7, 33}, Shape{33, 17}},         {Shape{1, 64}, Shape{64, 40}},
      {Shape{2, 5, 16}, Shape{16, 24}},      {Shape{3, 5, 16}, Shape{3, 16, 9}},
      {Shape{2, 3, 5, 16}, Shape{3, 16, 9}}, {Shape{1, 3, 5, 16}, Shape{4, 1, 16, 9}},
  };
  for (const bool constant : {true, false}) {
    for (const auto& [a, b] : cases) {
      SCOPED_TRACE(StrCat(ShapeToString(a), " ", ShapeToString(b), constant ? " constant" : ""));
      net_.emplace(context_);
      const Value y = net_->Op("matmul", {net_->X(a), constant ? Weight(b) : net_->X(b)});
      EXPECT_EQ(Check({y}), "matmul");
    }
  }
}

TEST_F(OneDnn, TransposedProducts) {
  for (const bool x : {true, false}) {
    for (const bool y : {true, false}) {
      net_.emplace(context_);
      const Shape a = x ? Shape{2, 16, 5} : Shape{2, 5, 16},
                  b = y ? Shape{2, 9, 16} : Shape{2, 16, 9};
      const Value z = net_->Op("matmul", {net_->X(a), net_->X(b)},
                               {net_->Bool("transpose_x", x), net_->Bool("transpose_y", y)});
      const std::string steps = Check({z});
      EXPECT_TRUE(steps.ends_with("matmul")) << steps;
    }
  }
}

TEST_F(OneDnn, WhatFollowsAProduct) {
  const Value x = net_->X({2, 6, 32});
  const Value h = net_->Op(
      "gelu", {net_->Op("add", {Weight({48}), net_->Op("matmul", {x, Weight({32, 48})})})});
  const Value y = net_->Op("add", {Weight({32}), net_->Op("matmul", {h, Weight({48, 32})})});
  const Value n =
      net_->Op("layer_normalization", {net_->Op("add", {y, x}), Weight({32}), Weight({32}, 2)});
  EXPECT_EQ(Check({n}), "matmul add gelu; matmul add add; layer_normalization");
}

TEST_F(OneDnn, Gemm) {
  struct Case {
    double alpha, beta;
    std::optional<Shape> c;
    bool ta = false, tb = false;
  };
  const std::vector<Case> cases = {{1, 1, Shape{9}},       {1, 1, Shape{1, 9}, false, true},
                                   {0.5, 1, Shape{9}},     {2, 0.25, Shape{5, 9}, true, false},
                                   {0.5, 1, std::nullopt}, {1, 1, Shape{5, 1}, true, true},
                                   {1, 0, Shape{9}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(StrCat(c.alpha, " ", c.beta));
    net_.emplace(context_);
    std::vector<Value> operands = {net_->X(c.ta ? Shape{16, 5} : Shape{5, 16}),
                                   Weight(c.tb ? Shape{9, 16} : Shape{16, 9})};
    if (c.c) operands.push_back(net_->X(*c.c));
    const Value y = net_->Op("gemm", operands,
                             {{"alpha", net_->builder().Attr(c.alpha)},
                              {"beta", net_->builder().Attr(c.beta)},
                              net_->Bool("transA", c.ta),
                              net_->Bool("transB", c.tb)});
    if (!Refusal(y).empty()) {
      EXPECT_EQ(c.c, (Shape{5, 1}));
      continue;
    }
    const std::string steps = Check({net_->Op("relu", {y})});
    EXPECT_TRUE(steps.ends_with("gemm relu")) << steps;
  }
}

TEST_F(OneDnn, Pools) {
  for (const char* name : {"max_pool", "average_pool"}) {
    for (const bool ceil : {false, true}) {
      SCOPED_TRACE(StrCat(name, ceil));
      net_.emplace(context_);
      const Value y =
          net_->Op(name, {net_->X({2, 16, 10, 11})},
                   {net_->IntList("kernel_shape", {3, 3}), net_->IntList("strides", {2, 2}),
                    net_->IntList("pads", {1, 0, 1, 1}), net_->Bool("ceil_mode", ceil)});
      EXPECT_EQ(Check({y}), StrCat("reorder; ", name, "; reorder"));
    }
  }
  net_.emplace(context_);
  EXPECT_EQ(
      Check({net_->Op("average_pool", {net_->X({1, 5, 8, 8})},
                      {net_->IntList("kernel_shape", {3, 3}), net_->IntList("pads", {1, 1, 1, 1}),
                       net_->Bool("count_include_pad", true)})}),
      "reorder; average_pool; reorder");
  for (const char* name : {"global_max_pool", "global_average_pool"}) {
    net_.emplace(context_);
    EXPECT_EQ(Check({net_->Op(name, {net_->X({2, 16, 7, 5})})}), StrCat("reorder; ", name));
  }
}

TEST_F(OneDnn, Rows) {
  for (const char* name : {"softmax", "log_softmax"}) {
    net_.emplace(context_);
    EXPECT_EQ(Check({net_->Op(name, {net_->X({3, 5, 37})})}), name);
  }
  net_.emplace(context_);
  EXPECT_EQ(Check({net_->Op("layer_normalization", {net_->X({3, 5, 37}), Weight({37})})}),
            "layer_normalization");
}

// Images stay channels last through what works on elements, and through concatenations.
TEST_F(OneDnn, ImagesKeepTheirOrder) {
  const Value x = net_->X({1, 8, 9, 9});
  const Value a =
      net_->Op("conv", {x, Weight({8, 8, 3, 3})}, {net_->IntList("pads", {1, 1, 1, 1})});
  const Value both = net_->Op("concat", {a, x}, {net_->Int("axis", 1)});
  const Value scaled = net_->Op("mul", {both, Weight({16, 1, 1})});
  const Value y = net_->Op("max_pool", {scaled}, {net_->IntList("kernel_shape", {2, 2})});
  EXPECT_EQ(Check({y}), "reorder; conv; concat; mul; max_pool; reorder");
}

// Parts of large ones, which threads share, give what the interpreter gives.
TEST_F(OneDnn, LargeOnesComeInParts) {
  const auto parts_of = [](const Executable& executable) {
    std::string parts;
    for (const CompiledFunctionInfo& f : executable.functions()) {
      for (size_t at = 0; (at = f.candidates.find(" x ", at)) != std::string::npos; ++at) {
        parts += f.candidates[at - 1];
      }
    }
    return parts;
  };
  const std::vector<int64_t> pads = {2, 1, 1, 2};
  for (const Shape& shape : {Shape{1, 32, 43, 41}, Shape{3, 32, 25, 24}}) {
    for (const int64_t stride : {1, 2}) {
      SCOPED_TRACE(StrCat(ShapeToString(shape), " ", stride));
      net_.emplace(context_);
      const Value x = net_->X(shape);
      const Value c =
          net_->Op("conv", {x, Weight({96, 32, 3, 3}), Weight({96})},
                   {net_->IntList("pads", pads), net_->IntList("strides", {stride, stride})});
      const Value other = net_->X(ShapeOf(c));
      Check({net_->Op("relu", {net_->Op("add", {c, other})})});
      EXPECT_NE(parts_of(Compile(net_->program())), "");
    }
  }
  net_.emplace(context_);
  const Value y = net_->Op("matmul", {net_->X({3, 170, 256}), Weight({256, 192})});
  const Value biased = net_->Op("add", {y, Weight({192})});
  Check({net_->Op("add", {net_->Op("gelu", {biased}), net_->X({3, 170, 192})})});
  EXPECT_EQ(parts_of(Compile(net_->program())), "4");
}

TEST_F(OneDnn, Refusals) {
  const Value x = net_->X({1, 8, 9, 9});
  const auto w = [&](const Shape& shape) { return Weight(shape); };
  const Value symbolic = net_->Feed({Dim::Symbol("N"), Dim(8), Dim(9), Dim(9)});
  EXPECT_EQ(Refusal(net_->Op("conv", {symbolic, w({8, 8, 1, 1})})),
            "its shape is known only when the program runs");
  EXPECT_EQ(Refusal(net_->Op("relu", {net_->X({4}, ElementType::kF64)})), "it is not all f32");
  EXPECT_EQ(Refusal(net_->Op("relu", {net_->X({4, 0})})), "it has no elements");
  EXPECT_EQ(Refusal(net_->Op("relu", {net_->X({})})), "it is a scalar");
  EXPECT_EQ(Refusal(net_->Op("matmul", {net_->X({4}), w({4, 3})})), "an operand is a vector");
  EXPECT_EQ(Refusal(net_->Op("sin", {x})), "it does not know nn.sin");
  EXPECT_EQ(Refusal(net_->Op("clip", {x, net_->X({}), net_->X({})})),
            "its limits are not constants");
  EXPECT_EQ(Refusal(net_->Op("sub", {w({8, 1, 1}), x})), "its first operand is broadcast");
  EXPECT_EQ(Refusal(net_->Op("layer_normalization", {net_->X({3, 4, 5}), w({4, 5})},
                             {net_->Int("axis", 1)})),
            "it is over more than one axis");
  const std::vector<Net::Attr> same = {net_->IntList("kernel_shape", {2, 2})};
  EXPECT_EQ(Refusal(net_->Many("max_pool", {x}, same, 2)->result(0)), "it gives indices");
  // A window that lies in the padding altogether.
  EXPECT_EQ(Refusal(net_->Op(
                "max_pool", {x},
                {net_->IntList("kernel_shape", {2, 2}), net_->IntList("pads", {3, 3, 3, 3})})),
            "a window may hold nothing but padding");
}

TEST_F(OneDnn, ElementsAloneAreNotWorthIt) {
  net_->Output(net_->Op("relu", {net_->Op("add", {net_->X({4}), net_->X({4})})}));
  EXPECT_EQ(StepsOf(Compile(net_->program())), "");
}

// What was packed stays when the weights' own tensors go.
TEST_F(OneDnn, KeepsWhatItNeedsOfParameters) {
  Builder& b = net_->builder();
  net_->program().parameters().Insert(StrAttribute::Get(context_, "w"),
                                      {RandomTensor(ElementType::kF32, {16, 8, 3, 3}, 2), false});
  const Type type = VTensorType::Get(context_, SymShape{16, 8, 3, 3}, ElementType::kF32);
  const NamedAttribute name = b.Named("name", b.Attr(std::string_view("w")));
  const Value w = b.Create("builtin.get_parameter", {}, {&name, 1}, {&type, 1})->result(0);
  EXPECT_EQ(Check({net_->Op("conv", {net_->X({1, 8, 9, 9}), w})}), "reorder; conv; reorder");
}

TEST_F(OneDnn, ManyThreadsRunOneExecutable) {
  const Value x = net_->X({1, 16, 19, 19});
  const Value c = net_->Op("relu", {net_->Op("conv", {x, Weight({32, 16, 3, 3}), Weight({32})})});
  net_->Output(net_->Op("global_average_pool", {c}));
  const NamedValues inputs = RandomInputs(net_->program(), 3);
  const Executable executable = Compile(net_->program(), 2);
  const NamedValues wanted = executable.Run(inputs);
  std::vector<std::thread> threads;
  std::atomic<int> same = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) same += executable.Run(inputs) == wanted ? 1 : 0;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(same, 80);
}

TEST_F(OneDnn, IsNotSaved) {
  net_->Output(net_->Op("conv", {net_->X({1, 8, 9, 9}), Weight({8, 8, 3, 3})}));
  const Executable executable = Compile(net_->program());
  EXPECT_FALSE(executable.CanSave());
  const Error error = ErrorOf([&] { executable.Save("never.lx"); });
  EXPECT_EQ(error.id(), "save/external");
  EXPECT_EQ(error.notes()[0].text, "onednn: conv");
}

using WithoutOneDnn = NetTest;

TEST_F(WithoutOneDnn, TheErrorNamesTheWayOut) {
  if (kPresent) GTEST_SKIP() << "built with oneDNN; a golden test takes the library away";
  const Error error = ErrorOf([] { (void)ExternalCompilers::Global().Find("onednn"); });
  EXPECT_EQ(error.id(), "lower/no-compiler");
  ASSERT_EQ(error.hints().size(), 1U);
  EXPECT_NE(error.hints()[0].find("scripts/install.sh test"), std::string::npos);
}

}  // namespace
}  // namespace lathe::testing
