// Programs that set parameters: compiled, saved and loaded, beside the interpreter.

#include <algorithm>
#include <thread>

#include "lathe/driver/every_way.h"
#include "lathe/driver/executable.h"
#include "lathe/support/random.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"
#include "test/unit/temp_folder.h"
#include "test/unit/training_step.h"

namespace lathe {
namespace {

using runtime::PlanValue;

constexpr const char* kVector = "v_tensor<[4], f32>";

class ParametersTest : public testing::ProgramTest {
 protected:
  void SetUp() override { codegen::NeedCodeGenerator(); }

  using Parameters = std::vector<std::pair<std::string, Tensor>>;

  Program Make(std::string_view body, const Parameters& parameters) {
    Program program = Parse(body);
    for (const auto& [name, tensor] : parameters) {
      program.parameters().Insert(StrAttribute::Get(context_, name), {tensor, false});
    }
    program.RefreshMutability();
    return program;
  }

  // "%y = nn.add(%a, %b)" on vectors.
  static std::string Op(const std::string& result, const std::string& op,
                        const std::vector<std::string>& operands) {
    std::string names, types;
    for (const std::string& operand : operands) {
      names += StrCat(names.empty() ? "%" : ", %", operand);
      types += StrCat(types.empty() ? "" : ", ", kVector);
    }
    return StrCat("%", result, " = nn.", op, "(", names, ") : (", types, ") -> ", kVector, "\n");
  }
  static std::string Feed(const std::string& name) {
    return StrCat("%", name, " = nn.feed() {name = \"", name, "\"} : () -> ", kVector, "\n");
  }
  static std::string Get(const std::string& result, const std::string& name) {
    return StrCat("%", result, " = builtin.get_parameter() {name = \"", name, "\"} : () -> ",
                  kVector, "\n");
  }
  static std::string Set(const std::string& name, const std::string& value) {
    return StrCat("builtin.set_parameter(%", value, ") {name = \"", name, "\"} : (", kVector,
                  ") -> ()\n");
  }
  static std::string Fetch(const std::string& value) {
    return StrCat("nn.fetch(%", value, ") {name = \"", value, "\"} : (", kVector, ") -> ()\n");
  }
  static Tensor Four(float a) { return Tensor::Of<float>({4}, {a, a + 1, a + 2, a + 3}); }

  // Several runs in every way and with several numbers of threads, beside the interpreter.
  static void ExpectRuns(const Program& program, const std::vector<NamedValues>& runs,
                         double tolerance = 1e-5) {
    std::vector<NamedValues> first;  // parameters after each run
    for (const int threads : {1, 2, 7}) {
      Program reference = program.Clone();
      Interpreter interpreter(reference);
      const EveryWay ways(program, {.threads = threads});
      ASSERT_NE(ways.made().executor(), nullptr) << ways.made().obstacles()[0];
      ASSERT_TRUE(ways.made().CanSave());
      for (size_t run = 0; run < runs.size(); ++run) {
        ExpectNear(ways.Run(runs[run]), interpreter.Run(runs[run]), tolerance);
        const NamedValues state = StateOf(ways.made());
        for (const auto& [name, value] : state) {
          const Tensor& wanted = reference.parameters().Find(name)->data;
          EXPECT_TRUE(AllClose(value, RtValue(wanted), tolerance, tolerance)) << name << run;
        }
        for (const auto& [how, executable] : ways.all()) {
          EXPECT_EQ(StateOf(executable), state) << how << ", run " << run;
        }
        if (first.size() == run) first.push_back(state);
        EXPECT_EQ(state, first[run]) << threads << " threads, run " << run;
      }
    }
  }
  void ExpectRuns(const std::string& body, const Parameters& parameters) {
    const Program program = Make(body, parameters);
    std::vector<NamedValues> runs;
    for (float x = 0; x < 4; ++x) {
      runs.emplace_back();
      for (Operation* feed : program.feeds()) {
        runs.back().emplace_back(feed->attribute("name").cast<StrAttribute>().value(),
                                 Four(x / 2 - 1));
      }
    }
    ExpectRuns(program, runs);
  }

  static NamedValues StateOf(const Executable& executable) {
    NamedValues state;
    for (const std::string& name : executable.MutableParameters()) {
      state.emplace_back(name, executable.GetParameter(name));
    }
    return state;
  }

