#include "test/unit/lower/lower_util.h"

// Operations whose amounts, factors or sizes are operands, or whose extents are symbols, which only
// a run knows: the loops and the code of every target give what the interpreter gives.
namespace lathe::lower {
namespace {

class ComputedAmountsTest : public LowerTest {
 protected:
  void Expect(const Case& c, const std::vector<Tensor>& given, const std::string& strategy,
              double rtol = 0) {
    for (const Target* target : codegen::RunnableTargets()) {
      SCOPED_TRACE(target->name);
      Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
      NamedValues inputs;
      for (size_t i = 0; i < given.size(); ++i) {
        inputs.emplace_back(program.feeds()[i]->attribute("name").cast<StrAttribute>().value(),
                            given[i]);
      }
      const NamedValues wanted = Interpreter(program).Run(inputs);
      Operation* function = codegen::FirstFunction(program);
      const Lowered lowered = LowerFunction(function, MachineFor(*target), {}, {.strict = true});
      ASSERT_TRUE(lowered.done) << lowered.why_not;
      EXPECT_EQ(lowered.strategy, strategy);
      VerifyOrThrow(program);
      const std::vector<Tensor> looped{Interpreter(program).Run(inputs)[0].second.tensor()};
      ExpectClose(looped, wanted, rtol, "loops");
      const codegen::CompiledKernel kernel(function->region(0).front(), *target, lowered.in_place);
      runtime::WorkerTeam team(3);
      const std::vector<Tensor> outputs{ZeroLike(wanted[0].second.tensor())};
      ExpectClose(kernel.Call(given, outputs, &team), wanted, rtol, "code");
    }
  }

  // How often the loops for the best target of this machine have such an operation.
  size_t CountLoops(const Case& c, std::string_view what) {
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    Operation* function = codegen::FirstFunction(program);
    const Target& target = *codegen::RunnableTargets().back();
    const Lowered lowered = LowerFunction(function, MachineFor(target), {}, {.strict = true});
    EXPECT_TRUE(lowered.done) << lowered.why_not;
    const std::string text = Print(function);
    size_t count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
      ++count;
    return count;
  }

  size_t CountVectorLoads(const Case& c) {
    return CountLoops(c, "lanes = ") - CountLoops(c, "lanes = 0");
  }

