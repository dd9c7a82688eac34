#include "test/unit/codegen/kernel_util.h"

namespace lathe::codegen {
namespace {

struct Product {
  std::string left, right, sum;  // element types
  int64_t rows, depth, columns;  // of a tile
};

const std::string kI = "v_tensor<[], i64>";

// c = a * b, a tile, over two blocks of depth, from the second row and column of its memory on.
std::string TextOf(const Product& p) {
  const int64_t group = p.left == "bf16" ? 2 : 4;
  const auto type = [](int64_t rows, int64_t columns, const std::string& element) {
    return StrCat("v_tensor<[", rows, ", ", columns, "], ", element, ">");
  };
  const std::string a = type(p.rows, 2 * p.depth, p.left);
  const std::string b =
      StrCat("v_tensor<[", 2 * p.depth / group, ", ", p.columns, ", ", group, "], ", p.right, ">");
  const std::string y = type(p.rows + 1, p.columns + 1, p.sum), memory = y.substr(2);
  const std::string tile_a = type(p.rows, p.depth, p.left);
  const std::string tile_b = type(p.depth / group, p.columns * group, p.right);
  const std::string tile_c = type(p.rows, p.columns, p.sum);
  const std::string tiles = StrCat(tile_a, ", ", tile_b, ", ", tile_c);
  return StrCat(
      "program {\n  builtin.func() {name = \"k\"} ({\n  ^(%a: ", a, ", %b: ", b, "):\n",
      "  %y = loop.alloc() : () -> ", memory,
      "\n  %one = builtin.constant() {value = tensor<[], i64>", " [1]} : () -> ", kI,
      "\n  %zero = builtin.constant() {value = tensor<[], i64> [0]} : () -> ", kI,
      "\n  %none = builtin.constant() {value = tensor<[], ", p.sum, "> [0]} : () -> v_tensor<[], ",
      p.sum, ">\n  loop.for() {extent = ", p.rows + 1, "} ({\n  ^(%i: ", kI,
      "):\n  loop.for() {extent = ", p.columns + 1, "} ({\n  ^(%j: ", kI,
      "):\n  %s = loop.store_(%y, %none, none, %i, %j) : (", memory, ", v_tensor<[], ", p.sum,
      ">, none, ", kI, ", ", kI, ") -> ", memory,
      "\n  cf.yield()\n  })\n  cf.yield()\n  })\n  %z = loop.tile_zero() {rows = ", p.rows,
      ", columns = ", p.columns, ", element = ", p.sum, "} : () -> ", tile_c,
      "\n  %t = loop.for(none, %z) {extent = 2} ({\n  ^(%k: ", kI, ", %c: ", tile_c,
      "):\n  %d = loop.index(%k) {expr = dim<d0 * ", p.depth, ">} : (", kI, ") -> ", kI,
      "\n  %e = loop.index(%k) {expr = dim<d0 * ", p.depth / group, ">} : (", kI, ") -> ", kI,
      "\n  %u = loop.tile_load(%a, %zero, %d) {rows = ", p.rows, ", columns = ", p.depth, "} : (",
      a, ", ", kI, ", ", kI, ") -> ", tile_a,
      "\n  %v = loop.tile_load(%b, %e, %zero, %zero) {rows = ", p.depth / group,
      ", columns = ", p.columns * group, "} : (", b, ", ", kI, ", ", kI, ", ", kI, ") -> ", tile_b,
      "\n  %w = loop.tile_mma(%u, %v, %c) : (", tiles, ") -> ", tile_c, "\n  cf.yield(%w) : (",
      tile_c, ") -> ()\n  }) : (none, ", tile_c, ") -> ", tile_c,
      "\n  %s = loop.tile_store_(%y, %t, %one, %one) : (", memory, ", ", tile_c, ", ", kI, ", ", kI,
      ") -> ", memory, "\n  %r = builtin.to_vtensor(%y) : (", memory, ") -> ", y,
      "\n  builtin.return(%r) : (", y, ") -> ()\n  })\n  %a = nn.feed() {name = \"a\"} : () -> ", a,
      "\n  %b = nn.feed() {name = \"b\"} : () -> ", b,
      "\n  %y = builtin.call(%a, %b) {callee = \"k\"} : (", a, ", ", b, ") -> ", y,
      "\n  nn.fetch(%y) {name = \"y\"} : (", y, ") -> ()\n}\n");
}

class TileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    NeedCodeGenerator();
    LoadAllDialects(context_);
  }
  // Of all values of 8 bits, and floats in [-1, 1).
  static Tensor Draw(const Program& program, size_t i) {
    const auto type = program.feeds()[i]->result(0).type().cast<AnyTensorType>();
    Shape shape;
    for (const Dim& d : type.dims()) shape.push_back(d.value());
    if (IsFloat(type.element())) return RandomTensor(type.element(), shape, 3 + i);
    RandomStream random(3 + i);
    Tensor bytes(type.element(), shape);
    auto* at = reinterpret_cast<uint8_t*>(bytes.mutable_raw());
    for (int64_t k = 0; k < bytes.num_elements(); ++k)
      at[k] = static_cast<uint8_t>(random.NextU32());
    return bytes;
  }
  std::string Assembly(const Product& p, const char* target) {
    Program program = ParseProgram(context_, TextOf(p), {.file_locations = false});
    const KernelSource source{"k", FirstFunction(program)->region(0).front()};
    return CodeGenerator::Get().EmitText({&source, 1}, Target::Named(target), CodeText::kAssembly);
  }

