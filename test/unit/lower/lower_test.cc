#include "lathe/driver/executable.h"
#include "lathe/ir/verify.h"
#include "lathe/lower/lower_function.h"
#include "test/unit/codegen/kernel_util.h"

namespace lathe::lower {
namespace {

using codegen::CodeGenerator;
using codegen::KernelSource;
using codegen::Target;

struct Case {
  std::vector<std::string> arguments;  // types
  std::string body;                    // from %a, %b, ... to %r
  std::string result;                  // its type
};

// A function of the body, and a call of it on the program's inputs.
std::string ProgramOf(const Case& c) {
  std::string arguments, feeds, operands, types;
  for (size_t i = 0; i < c.arguments.size(); ++i) {
    const char name = static_cast<char>('a' + i);
    const char* comma = i == 0 ? "" : ", ";
    arguments += StrCat(comma, "%", name, ": ", c.arguments[i]);
    feeds +=
        StrCat("  %", name, " = nn.feed() {name = \"", name, "\"} : () -> ", c.arguments[i], "\n");
    operands += StrCat(comma, "%", name);
    types += StrCat(comma, c.arguments[i]);
  }
  return StrCat("program {\n  builtin.func() {name = \"k\"} ({\n  ^(", arguments, "):\n", c.body,
                "\n  builtin.return(%r) : (", c.result, ") -> ()\n  })\n", feeds,
                "  %z = builtin.call(", operands, ") {callee = \"k\"} : (", types, ") -> ",
                c.result, "\n  nn.fetch(%z) {name = \"z\"} : (", c.result, ") -> ()\n}\n");
}

class LowerTest : public testing::Test {
 protected:
  void SetUp() override {
    codegen::NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  NamedValues Inputs(const Program& program) {
    NamedValues inputs;
    uint64_t seed = 1;
    for (const Operation* feed : program.feeds()) {
      const auto type = feed->result(0).type().cast<AnyTensorType>();
      Shape shape;
      for (const Dim& d : type.dims()) shape.push_back(d.is_constant() ? d.value() : symbol_);
      inputs.emplace_back(feed->attribute("name").cast<StrAttribute>().value(),
                          RandomTensor(type.element(), shape, seed++));
    }
    return inputs;
  }

  // The loops give in the interpreter, and as code of every target, what the operations give.
  void Expect(const Case& c, const std::string& strategy, double rtol = 0) {
    for (const Target* target : codegen::RunnableTargets()) {
      Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
      const NamedValues inputs = Inputs(program);
      const Tensor wanted = Interpreter(program).Run(inputs)[0].second.tensor();
      Operation* function = codegen::FirstFunction(program);
      const Lowered lowered = LowerFunction(function, MachineOf(*target));
      ASSERT_TRUE(lowered.done) << lowered.why_not;
      EXPECT_EQ(lowered.strategy, strategy);
      VerifyOrThrow(program);
      if (wanted.num_elements() < 10000) {  // the interpreter copies memory on every store
        const Tensor looped = Interpreter(program).Run(inputs)[0].second.tensor();
        const Closeness same = AllClose(looped, wanted, rtol, rtol);
        EXPECT_TRUE(same) << "loops of " << target->name << ": " << same.description;
      }
      std::vector<Tensor> tensors;
      for (const auto& [name, value] : inputs) tensors.push_back(value.tensor());
      const KernelSource source{"k", function->region(0).front()};
      const auto library = CodeGenerator::Get().Compile({&source, 1}, *target);
      runtime::WorkerTeam team(3);
      const Tensor got =
          codegen::CallKernel(library->Find("k"), tensors, {ZeroLike(wanted)}, &team)[0];
      const Closeness close = AllClose(got, wanted, rtol, rtol);
      EXPECT_TRUE(close) << "code of " << target->name << ": " << close.description;
    }
  }

  std::string Refusal(const Case& c) {
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    return LowerFunction(codegen::FirstFunction(program), MachineOf(Target::Host())).why_not;
  }

  IrContext context_;
  int64_t symbol_ = 5;
};

TEST_F(LowerTest, ElementwiseFlat) {
  const std::string t = "v_tensor<[3, 7, 5], f32>";
  Expect({{t, t},
          StrCat("%s = nn.add(%a, %b) : (", t, ", ", t, ") -> ", t, "\n%r = nn.relu(%s) : (", t,
                 ") -> ", t),
          t},
         "elementwise");
}

TEST_F(LowerTest, ElementwiseBroadcasts) {
  const std::string t = "v_tensor<[2, 3, 1, 19], f32>";
  for (const char* other : {"v_tensor<[], f32>", "v_tensor<[19], f32>", "v_tensor<[3, 1, 1], f32>",
                            "v_tensor<[2, 1, 1, 1], f32>", "v_tensor<[1, 3, 1, 19], f32>",
                            "v_tensor<[2, 3, 1, 1], f32>"}) {
    Expect({{t, other}, StrCat("%r = nn.mul(%a, %b) : (", t, ", ", other, ") -> ", t), t},
           "elementwise");
  }
}

TEST_F(LowerTest, ElementwiseOfScalars) {
  const std::string s = "v_tensor<[], f32>";
  Expect({{s, s}, StrCat("%r = nn.sub(%a, %b) : (", s, ", ", s, ") -> ", s), s}, "elementwise");
}

TEST_F(LowerTest, ElementwiseSymbolicAndEmpty) {
  const std::string t = "v_tensor<[N, M], f32>", row = "v_tensor<[M], f32>";
  for (const int64_t n : {0, 1, 5, 16, 37}) {
    symbol_ = n;
    Expect({{t, row}, StrCat("%r = nn.add(%a, %b) : (", t, ", ", row, ") -> ", t), t},
           "elementwise");
  }
}

TEST_F(LowerTest, ElementwiseInParallelPieces) {
  const std::string t = "v_tensor<[70001], f32>";
  Expect({{t}, StrCat("%r = nn.neg(%a) : (", t, ") -> ", t), t}, "elementwise");
}

TEST_F(LowerTest, ElementTypesMix) {
  const std::string t = "v_tensor<[21], i32>", f = "v_tensor<[21], f64>";
  Expect({{t},
          StrCat("%c = nn.cast(%a) {to = f64} : (", t, ") -> ", f, "\n%r = nn.mul(%c, %c) : (", f,
                 ", ", f, ") -> ", f),
          f},
         "elementwise");
  const std::string b = "v_tensor<[21], bool>";
  Expect({{t, t}, StrCat("%r = nn.less(%a, %b) : (", t, ", ", t, ") -> ", b), b}, "elementwise");
}

std::string Matrix(int64_t rows, int64_t columns) {
  return StrCat("v_tensor<[", rows, ", ", columns, "], f32>");
}

TEST_F(LowerTest, ConstantsKeepEveryBit) {
  const std::string t = "v_tensor<[5], i64>", s = "v_tensor<[], i64>";
  Expect({{t},
          StrCat("%c = builtin.constant() {value = tensor<[], i64> [1152921504606846977]} : () -> ",
                 s, "\n%r = nn.add(%a, %c) : (", t, ", ", s, ") -> ", t),
          t},
         "elementwise");
}

TEST_F(LowerTest, DecomposesWhatHasNoInstructions) {
  const std::string t = "v_tensor<[3, 21], f32>";
  Expect({{t}, StrCat("%r = nn.gelu(%a) : (", t, ") -> ", t), t}, "elementwise", 1e-5);
}

TEST_F(LowerTest, MatmulOfManySizes) {
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{1, 7, 5},
                                                                   {3, 16, 40},
                                                                   {4, 9, 130},
                                                                   {5, 8, 16},
                                                                   {13, 20, 32},
                                                                   {31, 3, 33},
                                                                   {40, 17, 70}}) {
    const std::string x = Matrix(m, k), y = Matrix(k, n), z = Matrix(m, n);
    Expect({{x, y}, StrCat("%r = nn.matmul(%a, %b) : (", x, ", ", y, ") -> ", z), z}, "matmul",
           1e-5);
  }
}

TEST_F(LowerTest, MatmulWithWhatFollows) {
  const std::string x = "v_tensor<[2, 5, 6], f32>", y = Matrix(6, 18),
                    z = "v_tensor<[2, 5, 18], f32>", bias = "v_tensor<[18], f32>";
  Expect({{x, y, bias, z},
          StrCat("%p = nn.matmul(%a, %b) : (", x, ", ", y, ") -> ", z, "\n%q = nn.add(%p, %c) : (",
                 z, ", ", bias, ") -> ", z, "\n%t = nn.tanh(%q) : (", z, ") -> ", z,
                 "\n%r = nn.add(%t, %d) : (", z, ", ", z, ") -> ", z),
          z},
         "matmul", 1e-5);
}

TEST_F(LowerTest, MatmulOfBatchesAndSymbols) {
  const std::string x = "v_tensor<[2, H, N, 6], f32>", y = "v_tensor<[2, H, 6, M], f32>",
                    z = "v_tensor<[2, H, N, M], f32>", yt = "v_tensor<[2, H, M, 6], f32>";
  for (const int64_t n : {1, 3, 17, 35}) {
    symbol_ = n;
    Expect({{x, y}, StrCat("%r = nn.matmul(%a, %b) : (", x, ", ", y, ") -> ", z), z}, "matmul",
           1e-5);
    Expect({{x, yt},
            StrCat("%r = nn.matmul(%a, %b) {transpose_y = true} : (", x, ", ", yt, ") -> ", z),
            z},
           "matmul", 1e-5);
  }
}

TEST_F(LowerTest, MatmulOfSymbolicRows) {
  const std::string x = "v_tensor<[N, H, 6], f32>", y = Matrix(6, 20),
                    z = "v_tensor<[N, H, 20], f32>";
  for (const int64_t n : {1, 4, 9}) {
    symbol_ = n;
    Expect({{x, y, z},
            StrCat("%p = nn.matmul(%a, %b) : (", x, ", ", y, ") -> ", z,
                   "\n%r = nn.add(%p, %c) : (", z, ", ", z, ") -> ", z),
            z},
           "matmul", 1e-5);
  }
}

TEST_F(LowerTest, Convolutions) {
  struct Conv {
    const char *x, *w, *attributes, *y;
  };
  for (const Conv& c : {
           Conv{"[2, 5, 6, 7]", "[9, 5, 1, 1]", "", "[2, 9, 6, 7]"},
           Conv{"[1, 4, 9, 8]", "[6, 4, 3, 3]", "pads = [1, 1, 1, 1]", "[1, 6, 9, 8]"},
           Conv{"[N, 4, 9, 8]", "[6, 4, 3, 2]", "strides = [2, 3], pads = [0, 1, 1, 0]",
                "[N, 6, 4, 3]"},
           Conv{"[1, 6, 9, 8]", "[6, 1, 3, 3]", "group = 6, pads = [1, 1, 1, 1]", "[1, 6, 9, 8]"},
           Conv{"[1, 6, 9, 8]", "[8, 3, 3, 3]",
                "group = 2, dilations = [2, 1], auto_pad = \"SAME_UPPER\"", "[1, 8, 9, 8]"},
           Conv{"[2, 3, 40]", "[4, 3, 5]", "strides = [2]", "[2, 4, 18]"},
           Conv{"[1, 2, 4, 5, 6]", "[3, 2, 2, 2, 2]", "", "[1, 3, 3, 4, 5]"},
       }) {
    const auto t = [](const char* shape) { return StrCat("v_tensor<", shape, ", f32>"); };
    const std::string m = StrCat(c.w).substr(1, StrCat(c.w).find(',') - 1);
    const std::string b = StrCat("v_tensor<[", m, "], f32>");
    Expect({{t(c.x), t(c.w), b},
            StrCat("%p = nn.conv(%a, %b, %c) {", c.attributes, "} : (", t(c.x), ", ", t(c.w), ", ",
                   b, ") -> ", t(c.y), "\n%r = nn.relu(%p) : (", t(c.y), ") -> ", t(c.y)),
            t(c.y)},
           "conv", 1e-5);
  }
}

TEST_F(LowerTest, SaysWhyNot) {
  const std::string t = "v_tensor<[3, 5], f32>";
  EXPECT_EQ(Refusal({{t}, StrCat("%r = nn.softmax(%a) : (", t, ") -> ", t), t}),
            "elementwise: nn.softmax is not elementwise; matmul: there is no matrix product; "
            "conv: there is no convolution");
  const std::string x = "v_tensor<[1, 4, 4, 2], f32>", w = "v_tensor<[2, 2, 1, 1], f32>";
  const std::string why = Refusal(
      {{x, w}, StrCat("%r = nn.conv(%a, %b) {layout = \"NHWC\"} : (", x, ", ", w, ") -> ", x), x});
  EXPECT_NE(why.find("conv: the channels are last"), std::string::npos) << why;
}

}  // namespace
}  // namespace lathe::lower