  static void ExpectNear(const NamedValues& got, const NamedValues& wanted, double tolerance) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(AllClose(got[i].second, wanted[i].second, tolerance, tolerance)) << got[i].first;
    }
  }

  static size_t CopiesIn(const Executable& executable) {
    const auto copies = [](const runtime::PlanStep& step) {
      return step.kernel == runtime::kNone && !step.is_control();
    };
    return static_cast<size_t>(std::ranges::count_if(executable.executor()->plan().steps, copies));
  }
};

TEST_F(ParametersTest, AnUpdateIsInPlace) {
  const Program program = Make(
      Feed("g") + Get("w", "w") + Op("s", "sub", {"w", "g"}) + Set("w", "s"), {{"w", Four(1)}});
  ExpectRuns(program, {{{"g", Four(0)}}, {{"g", Four(3)}}});
  const Executable executable(program, {});
  EXPECT_EQ(CopiesIn(executable), 0u);
  EXPECT_TRUE(executable.executor()->plan().storages.empty());
}

TEST_F(ParametersTest, ReadsSeeWhatWasSetBeforeThem) {
  ExpectRuns(Feed("g") + Get("before", "w") + Op("s", "sub", {"before", "g"}) + Set("w", "s") +
                 Get("after", "w") + Op("y", "mul", {"before", "after"}) + Fetch("y") +
                 Fetch("before") + Fetch("after"),
             {{"w", Four(1)}});
}

// What is read late needs the old bytes: the update is computed elsewhere.
TEST_F(ParametersTest, AnOldValueThatIsReadLaterIsKept) {
  ExpectRuns(Feed("g") + Get("old", "w") + Op("s", "sub", {"old", "g"}) + Set("w", "s") +
                 Op("t", "softmax", {"s"}) + Op("y", "mul", {"old", "t"}) + Fetch("y"),
             {{"w", Four(1)}});
}

TEST_F(ParametersTest, TwoAreSwapped) {
  const std::string swap = Get("a", "a") + Get("b", "b") + Set("a", "b") + Set("b", "a");
  ExpectRuns(swap, {{"a", Four(1)}, {"b", Four(5)}});
  ExpectRuns(swap + Get("c", "a") + Fetch("c"), {{"a", Four(1)}, {"b", Four(5)}});
  ExpectRuns(Feed("x") + Get("a", "a") + Get("b", "b") + Get("c", "c") + Set("a", "b") +
                 Set("b", "c") + Op("y", "add", {"a", "x"}) + Set("c", "y"),
             {{"a", Four(1)}, {"b", Four(5)}, {"c", Four(9)}});
}

TEST_F(ParametersTest, OneIsSetTwice) {
  ExpectRuns(Feed("x") + Get("a", "w") + Op("b", "add", {"a", "x"}) + Set("w", "b") +
                 Get("c", "w") + Op("d", "exp", {"c"}) + Op("e", "tanh", {"d"}) + Set("w", "e") +
                 Fetch("c"),
             {{"w", Four(0)}});
}

TEST_F(ParametersTest, OneValueGoesToSeveralPlaces) {
  ExpectRuns(Feed("x") + Get("a", "a") + Op("y", "add", {"a", "x"}) + Set("a", "y") +
                 Set("b", "y") + Fetch("y") + Set("c", "x") + Get("d", "d") + Set("d", "d"),
             {{"a", Four(1)}, {"b", Four(5)}, {"c", Four(2)}, {"d", Four(7)}});
}

TEST_F(ParametersTest, OneIsSetToWhatItIsInAnotherOrder) {
  const std::string square = "v_tensor<[2, 2], f32>";
  ExpectRuns(StrCat("%w = builtin.get_parameter() {name = \"w\"} : () -> ", square,
                    "\n%t = nn.transpose(%w) {perm = [1, 0]} : (", square, ") -> ", square,
                    "\n%shape = builtin.constant() {value = tensor<[2], i64> [4, 1]} : () -> "
                    "v_tensor<[2], i64>\n%r = nn.reshape(%t, %shape) : (",
                    square, ", v_tensor<[2], i64>) -> v_tensor<[4, 1], f32>\n",
                    "%v = builtin.get_parameter() {name = \"v\"} : () -> v_tensor<[4, 1], f32>\n",
                    "builtin.set_parameter(%t) {name = \"w\"} : (", square, ") -> ()\n",
                    "builtin.set_parameter(%r) {name = \"v\"} : (v_tensor<[4, 1], f32>) -> ()\n"),
             {{"w", Tensor::Of<float>({2, 2}, {1, 2, 3, 4})},
              {"v", Tensor::Of<float>({4, 1}, {0, 0, 0, 0})}});
}