  static std::string F32(const std::string& dims) { return StrCat("v_tensor<[", dims, "], f32>"); }
  static std::string I64(const std::string& dims) { return StrCat("v_tensor<[", dims, "], i64>"); }
  static Tensor Ints(const std::vector<int64_t>& values) {
    return Tensor::Of<int64_t>({std::ssize(values)}, values);
  }
  static Tensor Floats(const std::vector<float>& values) {
    return Tensor::Of<float>({std::ssize(values)}, values);
  }
  static Tensor Random(const Shape& shape) { return RandomTensor(ElementType::kF32, shape, 5); }
};

TEST_F(ComputedAmountsTest, Pads) {
  const std::string x = F32("N, 3, K"), y = F32("P, Q, R");
  for (const char* mode : {"constant", "reflect", "edge", "wrap"}) {
    const Case c{
        {x, I64("6")},
        StrCat("%r = nn.pad(%a, %b) {mode = \"", mode, "\"} : (", x, ", ", I64("6"), ") -> ", y),
        y};
    for (const std::vector<int64_t>& pads : std::vector<std::vector<int64_t>>{
             {0, 0, 0, 0, 0, 0},
             {1, 0, 2, 0, 1, 3},
             {0, 1, -1, 2, 0, 4},
             {-1, 2, 3, 1, -1, -2},
             {-2, -1, 0, -1, 3, -4},
             {5, -3, 9, 6, 4, -3},
             {0, 9, 11, 0, 9, 12},
         }) {
      const bool all = *mode == 'c';  // nothing else can fill an axis of which nothing is left
      if (!all && pads[1] == -3) continue;
      SCOPED_TRACE(StrCat(mode, " ", ::testing::PrintToString(pads)));
      Expect(c, {Random({4, 3, 5}), Ints(pads)}, "loops");
    }
    if (*mode == 'c') Expect(c, {Random({0, 3, 1}), Ints({1, 0, 2, 0, 1, 3})}, "loops");
    Expect(c, {Random({1, 3, 1}), Ints({2, 1, 2, 1, 1, 3})}, "loops");
  }
}

// Behind an addition, with a value, of the last axis only.
TEST_F(ComputedAmountsTest, PadsOfSomeAxes) {
  const std::string x = F32("N, 3, K"), y = F32("N, 3, R");
  for (const char* mode : {"constant", "reflect", "edge", "wrap"}) {
    const Case c{{x, I64("2"), F32("")},
                 StrCat("%ax = builtin.constant() {value = tensor<[1], i64> [-1]} : () -> ",
                        I64("1"), "\n%t = nn.add(%a, %c) : (", x, ", ", F32(""), ") -> ", x,
                        "\n%r = nn.pad(%t, %b, %c, %ax) {mode = \"", mode, "\"} : (", x, ", ",
                        I64("2"), ", ", F32(""), ", ", I64("1"), ") -> ", y),
                 y};
    for (const std::vector<int64_t>& pads :
         std::vector<std::vector<int64_t>>{{0, 0}, {3, 0}, {0, 2}, {-2, 7}, {19, -1}}) {
      SCOPED_TRACE(StrCat(mode, " ", ::testing::PrintToString(pads)));
      Expect(c, {Random({2, 3, 21}), Ints(pads), Tensor::Scalar(1.5F)}, "loops");
    }
  }
}

TEST_F(ComputedAmountsTest, FactorsOfResize) {
  const std::string x = F32("N, H, W"), y = F32("N, P, Q");
  for (const char* coordinates : {"half_pixel", "half_pixel_symmetric", "asymmetric",
                                  "align_corners", "pytorch_half_pixel"}) {
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      for (const char* sizes : {"none", "%c"}) {
        const bool has_sizes = *sizes == '%';
        if (has_sizes && *coordinates != 'a') continue;
        // The tables of places need memory; a caller knows its size by the last argument.
        const Case c{
            {x, F32("2"), I64("2"), F32("P, Q")},
            StrCat("%r = nn.resize(%a, none, %b, ", sizes, ") {axes = [1, 2], mode = \"", mode,
                   "\", coordinate_transformation_mode = \"", coordinates, "\"} : (", x, ", none, ",
                   F32("2"), ", ", has_sizes ? I64("2") : "none", ") -> ", y),
            y};
        for (const std::vector<float>& scales :
             std::vector<std::vector<float>>{{2, 1}, {1.1F, 0.7F}, {0.5F, 3.3F}}) {
          SCOPED_TRACE(StrCat(mode, ", ", coordinates, " ", ::testing::PrintToString(scales)));
          const std::vector<int64_t> out{static_cast<int64_t>(7.0 * double{scales[0]}),
                                         static_cast<int64_t>(9.0 * double{scales[1]})};
          const Tensor result = Random({out[0], out[1]});
          Expect(c, {Random({2, 7, 9}), Floats(scales), Ints(out), result}, "resize", 1e-5);
        }
      }
    }
  }
}

// Axes that keep their length have one tap in the runs in which they do.
TEST_F(ComputedAmountsTest, SizesOfAllAxesOfResize) {
  const std::string x = F32("N, C, H, W"), y = F32("P, Q, R, S");
  for (const char* mode : {"linear", "cubic"}) {
    for (const char* how : {"scales", "sizes"}) {
      const bool scales = *how == 's' && how[1] == 'c';
      const std::string given = scales ? F32("4") : I64("4");
      const Case c{{x, given, y},
                   StrCat("%r = nn.resize(%a, none, ", scales ? "%b, none" : "none, %b",
                          ") {mode = \"", mode, "\"} : (", x, ", none, ",
                          scales ? given + ", none" : "none, " + given, ") -> ", y),
                   y};
      for (const Shape& out : {Shape{2, 3, 6, 9}, {4, 3, 5, 6}, {1, 6, 3, 6}}) {
        SCOPED_TRACE(StrCat(mode, ", ", how, " ", ::testing::PrintToString(out)));
        const Tensor all = Floats({static_cast<float>(out[0]) / 2, static_cast<float>(out[1]) / 3,
                                   static_cast<float>(out[2]) / 4, static_cast<float>(out[3]) / 6});
        Expect(c, {Random({2, 3, 4, 6}), scales ? all : Ints(out), Random(out)}, "resize", 1e-5);
      }
    }
  }
}

TEST_F(ComputedAmountsTest, FactorsOfWideFiltersAndRegions) {
  const std::string x = F32("2, H, W"), y = F32("2, P, Q");
  for (const char* rest : {"antialias = true, mode = \"linear\"",
                           "antialias = true, mode = \"cubic\", exclude_outside = true",
                           "mode = \"linear\", coordinate_transformation_mode = "
                           "\"tf_crop_and_resize\", extrapolation_value = 7.5"}) {
    const Case c{{x, F32("4"), F32("2")},
                 StrCat("%r = nn.resize(%a, %b, %c, none) {axes = [1, 2], ", rest, "} : (", x, ", ",
                        F32("4"), ", ", F32("2"), ", none) -> ", y),
                 y};
    for (const std::vector<float>& scales :
         std::vector<std::vector<float>>{{2, 2}, {0.5F, 0.4F}, {1, 1}}) {
      SCOPED_TRACE(StrCat(rest, " ", ::testing::PrintToString(scales)));
      Expect(c, {Random({2, 7, 9}), Floats({0.2F, 0.3F, 0.9F, 1.2F}), Floats(scales)}, "loops",
             1e-5);
    }
  }
}

// What lies between the axes has memory of its own for each of the planes.
TEST_F(ComputedAmountsTest, SizesOfWideFilters) {
  const std::string x = F32("N, C, H, W"), y = F32("N, C, R, S");
  for (const char* rest : {"mode = \"linear\"", "mode = \"cubic\"",
                           "mode = \"cubic\", exclude_outside = true, cubic_coeff_a = -0.5"}) {
    const Case c{{x, I64("2"), y},
                 StrCat("%r = nn.resize(%a, none, none, %b) {axes = [2, 3], antialias = true, ",
                        rest, "} : (", x, ", none, none, ", I64("2"), ") -> ", y),
                 y};
    for (const Shape& out : {Shape{2, 3, 6, 9}, {2, 3, 2, 17}, {2, 3, 1, 1}, {2, 3, 30, 2}}) {
      SCOPED_TRACE(StrCat(rest, " ", ::testing::PrintToString(out)));
      Expect(c, {Random({2, 3, 9, 13}), Ints({out[2], out[3]}), Random(out)}, "loops", 1e-5);
    }
  }
}

// Squares are turned in registers, and what is left of either extent.
TEST_F(ComputedAmountsTest, TransposesOfSymbols) {
  struct Turn {
    std::string from, to, perm;
    ElementType element;
    std::vector<Shape> shapes;
  };
  for (const Turn& t : std::vector<Turn>{
           {"N, M", "M, N", "1, 0", ElementType::kF32, {{0, 3}, {1, 40}, {19, 37}}},
           {"N, M", "M, N", "1, 0", ElementType::kU8, {{1, 1}, {37, 81}}},
           {"N, K, M", "N, M, K", "0, 2, 1", ElementType::kI16, {{0, 3, 3}, {2, 33, 5}}},
           {"N, H, W, K", "N, K, H, W", "0, 3, 1, 2", ElementType::kF64, {{2, 5, 7, 3}}},
           {"N, K, M", "M, K, N", "2, 1, 0", ElementType::kF32, {{17, 3, 18}}},
           {"N, N", "N, N", "1, 0", ElementType::kF64, {{18, 18}}},
       }) {
    const auto type = [&](const std::string& dims) {
      return StrCat("v_tensor<[", dims, "], ", Name(t.element), ">");
    };
    const Case c{{type(t.from)},
                 StrCat("%r = nn.transpose(%a) {perm = [", t.perm, "]} : (", type(t.from), ") -> ",
                        type(t.to)),
                 type(t.to)};
    EXPECT_EQ(CountLoops(c, "loop.transpose("), 4U) << t.perm;
    for (const Shape& shape : t.shapes) {
      SCOPED_TRACE(StrCat(t.perm, " ", Name(t.element), " ", ::testing::PrintToString(shape)));
      Expect(c, {RandomTensor(t.element, shape, 5)}, "loops");
    }
  }
}

// The rows between the amounts are copied in vectors, whatever these are.
TEST_F(ComputedAmountsTest, PadsInVectors) {
  const std::string x = F32("N, 3, K"), y = F32("P, Q, R");
  for (const char* mode : {"constant", "reflect", "edge", "wrap"}) {
    const Case c{
        {x, I64("6")},
        StrCat("%r = nn.pad(%a, %b) {mode = \"", mode, "\"} : (", x, ", ", I64("6"), ") -> ", y),
        y};
    EXPECT_GE(CountVectorLoads(c), 1U) << mode;
    for (const std::vector<int64_t>& pads :
         std::vector<std::vector<int64_t>>{{1, 1, 5, 0, 1, 3}, {0, -1, -2, 1, 0, -33}}) {
      SCOPED_TRACE(StrCat(mode, " ", ::testing::PrintToString(pads)));
      Expect(c, {Random({2, 3, 37}), Ints(pads)}, "loops");
    }
  }
}

// Of symbols nobody knows beforehand that there is so much to remove.
TEST_F(ComputedAmountsTest, PadsThatRemove) {
  const std::string x = F32("2, W"), y = x;
  const Case c{{x},
               StrCat("%p = builtin.constant() {value = tensor<[4], i64> [0, -3, 0, 3]} : () -> ",
                      I64("4"), "\n%r = nn.pad(%a, %p) : (", x, ", ", I64("4"), ") -> ", y),
               y};
  EXPECT_GE(CountVectorLoads(c), 1U);
  for (const int64_t w : {3, 4, 40}) Expect(c, {Random({2, w})}, "loops");
}

TEST_F(ComputedAmountsTest, ExpandsOfSymbols) {
  const std::string x = F32("N, 1, K"), y = F32("4, 3, 37");
  const Case c{{x},
               StrCat("%s = builtin.constant() {value = tensor<[3], i64> [4, 3, 37]} : () -> ",
                      I64("3"), "\n%r = nn.expand(%a, %s) : (", x, ", ", I64("3"), ") -> ", y),
               y};
  EXPECT_GE(CountVectorLoads(c), 1U);
  for (const Shape& shape : std::vector<Shape>{{1, 1, 1}, {4, 1, 37}, {1, 1, 37}, {4, 1, 1}}) {
    Expect(c, {Random(shape)}, "loops");
  }
}

TEST_F(ComputedAmountsTest, StartsOfSlices) {
  const std::string x = F32("N, K"), y = F32("P, Q");
  const Case c{
      {x, I64("2"), I64("2")},
      StrCat("%r = nn.slice(%a, %b, %c) : (", x, ", ", I64("2"), ", ", I64("2"), ") -> ", y),
      y};
  EXPECT_GE(CountVectorLoads(c), 1U);
  for (const std::vector<int64_t>& bounds :
       std::vector<std::vector<int64_t>>{{1, 5, 3, 40}, {-2, -39, 3, -1}, {-9, 50, 9, 60}}) {
    SCOPED_TRACE(::testing::PrintToString(bounds));
    Expect(c, {Random({3, 41}), Ints({bounds[0], bounds[1]}), Ints({bounds[2], bounds[3]})},
           "loops");
  }
}

TEST_F(ComputedAmountsTest, SizesOfAffineGrids) {
  for (const bool space : {false, true}) {
    for (const bool align : {false, true}) {
      const std::string theta = F32(space ? "N, 3, 4" : "N, 2, 3"), size = I64(space ? "5" : "4");
      const std::string y = F32(space ? "N, D, H, W, 3" : "N, H, W, 2");
      const Case c{{theta, size},
                   StrCat("%r = nn.affine_grid(%a, %b) {align_corners = ", align ? "true" : "false",
                          "} : (", theta, ", ", size, ") -> ", y),
                   y};
      const std::vector<std::vector<int64_t>> sizes{{3, 2, 4, 5}, {3, 0, 1, 7}, {3, 1, 6, 0}};
      for (std::vector<int64_t> of : sizes) {
        if (space) of.push_back(6);
        SCOPED_TRACE(::testing::PrintToString(of));
        Expect(c, {Random({3, space ? 3 : 2, space ? 4 : 3}), Ints(of)}, "loops", 1e-6);
      }
    }
  }
}

TEST_F(ComputedAmountsTest, TilesOfSymbols) {
  const std::string x = F32("N, 3"), y = F32("P, Q");
  const Case c{{x, I64("2")}, StrCat("%r = nn.tile(%a, %b) : (", x, ", ", I64("2"), ") -> ", y), y};
  for (const std::vector<int64_t>& times :
       std::vector<std::vector<int64_t>>{{2, 3}, {1, 1}, {0, 4}}) {
    Expect(c, {Random({5, 3}), Ints(times)}, "loops");
  }
  const std::string from = F32("N, H, W"), to = F32("P, Q, R");
  const Case of_three{
      {from, I64("3")}, StrCat("%r = nn.tile(%a, %b) : (", from, ", ", I64("3"), ") -> ", to), to};
  for (const Shape& shape : {Shape{2, 3, 1}, {1, 1, 21}, {2, 0, 3}}) {
    Expect(of_three, {Random(shape), Ints({2, 3, 20})}, "loops");
    Expect(of_three, {Random(shape), Ints({1, 0, 7})}, "loops");
  }
}

}  // namespace
}  // namespace lathe::lower
