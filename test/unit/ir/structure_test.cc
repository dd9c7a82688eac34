#include "lathe/ir/structure.h"

#include <gtest/gtest.h>

#include "lathe/dialect/all.h"
#include "lathe/ir/context.h"
#include "lathe/ir/program.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

class Structure : public ::testing::Test {
 protected:
  Structure() { LoadAllDialects(context_); }

  std::string TextOf(std::string_view body) {
    programs_.push_back(ParseProgram(context_, StrCat("program {\n", body, "\n}")));
    return StructureText(programs_.back().module()->region(0));
  }

  // One function of two operations.
  std::string Function(std::string_view first, std::string_view shape = "[2]") {
    const std::string type = StrCat("v_tensor<", shape, ", f32>");
    return TextOf(StrCat("%x = nn.feed() {name = \"x\"} : () -> ", type, "\n%y = ", first, " : (",
                         type, ") -> ", type, "\nnn.fetch(%y) {name = \"y\"} : (", type,
                         ") -> ()"));
  }

  IrContext context_;
  std::vector<Program> programs_;
};

TEST_F(Structure, NamesLocationsAndRuntimeAttributesDoNotCount) {
  const std::string text = Function("nn.relu(%x)");
  EXPECT_EQ(Function("nn.relu(%x) {note = 3}"), text);
  EXPECT_EQ(TextOf(R"(%a = nn.feed() {name = "x"} : () -> v_tensor<[2], f32> loc("here")
                      %b = nn.relu(%a) : (v_tensor<[2], f32>) -> v_tensor<[2], f32> loc("there")
                      nn.fetch(%b) {name = "y"} : (v_tensor<[2], f32>) -> ())"),
            text);
}

TEST_F(Structure, OpsAttributesTypesAndFlowCount) {
  const std::string text = Function("nn.relu(%x)");
  EXPECT_NE(Function("nn.exp(%x)"), text);
  EXPECT_NE(Function("nn.relu(%x)", "[3]"), text);
  EXPECT_NE(Function("nn.leaky_relu(%x) {alpha = 0.5}"),
            Function("nn.leaky_relu(%x) {alpha = 0.25}"));
  const auto flow = [&](std::string_view operands) {
    return TextOf(StrCat(R"(%a = nn.feed() {name = "a"} : () -> v_tensor<[2], f32>
                            %b = nn.feed() {name = "b"} : () -> v_tensor<[2], f32>
                            %c = nn.sub()",
                         operands,
                         R"() : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
                            nn.fetch(%c) {name = "y"} : (v_tensor<[2], f32>) -> ())"));
  };
  EXPECT_NE(flow("%a, %b"), flow("%b, %a"));
  EXPECT_NE(flow("%a, %a"), flow("%a, %b"));
}

TEST_F(Structure, RegionsCount) {
  const auto branch = [&](std::string_view op) {
    return TextOf(StrCat(R"(%c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
      %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
      %y = cf.if(%c) ({
        %a = )",
                         op, R"((%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
        cf.yield(%a) : (v_tensor<[2], f32>) -> ()
      }, {
        cf.yield(%x) : (v_tensor<[2], f32>) -> ()
      }) : (v_tensor<[], bool>) -> v_tensor<[2], f32>
      nn.fetch(%y) {name = "y"} : (v_tensor<[2], f32>) -> ())"));
  };
  EXPECT_EQ(branch("nn.exp"), branch("nn.exp"));
  EXPECT_NE(branch("nn.exp"), branch("nn.neg"));
  const Operation* branches = nullptr;
  for (Operation& op : *programs_[0].block()) {
    if (op.name() == "cf.if") branches = &op;
  }
  ASSERT_NE(branches, nullptr);
  // What a region reads from outside has a number of its own.
  EXPECT_NE(StructureText(branches->region(1)).find("yield(outer0:v_tensor<[2], f32>"),
            std::string::npos)
      << StructureText(branches->region(1));
}

// The same in every run, on every machine, in every context.
TEST_F(Structure, HashIsFixed) {
  const std::string text = Function("nn.relu(%x)");
  IrContext other;
  LoadAllDialects(other);
  const Program again = ParseProgram(other, Print(programs_[0]));
  EXPECT_EQ(StructureHash(again.module()->region(0)),
            StructureHash(programs_[0].module()->region(0)));
  EXPECT_EQ(text,
            "{^()nn.feed()\"name\"=\"x\";:v_tensor<[2], f32>\nnn.relu(%0,):v_tensor<[2], f32>\n"
            "nn.fetch(%1,)\"name\"=\"y\";\n}");
}

TEST_F(Structure, DeepNestingIsNotRecursive) {
  std::string body = "cf.yield() : () -> ()", open, close;
  for (int i = 0; i < 20000; ++i) {
    open += "cf.if(%c) ({ ";
    close += "\ncf.yield() : () -> () }, { cf.yield() : () -> () }) : (v_tensor<[], bool>) -> ()";
  }
  const std::string text =
      TextOf(StrCat("%c = nn.feed() {name = \"c\"} : () -> v_tensor<[], bool>\n", open, close));
  EXPECT_GT(text.size(), 20000U);
}

}  // namespace
}  // namespace lathe
