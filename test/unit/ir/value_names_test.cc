#include "lathe/ir/value_names.h"

#include <gtest/gtest.h>

#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

class ValueNamesTest : public ::testing::Test {
 protected:
  ValueNamesTest() { context_.allow_unregistered_ops(true); }
  Program Parsed(const std::string& location) {
    return ParseProgram(
        context_, StrCat("program {\n%0, %1 = a.b() : () -> (f32, f32) loc(", location, ")\n}"));
  }
  IrContext context_;
};

TEST_F(ValueNamesTest, PrintAndParse) {
  for (const std::string text : {"\"n\" -> (\"a\", \"b\")", "\"n\" -> (\"\", \"b c\")",
                                 "\"n\" -> (\"a\")", "fused[\"m\" -> (\"a\"), \"n\" -> (\"b\")]"}) {
    const Program program = Parsed(text);
    EXPECT_NE(Print(program).find(StrCat("loc(", text, ")")), std::string::npos) << text;
  }
  EXPECT_EQ(Parsed("\"n\" -> ()").block()->front()->location(), Location::Name(context_, "n"));
  EXPECT_THROW((void)Parsed("\"n\" -> \"a\""), Error);
}

TEST_F(ValueNamesTest, SetAndGet) {
  const Program program = Parsed("\"n\"");
  const Operation* op = program.block()->front();
  SetNameInFile(op->result(1), "b");
  EXPECT_EQ(NameInFile(op->result(0)), "");
  EXPECT_EQ(NameInFile(op->result(1)), "b");
  SetNameInFile(op->result(0), std::string_view("a\0", 2));
  EXPECT_EQ(NameInFile(op->result(0)), "");
  EXPECT_EQ(op->location().name(), "n");
  const Location parts[] = {op->location(), Location::Name(context_, "n")};
  EXPECT_EQ(Location::Fused(context_, parts), op->location());
}

}  // namespace
}  // namespace lathe
