#include <array>
#include <cmath>
#include <limits>

#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

std::string T(const std::string& dims, const std::string& element) {
  return StrCat("v_tensor<[", dims, "], ", element, ">");
}

class MatmulTiles : public LowerTest {
 protected:
  MatmulTiles() {
    tiles_ = true;
    constant_ = {false, true};
  }
  void ExpectHalves(const std::string& rows, int64_t depth, int64_t columns,
                    const std::string& attributes = "") {
    SCOPED_TRACE(StrCat(rows, " x ", depth, " x ", columns));
    const bool turned = attributes.find("transpose_y") != std::string::npos;
    const std::string a = T(StrCat(rows, ", ", depth), "bf16"),
                      b = T(turned ? StrCat(columns, ", ", depth) : StrCat(depth, ", ", columns),
                            "bf16"),
                      y = T(StrCat(rows, ", ", columns), "bf16");
    Expect({{a, b},
            StrCat("%r = nn.matmul(%a, %b) {", attributes, "} : (", a, ", ", b, ") -> ", y),
            y},
           "matmul_tiles", 2e-2);
  }
  void ExpectFloats(const std::string& rows, int64_t depth, int64_t columns,
                    const std::string& attributes = "") {
    SCOPED_TRACE(StrCat(rows, " x ", depth, " x ", columns));
    const bool turned = attributes.find("transpose_y") != std::string::npos;
    const std::string a = T(StrCat(rows, ", ", depth), "f32"),
                      b = T(turned ? StrCat(columns, ", ", depth) : StrCat(depth, ", ", columns),
                            "f32"),
                      y = T(StrCat(rows, ", ", columns), "f32");
    Expect({{a, b},
            StrCat("%r = nn.matmul(%a, %b) {", attributes, "} : (", a, ", ", b, ") -> ", y),
            y},
           "matmul_tiles", 3e-2);
  }
  // Bytes less zero points of these dims; "-": none.
  void ExpectBytes(const std::string& left, const std::string& right, int64_t rows, int64_t depth,
                   int64_t columns, const std::string& left_zero, const std::string& right_zero) {
    SCOPED_TRACE(StrCat(left, " x ", right, " ", rows, " x ", depth, " x ", columns));
    Case c{{T(StrCat(rows, ", ", depth), left), T(StrCat(depth, ", ", columns), right)},
           "",
           T(StrCat(rows, ", ", columns), "i32")};
    std::string operands = "%a, %b", types = StrCat(c.arguments[0], ", ", c.arguments[1]);
    for (const auto& [dims, element] : {std::pair(left_zero, left), {right_zero, right}}) {
      if (dims == "-") {
        operands += ", none";
        types += ", none";
        continue;
      }
      operands += StrCat(", %", std::string(1, static_cast<char>('a' + c.arguments.size())));
      c.arguments.push_back(T(dims, element));
      types += ", " + c.arguments.back();
    }
    c.body = StrCat("%r = nn.matmul_integer(", operands, ") : (", types, ") -> ", c.result);
    Expect(c, "matmul_tiles");
  }
  std::string WhyNot(const Case& c, bool has_tiles = true) {
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    Machine machine = MachineOf(Target::Host());
    machine.has_tiles = has_tiles;
    return LowerFunction(codegen::FirstFunction(program), machine, constant_,
                         {.implementation = "matmul_tiles", .precision = precision_})
        .why_not;
  }
  std::string Assembly(const Case& c, std::string* strategy = nullptr) {
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    Operation* function = codegen::FirstFunction(program);
    const Target& amx = Target::Named("amx");
    const Lowered lowered =
        LowerFunction(function, MachineOf(amx), constant_, {.precision = precision_});
    if (strategy != nullptr) *strategy = lowered.strategy;
    const KernelSource source{"k", function->region(0).front()};
    return CodeGenerator::Get().EmitText({&source, 1}, amx, codegen::CodeText::kAssembly);
  }
  static int Count(const std::string& text, const std::string& what) {
    int n = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  }
};

// Ends of rows, of columns and of the depth that fill no tile.
TEST_F(MatmulTiles, Halves) {
  for (const auto& [m, k, n] : std::vector<std::array<int, 3>>{{1, 1, 1},
                                                               {1, 40, 70},
                                                               {2, 3, 5},
                                                               {16, 32, 16},
                                                               {17, 33, 17},
                                                               {33, 64, 65},
                                                               {20, 35, 33}}) {
    ExpectHalves(StrCat(m), k, n);
  }
  ExpectHalves("9", 21, 19, "transpose_y = true");
}

