#include <filesystem>
#include <set>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/lower/strategy.h"
#include "lathe/support/file.h"
#include "src/lower/strategies/list.h"
#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

const std::filesystem::path kGolden = LATHE_SOURCE_DIR "/test/golden/lower/strategies";

TEST(LoopStrategies, EachHasAGoldenTestOfItsLoops) {
  std::set<std::string> names;
  for (const LoopStrategy& s : LoopStrategies()) {
    names.insert(s.name);
    const std::filesystem::path file = kGolden / StrCat(s.name, ".lathe");
    ASSERT_TRUE(std::filesystem::exists(file)) << file;
    const std::string text = ReadFile(file.string());
    for (const std::string& line : {std::string("--emit loops"), std::string("loop.for"),
                                    StrCat(s.name, " plevel {{[0-9]+}} taken")}) {
      EXPECT_NE(text.find(line), std::string::npos) << file << ": " << line;
    }
  }
  for (const auto& file : std::filesystem::directory_iterator(kGolden)) {
    EXPECT_TRUE(names.contains(file.path().stem())) << file.path() << " is of no strategy";
  }
}

class RegisteredStrategies : public LowerTest {
 protected:
  std::vector<std::string> NamesFor(const std::string& body, const std::string& target = "avx2") {
    const std::string t = "v_tensor<[8], f32>";
    Program program = ParseProgram(context_, ProgramOf({{t}, body, t}), {.file_locations = false});
    return StrategiesFor(codegen::FirstFunction(program), target);
  }
  static std::string Unary(const char* result, const char* op, const char* x) {
    return StrCat("%", result, " = ", op, "(%", x,
                  ") : (v_tensor<[8], f32>) -> v_tensor<[8], f32>\n");
  }
};

using Names = std::vector<std::string>;

// The same registry holds what comes with Lathe and what plug-ins add.
TEST_F(RegisteredStrategies, AreLookedUpByOp) {
  const std::string hardmax =
      "%r = nn.hardmax(%a) {axis = 0} : (v_tensor<[8], f32>) -> v_tensor<[8], f32>";
  EXPECT_EQ(NamesFor(Unary("r", "nn.relu", "a")), (Names{"elementwise", "rows", "loops"}));
  EXPECT_EQ(NamesFor(hardmax), (Names{"lines", "elementwise", "rows", "loops"}));
  const TargetKeys own{"any", {StrategyRegistry::kOwnKey}};
  Program program = ParseProgram(
      context_, ProgramOf({{"v_tensor<[8], f32>"}, hardmax, "v_tensor<[8], f32>"}), {});
  Operation* op = codegen::FirstFunction(program)->region(0).front()->front();
  const OpStrategy strategy = StrategyRegistry::Global().Find({op, &own});
  ASSERT_EQ(strategy.specializations().size(), 1U);
  EXPECT_EQ(strategy.specializations()[0].implementations[0].name, "lines");
}

TEST_F(RegisteredStrategies, OfFunctionsAreForAnyOperations) {
  StrategyRegistry::Global().Register("builtin.func", "alone", [](const OpCall& call) {
    OpStrategy s;
    s.Add({.name = StrCat("for ", call.op->name()), .lower = [](Lowering&) { return false; }});
    return s;
  });
  EXPECT_EQ(NamesFor(Unary("r", "nn.relu", "a"), "alone"),
            (Names{"for builtin.func", "elementwise", "rows", "loops"}));
}

TEST_F(RegisteredStrategies, AreAskedOnceHoweverManyOperationsHaveThem) {
  StrategyRegistry::Global().Register("nn.erf", "twice", [](const OpCall&) {
    OpStrategy s;
    s.Add({.name = "of erf", .plevel = 20, .lower = [](Lowering&) { return false; }});
    return s;
  });
  EXPECT_EQ(NamesFor(Unary("b", "nn.erf", "a") + Unary("r", "nn.erf", "b"), "twice"),
            (Names{"of erf", "elementwise", "rows", "loops"}));
}

}  // namespace
}  // namespace lathe::lower