TEST_F(ParametersTest, ALoopReadsWhatWasSetBeforeIt) {
  ExpectRuns(
      Feed("x") + Get("a", "w") + Op("b", "add", {"a", "x"}) + Set("w", "b") +
          StrCat("%n = builtin.constant() {value = tensor<[], i64> [3]} : () -> "
                 "v_tensor<[], i64>\n%l = cf.while(%n, none, %x) ({\n",
                 "^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %u: ", kVector, "):\n") +
          Get("r", "w") + Op("s", "mul", {"u", "r"}) +
          StrCat("cf.yield(%go, %s) : (v_tensor<[], bool>, ", kVector,
                 ") -> ()\n}) : (v_tensor<[], i64>, none, ", kVector, ") -> ", kVector, "\n") +
          Fetch("l") + Op("d", "tanh", {"l"}) + Set("w", "d"),
      {{"w", Four(0)}});
}

TEST_F(ParametersTest, RegionsSetThem) {
  const std::string body =
      Feed("x") + "%c = nn.feed() {name = \"c\"} : () -> v_tensor<[], bool>\n" +
      "%n = nn.feed() {name = \"n\"} : () -> v_tensor<[], i64>\n" + Get("old", "w") +
      "cf.if(%c) ({\n" + Op("a", "add", {"old", "x"}) + Set("w", "a") +
      "cf.yield() : () -> ()\n}, {\ncf.yield() : () -> ()\n}) : (v_tensor<[], bool>) -> ()\n" +
      StrCat(
          "%l = cf.while(%n, none, %x) ({\n^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %u: ",
          kVector, "):\n") +
      Get("b", "w") + Op("d", "mul", {"b", "u"}) + Op("e", "tanh", {"d"}) + Set("w", "e") +
      Get("f", "w") + Op("g", "add", {"f", "u"}) +
      StrCat("cf.yield(%go, %g) : (v_tensor<[], bool>, ", kVector,
             ") -> ()\n}) : (v_tensor<[], i64>, none, ", kVector, ") -> ", kVector, "\n") +
      Get("last", "w") + Op("y", "add", {"last", "old"}) + Fetch("y") + Fetch("l");
  std::vector<NamedValues> runs;
  for (const auto& [c, n] :
       {std::pair<bool, int64_t>{true, 2}, {false, 3}, {true, 0}, {false, 0}}) {
    runs.push_back({{"x", Four(0.5)}, {"c", Tensor::Scalar(c)}, {"n", Tensor::Scalar(n)}});
  }
  ExpectRuns(Make(body, {{"w", Four(1)}}), runs);
}

// ---- training ----

class TrainingTest : public ParametersTest {};

TEST_F(TrainingTest, StepsAreThoseOfTheInterpreter) {
  std::vector<NamedValues> runs;
  for (const int64_t rows : {8, 8, 5, 8, 1})
    runs.push_back(testing::TrainingBatch(rows, runs.size()));
  ExpectRuns(testing::TrainingStep(context_), runs, 1e-4);
}

TEST_F(TrainingTest, UpdatesAreInPlaceAndTheLossFalls) {
  const Executable executable(testing::TrainingStep(context_), {});
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  EXPECT_EQ(
      executable.MutableParameters(),
      (std::vector<std::string>{"b0", "b0.momentum", "w0", "w0.momentum", "w1", "w1.momentum"}));
  const auto loss = [&] {
    const NamedValues outputs = executable.Run(testing::TrainingBatch(32, 1));
    return outputs[0].second.tensor().data<float>()[0];
  };
  const float first = loss();
  for (int i = 0; i < 30; ++i) loss();
  EXPECT_LT(loss(), first / 2);
  EXPECT_EQ(CopiesIn(executable), 0u);
}

// ---- state ----

