#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

std::string F32(std::string_view shape) { return StrCat("v_tensor<", shape, ", f32>"); }

struct Attention {
  std::string q, k, v, y;  // shapes
  std::string attributes = {};
  std::string mask = {};  // type
  std::string past_key = {}, past_value = {}, present_key = {}, present_value = {};
  std::string lengths = {};  // shape
};

// `%r = nn.attention(...)` with the operands that are given.
Case CaseOf(const Attention& a) {
  Case c{{F32(a.q), F32(a.k), F32(a.v)}, "", F32(a.y)};
  std::string operands = "%a, %b, %c", types = StrCat(F32(a.q), ", ", F32(a.k), ", ", F32(a.v));
  const auto add = [&](const std::string& type) {
    operands +=
        type.empty() ? ", none" : StrCat(", %", static_cast<char>('a' + c.arguments.size()));
    types += type.empty() ? ", none" : StrCat(", ", type);
    if (!type.empty()) c.arguments.push_back(type);
  };
  add(a.mask);
  add(a.past_key.empty() ? "" : F32(a.past_key));
  add(a.past_value.empty() ? "" : F32(a.past_value));
  if (!a.lengths.empty()) add(StrCat("v_tensor<", a.lengths, ", i64>"));
  std::string results = "%r", to = F32(a.y);
  if (!a.present_key.empty()) {
    results += ", %r1, %r2";
    c.more = {F32(a.present_key), F32(a.present_value)};
    to = StrCat("(", to, ", ", c.more[0], ", ", c.more[1], ")");
  }
  c.body = StrCat(results, " = nn.attention(", operands, ") {", a.attributes, "} : (", types,
                  ") -> ", to);
  return c;
}

class AttentionTest : public LowerTest {
 protected:
  void ExpectAttention(const Attention& a) { Expect(CaseOf(a), "attention", 1e-4); }
};

TEST_F(AttentionTest, ManySizes) {
  for (const auto& [queries, keys, features] : std::vector<std::array<int64_t, 3>>{{1, 1, 4},
                                                                                   {1, 37, 16},
                                                                                   {3, 9, 5},
                                                                                   {7, 20, 16},
                                                                                   {16, 16, 32},
                                                                                   {33, 130, 8},
                                                                                   {40, 5, 20},
                                                                                   {0, 5, 4},
                                                                                   {5, 0, 4}}) {
    const auto shape = [&, f = features](int64_t rows) {
      return StrCat("[2, 3, ", rows, ", ", f, "]");
    };
    ExpectAttention({shape(queries), shape(keys), shape(keys), shape(queries)});
  }
}

// Panels of features are a loop: unrolled, heads of so many had more loops than a kernel may have.
TEST_F(AttentionTest, WideHeads) {
  ExpectAttention({"[1, 1, 41, 512]", "[1, 1, 136, 512]", "[1, 1, 136, 512]", "[1, 1, 41, 512]"});
  ExpectAttention({"[1, 2, 3, 23]", "[1, 2, 130, 23]", "[1, 2, 130, 1323]", "[1, 2, 3, 1323]"});
  symbol_ = 35;
  ExpectAttention({"[1, 1, L, 1030]", "[1, 1, S, 1030]", "[1, 1, S, 530]", "[1, 1, L, 530]",
                   "is_causal = true"});
}

TEST_F(AttentionTest, SymbolicLengths) {
  for (const int64_t n : {0, 1, 5, 33}) {
    symbol_ = n;
    ExpectAttention({"[1, 1, L, 16]", "[1, 1, S, 16]", "[1, 1, S, 24]", "[1, 1, L, 24]"});
    ExpectAttention({"[1, L, 16]", "[1, L, 16]", "[1, L, 16]", "[1, L, 16]",
                     "q_num_heads = 2, kv_num_heads = 2, is_causal = true"});
  }
}

TEST_F(AttentionTest, SymbolicHeads) {
  for (const int64_t group : {1, 3}) {
    for (const int64_t heads : {0, 1, 2}) {
      sizes_ = {{"H", heads * group}, {"G", heads}};
      ExpectAttention({"[2, H, L, 16]", "[2, G, S, 16]", "[2, G, S, 24]", "[2, H, L, 24]"});
      ExpectAttention(
          {"[2, H, L, 8]", "[2, H, S, 8]", "[2, H, S, 8]", "[2, H, L, 8]", "is_causal = true"});
    }
  }
}

TEST_F(AttentionTest, MergedAndSharedHeads) {
  ExpectAttention({"[2, 19, 24]", "[2, 21, 8]", "[2, 21, 10]", "[2, 19, 30]",
                   "q_num_heads = 6, kv_num_heads = 2, scale = 0.3, softcap = 2.0"});
  ExpectAttention(
      {"[2, 4, 2, 8]", "[2, 2, 21, 8]", "[2, 2, 21, 10]", "[2, 4, 2, 10]", "softcap = 2.0"});
}

