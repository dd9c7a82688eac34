#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

std::string F32(std::string_view shape) { return StrCat("v_tensor<", shape, ", f32>"); }

// `%r = op(%a) {attributes}`
Case Unary(std::string_view op, std::string_view attributes, const std::string& type) {
  return {{type}, StrCat("%r = nn.", op, "(%a) {", attributes, "} : (", type, ") -> ", type), type};
}

// A reduction over constant axes.
Case Reduction(std::string_view op, const std::string& from, std::string_view axes, size_t count,
               const std::string& to, std::string_view attributes = "keepdims = true") {
  const std::string ints = StrCat("v_tensor<[", count, "], i64>");
  return {{from},
          StrCat("%x = builtin.constant() {value = tensor<[", count, "], i64> [", axes,
                 "]} : () -> ", ints, "\n%r = nn.", op, "(%a, %x) {", attributes, "} : (", from,
                 ", ", ints, ") -> ", to),
          to};
}

class RowsTest : public LowerTest {};

TEST_F(RowsTest, SoftmaxAlongAnyAxis) {
  for (const char* shape : {"[5, 7]", "[3, 16]", "[2, 3, 67]", "[4, 130]", "[1, 1]", "[2, 4, 1]"}) {
    for (const char* op : {"softmax", "log_softmax"}) {
      Expect(Unary(op, "axis = -1", F32(shape)), "rows", 1e-5);
      Expect(Unary(op, "axis = 0", F32(shape)), "rows", 1e-5);
    }
  }
  Expect(Unary("softmax", "axis = 1", F32("[2, 9, 3, 21]")), "rows", 1e-5);
}

TEST_F(RowsTest, SoftmaxOfSymbolicExtents) {
  for (const int64_t n : {0, 1, 5, 16, 37, 70}) {
    symbol_ = n;
    Expect(Unary("softmax", "axis = -1", F32("[2, N, M]")), "rows", 1e-5);
    Expect(Unary("softmax", "axis = 1", F32("[2, N, M]")), "rows", 1e-5);
    Expect(Unary("log_softmax", "axis = 0", F32("[N, 3]")), "rows", 1e-5);
  }
}

TEST_F(RowsTest, SoftmaxWithWhatIsAround) {
  const std::string t = F32("[2, 3, 5, 21]"), mask = F32("[2, 1, 1, 21]");
  Expect(
      {{t, mask},
       StrCat("%h = builtin.constant() {value = tensor<[], f32> [0.5]} : () -> v_tensor<[], f32>",
              "\n%p = nn.mul(%a, %h) : (", t, ", v_tensor<[], f32>) -> ", t,
              "\n%q = nn.add(%p, %b) : (", t, ", ", mask, ") -> ", t,
              "\n%s = nn.softmax(%q) {axis = -1} : (", t, ") -> ", t, "\n%r = nn.mul(%s, %a) : (",
              t, ", ", t, ") -> ", t),
       t},
      "rows", 1e-5);
}

// Vectors go across rows of up to four elements.
TEST_F(RowsTest, ShortRows) {
  for (const int64_t n : {0, 1, 5, 16, 37}) {
    symbol_ = n;
    for (const int64_t m : {2, 3, 4}) {
      const std::string t = F32(StrCat("[N, ", m, "]")), row = F32("[N, 1]"),
                        column = F32(StrCat("[", m, "]"));
      Expect(Unary("log_softmax", "axis = -1", F32(StrCat("[2, N, 1, ", m, "]"))), "rows", 1e-5);
      Expect({{t, row, column},
              StrCat("%p = nn.mul(%a, %b) : (", t, ", ", row, ") -> ", t,
                     "\n%q = nn.add(%p, %c) : (", t, ", ", column, ") -> ", t,
                     "\n%r = nn.softmax(%q) {axis = -1} : (", t, ") -> ", t),
              t},
             "rows", 1e-5);
    }
    Expect(Reduction("reduce_sum", F32("[5, N, 3]"), "0, 2", 2, F32("[1, N, 1]")), "rows", 1e-5);
    Expect(Reduction("reduce_max", "v_tensor<[2, N, 4], i8>", "-1", 1, "v_tensor<[2, N], i8>",
                     "keepdims = false"),
           "rows");
    Expect(Reduction("reduce_mean", "v_tensor<[N, 2], f64>", "1", 1, "v_tensor<[N, 1], f64>"),
           "rows", 1e-12);
  }
  Expect(Unary("softmax", "axis = -1", F32("[3, 70, 3]")), "rows", 1e-5);
  Expect(Unary("softmax", "axis = -1", F32("[1, 1, 2]")), "rows", 1e-5);
}

