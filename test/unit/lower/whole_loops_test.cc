#include <cmath>

#include "test/unit/lower/lower_util.h"

// Operations that compute all their elements at once, and what reads at places that it is told.
namespace lathe::lower {
namespace {

std::string F32(const std::string& dims) { return StrCat("v_tensor<[", dims, "], f32>"); }
std::string I64(const std::string& dims) { return StrCat("v_tensor<[", dims, "], i64>"); }

class WholeLoopsTest : public LowerTest {
 protected:
  // A constant of one number, %name.
  static std::string Number(const std::string& name, int64_t value) {
    return StrCat("%", name, " = builtin.constant() {value = tensor<[1], i64> [", value,
                  "]} : () -> ", I64("1"), "\n");
  }

  void ExpectTopK(const std::string& dims, int64_t k, int64_t axis, const std::string& result,
                  bool largest = true) {
    const std::string y = F32(result), at = I64(result);
    Expect({{F32(dims)},
            StrCat(Number("k", k), "%r, %r1 = nn.top_k(%a, %k) {axis = ", axis,
                   ", largest = ", largest ? "true" : "false", "} : (", F32(dims), ", ", I64("1"),
                   ") -> (", y, ", ", at, ")"),
            y,
            {at}},
           "loops");
  }
};

TEST_F(WholeLoopsTest, TheFirstFewInOrder) {
  ExpectTopK("7, 33", 5, -1, "7, 5");
  ExpectTopK("7, 33", 33, 1, "7, 33", false);
  ExpectTopK("5, 9, 3", 4, 1, "5, 4, 3");
  ExpectTopK("5, 1", 1, 0, "1, 1");
  ExpectTopK("0, 8", 3, 1, "0, 3");
  for (const int64_t n : {5, 17}) {
    symbol_ = n;
    ExpectTopK("3, N", 5, 1, "3, 5");
    ExpectTopK("N, 4", 3, 0, "3, 4", false);
  }
}

// Several elements for one place; in a larger output, of known extents and of others.
TEST_F(WholeLoopsTest, PutBackByPosition) {
  symbol_ = 3;
  below_ = 20;
  const auto expect = [&](const std::string& x, const std::string& y, const char* window) {
    Expect({{F32(x), I64(x)},
            StrCat("%i = nn.abs(%b) : (", I64(x), ") -> ", I64(x), "\n%r = nn.max_unpool(%a, %i) {",
                   window, "} : (", F32(x), ", ", I64(x), ") -> ", F32(y)),
            F32(y)},
           "loops");
  };
  const char* halves = "kernel_shape = [2, 2], strides = [2, 2]";
  expect("1, 2, 3, 5", "1, 2, 6, 10", halves);
  expect("N, 2, 3, M", "N, 2, 6, 2*M", halves);
  expect("0, 2, 3, 5", "0, 2, 6, 10", halves);
  expect("2, 1, 7", "2, 1, 19", "kernel_shape = [3], strides = [3], pads = [1, 1]");
  const std::string x = "1, 2, 3, 5", y = "1, 2, 7, 11";
  Expect({{F32(x), I64(x)},
          StrCat("%s = builtin.constant() {value = tensor<[4], i64> [1, 2, 7, 11]} : () -> ",
                 I64("4"), "\n%i = nn.abs(%b) : (", I64(x), ") -> ", I64(x),
                 "\n%r = nn.max_unpool(%a, %i, %s) {", halves, "} : (", F32(x), ", ", I64(x), ", ",
                 I64("4"), ") -> ", F32(y)),
          F32(y)},
         "loops");
}

TEST_F(WholeLoopsTest, ManyInOrder) {
  ExpectTopK("3, 200", 60, 1, "3, 60");
  for (const int64_t n : {20, 32, 33, 50}) {
    symbol_ = n;
    ExpectTopK("3, N", 20, 1, "3, 20");
  }
  ExpectTopK("130, 2", 130, 0, "130, 2", false);
  ExpectTopK("2, 700", 60, 1, "2, 60");
  ExpectTopK("530, 2", 520, 0, "520, 2", false);
  for (const int64_t n : {64, 77, 600}) {
    symbol_ = n;
    ExpectTopK("2, N", 64, 1, "2, 64");
  }
}

// Stretches of long lines without anything better are left out.
TEST_F(WholeLoopsTest, TheFirstFewOfLongLines) {
  ExpectTopK("3, 400", 5, 1, "3, 5");
  ExpectTopK("2, 191", 48, 1, "2, 48", false);
  for (const int64_t n : {2, 64, 127, 300}) {
    symbol_ = n;
    ExpectTopK("2, N", 2, 1, "2, 2");
  }
}

// Lines next to one another are read together.
TEST_F(WholeLoopsTest, TheFirstFewOfInnerAxes) {
  ExpectTopK("2, 9, 3, 11", 4, 1, "2, 4, 3, 11");
  ExpectTopK("6, 16", 2, 0, "2, 16", false);
  for (const int64_t n : {0, 1, 16, 21}) {
    symbol_ = n;
    ExpectTopK("2, 5, N", 5, 1, "2, 5, N");
  }
}

// Equal ones keep their order, whichever way is taken.
TEST_F(WholeLoopsTest, EqualOnesKeepTheirOrder) {
  below_ = 4;
  for (const auto& [n, k] : {std::pair{90, 6}, {90, 70}, {600, 70}, {300, 9}}) {
    for (const char* element : {"i64", "i8"}) {
      const auto type = [&](int extent, const char* of) {
        return StrCat("v_tensor<[3, ", extent, "], ", of, ">");
      };
      const std::string x = type(n, element), y = type(k, element), at = type(k, "i64");
      Expect({{x},
              StrCat(Number("k", k), "%r, %r1 = nn.top_k(%a, %k) {axis = 1} : (", x, ", ", I64("1"),
                     ") -> (", y, ", ", at, ")"),
              y,
              {at}},
             "loops");
    }
  }
}

TEST_F(WholeLoopsTest, ScatteredElements) {
  below_ = 6;
  for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
    const std::string data = F32("6, 6"), at = I64("5, 6"), updates = F32("5, 6");
    for (const int axis : {0, 1}) {
      Expect({{data, at, updates},
              StrCat("%r = nn.scatter_elements(%a, %b, %c) {axis = ", axis, ", reduction = \"",
                     reduction, "\"} : (", data, ", ", at, ", ", updates, ") -> ", data),
              data},
             "loops", 1e-4);
    }
  }
  symbol_ = 6;
  const std::string data = F32("N, 40"), at = I64("N, 40");
  Expect({{data, at, data},
          StrCat("%r = nn.scatter_elements(%a, %b, %c) {axis = 0, reduction = \"add\"} : (", data,
                 ", ", at, ", ", data, ") -> ", data),
          data},
         "loops", 1e-4);
}

// That indices do not go beyond the data is a condition on the sizes of each run.
TEST_F(WholeLoopsTest, IndicesOfOtherSymbols) {
  below_ = 6, symbol_ = 6;
  const std::string data = F32("N, M"), at = I64("K, L"), updates = F32("P, Q");
  Expect({{data, at, updates},
          StrCat("%r = nn.scatter_elements(%a, %b, %c) {reduction = \"add\"} : (", data, ", ", at,
                 ", ", updates, ") -> ", data),
          data},
         "loops", 1e-4);
  Expect({{data, at},
          StrCat("%r = nn.gather_elements(%a, %b) {axis = 1} : (", data, ", ", at, ") -> ",
                 F32("K, L")),
          F32("K, L")},
         "loops");
}

TEST_F(WholeLoopsTest, ScatteredSlices) {
  below_ = 3;
  for (const char* reduction : {"none", "add", "max"}) {
    const std::string attribute = StrCat(") {reduction = \"", reduction, "\"} : (");
    const std::string data = F32("3, 5, 7"), at = I64("4, 1"), updates = F32("4, 5, 7");
    Expect({{data, at, updates},
            StrCat("%r = nn.scatter_nd(%a, %b, %c", attribute, data, ", ", at, ", ", updates,
                   ") -> ", data),
            data},
           "loops", 1e-4);
    const std::string square = F32("3, 3"), pairs = I64("2, 5, 2"), few = F32("2, 5");
    Expect({{square, pairs, few},
            StrCat("%r = nn.scatter_nd(%a, %b, %c", attribute, square, ", ", pairs, ", ", few,
                   ") -> ", square),
            square},
           "loops", 1e-4);
  }
  const std::string wide = F32("3, 2500"), at = I64("6, 1"), updates = F32("6, 2500");
  Expect({{wide, at, updates},
          StrCat("%r = nn.scatter_nd(%a, %b, %c) {reduction = \"add\"} : (", wide, ", ", at, ", ",
                 updates, ") -> ", wide),
          wide},
         "loops", 1e-4);
}

// Updates that are computed, or moved, where they are read.
TEST_F(WholeLoopsTest, ScatteredSlicesOfComputed) {
  below_ = 5;
  symbol_ = 6;
  const std::string data = F32("N, 9, 40"), at = I64("4, 1"), updates = F32("4, 9, 40");
  const std::string turned = F32("4, 40, 9");
  const std::string scatter = StrCat("\n%r = nn.scatter_nd(%a, %b, %u) {reduction = \"add\"} : (",
                                     data, ", ", at, ", ", updates, ") -> ", data);
  Expect({{data, at, updates},
          StrCat("%u = nn.relu(%c) : (", updates, ") -> ", updates, scatter),
          data},
         "loops", 1e-4);
  Expect({{data, at, turned},
          StrCat("%u = nn.transpose(%c) {perm = [0, 2, 1]} : (", turned, ") -> ", updates, scatter),
          data},
         "loops", 1e-4);
}

TEST_F(WholeLoopsTest, QuantizedAlongAnAxisAndBack) {
  const std::string x = F32("3, 5, 2"), scale = F32("5"), zero = "v_tensor<[5], u8>";
  const std::string q = "v_tensor<[3, 5, 2], u8>";
  Expect({{x, scale, zero},
          StrCat("%q = nn.quantize_linear(%a, %b, %c) {axis = 1} : (", x, ", ", scale, ", ", zero,
                 ") -> ", q, "\n%r = nn.dequantize_linear(%q, %b, %c) {axis = 1} : (", q, ", ",
                 scale, ", ", zero, ") -> ", x),
          x},
         "loops", 1e-6);
  const std::string one = F32(""), y = "v_tensor<[3, 5, 2], i8>";
  Expect(
      {{x, one},
       StrCat("%r = nn.quantize_linear(%a, %b) {output_dtype = i8} : (", x, ", ", one, ") -> ", y),
       y},
      "loops");
}

// With the scores as a result, or in 16 bits, attention is not strategy's own.
TEST_F(WholeLoopsTest, AttentionAsItIsDefined) {
  const std::string q = F32("2, 4, 3, 5"), k = F32("2, 2, 7, 5"), v = F32("2, 2, 7, 6");
  const std::string mask = F32("3, 7"), y = F32("2, 4, 3, 6"), scores = F32("2, 4, 3, 7");
  for (const int mode : {0, 1, 2, 3}) {
    Expect({{q, k, v, mask},
            StrCat("%r, %u, %w, %r1 = nn.attention(%a, %b, %c, %d) {is_causal = true, "
                   "qk_matmul_output_mode = ",
                   mode, ", softcap = 1.5} : (", q, ", ", k, ", ", v, ", ", mask, ") -> (", y, ", ",
                   k, ", ", v, ", ", scores, ")"),
            y,
            {scores}},
           "loops", 1e-4);
  }
  const auto f16 = [](const std::string& dims) { return StrCat("v_tensor<[", dims, "], f16>"); };
  for (const int64_t n : {1, 9}) {
    symbol_ = n;
    const std::string x = f16("2, 3, N, 8");
    Expect({{x, x, x},
            StrCat("%r = nn.attention(%a, %b, %c) {is_causal = true} : (", x, ", ", x, ", ", x,
                   ") -> ", x),
            x},
           "loops", 1e-2);
  }
  // Keys that a mask does not reach are masked, also where it has one.
  for (const char* reach : {"3, 1", "3, 2", "1, 5"}) {
    const std::string queries = f16("2, 3, 3, 8"), keys = f16("2, 3, 5, 8"), own = f16(reach);
    Expect({{queries, keys, keys, own},
            StrCat("%r = nn.attention(%a, %b, %c, %d) : (", queries, ", ", keys, ", ", keys, ", ",
                   own, ") -> ", queries),
            queries},
           "loops", 1e-2);
  }
}

TEST_F(WholeLoopsTest, Rotated) {
  const std::string x = F32("2, 3, 4, 10"), table = F32("2, 4, 4");
  for (const char* interleaved : {"true", "false"}) {
    Expect({{x, table, table},
            StrCat("%r = nn.rotary_embedding(%a, %b, %c) {interleaved = ", interleaved,
                   ", rotary_embedding_dim = 8} : (", x, ", ", table, ", ", table, ") -> ", x),
            x},
           "loops", 1e-5);
    symbol_ = 5;
    const std::string packed = F32("2, N, 18"), own = F32("2, N, 3");
    Expect({{packed, own, own},
            StrCat("%r = nn.rotary_embedding(%a, %b, %c) {interleaved = ", interleaved,
                   ", num_heads = 3} : (", packed, ", ", own, ", ", own, ") -> ", packed),
            packed},
           "loops", 1e-5);
  }
}

TEST_F(WholeLoopsTest, SampledAtAGrid) {
  const std::string x = F32("2, 3, 5, 7"), grid = F32("2, 4, 3, 2"), y = F32("2, 3, 4, 3");
  for (const char* mode : {"linear", "nearest", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (const char* align : {"true", "false"}) {
        Expect({{x, grid},
                StrCat("%r = nn.grid_sample(%a, %b) {mode = \"", mode, "\", padding_mode = \"",
                       padding, "\", align_corners = ", align, "} : (", x, ", ", grid, ") -> ", y),
                y},
               "loops", 1e-4);
      }
    }
  }
}

// Rows of several pieces, images without elements, one and three axes.
TEST_F(WholeLoopsTest, SampledAtManyPoints) {
  const auto expect = [&](const std::string& x, const std::string& grid, const std::string& y) {
    Expect({{x, grid}, StrCat("%r = nn.grid_sample(%a, %b) : (", x, ", ", grid, ") -> ", y), y},
           "loops", 1e-4);
  };
  for (const int64_t symbol : {0, 1, 63, 64, 65, 131}) {
    symbol_ = symbol;
    expect(F32("2, 3, 5, 7"), F32("2, 3, N, 2"), F32("2, 3, 3, N"));
    expect(F32("1, 5, N, 4"), F32("1, 2, 70, 2"), F32("1, 5, 2, 70"));
    expect(F32("2, 2, N"), F32("2, N, 1"), F32("2, 2, N"));
  }
  symbol_ = 3;
  expect(F32("N, 2, 3, 4, 5"), F32("N, 2, 3, 66, 3"), F32("N, 2, 2, 3, 66"));
}

TEST_F(WholeLoopsTest, RegionsOfAnImage) {
  below_ = 2;
  symbol_ = 9;
  const std::string x = F32("2, 3, N, 7"), rois = F32("4, 4"), at = I64("4");
  const std::string y = F32("4, 3, 2, 3");
  for (const char* mode : {"avg", "max"}) {
    for (const int ratio : {0, 2}) {
      Expect({{x, rois, at},
              StrCat("%r = nn.roi_align(%a, %b, %c) {mode = \"", mode, "\", sampling_ratio = ",
                     ratio, ", output_height = 2, output_width = 3, spatial_scale = 4.0} : (", x,
                     ", ", rois, ", ", at, ") -> ", y),
              y},
             "loops", 1e-4);
    }
  }
}

TEST_F(WholeLoopsTest, DeformedWindows) {
  const auto expect = [&](const std::string& x, const std::string& w, const std::string& offset,
                          const std::string& mask, const std::string& y, const std::string& rest) {
    const std::string type = StrCat("(", x, ", ", w, ", ", offset, ", none, ", mask, ") -> ", y);
    Expect({{x, w, offset, mask},
            StrCat("%r = nn.deform_conv(%a, %b, %c, none, %d) {", rest, "} : ", type),
            y},
           "loops", 1e-4);
  };
  const std::string x = F32("2, 4, 6, N");
  symbol_ = 7;
  expect(x, F32("10, 4, 3, 3"), F32("2, 18, 6, N"), F32("2, 9, 6, N"), F32("2, 10, 6, N"),
         "pads = [1, 1, 1, 1]");
  expect(x, F32("18, 2, 2, 3"), F32("2, 24, 5, N"), F32("2, 12, 5, N"), F32("2, 18, 5, N"),
         "group = 2, offset_group = 2, pads = [0, 1, 0, 1]");
  expect(F32("1, 2, 150"), F32("3, 2, 2"), F32("1, 2, 149"), F32("1, 2, 149"), F32("1, 3, 149"),
         "");
}

// Filters of open extents: their number, their channels and where they reach.
TEST_F(WholeLoopsTest, OpenFilters) {
  const auto expect = [&](const char* op, const std::string& x, const std::string& w,
                          const std::string& bias, const std::string& y, const std::string& rest,
                          const char* element = "f32") {
    const auto type = [&](const std::string& dims) {
      return StrCat("v_tensor<[", dims, "], ", element, ">");
    };
    Expect(
        {{type(x), type(w), type(bias)},
         StrCat("%s = nn.", op, "(%a, %b, %c) {", rest, "} : (", type(x), ", ", type(w), ", ",
                type(bias), ") -> ", type(y), "\n%r = nn.relu(%s) : (", type(y), ") -> ", type(y)),
         type(y)},
        "loops", std::string_view(element) == "f16" ? 2e-2 : 1e-4);
  };
  for (const int64_t n : {0, 3, 70}) {
    symbol_ = n;
    expect("conv", "2, N, 9, 11", "10, N, 3, 2", "10", "2, 10, 7, 10", "");
    expect("conv", "2, N, 9, 11", "10, N, 3, 2", "10", "2, 10, 5, 5",
           "strides = [2, 3], pads = [1, 2, 1, 2], dilations = [1, 2]");
    expect("conv", "1, 2*N, 70", "6, N, 3", "6", "1, 6, 70", "group = 2, pads = [1, 1]", "f64");
    expect("conv", "1, N, 7, 7", "4, N, 3, 3", "4", "1, 4, 5, 5", "", "f16");
    expect("conv_transpose", "2, N, 5, 4", "N, 6, 3, 3", "6", "2, 6, 11, 12", "strides = [2, 3]");
    expect("conv_transpose", "1, 2*N, 5", "2*N, 3, 4", "6", "1, 6, 15",
           "group = 2, strides = [3], pads = [1, 1], output_padding = [1]");
  }
  for (const int64_t n : {0, 9}) {
    symbol_ = n;
    expect("conv", "2, 3, 9, 11", "N, 3, 3, 2", "N", "2, N, 7, 10", "");
    expect("conv", "0, 3, 9, 11", "N, 3, 3, 2", "N", "0, N, 7, 10", "");
    expect("conv", "2, 3, 0, 11", "N, 3, 3, 2", "N", "2, N, 2, 10", "pads = [2, 0, 2, 0]");
    expect("conv_transpose", "1, 4, 3, 3, 2", "4, N, 2, 1, 2", "2*N", "1, 2*N, 4, 3, 3",
           "group = 2");
  }
  for (const int64_t n : {1, 2, 7}) {
    symbol_ = n;
    expect("conv", "1, 6, 9, 11", "6, 1, N, N", "6", "1, 6, 10 - N, 12 - N", "group = 6");
    expect("conv_transpose", "1, 6, 9, 11", "6, 5, N, 1", "5", "1, 5, 8 + N, 11", "");
  }
}

// ---- indices that are none ----

class IndexErrorTest : public LowerTest {
 protected:
  // The program in the interpreter and compiled, on inputs a, b, ...
  void Expect(const std::string& body, const NamedValues& inputs, const std::string& message) {
    std::string feeds;
    for (const auto& [name, value] : inputs) {
      const Tensor& t = value.tensor();
      const std::string type =
          VTensorType::Get(context_, SymShape::FromConstants(t.shape()), t.element_type())
              .ToString();
      feeds += StrCat("  %", name, " = nn.feed() {name = \"", name, "\"} : () -> ", type, "\n");
    }
    Program program = ParseProgram(context_, StrCat("program {\n", feeds, body, "}\n"));
    EXPECT_THROW((void)Interpreter(program).Run(inputs), Error);
    for (const Target* target : codegen::RunnableTargets()) {
      for (const int threads : {1, 2, 7}) {
        const Executable executable(program,
                                    {.target = target->name, .threads = threads, .strict = true});
        EXPECT_TRUE(executable.CanSave());
        try {
          (void)executable.Run(inputs);
          ADD_FAILURE() << "no error, " << target->name;
        } catch (const Error& error) {
          EXPECT_EQ(error.id(), "run/index");
          EXPECT_EQ(error.message(), message) << target->name;
        }
      }
    }
  }
};

TEST_F(IndexErrorTest, GatheredRows) {
  std::vector<int64_t> indices(1003, 2);
  indices[999] = 7;
  indices[1001] = -9;
  const std::string fetch = "  nn.fetch(%r) {name = \"r\"} : (v_tensor<[1003, 3], f32>) -> ()\n";
  Expect(StrCat("  %r = nn.gather(%a, %b) {axis = 0} : (v_tensor<[5, 3], f32>, "
                "v_tensor<[1003], i64>) -> v_tensor<[1003, 3], f32>\n",
                fetch),
         {{"a", RandomTensor(ElementType::kF32, {5, 3}, 1)},
          {"b", Tensor::Of<int64_t>({1003}, indices)}},
         "index 7 is out of range: there are 5");
}

TEST_F(IndexErrorTest, NothingToGatherFrom) {
  Expect(
      "  %r = nn.gather(%a, %b) {axis = 0} : (v_tensor<[0, 3], f32>, v_tensor<[], i64>) -> "
      "v_tensor<[3], f32>\n  nn.fetch(%r) {name = \"r\"} : (v_tensor<[3], f32>) -> ()\n",
      {{"a", RandomTensor(ElementType::kF32, {0, 3}, 1)}, {"b", Tensor::Scalar<int64_t>(0)}},
      "index 0 is out of range: there are 0");
}

TEST_F(IndexErrorTest, TuplesOfTheSecondAxis) {
  Expect(
      "  %r = nn.gather_nd(%a, %b) {batch_dims = 0} : (v_tensor<[4, 3], f32>, "
      "v_tensor<[2, 2], i64>) -> v_tensor<[2], f32>\n"
      "  nn.fetch(%r) {name = \"r\"} : (v_tensor<[2], f32>) -> ()\n",
      {{"a", RandomTensor(ElementType::kF32, {4, 3}, 1)},
       {"b", Tensor::Of<int64_t>({2, 2}, std::vector<int64_t>{3, 2, 0, -4})}},
      "index -4 is out of range: there are 3");
}

TEST_F(IndexErrorTest, ScatteredElements) {
  Expect(
      "  %r = nn.scatter_elements(%a, %b, %c) {axis = 1, reduction = \"add\"} : "
      "(v_tensor<[2, 3], f32>, v_tensor<[2, 2], i64>, v_tensor<[2, 2], f32>) -> "
      "v_tensor<[2, 3], f32>\n  nn.fetch(%r) {name = \"r\"} : (v_tensor<[2, 3], f32>) -> ()\n",
      {{"a", RandomTensor(ElementType::kF32, {2, 3}, 1)},
       {"b", Tensor::Of<int64_t>({2, 2}, std::vector<int64_t>{0, 2, 3, 1})},
       {"c", RandomTensor(ElementType::kF32, {2, 2}, 2)}},
      "index 3 is out of range: there are 3");
}

TEST_F(IndexErrorTest, RegionsFarFromTheImage) {
  const NamedValues image = {{"a", RandomTensor(ElementType::kF32, {1, 1, 8, 8}, 1)}};
  const auto with = [&](std::vector<float> rois) {
    NamedValues inputs = image;
    const auto columns = static_cast<int64_t>(rois.size());
    inputs.emplace_back("b", Tensor::Of<float>({1, columns}, rois));
    if (columns == 4) inputs.emplace_back("c", Tensor::Of<int64_t>({1}, std::vector<int64_t>{0}));
    return inputs;
  };
  const std::string align =
      "  %r = nn.roi_align(%a, %b, %c) {output_height = 2, output_width = 2, spatial_scale = 0.5} "
      ": "
      "(v_tensor<[1, 1, 8, 8], f32>, v_tensor<[1, 4], f32>, v_tensor<[1], i64>) -> "
      "v_tensor<[1, 1, 2, 2], f32>\n"
      "  nn.fetch(%r) {name = \"r\"} : (v_tensor<[1, 1, 2, 2], f32>) -> ()\n";
  Expect(align, with({0, 0, 4e6, 4}), "index 2000000 is out of range: there are 1048576");
  Expect(align, with({0, -4e6, 4, 4}), "index 2000000 is out of range: there are 1048576");
  Expect(align, with({NAN, 0, 4, 4}),
         "index -9223372036854775808 is out of range: there are 1048576");
  const std::string pool =
      "  %r = nn.max_roi_pool(%a, %b) {pooled_shape = [2, 2]} : (v_tensor<[1, 1, 8, 8], f32>, "
      "v_tensor<[1, 5], f32>) -> v_tensor<[1, 1, 2, 2], f32>\n"
      "  nn.fetch(%r) {name = \"r\"} : (v_tensor<[1, 1, 2, 2], f32>) -> ()\n";
  Expect(pool, with({0, 0, 0, 4, 4e9F}), "index 4000000000 is out of range: there are 1000000000");
  Expect(pool, with({0, INFINITY, 0, 4, 4}),
         "index -9223372036854775808 is out of range: there are 1000000000");
}

}  // namespace
}  // namespace lathe::lower
