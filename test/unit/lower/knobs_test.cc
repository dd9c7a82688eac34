#include <algorithm>

#include "lathe/lower/lowering.h"
#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

struct Tunable {
  Case c;
  std::string strategy;
  std::vector<std::string> knobs;
  std::vector<bool> constant = {};
  bool same_bits = true;  // whatever the knobs are
};

std::string F32(const std::string& dims) { return StrCat("v_tensor<[", dims, "], f32>"); }

Tunable Product(const std::string& rows, bool constant) {
  const std::string a = F32(StrCat(rows, ", 300")), b = F32("300, 75"),
                    c = F32(StrCat(rows, ", 75"));
  return {{{a, b},
           StrCat("%m = nn.matmul(%a, %b) : (", a, ", ", b, ") -> ", c, "\n%r = nn.relu(%m) : (", c,
                  ") -> ", c),
           c},
          "matmul",
          {"vectors", "rows", "depth", "pack_left", "block_rows", "panels", "thread_work"},
          {false, constant}};
}

Tunable Convolution(const std::string& strategy, const std::vector<std::string>& knobs) {
  const std::string x = F32("1, 40, 7, 7"), w = F32("64, 40, 3, 3"), y = F32("1, 64, 7, 7");
  return {{{x, w},
           StrCat("%r = nn.conv(%a, %b) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]} : (", x, ", ",
                  w, ") -> ", y),
           y},
          strategy,
          knobs,
          {false, true}};
}

std::vector<Tunable> All() {
  const std::string flat = F32("70000"), rows = F32("9, 300");
  const std::string heads = F32("2, 3, 37, 24");
  return {
      Product("33", false),
      Product("33", true),
      Product("N", false),
      Convolution("conv", {"vectors", "rows", "channels"}),
      Convolution("conv_filter_lanes", {"vectors", "always"}),
      {{{flat, flat},
        StrCat("%s = nn.add(%a, %b) : (", flat, ", ", flat, ") -> ", flat,
               "\n%r = nn.sigmoid(%s) : (", flat, ") -> ", flat),
        flat},
       "elementwise",
       {"vectors", "piece"}},
      {{{rows}, StrCat("%r = nn.softmax(%a) {axis = -1} : (", rows, ") -> ", rows), rows},
       "rows",
       {"vectors"},
       {},
       false},
      {{{heads, heads, heads},
        StrCat("%r = nn.attention(%a, %b, %c) : (", heads, ", ", heads, ", ", heads, ") -> ",
               heads),
        heads},
       "attention",
       {"vectors", "keys"},
       {},
       false},
  };
}

class KnobsTest : public LowerTest {
 protected:
  Lowered Lower(Program& program, const Tunable& t, const std::string& knobs) {
    return LowerFunction(codegen::FirstFunction(program), MachineOf(Target::Host()), t.constant,
                         {.implementation = t.strategy + knobs});
  }
  Program Parse(const Tunable& t) {
    return ParseProgram(context_, ProgramOf(t.c), {.file_locations = false});
  }
  Tensor Compute(Program& program, const Lowered& lowered, NamedValues inputs, const Shape& shape) {
    PackInputs(program, lowered.packed, inputs);
    std::vector<Tensor> tensors;
    for (const auto& [name, value] : inputs) tensors.push_back(value.tensor());
    const Operation* function = codegen::FirstFunction(program);
    const codegen::CompiledKernel kernel(function->region(0).front(), Target::Host());
    runtime::WorkerTeam team(2);
    return kernel.Call(tensors, {Tensor(ElementType::kF32, shape)}, &team)[0];
  }
};

// Each value of each knob computes the same, and the preferred ones are what is taken without.
TEST_F(KnobsTest, EveryValueIsRight) {
  for (const Tunable& t : All()) {
    Program usual = Parse(t);
    const NamedValues inputs = Inputs(usual);
    const Tensor exact = Interpreter(usual).Run(inputs)[0].second.tensor();
    const Lowered lowered = Lower(usual, t, "");
    ASSERT_TRUE(lowered.done) << t.strategy << lowered.why_not;
    std::vector<std::string> names;
    Knobs preferred;
    for (const KnobChoice& k : lowered.knobs) {
      names.push_back(k.name);
      preferred.Set(k.name, k.taken);
      EXPECT_EQ(k.taken, k.values.front());
    }
    for (const std::string& name : t.knobs) {
      EXPECT_EQ(std::ranges::count(names, name), 1) << t.strategy << " " << name;
    }
    Program spelled = Parse(t);
    EXPECT_EQ(Lower(spelled, t, preferred.ToString()).unused_knobs, "");
    EXPECT_EQ(Print(spelled), Print(usual)) << t.strategy;
    const Tensor wanted = Compute(usual, lowered, inputs, exact.shape());
    EXPECT_TRUE(AllClose(wanted, exact, 1e-4, 1e-4)) << t.strategy;
    for (const KnobChoice& k : lowered.knobs) {
      const size_t step = (k.values.size() + 3) / 4;  // four of them will do
      for (size_t i = 0; i < k.values.size(); i += step) {
        const int64_t value = k.values[k.values.size() - 1 - i];
        Program program = Parse(t);
        const std::string knobs = StrCat("{", k.name, "=", value, "}");
        const Lowered other = Lower(program, t, knobs);
        if (!other.done) continue;
        const Tensor got = Compute(program, other, inputs, exact.shape());
        const Closeness close = AllClose(got, wanted, 1e-4, 1e-4);
        EXPECT_TRUE(close) << other.implementation << ": " << close.description;
        EXPECT_TRUE(!t.same_bits || got == wanted) << other.implementation;
      }
    }
  }
}

TEST_F(KnobsTest, SaysWhatIsNotUsed) {
  const Tunable t = Product("33", false);
  Program program = Parse(t);
  const Lowered lowered = Lower(program, t, "{rows=5,speed=3,vectors=77}");
  ASSERT_TRUE(lowered.done);
  EXPECT_EQ(lowered.implementation, "matmul{rows=5}");
  EXPECT_EQ(lowered.unused_knobs, "speed=3, vectors=77");
}

}  // namespace
}  // namespace lathe::lower
