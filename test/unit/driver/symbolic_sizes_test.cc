#include "lathe/driver/executable.h"
#include "test/unit/codegen/kernel_util.h"

// Whole parts of networks with unnamed sizes: what is behind a step between them has sizes that are
// expressions. Each function gets the strategy that it has with static sizes, and each run gives
// what the interpreter does, with accesses checked.
namespace lathe {
namespace {

class SymbolicSizes : public ::testing::Test {
 protected:
  void SetUp() override {
    codegen::NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  // Of x: types of values follow.
  Program Parse(const std::string& x, const std::string& body) {
    return ParseProgram(context_, StrCat("program {\n %x = nn.feed() {name = \"x\"} : () -> "
                                         "v_tensor<",
                                         x, ", f32>\n", body, "}\n"));
  }

  static std::string StrategiesOf(const Executable& executable) {
    std::string strategies;
    for (const CompiledFunctionInfo& f : executable.functions()) {
      strategies += StrCat(f.operations, ": ", f.strategy.empty() ? f.why_not : f.strategy, "\n");
    }
    return strategies;
  }

  void Expect(const std::string& x, const std::string& body, const std::string& strategy,
              const std::vector<Shape>& shapes) {
    Program program = Parse(x, body);
    const Executable executable(program, {.threads = 2, .check_accesses = true});
    const std::string strategies = StrategiesOf(executable);
    EXPECT_NE(strategies.find(strategy), std::string::npos) << strategies;
    if (strategy != ": loops\n") {
      EXPECT_EQ(strategies.find(": loops\n"), std::string::npos) << strategies;
    }
    for (const Shape& shape : shapes) {
      const NamedValues inputs{{"x", RandomTensor(ElementType::kF32, shape, 3)}};
      const Tensor got = executable.Run(inputs)[0].second.tensor();
      const NamedValues wanted = Interpreter(program).Run(inputs);
      const Closeness close = AllClose(got, wanted[0].second.tensor(), 1e-4, 1e-4);
      EXPECT_TRUE(close) << SymShape::FromConstants(shape).ToString() << ": " << close.description;
    }
  }

  IrContext context_;
};

std::string Weights(const std::string& name, const std::string& shape, uint64_t count) {
  std::string values;
  for (uint64_t i = 0; i < count; ++i) {
    values += StrCat(i == 0 ? "" : ", ", static_cast<double>(i * 7 % 11) / 10 - 0.5);
  }
  return StrCat(" %", name, " = builtin.constant() {value = tensor<", shape, ", f32> [", values,
                "]} : () -> v_tensor<", shape, ", f32>\n");
}

// Nobody can tell H of the third part of it.
TEST_F(SymbolicSizes, ProductOfAPictureThatWasCutUp) {
  const std::string small = "v_tensor<[N, 8, floordiv(H, 4), floordiv(W, 4)], f32>";
  const std::string last = "v_tensor<[N, floordiv(H, 4), floordiv(W, 4), 8], f32>";
  const std::string wide = "v_tensor<[N, floordiv(H, 4), floordiv(W, 4), 16], f32>";
  Expect("[N, 3, H, W]",
         StrCat(Weights("w", "[8, 3, 4, 4]", 384), Weights("v", "[8, 16]", 128),
                " %c = nn.conv(%x, %w, none) {strides = [4, 4]} : (v_tensor<[N, 3, H, W], f32>, "
                "v_tensor<[8, 3, 4, 4], f32>, none) -> ",
                small, "\n %t = nn.transpose(%c) {perm = [0, 2, 3, 1]} : (", small, ") -> ", last,
                "\n %p = nn.matmul(%t, %v) : (", last, ", v_tensor<[8, 16], f32>) -> ", wide,
                "\n %g = nn.gelu(%p) : (", wide, ") -> ", wide,
                "\n nn.fetch(%g) {name = \"y\"} : (", wide, ") -> ()\n"),
         "matmul", {{1, 3, 8, 8}, {2, 3, 33, 17}, {1, 3, 4, 4}, {0, 3, 12, 12}, {3, 3, 70, 5}});
}

// The activation is not computed for each place that the filter sees.
TEST_F(SymbolicSizes, ActivationBeforeAConvolution) {
  const std::string t = "v_tensor<[N, 4, L], f32>";
  Expect("[N, 4, L]",
         StrCat(Weights("w", "[4, 4, 7]", 112), " %a = nn.leaky_relu(%x) {alpha = 0.1} : (", t,
                ") -> ", t, "\n %c = nn.conv(%a, %w, none) {pads = [3, 3]} : (", t,
                ", v_tensor<[4, 4, 7], f32>, none) -> ", t, "\n %y = nn.add(%c, %x) : (", t, ", ",
                t, ") -> ", t, "\n nn.fetch(%y) {name = \"y\"} : (", t, ") -> ()\n"),
         ": conv",  // or conv_filter_lanes, where a vector has few lanes
         {{1, 4, 1}, {2, 4, 40}, {1, 4, 257}, {0, 4, 5}});
}

// No argument has the extent of what is repeated: the repeats tell.
TEST_F(SymbolicSizes, TileByComputedRepeats) {
  const std::string one = "v_tensor<[1], i64>", x = "v_tensor<[N, 3], f32>";
  Expect("[N, 3]",
         StrCat(Weights("w", "[4, 2]", 8),
                " %k = builtin.constant() {value = tensor<[1], i64> [0]} : () -> ", one,
                "\n %u = builtin.constant() {value = tensor<[1], i64> [1]} : () -> ", one,
                "\n %s = nn.shape(%x) : (", x, ") -> v_tensor<[2], i64>\n",
                " %n = nn.gather(%s, %k) : (v_tensor<[2], i64>, ", one, ") -> ", one,
                "\n %r = nn.concat(%n, %u) {axis = 0} : (", one, ", ", one,
                ") -> v_tensor<[2], i64>\n",
                " %t = nn.tile(%w, %r) : (v_tensor<[4, 2], f32>, v_tensor<[2], i64>) -> "
                "v_tensor<[4 * N, 2], f32>\n"
                " nn.fetch(%t) {name = \"y\"} : (v_tensor<[4 * N, 2], f32>) -> ()\n"),
         ": loops\n", {{1, 3}, {5, 3}, {0, 3}});
}

// To a length that 8 divides, as exporters compute it; an amount on one side is negative.
TEST_F(SymbolicSizes, PadsByComputedAmounts) {
  const std::string one = "v_tensor<[1], i64>", x = "v_tensor<[N, 3, L], f32>";
  const std::string y = "v_tensor<[N, 3, L + mod(-1 * L, 8) + 1], f32>";
  for (const char* mode : {"constant", "reflect", "edge", "wrap"}) {
    SCOPED_TRACE(mode);
    Expect(
        "[N, 3, L]",
        StrCat(" %k = builtin.constant() {value = tensor<[1], i64> [2]} : () -> ", one,
               "\n %e = builtin.constant() {value = tensor<[1], i64> [8]} : () -> ", one,
               "\n %z = builtin.constant() {value = tensor<[2], i64> [0, 0]} : () -> "
               "v_tensor<[2], i64>\n %u = builtin.constant() {value = tensor<[1], i64> [-1]} : "
               "() -> ",
               one, "\n %s = nn.shape(%x) : (", x, ") -> v_tensor<[3], i64>\n",
               " %n = nn.gather(%s, %k) : (v_tensor<[3], i64>, ", one, ") -> ", one,
               "\n %m = nn.neg(%n) : (", one, ") -> ", one, "\n %p = nn.mod(%m, %e) : (", one, ", ",
               one, ") -> ", one, "\n %q = nn.add(%p, %k) : (", one, ", ", one, ") -> ", one,
               "\n %w = nn.concat(%z, %u, %z, %q) {axis = 0} : (v_tensor<[2], i64>, ", one,
               ", v_tensor<[2], i64>, ", one, ") -> v_tensor<[6], i64>\n",
               " %t = nn.pad(%x, %w) {mode = \"", mode, "\"} : (", x, ", v_tensor<[6], i64>) -> ",
               y, "\n nn.fetch(%t) {name = \"y\"} : (", y, ") -> ()\n"),
        ": loops\n", {{1, 3, 8}, {2, 3, 9}, {1, 3, 2}, {3, 3, 31}, {0, 3, 7}});
  }
}

TEST_F(SymbolicSizes, AffineGridOfAPicture) {
  const std::string x = "v_tensor<[N, 2, 3], f32>";
  for (const char* align : {"true", "false"}) {
    Expect("[N, 2, 3]",
           StrCat(" %s = nn.shape(%x) : (", x, ") -> v_tensor<[3], i64>\n",
                  " %e = builtin.constant() {value = tensor<[1], i64> [7]} : () -> v_tensor<[1], "
                  "i64>\n %w = nn.concat(%s, %e) {axis = 0} : (v_tensor<[3], i64>, v_tensor<[1], "
                  "i64>) -> v_tensor<[4], i64>\n %g = nn.affine_grid(%x, %w) {align_corners = ",
                  align, "} : (", x, ", v_tensor<[4], i64>) -> v_tensor<[N, 3, 7, 2], f32>\n",
                  " nn.fetch(%g) {name = \"y\"} : (v_tensor<[N, 3, 7, 2], f32>) -> ()\n"),
           ": loops\n", {{1, 2, 3}, {4, 2, 3}, {0, 2, 3}});
  }
}

}  // namespace
}  // namespace lathe