TEST_F(AttentionTest, Masks) {
  for (const char* mask : {"[19]", "[17, 19]", "[2, 1, 1, 19]", "[1, 1, 17, 12]", "[L, 19]"}) {
    for (const char* element : {"f32", "bool"}) {
      symbol_ = 17;
      ExpectAttention({"[2, 1, 17, 8]", "[2, 1, 19, 8]", "[2, 1, 19, 8]", "[2, 1, 17, 8]", "",
                       StrCat("v_tensor<", mask, ", ", element, ">")});
    }
  }
  symbol_ = 1;
  for (const char* mask : {"[1, 19]", "[2, 1, 1, 12]", "[M, 19]"}) {
    ExpectAttention({"[2, 1, 1, 8]", "[2, 1, 19, 8]", "[2, 1, 19, 8]", "[2, 1, 1, 8]", "",
                     StrCat("v_tensor<", mask, ", bool>")});
    ExpectAttention(
        {"[2, 1, 40, 8]", "[2, 1, 19, 8]", "[2, 1, 19, 8]", "[2, 1, 40, 8]", "",
         StrCat("v_tensor<", std::string_view(mask) == "[2, 1, 1, 12]" ? "[M, N, 19]" : mask,
                ", f32>")});
  }
}

TEST_F(AttentionTest, WindowsAndLengths) {
  for (const char* attributes :
       {"is_causal = true", "left_window_size = 3", "right_window_size = 2",
        "is_causal = true, left_window_size = 4", "left_window_size = 0, right_window_size = 1"}) {
    ExpectAttention(
        {"[1, 1, 37, 8]", "[1, 1, 41, 8]", "[1, 1, 41, 8]", "[1, 1, 37, 8]", attributes});
    ExpectAttention({"[1, 2, 2, 8]", "[1, 2, 41, 8]", "[1, 2, 41, 8]", "[1, 2, 2, 8]", attributes});
    below_ = 20;
    ExpectAttention({"[3, 2, 9, 8]", "[3, 2, 19, 8]", "[3, 2, 19, 8]", "[3, 2, 9, 8]", attributes,
                     "", "", "", "", "", "[3]"});
    below_ = 0;
  }
}

// Keys and values behind a mask may hold anything.
TEST_F(AttentionTest, MaskedValuesDoNotCount) {
  for (const char* rows : {"2", "9"}) {
    const std::string t = F32(StrCat("[1, 1, ", rows, ", 8]"));
    const std::string k = F32("[1, 1, 9, 8]"), b = "v_tensor<[9], bool>";
    Program program = ParseProgram(context_,
                                   ProgramOf({{t, k, k, b},
                                              StrCat("%r = nn.attention(%a, %b, %c, %d) : (", t,
                                                     ", ", k, ", ", k, ", ", b, ") -> ", t),
                                              t}),
                                   {.file_locations = false});
    NamedValues inputs = Inputs(program);
    std::vector<float> values(72, 1.5F);
    values[70] = std::numeric_limits<float>::infinity();
    inputs[2].second = Tensor::Of<float>({1, 1, 9, 8}, values);
    inputs[3].second =
        Cast(Tensor::Of<int64_t>({9}, std::vector<int64_t>{1, 1, 0, 1, 1, 1, 1, 1, 0}),
             ElementType::kBool);
    const Tensor wanted = Interpreter(program).Run(inputs)[0].second.tensor();
    std::vector<Tensor> tensors;
    for (const auto& [name, value] : inputs) tensors.push_back(value.tensor());
    for (const Target* target : codegen::RunnableTargets()) {
      Program lowered = program.Clone();
      Operation* function = codegen::FirstFunction(lowered);
      ASSERT_TRUE(LowerFunction(function, MachineOf(*target)).done);
      const codegen::CompiledKernel kernel(function->region(0).front(), *target);
      const Tensor got = kernel.Call(tensors, {ZeroLike(wanted)})[0];
      const Closeness close = AllClose(got, wanted, 1e-5, 1e-5);
      EXPECT_TRUE(close) << target->name << ": " << close.description;
    }
  }
}

TEST_F(AttentionTest, KeysOfBefore) {
  for (const int64_t n : {1, 9}) {
    symbol_ = n;
    ExpectAttention({"[2, 4, L, 8]", "[2, 2, L, 8]", "[2, 2, L, 12]", "[2, 4, L, 12]",
                     "is_causal = true", "", "[2, 2, P, 8]", "[2, 2, P, 12]", "[2, 2, L + P, 8]",
                     "[2, 2, L + P, 12]"});
  }
  ExpectAttention({"[2, 1, 16]", "[2, 1, 16]", "[2, 1, 16]", "[2, 1, 16]",
                   "q_num_heads = 2, kv_num_heads = 2", "v_tensor<[1, 1, 1, 140], f32>",
                   "[2, 2, 139, 8]", "[2, 2, 139, 8]", "[2, 2, 140, 8]", "[2, 2, 140, 8]"});
}

TEST_F(AttentionTest, SaysWhyNot) {
  const std::string t = "v_tensor<[1, 2, 3, 4], f64>";
  const std::string why = Refusal(
      {{t, t, t}, StrCat("%r = nn.attention(%a, %b, %c) : (", t, ", ", t, ", ", t, ") -> ", t), t});
  EXPECT_NE(why.find("attention: elements are f64"), std::string::npos) << why;
}

}  // namespace
}  // namespace lathe::lower
