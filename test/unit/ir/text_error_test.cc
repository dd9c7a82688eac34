#include <random>

#include "lathe/ir/walk.h"
#include "test/unit/ir/text_util.h"

namespace lathe::testing {
namespace {

class TextErrorTest : public TextTest {
 protected:
  /// Messages of all errors, one per line, behind their places.
  std::string Errors(std::string_view text) {
    try {
      ParseProgram(context_, text, {.file_name = "x"});
    } catch (const Error& error) {
      std::string out = StrCat(error.where(), " ", error.message(), "\n");
      for (const Error& e : error.others) out += StrCat(e.where(), " ", e.message(), "\n");
      return out;
    }
    return "";
  }
};

TEST_F(TextErrorTest, ShowsTheLineAndWhatIsNear) {
  context_.allow_unregistered_ops(false);
  EXPECT_EQ(ParseError("program {\n  %a = builtin.get_parametr() : () -> f32\n}"),
            "error[ir/unknown-op]: unknown op 'builtin.get_parametr'\n"
            "  --> <text>:2:8\n"
            "   |  2 |   %a = builtin.get_parametr() : () -> f32\n"
            "   |    |        ^^^^^^^^^^^^^^^^^^^^\n"
            "   = help: did you mean 'builtin.get_parameter'?\n");
}

TEST_F(TextErrorTest, NamesOfOthersAreUnderstood) {
  EXPECT_NE(ParseError("program {\n  %a = t.a() : () -> tensor<[2], float32>\n}")
                .find("did you mean 'f32'?"),
            std::string::npos);
  EXPECT_NE(ParseError("program {\n  %a = t.a() : () -> tensor<[2], bfloat16>\n}")
                .find("did you mean 'bf16'?"),
            std::string::npos);
  context_.allow_unregistered_ops(false);
  EXPECT_NE(ParseError("program {\n  %a = get_parameter() : () -> f32\n}")
                .find("did you mean 'builtin.get_parameter'?"),
            std::string::npos);
}

TEST_F(TextErrorTest, UndefinedValues) {
  EXPECT_EQ(ParseError("program {\n  t.use(%b)\n  %b = t.b() : () -> f32\n}"),
            "error[parse/undefined]: value %b is not defined here\n"
            "  --> <text>:2:9\n"
            "   |  2 |   t.use(%b)\n"
            "   |    |         ^^\n"
            "   |  it is defined later, at <text>:3:3\n"
            "   = help: a value is defined before its uses, in the same or an enclosing block\n");
  EXPECT_NE(ParseError("program {\n %image = t.b() : () -> f32\n t.use(%imaeg)\n}")
                .find("did you mean 'image'?"),
            std::string::npos);
  EXPECT_EQ(Errors("program { t.hold() ({ %a = t.a() : () -> f32 })\n t.use(%a) }"),
            "x:2:8 value %a is not defined here\n");
  EXPECT_EQ(Errors("program { %a = t.a() : () -> f32\n %a = t.a() : () -> f32\n}"),
            "x:2:2 value %a is already defined\n");
  EXPECT_EQ(Errors("program { %a, %a = t.a() : () -> (f32, f32)\n}"),
            "x:1:15 value %a is already defined\n");
}

TEST_F(TextErrorTest, SignaturesMustAgree) {
  EXPECT_EQ(Errors("program { %a = t.a() : () -> f32\n t.use(%a, %a) : (f32, f64) -> ()\n}"),
            "x:2:12 operand 1 has type f32, but the signature says f64\n");
  EXPECT_EQ(Errors("program { %a = t.a() : () -> f32\n t.use(%a) : () -> ()\n}"),
            "x:2:14 the operation has 1 operands, but its signature has 0\n");
  EXPECT_EQ(Errors("program { %a, %b = t.a() : () -> f32\n}"),
            "x:1:28 the operation names 2 results, but its signature has 1\n");
  EXPECT_EQ(Errors("program { %a = t.a()\n}"),
            "x:2:1 expected ':' and the types of an operation with results, found \"}\"\n");
}

TEST_F(TextErrorTest, SeveralErrorsAreReported) {
  EXPECT_EQ(Errors(R"(program {
  %0 = t.a( : () -> f32
  %1 = t.b(%0) : (f32) -> f32
  %2 = t.c() {x = @} : () -> f32
  t.hold() ({
    t.d(%1, %9)
    t.e(%2)
  }) : () -> () loc(3)
  t.f() ({ t.g( }, { })
  t.h() : () -> ()
  @
})"),
            "x:2:13 expected a value such as %0, found \":\"\n"
            "x:4:19 expected an attribute, found \"@\"\n"
            "x:6:13 value %9 is not defined here\n"
            "x:8:21 expected a location: a name or file in quotes, 'fused' or 'unknown', found "
            "\"3\"\n"
            "x:9:17 expected a value such as %0, found \"}\"\n"
            "x:11:3 expected an operation such as nn.add, found \"@\"\n");
}

TEST_F(TextErrorTest, StopsAfterTwentyErrors) {
  std::string text = "program {\n";
  for (int i = 0; i < 100; ++i) text += "  t.use(%x)\n";
  try {
    ParseProgram(context_, text + "}");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.others.size(), 19u);
  }
}

TEST_F(TextErrorTest, EndsAndHeaders) {
  EXPECT_EQ(Errors(""), "x:1:1 expected 'program', found the end of the text\n");
  EXPECT_EQ(Errors("module {}"), "x:1:1 expected 'program', found \"module\"\n");
  EXPECT_EQ(Errors("program {"),
            "x:1:10 expected an operation or '}', found the end of the text\n");
  EXPECT_EQ(Errors("program { t.a() ({ "),
            "x:1:20 expected an operation or '}', found the end of the text\n");
  EXPECT_EQ(Errors("program {} x"), "x:1:12 expected the end of the text, found \"x\"\n");
  EXPECT_EQ(Errors("program {a = 1} {}"), "");
  EXPECT_EQ(Errors("program {} {}"), "");
  EXPECT_EQ(Errors("program {a()}"), "");
  EXPECT_EQ(Errors("program { ^(%0: f32): a(%0) : (f32) -> () }"), "");
  EXPECT_EQ(Errors("program { a()\n ^():\n}"),
            "x:2:2 expected an operation: the program has one block, found \"^\"\n");
}

TEST_F(TextErrorTest, NestingOfRegionsIsLimited) {
  std::string text = "program {\n";
  for (int i = 0; i < 50; ++i) text += "t.a() ({\n";
  const std::string open = text;
  for (int i = 0; i < 50; ++i) text += "})\n";
  text += "}";
  ParseProgram(context_, text, {.max_nesting = 50});
  EXPECT_NE(ParseError(text, {.max_nesting = 49}).find("regions nest deeper than 49 levels"),
            std::string::npos);
  EXPECT_NE(ParseError(open).find("expected an operation or '}'"), std::string::npos);
}

TEST_F(TextErrorTest, DeepProgramsRoundTrip) {
  std::string text = "program {\n";
  for (int i = 0; i < 20000; ++i) text += "t.a() ({\n";
  for (int i = 0; i < 20000; ++i) text += "})\n";
  for (int i = 0; i < 100000; ++i) text += StrCat("%", i, " = t.d() : () -> f32\n");
  const Program program = ParseProgram(context_, text + "}", {.file_locations = false});
  EXPECT_TRUE(Verify(program).empty());
  ExpectRoundTrip(program);
}

// Any prefix, any removed or changed byte: an error or a program, never a crash.
TEST_F(TextErrorTest, DamagedTexts) {
  const std::string text = R"(program {level = 2} { // comment
  %0 = t.c() {v = tensor<[2], i4> [1, -2], w = tensor<[1], f32> hex "0000807f"} : () -> bool
  %1, %b = cf.if(%0, none) ({
    ^(%3: i64, %4: tensor<[?, N + 1], f32>):
    t.use(%3) : (i64) -> ()
    ^():
    "t.e\00nd"() {"k \n" = [nan(0x7ff0000000000001), -inf, 1e-5], z = dim<min(N, 3)>}
  }, {
  }, {
    cf.yield(%0) : (bool) -> () loc(fused["a", "b":3:4])
  }) : (bool, none) -> (dict<i64, t.vec<3>>, list<token>) loc("x")
} loc("top")
)";
  ExpectRoundTrip(ParseProgram(context_, text));
  std::mt19937 random(7);
  auto attempt = [&](const std::string& damaged) {
    try {
      const Program program = ParseProgram(context_, damaged);
      Verify(program);
      ExpectRoundTrip(program);
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal) << damaged << error.Render();
      EXPECT_FALSE(error.where().empty()) << damaged << error.Render();
    }
  };
  for (size_t i = 0; i < text.size(); ++i) {
    attempt(text.substr(0, i));
    attempt(text.substr(0, i) + text.substr(i + 1));
    attempt(text.substr(i));
  }
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    for (int n = 0; n < 3; ++n) {
      const char c = random() % 2 == 0 ? text[random() % text.size()] : static_cast<char>(random());
      damaged[random() % damaged.size()] = c;
    }
    attempt(damaged);
  }
}

}  // namespace
}  // namespace lathe::testing