  IrContext context_;
};

// Vectors compute to the bit what the interpreter does, which is what a tile unit does.
TEST_F(TileTest, WithoutAUnit) {
  for (const Product& p : {Product{"bf16", "bf16", "f32", 5, 8, 3},
                           {"bf16", "bf16", "f32", 16, 32, 16},
                           {"i8", "i8", "i32", 4, 12, 5},
                           {"u8", "i8", "i32", 3, 64, 8},
                           {"i8", "u8", "i32", 2, 8, 16},
                           {"u8", "u8", "i32", 4, 16, 4}}) {
    Program program = ParseProgram(context_, TextOf(p), {.file_locations = false});
    VerifyOrThrow(program);
    const std::vector<Tensor> inputs = {Draw(program, 0), Draw(program, 1)};
    const Tensor wanted =
        Interpreter(program).Run({{"a", inputs[0]}, {"b", inputs[1]}})[0].second.tensor();
    for (const Target* target : RunnableTargets()) {
      const CompiledKernel kernel(FirstFunction(program)->region(0).front(), *target);
      const Tensor got = kernel.Call(inputs, {ZeroLike(wanted)})[0];
      EXPECT_EQ(got, wanted) << target->name << " " << p.left << " " << p.rows;
    }
  }
}

TEST_F(TileTest, InstructionsOfTheUnit) {
  const std::pair<Product, const char*> cases[] = {
      {{"bf16", "bf16", "f32", 16, 32, 16}, "tdpbf16ps"},
      {{"i8", "i8", "i32", 16, 64, 16}, "tdpbssd"},
      {{"i8", "u8", "i32", 7, 64, 9}, "tdpbsud"},
      {{"u8", "i8", "i32", 16, 8, 16}, "tdpbusd"},
      {{"u8", "u8", "i32", 16, 64, 1}, "tdpbuud"}};
  for (const auto& [product, instruction] : cases) {
    const std::string text = Assembly(product, "amx");
    for (const char* wanted :
         {"ldtilecfg", "tilezero", "tileloadd", instruction, "tilestored", "tilerelease"}) {
      EXPECT_NE(text.find(wanted), std::string::npos) << wanted << "\n" << text;
    }
    EXPECT_EQ(Assembly(product, "avx512").find(instruction), std::string::npos);
  }
}

// The sums stay in a tile register from one block of depth to the next.
TEST_F(TileTest, SumsStayInTheirRegister) {
  const std::string text = Assembly({"bf16", "bf16", "f32", 16, 32, 16}, "amx");
  size_t stores = 0;
  for (size_t at = 0; (at = text.find("tilestored", at)) != std::string::npos; ++at) ++stores;
  EXPECT_EQ(stores, 1U) << text;
}

TEST_F(TileTest, ATargetThatIsNotHereSaysSo) {
  const Target& amx = Target::Named("amx");
  EXPECT_EQ(amx.vector_bytes, 64);
  if (amx.RunsHere()) return;
  EXPECT_NE(Target::Host().name, "amx");
}

}  // namespace
}  // namespace lathe::codegen