TEST_F(ParametersTest, AFileHoldsWhatTheyAreWhenItIsSaved) {
  const TempFolder folder;
  const Executable executable(
      Make(Feed("x") + Get("w", "w") + Op("s", "add", {"w", "x"}) + Set("w", "s") + Fetch("s"),
           {{"w", Four(1)}}),
      {});
  executable.Save(folder / "fresh.lx");
  executable.Run({{"x", Four(1)}});
  EXPECT_EQ(executable.GetParameter("w"), Tensor::Of<float>({4}, {2, 4, 6, 8}));
  for (const char* name : {"trained.lx", "trained.json"}) {
    executable.Save(folder / name);
    const Executable loaded = Executable::Load(folder / name);
    EXPECT_EQ(loaded.MutableParameters(), std::vector<std::string>{"w"});
    EXPECT_EQ(loaded.GetParameter("w"), executable.GetParameter("w")) << name;
    loaded.Run({{"x", Four(0)}});
    EXPECT_EQ(loaded.GetParameter("w"), Tensor::Of<float>({4}, {2, 5, 8, 11})) << name;
  }
  EXPECT_EQ(Executable::Load(folder / "fresh.lx").GetParameter("w"), Four(1));
}

TEST_F(ParametersTest, TheExecutableHasItsOwn) {
  Program program = Make(Feed("x") + Get("w", "w") + Op("s", "add", {"w", "x"}) + Set("w", "s"),
                         {{"w", Four(1)}});
  const Executable a(program, {}), b(program, {});
  a.Run({{"x", Four(1)}});
  EXPECT_EQ(b.GetParameter("w"), Four(1));
  EXPECT_EQ(program.parameters().Find("w")->data, Four(1));
  a.SetParameter("w", Four(5));
  a.Run({{"x", Four(0)}});
  EXPECT_EQ(a.GetParameter("w"), Tensor::Of<float>({4}, {5, 7, 9, 11}));
}

TEST_F(ParametersTest, WrongNamesTypesAndShapesAreErrors) {
  const Program program =
      Make(Feed("x") + Get("w", "weight") + Get("c", "constant") + Op("s", "add", {"w", "x"}) +
               Op("t", "mul", {"s", "c"}) + Set("weight", "t") + Fetch("t"),
           {{"weight", Four(1)}, {"constant", Four(2)}});
  for (const bool machine_code : {true, false}) {
    const Executable executable(program, {.machine_code = machine_code});
    const Error missing = ErrorOf([&] { (void)executable.GetParameter("weigth"); });
    EXPECT_EQ(missing.id(), "parameter/missing");
    EXPECT_NE(missing.Render().find("did you mean 'weight'?"), std::string::npos);
    const auto set = [&](const char* name, const Tensor& value) {
      return ErrorOf([&] { executable.SetParameter(name, value); });
    };
    EXPECT_EQ(set("weigth", Four(1)).id(), "parameter/missing");
    EXPECT_EQ(set("constant", Four(1)).id(), "parameter/constant");
    EXPECT_EQ(set("weight", Tensor(ElementType::kF64, {4})).message(),
              "parameter 'weight' is f32[4], not f64[4]");
    EXPECT_EQ(set("weight", Tensor(ElementType::kF32, {2, 2})).id(), "parameter/shape");
    EXPECT_EQ(set("weight", Tensor()).id(), "parameter/type");
    EXPECT_EQ(executable.MutableParameters(), std::vector<std::string>{"weight"});
    EXPECT_EQ(executable.GetParameter("constant"), Four(2));
    EXPECT_EQ(executable.GetParameter("weight"), Four(1));
  }
}

TEST_F(ParametersTest, WhatIsReadBeforeItIsSetNeedsAValue) {
  const std::string body = Get("w", "w") + Op("s", "exp", {"w"}) + Set("w", "s");
  const Error error = ErrorOf([&] { const Executable executable(Make(body, {}), {}); });
  EXPECT_EQ(error.id(), "parameter/no-value");
  EXPECT_EQ(error.message(), "parameter 'w', which the program reads, has no value yet");
}

