#include "lathe/support/file.h"
#include "test/unit/ir/text_util.h"
#include "test/unit/temp_folder.h"

namespace lathe::testing {
namespace {

TEST_F(TextTest, PrintsWhatItReads) {
  const std::string text = R"(program {
  %0 = nn.feed() {name = "image"} : () -> v_tensor<[N, 784], f32>
  %1 = builtin.get_parameter() {name = "fc_0.w_0"} : () -> v_tensor<[784, 10], f32>
  %2 = nn.matmul(%0, %1) {transpose_x = false} : (v_tensor<[N, 784], f32>, v_tensor<[784, 10], f32>) -> v_tensor<[N, 10], f32> loc("fc_0")
  nn.fetch(%2) {name = "prob"} : (v_tensor<[N, 10], f32>) -> ()
}
)";
  const Program program = ParseProgram(context_, text, {.file_locations = false});
  EXPECT_EQ(Print(program), text);
  ExpectRoundTrip(program);
}

TEST_F(TextTest, RegionsBlocksAndArguments) {
  const std::string text = R"(program {level = 2} {
  %0 = t.c() : () -> bool
  %1, %2 = cf.if(%0, none) ({
    ^(%3: i64, %4: tensor<*, f32>):
    t.use(%3) : (i64) -> ()
    ^():
    t.end() : () -> ()
  }, {
  }, {
    ^():
  }, {
    cf.yield(%0) : (bool) -> ()
  }) : (bool, none) -> (f32, list<token>) loc(fused["a", "b":3:4])
} loc("top")
)";
  const Program program = ParseProgram(context_, text, {.file_locations = false});
  EXPECT_EQ(Print(program), text);
  ExpectRoundTrip(program);
}

TEST_F(TextTest, NamesAndOmittedTypes) {
  const Program program = ParseProgram(context_, R"(
    // a comment
    program { %image = nn.feed() {name = "image"} : () -> v_tensor<[N, 784], f32>
      %a.b, %0 = t.two(%image) : (v_tensor<[N, 784], f32>)->(f32, f32) // and one here
      nn.fetch(%image) {name = "prob"}
    })");
  EXPECT_EQ(Print(program, {.file_locations = false}), R"(program {
  %0 = nn.feed() {name = "image"} : () -> v_tensor<[N, 784], f32>
  %1, %2 = t.two(%0) : (v_tensor<[N, 784], f32>) -> (f32, f32)
  nn.fetch(%0) {name = "prob"} : (v_tensor<[N, 784], f32>) -> ()
}
)");
  ExpectRoundTrip(program);
}

TEST_F(TextTest, OperationsWhoseNamesLookLikeSomethingElse) {
  const std::string text = R"(program {
  %0 = t.a() : () -> f32
  local.use(%0) : (f32) -> ()
  location() : () -> ()
  "loc"() : () -> () loc("x")
  none(none) : (none) -> ()
  ""(%0) {program = 1} : (f32) -> ()
  program() {a = 1} : () -> ()
  "a b"() : () -> ()
}
)";
  const Program program = ParseProgram(context_, text, {.file_locations = false});
  ExpectRoundTrip(program);
}

TEST_F(TextTest, ReadsFiles) {
  const TempFolder folder;
  const std::string path = folder / "text_test.lathe";
  WriteFile(path, "program {\n  t.a()\n}\n");
  const Program program = ParseProgramFile(context_, path);
  EXPECT_EQ(program.block()->front()->Describe(), StrCat("t.a at ", path, ":2:3"));
  WriteFile(path, "");
  EXPECT_NE(ErrorOf([&] { ParseProgramFile(context_, path); }).find("expected 'program'"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] { ParseProgramFile(context_, path + ".absent"); }).find(path + ".absent"),
            std::string::npos);
}

TEST_F(TextTest, PrintOptions) {
  const Program program = ParseProgram(context_, R"(program {
    %a = t.a() {k = 1} : () -> f32
    %b = t.b(%a) : (f32) -> f32 loc("b")
  })",
                                       {.file_name = "f"});
  EXPECT_NE(Print(program).find("() -> f32 loc(\"f\":2:5)\n"), std::string::npos);
  EXPECT_EQ(Print(program, {.file_locations = false}).find("loc(\"f\""), std::string::npos);
  EXPECT_EQ(Print(program, {.locations = false}).find("loc("), std::string::npos);
  EXPECT_NE(Print(program, {.runtime_attributes = false}).find("{k = 1}"), std::string::npos)
      << "operations without a declaration keep all";
  EXPECT_EQ(Print(program.block()->back(), {.locations = false}), "%0 = t.b(%in0) : (f32) -> f32");
  EXPECT_EQ(program.block()->front()->ToString(), "%0 = t.a() {k = 1} : () -> f32");
}

TEST_F(TextTest, PrintsInPieces) {
  std::string text = "program {\n";
  for (int i = 0; i < 100000; ++i) text += StrCat("  %", i, " = t.d() : () -> f32\n");
  text += "}\n";
  const Program program = ParseProgram(context_, text, {.file_locations = false});
  std::string joined;
  size_t pieces = 0;
  PrintTo(program, {}, [&](std::string_view piece) {
    EXPECT_LT(piece.size(), 2u << 20);
    joined += piece;
    ++pieces;
  });
  EXPECT_EQ(joined, text);
  EXPECT_GT(pieces, 1u);
}

}  // namespace
}  // namespace lathe::testing