TEST_F(MatmulTiles, RowsOfUnknownNumber) {
  for (const int64_t rows : {0, 1, 17, 40}) {
    symbol_ = rows;
    ExpectHalves("M", 20, 5);
  }
  symbol_ = 3;
  const std::string a = T("B, 7, 6", "bf16"), b = T("6, 18", "bf16"), y = T("B, 7, 18", "bf16");
  Expect({{a, b}, StrCat("%r = nn.matmul(%a, %b) : (", a, ", ", b, ") -> ", y), y}, "matmul_tiles",
         2e-2);
}

TEST_F(MatmulTiles, VectorsAndStacks) {
  const auto expect = [&](const std::string& x, const std::string& w, const std::string& z) {
    const std::string a = T(x, "bf16"), b = T(w, "bf16"), y = T(z, "bf16");
    Expect({{a, b}, StrCat("%r = nn.matmul(%a, %b) : (", a, ", ", b, ") -> ", y), y},
           "matmul_tiles", 2e-2);
  };
  expect("19", "19, 35", "35");
  expect("2, 3, 5, 19", "19, 7", "2, 3, 5, 7");
  constant_ = {true, false};
  expect("35, 19", "19", "35");
}

// Each is rounded, as the weights were.
TEST_F(MatmulTiles, Floats) {
  precision_ = Precision::kBf16;
  for (const auto& [m, k, n] : std::vector<std::array<int, 3>>{
           {1, 1, 1}, {1, 40, 70}, {2, 3, 5}, {16, 32, 16}, {33, 67, 65}}) {
    ExpectFloats(StrCat(m), k, n);
  }
  ExpectFloats("9", 21, 19, "transpose_y = true");
  for (const int64_t rows : {0, 1, 17, 40}) {
    symbol_ = rows;
    ExpectFloats("M", 20, 5);
  }
}

TEST_F(MatmulTiles, WhatIsAroundFloats) {
  precision_ = Precision::kBf16;
  const std::string a = T("18, 21", "f32"), b = T("21, 37", "f32"), c = T("37", "f32"),
                    y = T("18, 37", "f32");
  Expect({{a, b, c},
          StrCat("%n = nn.neg(%a) : (", a, ") -> ", a, "\n%p = nn.matmul(%n, %b) : (", a, ", ", b,
                 ") -> ", y, "\n%q = nn.add(%p, %c) : (", y, ", ", c, ") -> ", y,
                 "\n%r = nn.relu(%q) : (", y, ") -> ", y),
          y},
         "matmul_tiles", 3e-2);
}

// Infinities and NaN come out as f32 gives them, and so do numbers at the end of the range.
TEST_F(MatmulTiles, FloatsAtTheEnds) {
  precision_ = Precision::kBf16;
  const float inf = INFINITY, most = std::numeric_limits<float>::max();
  const std::string a = T("1, 2", "f32"), b = T("2, 2", "f32"), y = T("1, 2", "f32");
  const Case c{{a, b}, StrCat("%r = nn.matmul(%a, %b) : (", a, ", ", b, ") -> ", y), y};
  const std::vector<std::array<float, 6>> cases = {
      {inf, 1, 1, -1, 0, 2}, {inf, 1, 0, 1, 0, 1},       {inf, 1, 1, 1, -inf, 1},
      {1, NAN, 1, 1, 1, 1},  {most, 1, 0.5F, 1, 1, -1},  {0.5F, 1, most, -most, 0, 0},
      {most, 1, 2, 0, 1, 1}, {-most, 1, 0.25F, 1, 1, 0}, {1, 2, inf, NAN, 1, 1}};
  for (const Target* target : codegen::RunnableTargets()) {
    for (const std::array<float, 6>& v : cases) {
      Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
      NamedValues inputs = {{"a", Tensor::Of<float>({1, 2}, {v[0], v[1]})},
                            {"b", Tensor::Of<float>({2, 2}, {v[2], v[3], v[4], v[5]})}};
      const NamedValues wanted = Interpreter(program).Run(inputs);
      Operation* function = codegen::FirstFunction(program);
      const Lowered lowered =
          LowerFunction(function, MachineFor(*target), constant_,
                        {.implementation = "matmul_tiles", .precision = precision_});
      ASSERT_TRUE(lowered.done) << lowered.why_not;
      PackInputs(program, lowered.packed, inputs);
      const codegen::CompiledKernel kernel(function->region(0).front(), *target);
      const std::vector<Tensor> got =
          kernel.Call({inputs[0].second.tensor(), inputs[1].second.tensor()},
                      {Tensor(ElementType::kF32, Shape{1, 2})});
      ExpectClose(got, wanted, 1e-2, StrCat(target->name, ": ", v[0], ", ", v[1], " ..."));
    }
  }
}

