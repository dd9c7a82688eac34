// Random numbers of compiled programs: those of the interpreter, whatever the number of threads,
// and others in each run of a program that trains.

#include <set>

#include "lathe/driver/every_way.h"
#include "lathe/driver/executable.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

class RandomTest : public testing::ProgramTest {
 protected:
  void SetUp() override { codegen::NeedCodeGenerator(); }

  // The same bits in every way, for any number of threads and in a second run, near to `wanted`.
  static void ExpectDraws(const Program& program, const NamedValues& inputs,
                          const NamedValues& wanted, CompileOptions options = {}) {
    NamedValues first;
    for (const int threads : {1, 2, 7}) {
      options.threads = threads;
      const EveryWay ways(program, options);
      ASSERT_NE(ways.made().executor(), nullptr) << ways.made().obstacles()[0];
      EXPECT_TRUE(ways.made().CanSave());
      const NamedValues got = ways.Run(inputs);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(AllClose(got[i].second, wanted[i].second, 1e-6, 1e-6)) << got[i].first;
      }
      if (first.empty()) first = got;
      EXPECT_EQ(got, first) << threads;
      EXPECT_EQ(ways.Run(inputs), first);
    }
  }

  static constexpr const char* kAll = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 33], f32>
    %logits = nn.feed() {name = "logits"} : () -> v_tensor<[N, 5], f32>
    %a = nn.random_normal() {shape = [7, 3], mean = 1.0, scale = 2.0SEED} : () -> v_tensor<[7, 3], f32>
    %b = nn.random_uniform() {shape = [5], low = -1.0, dtype = f64SEED} : () -> v_tensor<[5], f64>
    %c = nn.random_normal_like(%x) {dtype = f16SEED} : (v_tensor<[N, 33], f32>) -> v_tensor<[N, 33], f16>
    %d = nn.random_uniform_like(%x) {high = 0.25SEED} : (v_tensor<[N, 33], f32>) -> v_tensor<[N, 33], f32>
    %e = nn.bernoulli(%x) {dtype = bool SEED} : (v_tensor<[N, 33], f32>) -> v_tensor<[N, 33], bool>
    %f = nn.multinomial(%logits) {sample_size = 40, dtype = i64SEED} : (v_tensor<[N, 5], f32>) -> v_tensor<[N, 40], i64>
    %true = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %ratio = builtin.constant() {value = tensor<[], f32> [0.25]} : () -> v_tensor<[], f32>
    %g, %mask = nn.dropout(%x, %ratio, %true) DROPOUT : (v_tensor<[N, 33], f32>, v_tensor<[], f32>, v_tensor<[], bool>) -> (v_tensor<[N, 33], f32>, v_tensor<[N, 33], bool>)
    nn.fetch(%a) {name = "a"} : (v_tensor<[7, 3], f32>) -> ()
    nn.fetch(%b) {name = "b"} : (v_tensor<[5], f64>) -> ()
    nn.fetch(%c) {name = "c"} : (v_tensor<[N, 33], f16>) -> ()
    nn.fetch(%d) {name = "d"} : (v_tensor<[N, 33], f32>) -> ()
    nn.fetch(%e) {name = "e"} : (v_tensor<[N, 33], bool>) -> ()
    nn.fetch(%f) {name = "f"} : (v_tensor<[N, 40], i64>) -> ()
    nn.fetch(%g) {name = "g"} : (v_tensor<[N, 33], f32>) -> ()
    nn.fetch(%mask) {name = "mask"} : (v_tensor<[N, 33], bool>) -> ())";

  Program All(bool seeded) {
    std::string text = kAll;
    for (size_t at; (at = text.find("SEED")) != std::string::npos;) {
      text.replace(at, 4, seeded ? ", seed = 3.5" : "");
    }
    text.replace(text.find("DROPOUT"), 7, seeded ? "{seed = 12345678901}" : "");
    return Parse(text);
  }

  static NamedValues AllInputs(int64_t rows) {
    Tensor x = RandomTensor(ElementType::kF32, {rows, 33}, 1);
    for (float& p : x.mutable_data<float>()) p = (p + 1) / 2;
    return {{"x", x}, {"logits", RandomTensor(ElementType::kF32, {rows, 5}, 2)}};
  }

  // y = dropout(x), and a parameter that makes it a program that trains.
  static constexpr const char* kTrains = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[64], f32>
    %true = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %half = builtin.constant() {value = tensor<[], f32> [0.5]} : () -> v_tensor<[], f32>
    %a = nn.dropout(%x, %half, %true) : (v_tensor<[64], f32>, v_tensor<[], f32>, v_tensor<[], bool>) -> v_tensor<[64], f32>
    %b = nn.dropout(%x, %half, %true) : (v_tensor<[64], f32>, v_tensor<[], f32>, v_tensor<[], bool>) -> v_tensor<[64], f32>
    builtin.set_parameter(%a) {name = "w"} : (v_tensor<[64], f32>) -> ()
    nn.fetch(%a) {name = "a"} : (v_tensor<[64], f32>) -> ()
    nn.fetch(%b) {name = "b"} : (v_tensor<[64], f32>) -> ())";

  static NamedValues Ones() { return {{"x", Tensor::Of<float>({64}, std::vector<float>(64, 1))}}; }
};

