#include "lathe/transform/patterns.h"

#include <gtest/gtest.h>

#include "lathe/dialect/all.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/file.h"

namespace lathe {
namespace {

using subgraph_t = GraphPatternDetector::subgraph_t;

class PatternsTest : public ::testing::Test {
 protected:
  PatternsTest() { LoadAllDialects(context); }
  /// Matches of the pattern in the program of a golden test.
  int CountInFile(const std::string& name, const std::function<void(PDPattern*)>& build) {
    const std::string path = StrCat(LATHE_SOURCE_DIR, "/test/golden/transform/", name);
    return Count(ReadFile(path), build);
  }
  int Count(const std::string& text, const std::function<void(PDPattern*)>& build) {
    Program p = ParseProgram(context, text);
    Graph graph(p);
    GraphPatternDetector detector;
    build(detector.mutable_pattern());
    detector.set_explain(true);
    const int count = detector(&graph, [](const subgraph_t&, Graph*) {});
    why = detector.explanations();
    return count;
  }
  IrContext context;
  std::vector<std::string> why;
};

// Two layers match; one whose product is added twice does not.
TEST_F(PatternsTest, FullyConnected) {
  EXPECT_EQ(CountInFile("fc_fuse.lathe", [](PDPattern* p) { patterns::FC(p, "fc", nullptr); }), 3);
  ASSERT_FALSE(why.empty());
  EXPECT_NE(why[0].find("is also read by nn.add"), std::string::npos) << why[0];
  EXPECT_EQ(
      CountInFile("fc_fuse.lathe",
                  [](PDPattern* p) { patterns::FC(p, "fc", nullptr, {.activation = "nn.relu"}); }),
      1);
}

// A piece on the result of a piece: the first layer with its activation, then the second.
TEST_F(PatternsTest, PiecesCompose) {
  EXPECT_EQ(CountInFile("fc_fuse.lathe",
                        [](PDPattern* p) {
                          PDNode* first = patterns::FC(p, "a", nullptr, {.activation = "nn.relu"});
                          patterns::FC(p, "b", first->AsIntermediate());
                          EXPECT_NE(p->RetrieveNode("a/w"), p->RetrieveNode("b/w"));
                          // One variable cannot be two nodes, and here both layers share w and b.
                        }),
            0);
  const char* text = R"(program {
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 2], f32>
    %w = nn.feed() {name = "w"} : () -> v_tensor<[2, 2], f32>
    %v = nn.feed() {name = "v"} : () -> v_tensor<[2, 2], f32>
    %b = nn.feed() {name = "b"} : () -> v_tensor<[2], f32>
    %0 = nn.matmul(%x, %w) : (v_tensor<[2, 2], f32>, v_tensor<[2, 2], f32>) -> v_tensor<[2, 2], f32>
    %1 = nn.add(%b, %0) : (v_tensor<[2], f32>, v_tensor<[2, 2], f32>) -> v_tensor<[2, 2], f32>
    %2 = nn.matmul(%1, %v) : (v_tensor<[2, 2], f32>, v_tensor<[2, 2], f32>) -> v_tensor<[2, 2], f32>
    nn.fetch(%2) {name = "y"} : (v_tensor<[2, 2], f32>) -> ()
  })";
  EXPECT_EQ(Count(text,
                  [](PDPattern* p) {
                    PDNode* first = patterns::FC(p, "a", nullptr)->AsIntermediate();
                    patterns::FC(p, "b", first, {.with_bias = false});
                  }),
            1);
}

TEST_F(PatternsTest, Convolutions) {
  EXPECT_EQ(
      CountInFile("conv_bn_fuse.lathe", [](PDPattern* p) { patterns::ConvBN(p, "cb", nullptr); }),
      0);  // none without a bias, of constant weights, in inference and read once
  const char* text = R"(program {
    %x = nn.feed() {name = "x"} : () -> v_tensor<[1, 1, 4], f32>
    %w = builtin.constant() {value = tensor<[1, 1, 1], f32> [2.0]} : () -> v_tensor<[1, 1, 1], f32>
    %s = builtin.constant() {value = tensor<[1], f32> [4.0]} : () -> v_tensor<[1], f32>
    %t = builtin.constant() {value = tensor<[1], f32> [4.0]} : () -> v_tensor<[1], f32>
    %m = builtin.constant() {value = tensor<[1], f32> [4.0]} : () -> v_tensor<[1], f32>
    %v = builtin.constant() {value = tensor<[1], f32> [4.0]} : () -> v_tensor<[1], f32>
    %0 = nn.conv(%x, %w) : (v_tensor<[1, 1, 4], f32>, v_tensor<[1, 1, 1], f32>) -> v_tensor<[1, 1, 4], f32>
    %1 = nn.batch_normalization(%0, %s, %t, %m, %v) : (v_tensor<[1, 1, 4], f32>, v_tensor<[1], f32>, v_tensor<[1], f32>, v_tensor<[1], f32>, v_tensor<[1], f32>) -> v_tensor<[1, 1, 4], f32>
    %2 = nn.relu(%1) : (v_tensor<[1, 1, 4], f32>) -> v_tensor<[1, 1, 4], f32>
    %3 = nn.conv(%2, %w, %s) : (v_tensor<[1, 1, 4], f32>, v_tensor<[1, 1, 1], f32>, v_tensor<[1], f32>) -> v_tensor<[1, 1, 4], f32>
    %4 = nn.add(%x, %3) : (v_tensor<[1, 1, 4], f32>, v_tensor<[1, 1, 4], f32>) -> v_tensor<[1, 1, 4], f32>
    %5 = nn.relu(%4) : (v_tensor<[1, 1, 4], f32>) -> v_tensor<[1, 1, 4], f32>
    nn.fetch(%5) {name = "y"} : (v_tensor<[1, 1, 4], f32>) -> ()
  })";
  EXPECT_EQ(Count(text, [](PDPattern* p) { patterns::ConvBN(p, "cb", nullptr); }), 1);
  EXPECT_EQ(Count(text, [](PDPattern* p) { patterns::BatchNormAct(p, "ba", nullptr, "nn.relu"); }),
            1);
  EXPECT_EQ(Count(text, [](PDPattern* p) { patterns::ConvBiasAct(p, "c", nullptr); }), 1);
  EXPECT_EQ(Count(text,
                  [](PDPattern* p) {
                    patterns::ConvBiasAct(p, "c", nullptr,
                                          {.with_residual = true, .activations = {"nn.relu"}});
                  }),
            1);
  EXPECT_EQ(Count(text,
                  [](PDPattern* p) {
                    patterns::ConvBiasAct(p, "c", nullptr, {.activations = {"nn.relu"}});
                  }),
            0);
}