// What follows a product, and what computes the left matrix, is part of the kernel.
TEST_F(MatmulTiles, WhatIsAround) {
  const std::string a = T("18, 21", "bf16"), b = T("21, 37", "bf16"), c = T("37", "bf16"),
                    y = T("18, 37", "bf16"), f = T("18, 37", "f32");
  Expect({{a, b, c},
          StrCat("%n = nn.neg(%a) : (", a, ") -> ", a, "\n%p = nn.matmul(%n, %b) : (", a, ", ", b,
                 ") -> ", y, "\n%q = nn.add(%p, %c) : (", y, ", ", c, ") -> ", y,
                 "\n%s = nn.relu(%q) : (", y, ") -> ", y, "\n%r = nn.cast(%s) {to = f32} : (", y,
                 ") -> ", f),
          f},
         "matmul_tiles", 2e-2);
}

TEST_F(MatmulTiles, Bytes) {
  for (const char* left : {"u8", "i8"}) {
    for (const char* right : {"u8", "i8"}) ExpectBytes(left, right, 3, 5, 4, "", "");
  }
  ExpectBytes("u8", "i8", 18, 70, 37, "-", "-");
  ExpectBytes("u8", "i8", 4, 9, 5, "", "-");
  ExpectBytes("u8", "i8", 4, 9, 5, "-", "");
  ExpectBytes("u8", "i8", 18, 9, 20, "1", "20");
  ExpectBytes("u8", "i8", 1, 66, 50, "", "50");
}

TEST_F(MatmulTiles, QuantizedAgain) {
  const std::string a = T("4, 21", "u8"), b = T("21, 35", "i8"), u8 = T("", "u8"), i8 = T("", "i8"),
                    f = T("", "f32"), y = T("4, 35", "i8"), columns = T("35", "f32");
  const std::string types =
      StrCat(a, ", ", f, ", ", u8, ", ", b, ", ", columns, ", ", i8, ", ", f, ", ", i8);
  constant_ = {false, false, false, true};
  Expect({{a, f, u8, b, columns, i8, f, i8},
          StrCat("%r = nn.qlinear_matmul(%a, %b, %c, %d, %e, %f, %g, %h) : (", types, ") -> ", y),
          y},
         "matmul_tiles");
}

// Several blocks of rows, several groups of panels.
TEST_F(MatmulTiles, ManyItems) {
  l2_bytes_ = 1 << 13;
  ExpectHalves("70", 100, 600);
}

// No knob changes a bit.
TEST_F(MatmulTiles, Knobs) {
  const std::string a = T("70, 21", "bf16"), b = T("21, 150", "bf16"), y = T("70, 150", "bf16");
  const Case c{{a, b}, StrCat("%r = nn.matmul(%a, %b) : (", a, ", ", b, ") -> ", y), y};
  std::optional<Tensor> first;
  for (const char* knobs : {"", "{rows=1}", "{rows=3,columns=1}", "{rows=1,columns=4,panels=2}",
                            "{block_rows=2,panels=1}"}) {
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    NamedValues inputs = Inputs(program);
    Machine machine = MachineOf(Target::Host());
    machine.has_tiles = true;
    const Lowered lowered = LowerFunction(codegen::FirstFunction(program), machine, constant_,
                                          {.implementation = StrCat("matmul_tiles", knobs)});
    ASSERT_TRUE(lowered.done) << lowered.why_not;
    EXPECT_EQ(lowered.unused_knobs, "");
    PackInputs(program, lowered.packed, inputs);
    const codegen::CompiledKernel kernel(codegen::FirstFunction(program)->region(0).front(),
                                         Target::Host());
    std::vector<Tensor> tensors;
    for (const auto& [name, value] : inputs) tensors.push_back(value.tensor());
    const Tensor got = kernel.Call(tensors, {Tensor(ElementType::kBF16, Shape{70, 150})})[0];
    if (!first) first = got;
    EXPECT_EQ(got, *first) << knobs;
  }
}

