#include "lathe/driver/every_way.h"
#include "test/unit/lower/lower_util.h"

// Operations of signals, trees, n-grams and others that have plain loops and nothing faster.
namespace lathe::lower {
namespace {

std::string TypeText(const std::string& dims, const std::string& element = "f32") {
  return StrCat("v_tensor<[", dims, "], ", element, ">");
}

class PlainLoopsTest : public LowerTest {
 protected:
  static std::string Ints(const std::string& name, const std::string& values, int64_t count) {
    const std::string dims = count < 0 ? "" : StrCat(count);
    const std::string text = StrCat("[", values, "]");
    return StrCat("%", name, " = builtin.constant() {value = tensor<[", dims, "], i64> ", text,
                  "} : () -> ", TypeText(dims, "i64"), "\n");
  }

  void ExpectDft(const std::string& x, const std::string& y, const std::string& attributes,
                 int64_t axis, int64_t length = 0, const std::string& element = "f32") {
    SCOPED_TRACE(StrCat(x, " to ", y, ", ", attributes));
    const std::string constants =
        Ints("axis", StrCat(axis), -1) + (length > 0 ? Ints("n", StrCat(length), -1) : "");
    const std::string n = length > 0 ? "%n" : "none";
    const std::string n_type = length > 0 ? TypeText("", "i64") : "none";
    Expect({{TypeText(x, element)},
            StrCat(constants, "%r = nn.dft(%a, ", n, ", %axis) {", attributes, "} : (",
                   TypeText(x, element), ", ", n_type, ", ", TypeText("", "i64"), ") -> ",
                   TypeText(y, element)),
            TypeText(y, element)},
           "loops", element == "f64" ? 1e-11 : 1e-5);
  }

  void ExpectDeterminants(const std::string& x, const std::string& y, const std::string& element) {
    SCOPED_TRACE(x);
    Expect({{TypeText(x, element)},
            StrCat("%r = nn.det(%a) : (", TypeText(x, element), ") -> ", TypeText(y, element)),
            TypeText(y, element)},
           "loops", 1e-5);
  }

