#include "src/dialect/prepared.h"

#include <string>

#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

class PreparedTest : public testing::ProgramTest {};

TEST_F(PreparedTest, IsMadeOnceForEachOp) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
    %y = nn.exp(%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[2], f32>) -> ())");
  const Operation* feed = program.block()->front();
  PreparedOps prepared;
  int made = 0;
  const auto name = [&](const Operation* op) {
    return prepared.Get(op, [&] {
      ++made;
      return std::string(op->name());
    });
  };
  EXPECT_EQ(*name(feed), "nn.feed");
  EXPECT_EQ(*name(feed->next()), "nn.exp");
  EXPECT_EQ(name(feed), name(feed));
  EXPECT_EQ(made, 2);
}

// A second run with other contents sees nothing of the first one.
TEST_F(PreparedTest, RunsGiveTheSameAsAlone) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N], string>
    %t = nn.tokenize(%x) {mark = false, mincharnum = 1, pad_value = "#", tokenexp = "[a-z]+"} : (v_tensor<[N], string>) -> v_tensor<[N, ?], string>
    %y = nn.tf_idf_vectorizer(%t) {max_gram_length = 2, max_skip_count = 1, min_gram_length = 1, mode = "TF", ngram_counts = [0, 2], ngram_indexes = [0, 2, 1], pool_strings = ["a", "b", "a", "b"]} : (v_tensor<[N, ?], string>) -> v_tensor<[N, 3], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[N, 3], f32>) -> ())");
  Interpreter interpreter(program);
  const auto counts = [&](const std::vector<std::string>& texts) {
    return testing::ValuesOf<float>(interpreter.Run({{"x", testing::Vec(texts)}})[0].second);
  };
  EXPECT_EQ(counts({"a b c", "b"}), (std::vector<float>{1, 1, 1, 0, 0, 1}));
  EXPECT_EQ(counts({"a c b a a b"}), (std::vector<float>{3, 3, 2}));
  EXPECT_EQ(counts({""}), (std::vector<float>{0, 0, 0}));
}

}  // namespace
}  // namespace lathe
