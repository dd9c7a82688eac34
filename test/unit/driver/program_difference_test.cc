#include "lathe/driver/program_difference.h"

#include <gtest/gtest.h>

#include "lathe/dialect/all.h"
#include "lathe/driver/intermediate_values.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

constexpr const char* kFloats = "v_tensor<[4], f32>";

class ProgramDifferenceTest : public ::testing::Test {
 protected:
  ProgramDifferenceTest() { LoadAllDialects(context_); }

  // A chain of operations on x, then the output y of the last.
  Program Chain(const std::vector<std::string>& ops) {
    std::string text = StrCat("program {\n%0 = nn.feed() {name = \"x\"} : () -> ", kFloats, "\n");
    for (size_t i = 0; i < ops.size(); ++i) {
      text += StrCat("%", i + 1, " = ", ops[i], "(%", i, ") : (", kFloats, ") -> ", kFloats, "\n");
    }
    text += StrCat("nn.fetch(%", ops.size(), ") {name = \"y\"} : (", kFloats, ") -> ()\n}\n");
    return ParseProgram(context_, text);
  }
  std::vector<std::string> Lines(const Program& a, const Program& b) {
    std::vector<std::string> lines;
    for (const ProgramDifference& d : ComparePrograms(a, b)) {
      lines.push_back(
          StrCat(d.what, "|", d.a.substr(0, d.a.find(' ')), "|", d.b.substr(0, d.b.find(' '))));
    }
    return lines;
  }

  IrContext context_;
};

using Texts = std::vector<std::string>;

TEST_F(ProgramDifferenceTest, TheSame) {
  EXPECT_EQ(Lines(Chain({"nn.relu", "nn.exp"}), Chain({"nn.relu", "nn.exp"})), Texts());
}

TEST_F(ProgramDifferenceTest, OperationsThatAreNotInBoth) {
  const Program a = Chain({"nn.relu", "nn.exp", "nn.relu", "nn.neg"});
  EXPECT_EQ(Lines(a, Chain({"nn.relu", "nn.abs", "nn.relu", "nn.neg"})),
            (Texts{"operation|nn.exp(%1)|", "operation||nn.abs(%1)"}));
  // What read the operation that is gone reads another value now.
  EXPECT_EQ(Lines(a, Chain({"nn.relu", "nn.exp", "nn.neg"})),
            (Texts{"operation|nn.relu(%2)|", "operand|nn.neg(%3)|nn.neg(%2)"}));
}

TEST_F(ProgramDifferenceTest, InputsAndTypes) {
  const Program a = Chain({"nn.relu"});
  const Program b = ParseProgram(context_, R"(program {
%0 = nn.feed() {name = "x"} : () -> v_tensor<[5], f32>
%1 = nn.relu(%0) : (v_tensor<[5], f32>) -> v_tensor<[5], f32>
nn.fetch(%1) {name = "y"} : (v_tensor<[5], f32>) -> ()
})");
  EXPECT_EQ(Lines(a, b),
            (Texts{"input|\"x\":|\"x\":", "output|\"y\":|\"y\":", "type|nn.relu(x)|nn.relu(x)"}));
}

TEST_F(ProgramDifferenceTest, Parameters) {
  Program a = Chain({"nn.relu"}), b = Chain({"nn.relu"});
  const auto insert = [&](Program& program, float value) {
    program.parameters().Set(StrAttribute::Get(context_, "w"), {Tensor::Scalar(value), false});
  };
  insert(a, 1);
  EXPECT_EQ(Lines(a, b), (Texts{"parameter|\"w\":|"}));
  insert(b, 2);
  EXPECT_EQ(Lines(a, b), (Texts{"parameter|\"w\"|"}));
  insert(b, 1);
  EXPECT_EQ(Lines(a, b), Texts());
}

TEST_F(ProgramDifferenceTest, ValuesBecomeOutputs) {
  Program program = Chain({"nn.relu", "nn.exp"});
  const auto values = IntermediateValues(program);
  ASSERT_EQ(values.size(), 2U);
  EXPECT_EQ(values[0].first, "%1");
  const Texts all = {"all"};
  FetchValues(program, all);
  EXPECT_EQ(program.fetches().size(), 2U);  // one of them is an output already
  const Texts unknown = {"%7"};
  EXPECT_THROW(FetchValues(program, unknown), Error);
}

}  // namespace
}  // namespace lathe