TEST_F(PatternsTest, DecomposedFunctions) {
  EXPECT_EQ(CountInFile("fuse_gelu.lathe", [](PDPattern* p) { patterns::Gelu(p, "g", nullptr); }),
            1);
  EXPECT_EQ(
      CountInFile("fuse_softmax.lathe", [](PDPattern* p) { patterns::Softmax(p, "s", nullptr); }),
      1);
  EXPECT_EQ(CountInFile("fuse_layer_norm.lathe",
                        [](PDPattern* p) { patterns::LayerNorm(p, "l", nullptr); }),
            1);
  EXPECT_EQ(CountInFile("fuse_attention.lathe", [](PDPattern* p) { patterns::Attention(p, "a"); }),
            1);
  EXPECT_EQ(CountInFile("fuse_attention.lathe",
                        [](PDPattern* p) {
                          patterns::Attention(p, "a", {.scale = "", .with_mask = false});
                        }),
            0);  // its weights are fetched
}

TEST_F(PatternsTest, EmbeddingsAndRecurrence) {
  EXPECT_EQ(Count(R"(program {
    %i = nn.feed() {name = "i"} : () -> v_tensor<[3], i64>
    %j = nn.feed() {name = "j"} : () -> v_tensor<[3], i64>
    %a = builtin.constant() {value = tensor<[2, 2], f32> [1.0, 2.0, 3.0, 4.0]} : () -> v_tensor<[2, 2], f32>
    %b = builtin.constant() {value = tensor<[2, 2], f32> [1.0, 2.0, 3.0, 5.0]} : () -> v_tensor<[2, 2], f32>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[2], f32>
    %0 = nn.gather(%a, %i) : (v_tensor<[2, 2], f32>, v_tensor<[3], i64>) -> v_tensor<[3, 2], f32>
    %1 = nn.gather(%b, %j) : (v_tensor<[2, 2], f32>, v_tensor<[3], i64>) -> v_tensor<[3, 2], f32>
    %2 = nn.add(%0, %1) : (v_tensor<[3, 2], f32>, v_tensor<[3, 2], f32>) -> v_tensor<[3, 2], f32>
    %3 = nn.layer_normalization(%2, %s) : (v_tensor<[3, 2], f32>, v_tensor<[2], f32>) -> v_tensor<[3, 2], f32>
    nn.fetch(%3) {name = "y"} : (v_tensor<[3, 2], f32>) -> ()
  })",
                  [](PDPattern* p) { patterns::EmbeddingLayerNorm(p, "e", 2, true); }),
            1);
  const auto lstm = [](PDPattern* p) {
    PDNode* x = patterns::FC(p, "fc", nullptr, {.with_bias = false})->AsIntermediate();
    patterns::LSTM(p, "lstm", x);
  };
  const char* text = R"(program {
    %x = nn.feed() {name = "x"} : () -> v_tensor<[5, 1, 3], f32>
    %p = nn.feed() {name = "p"} : () -> v_tensor<[3, 2], f32>
    %w = builtin.constant() {value = tensor<[1, 4, 2], f32> [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]} : () -> v_tensor<[1, 4, 2], f32>
    %r = builtin.constant() {value = tensor<[1, 4, 1], f32> [1.0, 3.0, 1.0, 3.0]} : () -> v_tensor<[1, 4, 1], f32>
    %0 = nn.matmul(%x, %p) : (v_tensor<[5, 1, 3], f32>, v_tensor<[3, 2], f32>) -> v_tensor<[5, 1, 2], f32>
    %1 = nn.lstm(%0, %w, %r) {hidden_size = 1} : (v_tensor<[5, 1, 2], f32>, v_tensor<[1, 4, 2], f32>, v_tensor<[1, 4, 1], f32>) -> v_tensor<[5, 1, 1, 1], f32>
    nn.fetch(%1) {name = "y"} : (v_tensor<[5, 1, 1, 1], f32>) -> ()
  })";
  EXPECT_EQ(Count(text, lstm), 1);
  EXPECT_EQ(Count(text, [](PDPattern* p) { patterns::GRU(p, "gru", nullptr); }), 0);
}

}  // namespace
}  // namespace lathe
