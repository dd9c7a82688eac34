#include <cmath>

#include "lathe/support/random.h"
#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

std::string TypeText(std::string_view shape, std::string_view element) {
  return StrCat("v_tensor<", shape, ", ", element, ">");
}

// `%r = op(%a) {attributes}`
Case Unary(std::string_view op, std::string_view attributes, const std::string& from,
           const std::string& to) {
  return {{from}, StrCat("%r = nn.", op, "(%a) {", attributes, "} : (", from, ") -> ", to), to};
}

// A running sum or product along a constant axis.
Case Running(std::string_view op, int64_t axis, std::string_view attributes, const std::string& t) {
  return {{t},
          StrCat("%x = builtin.constant() {value = tensor<[], i64> [", axis,
                 "]} : () -> v_tensor<[], i64>\n%r = nn.", op, "(%a, %x) {", attributes, "} : (", t,
                 ", v_tensor<[], i64>) -> ", t),
          t};
}

class LinesTest : public LowerTest {
 protected:
  // Exact on `x`, on every target and for any number of threads.
  void ExpectOf(const Case& c, const Tensor& x) {
    for (const Target* target : codegen::RunnableTargets()) {
      Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
      const Tensor wanted = Interpreter(program).Run({{"a", x}})[0].second.tensor();
      Operation* function = codegen::FirstFunction(program);
      const Lowered lowered = LowerFunction(function, MachineOf(*target), {}, {.strict = true});
      ASSERT_TRUE(lowered.done) << lowered.why_not;
      EXPECT_EQ(lowered.strategy, "lines");
      codegen::CompiledKernel kernel(function->region(0).front(), *target, lowered.in_place);
      for (const int threads : {1, 3}) {
        runtime::WorkerTeam team(threads);
        const std::vector<Tensor> got = kernel.Call({x}, {ZeroLike(wanted)}, team.for_kernels());
        const Closeness close = AllClose(got[0], wanted, 0, 0);
        EXPECT_TRUE(close) << c.body << " on " << target->name << ": " << close.description;
      }
    }
  }
};

// Few different elements; of floats some may be NaN, and zeros have signs.
Tensor Ties(ElementType element, const Shape& shape, int64_t levels, bool with_nan) {
  std::vector<double> values(static_cast<size_t>(NumElements(shape)));
  RandomStream random(static_cast<uint64_t>(levels));
  for (double& v : values) {
    v = static_cast<double>(random.Int(0, levels - 1));
    if (IsFloat(element) && v == 0 && random.Int(0, 1) == 0) v = -0.0;
    if (IsFloat(element) && with_nan && random.Int(0, 9) == 0) v = NAN;
  }
  return Cast(Tensor::Of<double>(shape, values), element);
}

TEST_F(LinesTest, PositionsOfTheBest) {
  for (const char* element : {"f32", "i32", "u8"}) {
    for (const char* op : {"arg_max", "arg_min"}) {
      const std::string t = TypeText("[3, 7, 19]", element);
      Expect(Unary(op, "axis = 1", t, TypeText("[3, 1, 19]", "i64")), "lines");
      Expect(Unary(op, "axis = -1, keepdims = false", t, TypeText("[3, 7]", "i64")), "lines");
      Expect(Unary(op, "axis = 0, select_last_index = true", t, TypeText("[1, 7, 19]", "i64")),
             "lines");
    }
  }
  for (const int64_t n : {1, 6, 17}) {
    symbol_ = n;
    Expect(Unary("arg_max", "axis = 1", TypeText("[N, M, L]", "f32"), TypeText("[N, 1, L]", "i64")),
           "lines");
    Expect(Unary("arg_max", "axis = 1, select_last_index = true", TypeText("[N, M]", "f64"),
                 TypeText("[N, 1]", "i64")),
           "lines");
  }
}

TEST_F(LinesTest, Hardmax) {
  for (const char* axis : {"axis = 0", "axis = 1", "axis = -1"}) {
    const std::string t = TypeText("[3, 5, 21]", "f32");
    Expect(Unary("hardmax", axis, t, t), "lines");
  }
}

