// What a program states that it relies on of sizes, because its operations no longer show it.

#include "lathe/ir/stated_constraints.h"

#include "lathe/dialect/size_constraints.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

constexpr const char* kEqual =
    R"({a = dim<K>, b = dim<M>, id = "shape/concat", kind = "equal", message = "they differ"})";

class StatedConstraintsTest : public testing::ProgramTest {
 protected:
  static std::string TextOf(const std::string& relies_on) {
    return StrCat("program {relies_on = ", relies_on, R"(} {
  %0 = nn.feed() {name = "x"} : () -> v_tensor<[K, 2], f32>
  %1 = nn.feed() {name = "z"} : () -> v_tensor<[M], f32>
  %2 = nn.relu(%0) : (v_tensor<[K, 2], f32>) -> v_tensor<[K, 2], f32>
  nn.fetch(%2) {name = "y"} : (v_tensor<[K, 2], f32>) -> ()
}
)");
  }
  Program Stating(const std::string& relies_on) {
    return ParseProgram(context_, TextOf(relies_on), {.file_locations = false});
  }
  static NamedValues Inputs(int64_t k, int64_t m) {
    return {{"x", Tensor(ElementType::kF32, {k, 2})}, {"z", Tensor(ElementType::kF32, {m})}};
  }
};

TEST_F(StatedConstraintsTest, PrintsWhatItReads) {
  const std::string text = TextOf(StrCat("[", kEqual, "]"));
  EXPECT_EQ(Print(ParseProgram(context_, text, {.file_locations = false})), text);
}

TEST_F(StatedConstraintsTest, ArePartOfWhatMustHold) {
  Program program = Stating(
      StrCat("[", kEqual,
             R"(, {a = dim<K>, b = dim<3>, hint = "add rows", id = "shape/i", kind = "at-least", )",
             R"(message = "few", notes = ["n"], where = "conv1"}])"));
  const std::vector<SizeConstraint> found = FindSizeConstraints(program);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].condition.ToString(), "K = M");
  EXPECT_EQ(found[1].condition.ToString(), "K >= 3");
  EXPECT_EQ(found[1].error.where(), "conv1");
  EXPECT_EQ(found[1].error.hints(), std::vector<std::string>{"add rows"});
  ASSERT_EQ(found[1].error.notes().size(), 1U);
}

TEST_F(StatedConstraintsTest, WhatIsProvenCountsForNothing) {
  Program program = Stating(
      R"([{a = dim<K>, b = dim<0>, id = "shape/i", kind = "at-least", message = "negative"}])");
  EXPECT_TRUE(FindSizeConstraints(program).empty());
}

TEST_F(StatedConstraintsTest, MalformedOnesAreRefused) {
  for (const char* relies_on :
       {"3", "[3]", "[{}]", R"([{a = dim<K>, b = dim<M>, id = "i", kind = "equal"}])",
        R"([{a = dim<K>, b = dim<M>, id = "i", kind = "odd", message = "m"}])",
        R"([{a = dim<K>, b = 3, id = "i", kind = "equal", message = "m"}])",
        R"([{a = dim<?>, b = dim<M>, id = "i", kind = "equal", message = "m"}])",
        R"([{a = dim<K>, b = dim<M>, id = "i", kind = "equal", message = "m", notes = [1]}])",
        R"([{a = dim<K>, b = dim<M>, hint = 1, id = "i", kind = "equal", message = "m"}])"}) {
    const Program program = Stating(relies_on);
    EXPECT_EQ(ErrorOf([&] { VerifyOrThrow(program); }).id(), "verify/relies-on") << relies_on;
  }
}

TEST_F(StatedConstraintsTest, TheInterpreterRefusesWhatTheyRefuse) {
  Program program = Stating(StrCat("[", kEqual, "]"));
  Interpreter interpreter(program);
  EXPECT_EQ(interpreter.Run(Inputs(3, 3)).size(), 1U);
  const Error error = ErrorOf([&] { interpreter.Run(Inputs(3, 4)); });
  EXPECT_EQ(error.id(), "shape/concat");
  EXPECT_EQ(error.message(), "they differ");
}

// A size that the program computes is compared once it is known.
TEST_F(StatedConstraintsTest, AComputedSize) {
  Program program = ParseProgram(context_, StrCat("program {relies_on = [", kEqual, R"(]} {
    %x = nn.feed() {name = "x"} : () -> v_tensor<[M], f32>
    %n = nn.feed() {name = "n"} : () -> v_tensor<[1], i64>
    %b = nn.bind_sizes(%n) {names = ["K"]} : (v_tensor<[1], i64>) -> v_tensor<[1], i64>
    nn.fetch(%b) {name = "b"} : (v_tensor<[1], i64>) -> ()
  })"));
  Interpreter interpreter(program);
  const auto run = [&](int64_t k) {
    return interpreter.Run(
        {{"x", Tensor(ElementType::kF32, {2})}, {"n", testing::Vec<int64_t>({k})}});
  };
  EXPECT_EQ(run(2).size(), 1U);
  EXPECT_EQ(ErrorOf([&] { run(3); }).id(), "shape/concat");
}

TEST_F(StatedConstraintsTest, AreSpecialized) {
  Program program = Stating(StrCat("[", kEqual, "]"));
  SpecializeShapes(program, {.symbols = {{"K", 3}}, .inputs = {}});
  ASSERT_EQ(StatedConstraints(*program.block()).size(), 1U);
  EXPECT_EQ(StatedConstraints(*program.block())[0].condition.ToString(), "3 = M");
  Program same = program.Clone();
  SpecializeShapes(same, {.symbols = {{"M", 3}}, .inputs = {}});
  EXPECT_FALSE(same.module()->attribute(kReliesOnAttr));
  const Error error =
      ErrorOf([&] { SpecializeShapes(program, {.symbols = {{"M", 4}}, .inputs = {}}); });
  EXPECT_EQ(error.id(), "shape/concat");
}

}  // namespace
}  // namespace lathe