TEST_F(RowsTest, ReductionsOverAnyAxes) {
  const std::string x = F32("[3, 4, 5, 19]");
  struct Axes {
    const char *axes, *kept, *dropped;
    size_t count;
  };
  for (const Axes& a :
       {Axes{"-1", "[3, 4, 5, 1]", "[3, 4, 5]", 1}, Axes{"0", "[1, 4, 5, 19]", "[4, 5, 19]", 1},
        Axes{"1", "[3, 1, 5, 19]", "[3, 5, 19]", 1}, Axes{"2, 3", "[3, 4, 1, 1]", "[3, 4]", 2},
        Axes{"0, 2", "[1, 4, 1, 19]", "[4, 19]", 2}, Axes{"0, 2, 3", "[1, 4, 1, 1]", "[4]", 3},
        Axes{"1, 3", "[3, 1, 5, 1]", "[3, 5]", 2}, Axes{"0, 1, 2, 3", "[1, 1, 1, 1]", "[]", 4}}) {
    Expect(Reduction("reduce_mean", x, a.axes, a.count, F32(a.kept)), "rows", 1e-4);
    Expect(Reduction("reduce_log_sum_exp", x, a.axes, a.count, F32(a.dropped), "keepdims = false"),
           "rows", 1e-4);
  }
}

TEST_F(RowsTest, EveryReduction) {
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_l1",
                         "reduce_l2", "reduce_sum_square", "reduce_log_sum"}) {
    const bool logarithm = std::string_view(op) == "reduce_log_sum";
    const std::string x = F32("[4, 37]");
    Expect(Reduction(op, x, "1", 1, F32("[4]"), "keepdims = false"), "rows",
           logarithm ? 1e-3 : 1e-4);
    Expect(Reduction(op, x, "0", 1, F32("[1, 37]")), "rows", logarithm ? 1e-3 : 1e-4);
  }
}

TEST_F(RowsTest, ReductionsOfOtherTypes) {
  for (const char* element : {"i32", "i64", "u8", "f64", "f16", "bool"}) {
    const std::string x = StrCat("v_tensor<[3, 37], ", element, ">"),
                      y = StrCat("v_tensor<[3, 1], ", element, ">"),
                      z = StrCat("v_tensor<[1, 37], ", element, ">");
    for (const char* op : {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_l1",
                           "reduce_sum_square"}) {
      const bool extreme =
          std::string_view(op) == "reduce_max" || std::string_view(op) == "reduce_min";
      if (!extreme && (element[0] == 'u' || element[0] == 'b')) continue;
      Expect(Reduction(op, x, "1", 1, y), "rows", element[0] == 'f' ? 1e-3 : 0);
      Expect(Reduction(op, x, "0", 1, z), "rows", element[0] == 'f' ? 1e-3 : 0);
    }
  }
}

TEST_F(RowsTest, ReductionsOfNothingAndOverNothing) {
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_prod"}) {
    Expect(Reduction(op, F32("[3, 0, 4]"), "1", 1, F32("[3, 1, 4]")), "rows");
    Expect(Reduction(op, F32("[3, 0]"), "1", 1, F32("[3]"), "keepdims = false"), "rows");
    Expect(Reduction(op, F32("[0, 5]"), "1", 1, F32("[0, 1]")), "rows");
    Expect(Reduction(op, F32("[3, 5]"), "", 0, F32("[3, 5]"), "noop_with_empty_axes = true"),
           "rows");
  }
}

TEST_F(RowsTest, SymbolicReductions) {
  for (const int64_t n : {1, 5, 16, 33}) {
    symbol_ = n;
    Expect(Reduction("reduce_mean", F32("[N, 3, M]"), "0, 2", 2, F32("[1, 3, 1]")), "rows", 1e-4);
    Expect(Reduction("reduce_sum", F32("[N, M, 7]"), "1", 1, F32("[N, 7]"), "keepdims = false"),
           "rows", 1e-4);
    Expect(Reduction("reduce_max", F32("[N, M, K]"), "0", 1, F32("[1, M, K]")), "rows");
    Expect(Reduction("reduce_mean", F32("[2, N, M]"), "1, 2", 2, F32("[2]"), "keepdims = false"),
           "rows", 1e-4);
  }
}

// Axes that are kept are one loop, but for those of which an operand has only some.
TEST_F(RowsTest, SymbolicNeighborsOfShortRows) {
  const std::string x = F32("[N, 3, M, 5]"), mask = F32("[N, 1, M, 5]");
  for (const int64_t n : {0, 1, 2, 37}) {
    symbol_ = n;
    Expect(Reduction("reduce_sum", x, "3", 1, F32("[N, 3, M]"), "keepdims = false"), "rows", 1e-4);
    Expect(Reduction("reduce_max", F32("[N, 3, M, K]"), "-1", 1, F32("[N, 3, M, 1]")), "rows");
    Expect(Reduction("reduce_mean", F32("[N, M, 3, K, 2]"), "1", 1, F32("[N, 1, 3, K, 2]")), "rows",
           1e-4);
    Expect({{x, mask},
            StrCat("%s = nn.add(%a, %b) : (", x, ", ", mask, ") -> ", x,
                   "\n%r = nn.softmax(%s) {axis = -1} : (", x, ") -> ", x),
            x},
           "rows", 1e-5);
  }
}