  void ExpectEinsum(const std::string& equation, const std::vector<std::string>& operands,
                    const std::string& y, const std::string& element) {
    SCOPED_TRACE(StrCat(equation, " of ", element));
    only_ = "loops";  // products that the strategy matmul takes, too
    std::vector<std::string> types;
    std::string values, listed;
    for (size_t i = 0; i < operands.size(); ++i) {
      types.push_back(TypeText(operands[i], element));
      values += StrCat(i == 0 ? "%" : ", %", std::string(1, static_cast<char>('a' + i)));
      listed += StrCat(i == 0 ? "" : ", ", types.back());
    }
    Expect({types,
            StrCat("%r = nn.einsum(", values, ") {equation = \"", equation, "\"} : (", listed,
                   ") -> ", TypeText(y, element)),
            TypeText(y, element)},
           "loops", element == "bf16" ? 2e-2 : 1e-5);
  }
};

TEST_F(PlainLoopsTest, FourierTransforms) {
  for (const int64_t n : {1, 2, 3, 4, 5, 11, 12, 16, 31, 63, 64, 66, 96, 250}) {
    const std::string whole = StrCat(n), half = StrCat(n / 2 + 1);
    ExpectDft(StrCat("2, ", whole, ", 1"), StrCat("2, ", half, ", 2"), "onesided = true", 1);
    ExpectDft(StrCat(whole, ", 3, 2"), StrCat(whole, ", 3, 2"), "inverse = true", 0);
  }
  ExpectDft("2, 3, 4, 2", "2, 3, 4, 2", "", 2, 0, "f64");
  ExpectDft("2, 5, 2", "2, 8, 2", "", 1, 8);                              // continued by zeros
  ExpectDft("2, 9, 1", "2, 6, 2", "", -2, 6);                             // cut
  ExpectDft("2, 4, 2", "2, 6, 1", "inverse = true, onesided = true", 1);  // half of a spectrum
  ExpectDft("2, 4, 2", "2, 9, 1", "inverse = true, onesided = true", 1, 9);
  ExpectDft("0, 8, 1", "0, 8, 2", "", 1);
  ExpectDft("40, 128, 2", "40, 128, 2", "", 1);  // by threads
}

// Where the odd part of the length is large, by a chirp.
TEST_F(PlainLoopsTest, FourierTransformsOfLargeOddLengths) {
  for (const int64_t n : {17, 19, 34, 101, 187, 509}) {
    const std::string whole = StrCat(n), half = StrCat(n / 2 + 1);
    ExpectDft(StrCat("2, ", whole, ", 1"), StrCat("2, ", half, ", 2"), "onesided = true", 1);
    ExpectDft(StrCat(whole, ", 3, 2"), StrCat(whole, ", 3, 2"), "inverse = true", 0);
    ExpectDft(StrCat("2, ", half, ", 2"), StrCat("2, ", whole, ", 1"),
              "inverse = true, onesided = true", 1, n);
  }
  ExpectDft("2, 37, 2", "2, 37, 2", "", 1, 0, "f64");
  ExpectDft("2, 5, 2", "2, 23, 2", "", 1, 23);
  ExpectDft("2, 40, 1", "2, 23, 2", "", 1, 23);
  ExpectDft("0, 41, 1", "0, 41, 2", "", 1);
  ExpectDft("40, 131, 2", "40, 131, 2", "", 1);  // by threads
}

TEST_F(PlainLoopsTest, FourierTransformsOfSymbolicExtents) {
  for (const int64_t n : {1, 2, 7, 24, 101, 130}) {
    symbol_ = n;
    ExpectDft("N, 8, 1", "N, 8, 2", "", 1);
    ExpectDft("3, N, 2", "3, N, 2", "inverse = true", 1);
    ExpectDft("3, N, 1", "3, floordiv(N, 2) + 1, 2", "onesided = true", 1);
  }
  symbol_ = 0;
  ExpectDft("N, 8, 1", "N, 8, 2", "", 1);
  ExpectDft("N, 67, 2", "N, 67, 2", "", 1);
  symbol_ = 3;
  ExpectDft("N, 67, 2", "N, 67, 2", "", 1);
}

// There is no transform of nothing, which is told when it runs.
TEST_F(PlainLoopsTest, FourierTransformsOfNothing) {
  const std::string x = TypeText("2, N, 2");
  Program program =
      ParseProgram(context_,
                   ProgramOf({{x},
                              StrCat(Ints("axis", "1", -1), "%r = nn.dft(%a, none, %axis) : (", x,
                                     ", none, ", TypeText("", "i64"), ") -> ", x),
                              x}),
                   {.file_locations = false});
  const EveryWay executable(program, {.threads = 1, .strict = true});
  EXPECT_TRUE(executable.made().interpreted().empty());
  for (const int64_t n : {0, 3}) {
    symbol_ = n;
    const NamedValues inputs = Inputs(program);
    if (n == 0) {
      EXPECT_THROW(executable.Run(inputs), Error);
    } else {
      executable.Run(inputs);
    }
  }
}

TEST_F(PlainLoopsTest, ProductsOfTransposedMatrices) {
  only_ = "loops";
  symbol_ = 3;
  for (const auto& [x, y, z, attributes] : std::vector<std::array<const char*, 4>>{
           {"N, 4", "4, 5", "N, 5", ""},
           {"4, N", "4, 5", "N, 5", "transpose_x = true"},
           {"2, 4, N", "4, 5", "2, N, 5", "transpose_x = true"},
           {"2, 4, N", "1, 5, 4", "2, N, 5", "transpose_x = true, transpose_y = true"},
           {"4", "5, 4", "5", "transpose_y = true"},
           {"4, N", "4", "N", "transpose_x = true"},
           {"1", "1", "", ""},
       }) {
    SCOPED_TRACE(StrCat(x, " by ", y));
    Expect({{TypeText(x), TypeText(y)},
            StrCat("%r = nn.matmul(%a, %b) {", attributes, "} : (", TypeText(x), ", ", TypeText(y),
                   ") -> ", TypeText(z)),
            TypeText(z)},
           "loops", 1e-5);
  }
}

TEST_F(PlainLoopsTest, FramesOfSignals) {
  for (const int64_t n : {11, 40}) {
    symbol_ = n;
    for (const char* dims : {"2, 40, 1", "N, 40, 1"}) {
      const std::string batch = std::string(dims).substr(0, 1);
      const std::string x = TypeText(dims), w = TypeText("8"),
                        y = TypeText(StrCat(batch, ", 9, 5, 2"));
      Expect({{x, w},
              StrCat(Ints("step", "4", -1), "%r = nn.stft(%a, %step, %b, none) : (", x, ", ",
                     TypeText("", "i64"), ", ", w, ", none) -> ", y),
              y},
             "loops", 1e-5);
    }
  }
  for (const int64_t n : {5, 19}) {
    const std::string x = TypeText(StrCat("1, ", n + 16, ", 2"));
    const std::string y = TypeText(StrCat("1, 5, ", n, ", 2"));
    Expect({{x},
            StrCat(Ints("step", "4", -1), Ints("n", StrCat(n), -1),
                   "%r = nn.stft(%a, %step, none, %n) {onesided = false} : (", x, ", ",
                   TypeText("", "i64"), ", none, ", TypeText("", "i64"), ") -> ", y),
            y},
           "loops", 1e-5);
  }
}

TEST_F(PlainLoopsTest, Determinants) {
  for (const char* element : {"f32", "f64", "f16"}) ExpectDeterminants("3, 4, 4", "3", element);
  ExpectDeterminants("1, 1", "", "f32");
  ExpectDeterminants("2, 0, 0", "2", "f32");
  ExpectDeterminants("0, 3, 3", "0", "f32");
  ExpectDeterminants("2, 3, 17, 17", "2, 3", "f64");
  for (const int64_t n : {1, 6}) {
    symbol_ = n;
    ExpectDeterminants("N, 3, 3", "N", "f32");
    ExpectDeterminants("2, N, N", "2", "f32");
  }
}

TEST_F(PlainLoopsTest, SingularMatrices) {
  const std::string x = TypeText("3, 3", "i64"), wide = TypeText("3, 3"), y = TypeText("");
  below_ = 1;  // all zero
  Expect({{x},
          StrCat("%f = nn.cast(%a) {to = f32} : (", x, ") -> ", wide, "\n%r = nn.det(%f) : (", wide,
                 ") -> ", y),
          y},
         "loops");
}

TEST_F(PlainLoopsTest, Equations) {
  for (const char* element : {"i32", "i8", "u64", "bf16", "f32", "f64"}) {
    ExpectEinsum("bij,bjk->bik", {"3, 4, 5", "3, 5, 6"}, "3, 4, 6", element);
  }
  ExpectEinsum("ii->i", {"5, 5"}, "5", "f32");
  ExpectEinsum("ii", {"5, 5"}, "", "f32");
  ExpectEinsum("...ij,...jk", {"2, 1, 3, 4", "5, 4, 2"}, "2, 5, 3, 2", "f32");
  ExpectEinsum("i,j,k->kji", {"2", "3", "4"}, "4, 3, 2", "f64");
  ExpectEinsum("ij->", {"0, 4"}, "", "f32");
  for (const int64_t n : {0, 1, 9}) {
    symbol_ = n;
    ExpectEinsum("bi,ij->bj", {"N, 4", "4, 33"}, "N, 33", "f32");
    ExpectEinsum("bi,bj->ij", {"N, 4", "N, 3"}, "4, 3", "i32");
  }
}

TEST_F(PlainLoopsTest, BlocksOfImages) {
  const auto expect = [&](const std::string& x, const std::string& image, const std::string& block,
                          const std::string& attributes, const std::string& y,
                          const std::string& element) {
    SCOPED_TRACE(y);
    const std::string two = TypeText("2", "i64");
    Expect({{TypeText(x, element)},
            StrCat(Ints("i", image, 2), Ints("k", block, 2), "%r = nn.col2im(%a, %i, %k) {",
                   attributes, "} : (", TypeText(x, element), ", ", two, ", ", two, ") -> ",
                   TypeText(y, element)),
            TypeText(y, element)},
           "loops", 1e-5);
  };
  expect("1, 8, 4", "3, 3", "2, 2", "", "1, 2, 3, 3", "f32");
  expect("2, 4, 9", "5, 5", "2, 2", "dilations = [2, 2], pads = [1, 1, 1, 1], strides = [2, 2]",
         "2, 1, 5, 5", "f32");
  expect("1, 6, 10", "4, 6", "3, 2", "pads = [0, 0, 0, 0]", "1, 1, 4, 6", "i32");
  symbol_ = 3;
  expect("N, 8, 4", "3, 3", "2, 2", "", "N, 2, 3, 3", "f64");
}

TEST_F(PlainLoopsTest, CroppedAndPaddedToTheMiddle) {
  for (const int64_t n : {0, 1, 4, 9, 12}) {
    symbol_ = n;
    for (const char* want : {"6", "9"}) {
      const std::string x = TypeText("N, 7"), y = TypeText(StrCat(want, ", 7"));
      Expect({{x},
              StrCat(Ints("s", want, 1), "%r = nn.center_crop_pad(%a, %s) {axes = [0]} : (", x,
                     ", ", TypeText("1", "i64"), ") -> ", y),
              y},
             "loops");
    }
  }
}

TEST_F(PlainLoopsTest, RunningSumsOfAnAxis) {
  symbol_ = 6;
  const std::string x = TypeText("N, 4"), axis = TypeText("", "i64");
  Expect({{x},
          StrCat(Ints("k", "0", -1), "%r = nn.cum_sum(%a, %k) : (", x, ", ", axis, ") -> ", x),
          x},
         "lines", 1e-5);
  // The axis may be computed.
  below_ = 2;
  for (const char* how : {"", "exclusive = true", "reverse = true"}) {
    for (const char* op : {"cum_sum", "cum_prod"}) {
      for (const char* dims : {"3, 4", "N, 33", "0, 4"}) {
        const std::string y = TypeText(dims);
        Expect({{y, axis},
                StrCat("%r = nn.", op, "(%a, %b) {", how, "} : (", y, ", ", axis, ") -> ", y),
                y},
               "loops", 1e-5);
      }
    }
  }
}

TEST_F(PlainLoopsTest, ScatteredBools) {
  below_ = 4;
  const std::string data = TypeText("4, 5", "bool"), at = TypeText("7, 5", "i64");
  for (const char* reduction : {"add", "mul", "max", "min"}) {
    Expect({{data, at, TypeText("7, 5", "bool")},
            StrCat("%r = nn.scatter_elements(%a, %b, %c) {axis = 0, reduction = \"", reduction,
                   "\"} : (", data, ", ", at, ", ", TypeText("7, 5", "bool"), ") -> ", data),
            data},
           "loops");
  }
}

TEST_F(PlainLoopsTest, ChannelsByTheirOwnMoments) {
  for (const char* dims :
       {"2, 3, 4", "5, 3, 1", "N, 3, 2, 4", "4, 3", "2, 3, 130", "N, 3, 5, 13", "2, 3, N, 70"}) {
    const std::string x = TypeText(dims), c = TypeText("3");
    Expect({{x, c, c, c, c},
            StrCat("%r, %r1, %r2 = nn.batch_normalization(%a, %b, %c, %d, %e) {training_mode = "
                   "true} : (",
                   x, ", ", c, ", ", c, ", ", c, ", ", c, ") -> (", x, ", ", c, ", ", c, ")"),
            x,
            {c, c}},
           "loops", 1e-5);
  }
}

TEST_F(PlainLoopsTest, ChannelsOfMixedTypes) {
  const std::string x = TypeText("2, 3, 4", "f16"), c = TypeText("3");
  Expect({{x, c, c},
          StrCat("%r = nn.batch_normalization(%a, %b, %b, %c, %c) {epsilon = 2.0} : (", x, ", ", c,
                 ", ", c, ", ", c, ", ", c, ") -> ", x),
          x},
         "loops", 2e-3);
}

// ---- trees ----

// Two trees over three features, with every mode; leaves 4 to 6 belong to target 2 alone.
std::string TreesOf(const std::string& modes, const std::string& more) {
  return StrCat(
      "n_targets = 4, tree_roots = [0, 3], nodes_featureids = [0, 1, 2, 1, 0], nodes_modes = "
      "tensor<[5], u8> [",
      modes,
      "], nodes_splits = tensor<[5], f32> [0.25, -0.5, 0.0, 0.5, -0.25], nodes_truenodeids = [1, "
      "0, 2, 4, 4], nodes_trueleafs = [0, 1, 1, 0, 1], nodes_falsenodeids = [2, 1, 3, 6, 5], "
      "nodes_falseleafs = [0, 1, 1, 1, 1], leaf_targetids = [0, 1, 0, 1, 2, 2, 2], leaf_weights = "
      "tensor<[7], f32> [1.5, -2.0, 3.0, 0.5, 7.0, -1.0, 0.0]",
      more);
}

TEST_F(PlainLoopsTest, Trees) {
  const auto expect = [&](const std::string& rows, const std::string& modes,
                          const std::string& more, const std::string& element = "f32") {
    SCOPED_TRACE(StrCat(modes, more));
    const std::string x = TypeText(StrCat(rows, ", 3"), element),
                      y = TypeText(StrCat(rows, ", 4"), element);
    Expect({{x},
            StrCat("%r = nn.tree_ensemble(%a) {", TreesOf(modes, more), "} : (", x, ") -> ", y),
            y},
           "loops", element == "f16" ? 2e-3 : 1e-6);
  };
  expect("9", "0, 0, 0, 0, 0", "");
  for (int kind = 0; kind < 4; ++kind) {
    expect("9", "0, 1, 2, 3, 1", StrCat(", post_transform = ", kind));
    expect("9", "3, 2, 1, 0, 3", StrCat(", aggregate_function = ", kind));
  }
  expect("5", "4, 5, 0, 5, 4", ", nodes_missing_value_tracks_true = [1, 0, 1, 0, 1]", "f64");
  expect("5", "6, 0, 6, 6, 0", ", membership_values = tensor<[3], f32> [0.0, 1.0, 0.5]", "f16");
  expect("0", "0, 0, 0, 0, 0", "");
  expect("5000", "0, 1, 0, 1, 0", "");  // by threads
  symbol_ = 7;
  expect("N", "0, 1, 0, 1, 0", "");
}

// What the evaluation refuses is left to it.
TEST_F(PlainLoopsTest, TreesThatAreNone) {
  const auto why = [&](const std::string& x, const std::string& roots, const std::string& to) {
    const std::string y = TypeText("2, 1");
    return Refusal(
        {{TypeText(x)},
         StrCat("%r = nn.tree_ensemble(%a) {n_targets = 1, tree_roots = [", roots,
                "], nodes_featureids = [1], nodes_modes = tensor<[1], u8> [0], nodes_splits = "
                "tensor<[1], f32> [0.0], nodes_truenodeids = [",
                to,
                "], nodes_trueleafs = [0], nodes_falsenodeids = [0], nodes_falseleafs = [1], "
                "leaf_targetids = [0], leaf_weights = tensor<[1], f32> [1.0]} : (",
                TypeText(x), ") -> ", y),
         y});
  };
  EXPECT_NE(why("2, 2", "0", "0").find("its nodes form a cycle"), std::string::npos);
  EXPECT_NE(why("2, 1", "0", "0").find("a feature is missing"), std::string::npos);
  EXPECT_NE(why("2, 2", "1", "0").find("its trees contradict themselves"), std::string::npos);
}

// ---- n-grams ----

TEST_F(PlainLoopsTest, CountsOfGrams) {
  below_ = 3;
  const auto expect = [&](const std::string& x, const std::string& y, const std::string& how,
                          const std::string& element) {
    SCOPED_TRACE(StrCat(x, ", ", how));
    Expect({{TypeText(x, element)},
            StrCat("%r = nn.tf_idf_vectorizer(%a) {", how,
                   ", ngram_counts = [0, 3, 9], ngram_indexes = [0, 1, 1, 4, 2, 3, 5], pool_int64s "
                   "= [1, 0, 1, 0, 1, 1, 1, -1, 0, 2, 0, 1]} : (",
                   TypeText(x, element), ") -> ", TypeText(y)),
            TypeText(y)},
           "loops", 1e-6);
  };
  for (const char* mode : {"TF", "IDF", "TFIDF"}) {
    const std::string rest =
        StrCat("mode = \"", mode, "\", weights = [1.0, 2.0, 0.5, 3.0, 1.5, -1.0, 4.0]");
    for (const char* x : {"12", "2", "1", "0"}) {
      expect(x, "6", StrCat("min_gram_length = 1, max_gram_length = 3, max_skip_count = 2, ", rest),
             "i64");
    }
    expect("3, 9", "3, 6",
           StrCat("min_gram_length = 2, max_gram_length = 2, max_skip_count = 5, ", rest), "i32");
  }
  for (const int64_t n : {0, 1, 2, 11}) {
    symbol_ = n;
    const std::string how =
        "min_gram_length = 1, max_gram_length = 3, max_skip_count = 1, mode = \"TF\"";
    expect("N", "6", how, "i64");
    expect("2, N", "2, 6", how, "i64");
    expect("N, 4", "N, 6", how, "i64");
  }
}

}  // namespace
}  // namespace lathe::lower
