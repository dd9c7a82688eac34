#include <stdexcept>

#include "lathe/lower/loop_builder.h"
#include "lathe/lower/lowering.h"
#include "lathe/lower/strategy.h"
#include "lathe/support/error.h"
#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

// What the strategy of nn.sign for the target "faulty" does after it has begun to write.
enum class Fault { kCheck, kException, kMuch, kShape, kLimit };
Fault g_fault = Fault::kCheck;

bool LowerWrongly(Lowering& l) {
  LoopBuilder lb(l.body);
  lb.Alloc(l.function.back()->operand(0).type().cast<AnyTensorType>());
  switch (g_fault) {
    case Fault::kCheck:
      LATHE_CHECK(l.body == nullptr, "a test");
      break;
    case Fault::kException:
      throw std::out_of_range("vector::at");
    case Fault::kMuch:
      for (;;) lb.Int(1);
    case Fault::kShape:
      throw Error(ErrorCode::kShape, "shape/test", "shapes do not fit");
    case Fault::kLimit:
      throw Error(ErrorCode::kLimit, "run/timeout", "it took too long");
  }
  return true;
}

class GivenUpTest : public LowerTest {
 protected:
  static void SetUpTestSuite() {
    StrategyRegistry::Global().Register("nn.sign", "faulty", [](const OpCall&) {
      OpStrategy s;
      s.Add({.name = "wrong", .plevel = 20, .lower = &LowerWrongly});
      return s;
    });
  }

  Lowered Lower(LowerOptions options = {}) {
    options.target = "faulty";
    const std::string t = "v_tensor<[4, 9], f32>";
    Program program =
        ParseProgram(context_, ProgramOf({{t}, StrCat("%r = nn.sign(%a) : (", t, ") -> ", t), t}),
                     {.file_locations = false});
    const NamedValues inputs = Inputs(program);
    const NamedValues wanted = Interpreter(program).Run(inputs);
    const Lowered lowered =
        LowerFunction(codegen::FirstFunction(program), MachineOf(Target::Host()), {}, options);
    VerifyOrThrow(program);
    EXPECT_TRUE(AllClose(Interpreter(program).Run(inputs)[0].second, wanted[0].second, 1e-6, 1e-6));
    return lowered;
  }
};

TEST_F(GivenUpTest, TheNextStrategyIsTaken) {
  const std::pair<Fault, std::string> faults[] = {{Fault::kCheck, "internal/check"},
                                                  {Fault::kException, "internal/exception"},
                                                  {Fault::kMuch, "lower/budget"},
                                                  {Fault::kShape, "shape/test"}};
  for (const auto& [fault, code] : faults) {
    g_fault = fault;
    const Lowered lowered = Lower();
    ASSERT_TRUE(lowered.done) << code;
    EXPECT_EQ(lowered.strategy, "elementwise");
    ASSERT_EQ(lowered.remarks.size(), 1U);
    EXPECT_EQ(lowered.remarks[0].code, code);
    EXPECT_EQ(lowered.remarks[0].strategy, "wrong");
    EXPECT_NE(lowered.candidates.find("wrong  plevel 20  refused: "), std::string::npos);
  }
}

TEST_F(GivenUpTest, StrictIsAnErrorWithTheFunction) {
  g_fault = Fault::kException;
  try {
    Lower({.strict = true});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_EQ(error.id(), kGivenUp);
    EXPECT_EQ(error.message(), "wrong was given up (internal/exception): vector::at");
    ASSERT_EQ(error.notes().size(), 1U);
    EXPECT_NE(error.notes()[0].text.find("nn.sign"), std::string::npos);
  }
}

// What the caller asked for ends compilation.
TEST_F(GivenUpTest, LimitsOfTheCallerAreErrors) {
  g_fault = Fault::kLimit;
  try {
    Lower();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "run/timeout");
  }
}

TEST_F(GivenUpTest, LoopsAboveTheBudget) {
  const Lowered lowered = Lower({.without = {"wrong"}, .max_operations = 3});
  EXPECT_FALSE(lowered.done);
  ASSERT_FALSE(lowered.remarks.empty());
  for (const Remark& remark : lowered.remarks) EXPECT_EQ(remark.code, "lower/budget");
}

TEST_F(GivenUpTest, WhatIsLeftOutIsNotAsked) {
  const Lowered lowered = Lower({.without = {"wrong", "elementwise"}});
  EXPECT_EQ(lowered.strategy, "loops");
  EXPECT_TRUE(lowered.remarks.empty());
}

}  // namespace
}  // namespace lathe::lower
