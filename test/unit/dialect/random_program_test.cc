#include <iostream>

#include "test/unit/dialect/program_grower.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

class RandomPrograms : public ProgramTest {};

TEST_F(RandomPrograms, VerifyRunPrintAndParse) {
  size_t ops = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    ProgramGrower grower(context_, seed);
    Program program = grower.Grow(25);
    const std::string text = Print(program);
    SCOPED_TRACE(StrCat("seed ", seed, "\n", text));
    EXPECT_TRUE(grower.complaints().empty()) << grower.complaints().front();
    const NamedValues inputs = grower.Inputs(program);
    Program again = ParseProgram(context_, text, {.file_locations = false});
    ASSERT_EQ(Print(again), text);
    try {
      VerifyOrThrow(program);
      InterpreterOptions options;
      options.observer = [&](const RanOp&) { ++ops; };
      const NamedValues expected = Interpreter(program, std::move(options)).Run(inputs);
      EXPECT_EQ(Interpreter(again).Run(inputs), expected);
    } catch (const Error& e) {
      FAIL() << e.Render();
    }
  }
  std::cout << ops << " ops ran\n";
  EXPECT_GE(ops, 60u * 25u);
}

}  // namespace
}  // namespace lathe::testing