// Lines of less than a vector, of several and of what is left; ties, NaN and zeros of both signs.
TEST_F(LinesTest, PositionsAlongLines) {
  for (const int64_t n : {1, 7, 16, 33, 130}) {
    for (const ElementType element : {ElementType::kF32, ElementType::kF64, ElementType::kI64,
                                      ElementType::kU8, ElementType::kF16}) {
      const Tensor x = Ties(element, {5, n}, n % 2 == 0 ? 2 : 60, n > 20);
      const std::string t = TypeText(StrCat("[5, ", n, "]"), Name(element)),
                        to = TypeText("[5]", "i64");
      ExpectOf(Unary("arg_max", "axis = 1, keepdims = false", t, to), x);
      ExpectOf(Unary("arg_min", "axis = 1, keepdims = false, select_last_index = true", t, to), x);
    }
  }
}

TEST_F(LinesTest, PositionsAlongSymbolicLines) {
  const std::string t = TypeText("[2, N, 1]", "f32"), to = TypeText("[2, 1, 1]", "i64");
  for (const int64_t n : {1, 15, 64, 77}) {
    for (const bool with_nan : {false, true}) {
      const Tensor x = Ties(ElementType::kF32, {2, n, 1}, n / 8 + 1, with_nan);
      ExpectOf(Unary("arg_min", "axis = 1", t, to), x);
      ExpectOf(Unary("arg_max", "axis = 1, select_last_index = true", t, to), x);
      ExpectOf(Unary("hardmax", "axis = 1", t, t), x);
    }
  }
  const std::string none = TypeText("[N, 3]", "f32"), empty = TypeText("[3, N]", "f16");
  ExpectOf(Unary("arg_max", "axis = 1, keepdims = false", none, TypeText("[N]", "i64")),
           Tensor(ElementType::kF32, {0, 3}));
  ExpectOf(Unary("hardmax", "axis = 1", empty, empty), Tensor(ElementType::kF16, {3, 0}));
}

// Several vectors of lines at once, one, and what is left; axes behind that of the lines.
TEST_F(LinesTest, RunningSumsOfManyLines) {
  for (const char* shape : {"[3, 4, 131]", "[2, 3, 5, 40]", "[2, 3, 64]", "[2, 3, 1, 1]"}) {
    Expect(Running("cum_sum", 1, "", TypeText(shape, "f32")), "lines", 1e-6);
    Expect(Running("cum_sum", 0, "reverse = true", TypeText(shape, "i32")), "lines");
  }
  for (const int64_t n : {0, 1, 9, 70}) {
    symbol_ = n;
    Expect(Running("cum_sum", 1, "exclusive = true", TypeText("[2, 3, N]", "f64")), "lines", 1e-12);
    Expect(Running("cum_prod", 0, "", TypeText("[N, 3, M]", "u32")), "lines");
  }
}

TEST_F(LinesTest, RunningSumsAndProducts) {
  for (const char* attributes :
       {"", "exclusive = true", "reverse = true", "exclusive = true, reverse = true"}) {
    for (const int64_t axis : {0, 1, -1}) {
      Expect(Running("cum_sum", axis, attributes, TypeText("[3, 5, 21]", "f32")), "lines", 1e-5);
      Expect(Running("cum_prod", axis, attributes, TypeText("[N, 5, 2]", "i32")), "lines");
    }
  }
  Expect(Running("cum_sum", 0, "", TypeText("[0, 5]", "f32")), "lines");
}

TEST_F(LinesTest, SaysWhyNot) {
  const std::string t = TypeText("[3, 5]", "f32"), axis = TypeText("[]", "i64");
  const std::string why =
      Refusal({{t, axis}, StrCat("%r = nn.cum_sum(%a, %b) : (", t, ", ", axis, ") -> ", t), t});
  EXPECT_NE(why.find("lines: the axis is not known"), std::string::npos) << why;
}

}  // namespace
}  // namespace lathe::lower