// A startup program: what it sets is read afterwards.
TEST_F(ParametersTest, WhatIsOnlySetNeedsNone) {
  const Executable executable(
      Make(Feed("x") + Op("y", "exp", {"x"}) + Set("w", "y") + Set("v", "x"), {}), {});
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  EXPECT_EQ(executable.GetParameter("w"), Tensor(ElementType::kF32, {4}));
  executable.Run({{"x", Four(0)}});
  EXPECT_EQ(executable.GetParameter("v"), Four(0));
  EXPECT_EQ(executable.GetParameter("w").data<float>()[0], 1.0f);
}

// ---- failures, threads ----

TEST_F(ParametersTest, ARunThatFailsSetsNothing) {
  const std::string body =
      Feed("x") + "%i = nn.feed() {name = \"i\"} : () -> v_tensor<[4], i64>\n" + Get("w", "w") +
      Op("s", "add", {"w", "x"}) + Set("w", "s") + Get("v", "v") +
      StrCat("%t = nn.gather(%v, %i) : (", kVector, ", v_tensor<[4], i64>) -> ", kVector, "\n") +
      Set("v", "t") + Fetch("t");
  const EveryWay ways(Make(body, {{"w", Four(1)}, {"v", Four(5)}}), {});
  for (const auto& [how, executable] : ways.all()) {
    ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
    const auto run = [&](std::vector<int64_t> indices) {
      executable.Run({{"x", Four(1)}, {"i", testing::Vec(indices)}});
    };
    EXPECT_EQ(ErrorOf([&] { run({0, 1, 4, 2}); }).id(), "run/index") << how;
    EXPECT_EQ(executable.GetParameter("w"), Four(1)) << how;
    EXPECT_EQ(executable.GetParameter("v"), Four(5)) << how;
    run({3, 2, 1, 0});
    EXPECT_EQ(executable.GetParameter("w"), Tensor::Of<float>({4}, {2, 4, 6, 8})) << how;
    EXPECT_EQ(executable.GetParameter("v"), Tensor::Of<float>({4}, {8, 7, 6, 5})) << how;
  }
}

// Without a plan the interpreter sets them.
TEST_F(ParametersTest, AnInterpretedRunThatFailsSetsNothing) {
  const Executable executable(
      Make(Feed("x") + "%i = nn.feed() {name = \"i\"} : () -> v_tensor<[4], i64>\n" +
               Get("w", "w") + Op("s", "add", {"w", "x"}) + Set("w", "s") +
               StrCat("%t = nn.gather(%s, %i) : (", kVector, ", v_tensor<[4], i64>) -> ", kVector,
                      "\n") +
               Fetch("t"),
           {{"w", Four(1)}}),
      {.machine_code = false});
  const auto run = [&](int64_t index) {
    executable.Run({{"x", Four(1)}, {"i", testing::Vec<int64_t>({0, 1, 2, index})}});
  };
  EXPECT_EQ(ErrorOf([&] { run(7); }).id(), "run/index");
  EXPECT_EQ(executable.GetParameter("w"), Four(1));
  run(0);
  EXPECT_EQ(executable.GetParameter("w"), Tensor::Of<float>({4}, {2, 4, 6, 8}));
}

TEST_F(ParametersTest, RunsOfManyThreadsTakeTurns) {
  const Executable executable(
      Make(Feed("x") + Get("w", "w") + Op("s", "add", {"w", "x"}) + Set("w", "s") + Fetch("s"),
           {{"w", Tensor(ElementType::kF32, {4})}}),
      {.threads = 2});
  constexpr int kThreads = 8, kRuns = 50;
  const Tensor one = Tensor::Of<float>({4}, {1, 1, 1, 1});
  std::vector<std::jthread> threads;
  std::vector<float> seen[kThreads];
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRuns; ++i) {
        const NamedValues outputs = executable.Run({{"x", one}});
        seen[t].push_back(outputs[0].second.tensor().data<float>()[3]);
        const Tensor now = executable.GetParameter("w");
        EXPECT_EQ(now.data<float>()[0], now.data<float>()[3]);
      }
    });
  }
  threads.clear();
  std::vector<float> all;
  for (const auto& of : seen) all.insert(all.end(), of.begin(), of.end());
  std::ranges::sort(all);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(i + 1));
  EXPECT_EQ(executable.GetParameter("w").data<float>()[1], kThreads * kRuns);
}

}  // namespace
}  // namespace lathe
