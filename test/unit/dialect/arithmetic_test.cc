#include "lathe/dialect/arithmetic.h"

#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

class ArithmeticTest : public testing::ProgramTest {
 protected:
  // Of an op on f32 tensors of these shapes ("-": absent), which gives one of shape `y`.
  std::string Count(const std::string& op, const std::vector<std::string>& shapes,
                    const std::string& y, const std::string& attributes = "",
                    const std::string& element = "f32") {
    const auto type = [&](const std::string& shape) {
      return shape == "-" ? "none" : StrCat("v_tensor<[", shape, "], ", element, ">");
    };
    std::string text, operands, types;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const char* comma = i == 0 ? "" : ", ";
      types += comma + type(shapes[i]);
      operands += shapes[i] == "-" ? StrCat(comma, "none") : StrCat(comma, "%", i);
      if (shapes[i] == "-") continue;
      text += StrCat("%", i, " = nn.feed() {name = \"x", i, "\"} : () -> ", type(shapes[i]), "\n");
    }
    text += StrCat("%y = ", op, "(", operands, ") {", attributes, "} : (", types, ") -> ", type(y),
                   "\nnn.fetch(%y) {name = \"y\"} : (", type(y), ") -> ()");
    Program program = Parse(text);
    return ArithmeticOf(program.block()->back()->prev()).ToString();
  }
};

TEST_F(ArithmeticTest, Products) {
  EXPECT_EQ(Count("nn.matmul", {"4, 8", "8, 16"}, "4, 16"), "1024");  // 2 * 4 * 8 * 16
  EXPECT_EQ(Count("nn.matmul", {"N, 5, 8", "8, 16"}, "N, 5, 16"), "1280*N");
  EXPECT_EQ(Count("nn.matmul", {"4, 8", "?, ?"}, "4, ?"), "?");
  EXPECT_EQ(Count("nn.gemm", {"8, 4", "8, 16", "16"}, "4, 16", "transA = true"), "1024");
  EXPECT_EQ(Count("nn.einsum", {"3, 4, 5", "3, 5, 6"}, "3, 4, 6", "equation = \"bij,bjk->bik\""),
            "720");  // 2 * 3 * 4 * 5 * 6
  EXPECT_EQ(Count("nn.einsum", {"B, 4, 5", "B, 5, 6"}, "B, 4, 6", "equation = \"bij,bjk->bik\""),
            "240*B");
}

TEST_F(ArithmeticTest, Convolutions) {
  // 2 * (1 * 16 * 8 * 8) results of 3 * 3 * 3 products.
  EXPECT_EQ(Count("nn.conv", {"1, 3, 8, 8", "16, 3, 3, 3"}, "1, 16, 8, 8", "pads = [1, 1, 1, 1]"),
            "55296");
  EXPECT_EQ(Count("nn.conv", {"N, 3, 8, 8", "16, 3, 3, 3"}, "N, 16, 6, 6"), "31104*N");
  // Of depth: each result sees one channel.
  EXPECT_EQ(Count("nn.conv", {"1, 16, 8, 8", "16, 1, 3, 3"}, "1, 16, 6, 6", "group = 16"), "10368");
  // Each of 1 * 4 * 5 * 5 elements goes to 6 * 2 * 2 results.
  EXPECT_EQ(
      Count("nn.conv_transpose", {"1, 4, 5, 5", "4, 6, 2, 2"}, "1, 6, 10, 10", "strides = [2, 2]"),
      "4800");
}

TEST_F(ArithmeticTest, Layers) {
  // 2 * 9 steps * 2 in the batch * 4 gates * 5 * (3 + 5)
  EXPECT_EQ(Count("nn.lstm", {"9, 2, 3", "1, 20, 3", "1, 20, 5"}, "9, 1, 2, 5"), "5760");
  EXPECT_EQ(Count("nn.gru", {"L, 2, 3", "1, 15, 3", "1, 15, 5"}, "L, 1, 2, 5"), "480*L");
  // Scores of 5 features, then their sums of 6: 2 * 2 * 4 * 3 * 7 * (5 + 6)
  const std::vector<std::string> qkv = {"2, 4, 3, 5", "2, 2, 7, 5", "2, 2, 7, 6"};
  EXPECT_EQ(Count("nn.attention", qkv, "2, 4, 3, 6"), "3696");
  EXPECT_EQ(Count("nn.attention", {"1, 4, L, 5", "1, 2, L, 5", "1, 2, L, 6"}, "1, 4, L, 6"),
            "88*L*L");
  EXPECT_EQ(Count("nn.attention", {"N, 4, 3, 5", qkv[1], qkv[2]}, "2, 4, 3, 6"), "3696");
  // 2 * 3 steps * (4 + 2) heads * 5 * 6
  EXPECT_EQ(Count("nn.linear_attention", {"N, 3, 20", "N, 3, 10", "N, 3, 12"}, "N, 3, 24",
                  "q_num_heads = 4, kv_num_heads = 2, update_rule = \"linear\""),
            "1080*N");
  // 2 * 3 * 4 rows of two pairs, six operations each.
  EXPECT_EQ(Count("nn.rotary_embedding", {"2, 3, 4, 6", "2, 4, 2", "2, 4, 2"}, "2, 3, 4, 6",
                  "rotary_embedding_dim = 4"),
            "288");
}

TEST_F(ArithmeticTest, Windows) {
  EXPECT_EQ(Count("nn.max_pool", {"1, 2, 8, 8"}, "1, 2, 4, 4",
                  "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]"),
            "288");
  EXPECT_EQ(Count("nn.global_average_pool", {"N, 2, 8, 8"}, "N, 2, 1, 1"), "128*N");
  EXPECT_EQ(Count("nn.lrn", {"1, 4, 3, 3"}, "1, 4, 3, 3", "size = 5"), "324");
}

TEST_F(ArithmeticTest, Norms) {
  EXPECT_EQ(Count("nn.softmax", {"3, 4"}, "3, 4"), "60");
  EXPECT_EQ(Count("nn.layer_normalization", {"3, 4", "4", "4"}, "3, 4"), "84");
  EXPECT_EQ(Count("nn.rms_normalization", {"3, 4", "4"}, "3, 4"), "48");
  EXPECT_EQ(Count("nn.batch_normalization", {"1, 2, 3", "2", "2", "2", "2"}, "1, 2, 3"), "12");
}

TEST_F(ArithmeticTest, WhatCountsNothingItself) {
  EXPECT_EQ(Count("nn.add", {"N, 4", "4"}, "N, 4"), "4*N");
  EXPECT_EQ(Count("nn.exp", {"3, 4"}, "3, 4"), "12");
  EXPECT_EQ(Count("nn.reduce_sum", {"3, 4", "-"}, "1, 1"), "12");
  EXPECT_EQ(Count("nn.add", {"3", "3"}, "3", "", "i64"), "0");  // no floating point
  EXPECT_EQ(Count("nn.identity", {"3, 4"}, "3, 4"), "0");
  EXPECT_EQ(Count("nn.transpose", {"3, 4"}, "4, 3", "perm = [1, 0]"), "0");
}

}  // namespace
}  // namespace lathe