// Axes of extent 1 are left out, however many of the others are symbols.
TEST_F(RowsTest, SymbolicExtentsBesideOnes) {
  struct Axes {
    const char *from, *axes, *kept, *dropped;
  };
  for (const int64_t n : {1, 5, 33}) {
    symbol_ = n;
    for (const Axes& a : {Axes{"[N, M, 1]", "-1", "[N, M, 1]", "[N, M]"},
                          Axes{"[N, 3, M, 1]", "1", "[N, 1, M, 1]", "[N, M, 1]"},
                          Axes{"[N, M, 3, 1]", "2", "[N, M, 1, 1]", "[N, M, 1]"},
                          Axes{"[1, N, 1, M, 1, 1]", "3", "[1, N, 1, 1, 1, 1]", "[1, N, 1, 1, 1]"},
                          Axes{"[N, M, K, 1]", "1", "[N, 1, K, 1]", "[N, K, 1]"}}) {
      SCOPED_TRACE(a.from);
      Expect(Reduction("reduce_max", F32(a.from), a.axes, 1, F32(a.kept)), "rows");
      Expect(Reduction("reduce_l2", F32(a.from), a.axes, 1, F32(a.dropped), "keepdims = false"),
             "rows", 1e-4);
      Expect(Unary("softmax", StrCat("axis = ", a.axes), F32(a.from)), "rows", 1e-5);
    }
  }
  const std::string x = F32("[N, 3, M, 1]"), other = F32("[3, M, 1]");
  Expect({{x, other},
          StrCat("%n = nn.mul(%a, %b) : (", x, ", ", other, ") -> ", x,
                 "\n%r = nn.softmax(%n) {axis = 1} : (", x, ") -> ", x),
          x},
         "rows", 1e-5);
}

TEST_F(RowsTest, Normalizations) {
  const std::string t = F32("[2, 5, 37]"), row = F32("[37]");
  for (const char* type : {"[2, 5, 37]", "[N, M, 37]"}) {
    const std::string x = F32(type);
    Expect(
        {{x, row, row},
         StrCat("%r = nn.layer_normalization(%a, %b, %c) : (", x, ", ", row, ", ", row, ") -> ", x),
         x},
        "rows", 1e-4);
    Expect({{x, x, row, row},
            StrCat("%s = nn.add(%a, %b) : (", x, ", ", x, ") -> ", x,
                   "\n%l = nn.layer_normalization(%s, %c, %d) : (", x, ", ", row, ", ", row,
                   ") -> ", x, "\n%r = nn.tanh(%l) : (", x, ") -> ", x),
            x},
           "rows", 1e-4);
    Expect({{x, row}, StrCat("%r = nn.rms_normalization(%a, %b) : (", x, ", ", row, ") -> ", x), x},
           "rows", 1e-4);
  }
  const std::string c = F32("[4]"), image = F32("[2, 4, 5, 7]"), scale = F32("[4, 5, 7]");
  Expect({{image, c, c},
          StrCat("%r = nn.instance_normalization(%a, %b, %c) : (", image, ", ", c, ", ", c, ") -> ",
                 image),
          image},
         "rows", 1e-4);
  Expect({{image, scale, scale},
          StrCat("%r = nn.layer_normalization(%a, %b, %c) {axis = 1} : (", image, ", ", scale, ", ",
                 scale, ") -> ", image),
          image},
         "rows", 1e-4);
  Expect(Unary("lp_normalization", "axis = 1", t), "rows", 1e-4);
  Expect(Unary("lp_normalization", "axis = -1, p = 1", t), "rows", 1e-4);
  Expect(Unary("mean_variance_normalization", "", image), "rows", 1e-4);
}

TEST_F(RowsTest, ManyRowsOnThreads) {
  Expect(Unary("softmax", "axis = -1", F32("[3, 50, 129]")), "rows", 1e-5);
  Expect(Unary("softmax", "axis = 1", F32("[3, 50, 129]")), "rows", 1e-5);
  Expect(Reduction("reduce_sum", F32("[70, 1037]"), "0", 1, F32("[1, 1037]")), "rows", 1e-4);
}

TEST_F(RowsTest, SaysWhyNot) {
  const std::string x = F32("[3, 5]"), axes = "v_tensor<[1], i64>";
  const std::string why =
      Refusal({{x, axes},
               StrCat("%r = nn.reduce_sum(%a, %b) : (", x, ", ", axes, ") -> ", F32("[1, 5]")),
               F32("[1, 5]")});
  EXPECT_NE(why.find("rows: axes are not known"), std::string::npos) << why;
  const std::string t = F32("[5, 5]");
  const std::string moved = Refusal({{t},
                                     StrCat("%t = nn.transpose(%a) : (", t, ") -> ", t,
                                            "\n%r = nn.softmax(%t) : (", t, ") -> ", t),
                                     t});
  EXPECT_NE(moved.find("rows: nn.transpose is not elementwise"), std::string::npos) << moved;
}

}  // namespace
}  // namespace lathe::lower