TEST_F(RandomTest, SeedsOfTheirOwnGiveWhatTheInterpreterDraws) {
  for (const int64_t rows : {1, 4, 0}) {
    Program program = All(true);
    const NamedValues inputs = AllInputs(rows);
    ExpectDraws(program, inputs, Interpreter(program).Run(inputs));
  }
}

TEST_F(RandomTest, TheSeedOfTheRunCountsForTheOthers) {
  const NamedValues inputs = AllInputs(3);
  std::vector<NamedValues> drawn;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{5}}) {
    Program program = All(false);
    drawn.push_back(Interpreter(program, {.seed = seed}).Run(inputs));
    ExpectDraws(program, inputs, drawn.back(), {.interpreter = {.seed = seed}});
  }
  for (size_t i = 0; i < drawn[0].size(); ++i) EXPECT_NE(drawn[0][i], drawn[1][i]);
}

TEST_F(RandomTest, EachRunOfAProgramThatTrainsDrawsAnother) {
  Program program = Parse(kTrains);
  const NamedValues wanted = Interpreter(program).Run(Ones());
  const Executable executable(program, {.threads = 1}), other(program, {.threads = 2});
  ASSERT_NE(executable.executor(), nullptr) << executable.obstacles()[0];
  std::set<std::string> seen;
  for (int run = 0; run < 10; ++run) {
    const NamedValues outputs = executable.Run(Ones());
    if (run == 0) {
      EXPECT_EQ(outputs, wanted);
    }
    EXPECT_EQ(other.Run(Ones()), outputs) << run;
    for (const auto& [name, value] : outputs) seen.insert(value.tensor().ToString(64));
  }
  EXPECT_EQ(seen.size(), 20u);
}

TEST_F(RandomTest, TheCounterIsStateThatGoesOn) {
  const TempFolder folder;
  const Executable executable(Parse(kTrains), {});
  for (int run = 0; run < 3; ++run) executable.Run(Ones());
  EXPECT_EQ(executable.GetParameter("random.run"), Tensor::Of<int64_t>({1}, {3}));
  executable.Save(folder / "step.lx");
  const NamedValues fourth = executable.Run(Ones());
  EXPECT_EQ(Executable::Load(folder / "step.lx").Run(Ones()), fourth);
  executable.SetParameter("random.run", Tensor::Of<int64_t>({1}, {3}));
  EXPECT_EQ(executable.Run(Ones()), fourth);
}

// Each round draws other numbers, and so does the next run.
TEST_F(RandomTest, RegionsDrawOthersEachTime) {
  const std::string body = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[64], f32>
    %n = builtin.constant() {value = tensor<[], i64> [3]} : () -> v_tensor<[], i64>
    %l, %all = cf.while(%n, none, %x) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %u: v_tensor<[64], f32>):
      %r = nn.random_uniform_like(%u) : (v_tensor<[64], f32>) -> v_tensor<[64], f32>
      %s = nn.add(%u, %r) : (v_tensor<[64], f32>, v_tensor<[64], f32>) -> v_tensor<[64], f32>
      cf.yield(%go, %s, %r) : (v_tensor<[], bool>, v_tensor<[64], f32>, v_tensor<[64], f32>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[64], f32>) -> (v_tensor<[64], f32>, v_tensor<[3, 64], f32>)
    nn.fetch(%all) {name = "all"} : (v_tensor<[3, 64], f32>) -> ()
  )";
  const std::string set =
      "builtin.set_parameter(%l) {name = \"w\"} : (v_tensor<[64], f32>) -> ()\n";
  for (const bool trains : {true, false}) {
    const EveryWay ways(Parse(trains ? body + set : body), {});
    ASSERT_NE(ways.made().executor(), nullptr) << ways.made().obstacles()[0];
    std::set<float> seen;
    for (int run = 0; run < 2; ++run) {
      const NamedValues outputs = ways.Run(Ones());
      for (int row = 0; row < 3; ++row) {
        seen.insert(outputs[0].second.tensor().data<float>()[row * 64]);
      }
    }
    EXPECT_EQ(seen.size(), trains ? 6u : 3u);
  }
}

TEST_F(RandomTest, NumbersAreSpreadAsTheyShouldBe) {
  const Program program = Parse(R"(
    %a = nn.random_normal() {shape = [100000], seed = 1.0} : () -> v_tensor<[100000], f32>
    %b = nn.random_uniform() {shape = [100000], seed = 2.0} : () -> v_tensor<[100000], f32>
    nn.fetch(%a) {name = "a"} : (v_tensor<[100000], f32>) -> ()
    nn.fetch(%b) {name = "b"} : (v_tensor<[100000], f32>) -> ())");
  const NamedValues outputs = Executable(program, {}).Run({});
  const auto moments = [&](size_t i) {
    double sum = 0, squares = 0;
    for (const float v : outputs[i].second.tensor().data<float>()) {
      sum += v;
      squares += static_cast<double>(v) * v;
    }
    const double mean = sum / 100000;
    return std::pair(mean, squares / 100000 - mean * mean);
  };
  EXPECT_NEAR(moments(0).first, 0, 0.02);
  EXPECT_NEAR(moments(0).second, 1, 0.02);
  EXPECT_NEAR(moments(1).first, 0.5, 0.01);
  EXPECT_NEAR(moments(1).second, 1.0 / 12, 0.01);
}

}  // namespace
}  // namespace lathe