TEST_F(MatmulTiles, Refusals) {
  const auto product = [](const std::string& a, const std::string& b, const std::string& y,
                          const std::string& attributes = "") {
    return Case{
        {a, b}, StrCat("%r = nn.matmul(%a, %b) {", attributes, "} : (", a, ", ", b, ") -> ", y), y};
  };
  const auto halves = [](const std::string& dims) { return T(dims, "bf16"); };
  const Case plain = product(halves("5, 6"), halves("6, 7"), halves("5, 7"));
  EXPECT_EQ(WhyNot(plain), "");
  EXPECT_EQ(WhyNot(plain, false), "matmul_tiles: the target has no tile registers");
  EXPECT_EQ(WhyNot(product(T("5, 6", "f32"), T("6, 7", "f32"), T("5, 7", "f32"))),
            "matmul_tiles: the precision is strict");
  precision_ = Precision::kHigh;
  EXPECT_EQ(WhyNot(product(T("5, 6", "f32"), T("6, 7", "f32"), T("5, 7", "f32"))),
            "matmul_tiles: the precision is high");
  precision_ = Precision::kBf16;
  EXPECT_EQ(WhyNot(product(T("5, 6", "f32"), T("6, 7", "f32"), T("5, 7", "f32"))), "");
  EXPECT_EQ(WhyNot(product(T("5, 6", "f64"), T("6, 7", "f64"), T("5, 7", "f64"))),
            "matmul_tiles: there is no tile unit for f64");
  EXPECT_EQ(WhyNot(product(T("5, 6", "f16"), T("6, 7", "f16"), T("5, 7", "f16"))),
            "matmul_tiles: there is no tile unit for f16");
  EXPECT_EQ(WhyNot(product(halves("2, 5, 6"), halves("2, 6, 7"), halves("2, 5, 7"))),
            "matmul_tiles: the matrices are stacks");
  EXPECT_EQ(WhyNot(product(halves("6, 5"), halves("6, 7"), halves("5, 7"), "transpose_x = true")),
            "matmul_tiles: the rows of the left matrix do not lie in one piece");
  EXPECT_EQ(WhyNot(product(halves("5, 0"), halves("0, 7"), halves("5, 7"))),
            "matmul_tiles: there is nothing to multiply");
  EXPECT_EQ(WhyNot(product(halves("5, 30000"), halves("30000, 7"), halves("5, 7"))), "");
  EXPECT_EQ(WhyNot(product(halves("16, 30000"), halves("30000, 7"), halves("16, 7"))),
            "matmul_tiles: the rows of a tile do not fit into the cache");
  constant_ = {};
  EXPECT_EQ(WhyNot(plain), "matmul_tiles: the right matrix is not a weight");
}

TEST_F(MatmulTiles, InstructionsOfTheUnit) {
  const std::string a = T("M, 768", "bf16"), b = T("768, 810", "bf16"), y = T("M, 810", "bf16");
  std::string strategy;
  const std::string text = Assembly(
      {{a, b}, StrCat("%r = nn.matmul(%a, %b) : (", a, ", ", b, ") -> ", y), y}, &strategy);
  EXPECT_EQ(strategy, "matmul_tiles");
  // Two rows of two tiles, a last row, a last column, and where these meet; no tile is spilled.
  EXPECT_EQ(Count(text, "tdpbf16ps"), 4 + 2 + 2 + 1) << text;
  EXPECT_EQ(Count(text, "tilestored"), 4 + 2 + 2 + 1) << text;
  EXPECT_EQ(Count(text, "tileloadd"), 4 + 3 + 3 + 2) << text;
  const std::string u = T("20, 70", "u8"), i = T("70, 48", "i8"), z = T("20, 48", "i32"),
                    zero = T("", "u8");
  const std::string bytes = Assembly(
      {{u, i, zero},
       StrCat("%r = nn.matmul_integer(%a, %b, %c) : (", u, ", ", i, ", ", zero, ") -> ", z),
       z},
      &strategy);
  EXPECT_EQ(strategy, "matmul_tiles");
  EXPECT_EQ(Count(bytes, "tdpbusd"), Count(bytes, "tilestored")) << bytes;
  EXPECT_GT(Count(bytes, "tdpbuud") + Count(bytes, "tdpbusd"), 4) << bytes;
  const std::string f = T("20, 70", "f32"), g = T("70, 48", "f32"), h = T("20, 48", "f32");
  const Case product{{f, g}, StrCat("%r = nn.matmul(%a, %b) : (", f, ", ", g, ") -> ", h), h};
  const std::string floats = Assembly(product, &strategy);
  EXPECT_EQ(strategy, "matmul");
  EXPECT_EQ(Count(floats, "tdpbf16ps"), 0) << "f32 stay f32";
  precision_ = Precision::kBf16;
  const std::string rounded = Assembly(product, &strategy);
  EXPECT_EQ(strategy, "matmul_tiles");
  EXPECT_GT(Count(rounded, "tdpbf16ps"), 0);
  EXPECT_GT(Count(rounded, "vcvtneps2bf16"), 0);
}

}  // namespace
}  // namespace lathe::lower
