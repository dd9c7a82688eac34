// Programs over mutable tensors keep their meaning, bit by bit, wherever a pass stands.
#include <gtest/gtest.h>

#include <iostream>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "test/unit/transform/mutable_programs.h"

namespace lathe::testing {
namespace {

class MutablePrograms : public ::testing::Test {
 protected:
  MutablePrograms() { LoadAllDialects(context_); }

  static NamedValues Inputs(uint64_t seed) {
    const auto f32 = [&](Shape shape, uint64_t stream) -> RtValue {
      return RandomTensor(ElementType::kF32, std::move(shape), seed, stream);
    };
    return {{"x0", f32({2, 3}, 0)},
            {"x1", f32({6}, 1)},
            {"v0", f32({2, 3}, 2)},
            {"v1", f32({3}, 3)},
            {"c", Tensor::Scalar(seed % 2 == 0)}};
  }

  /// What is wrong after `pipeline`; empty if nothing is.
  std::string Check(const std::string& text, const std::string& pipeline, uint64_t seed) {
    try {
      Program program = ParseProgram(context_, text, {.file_locations = false});
      VerifyOrThrow(program);
      const NamedValues expected = Interpreter(program).Run(Inputs(seed));
      PassManager manager({.verify_each = true});
      manager.Add(pipeline);
      manager.Run(program);
      const NamedValues actual = Interpreter(program).Run(Inputs(seed));
      return Difference(expected, actual, program);
    } catch (const Error& error) {
      return error.Render();
    }
  }

  static std::string Difference(const NamedValues& expected, const NamedValues& actual,
                                const Program& program) {
    if (expected.size() != actual.size()) return "another number of outputs\n" + Print(program);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] == actual[i]) continue;
      return StrCat("output ", i, " '", expected[i].first, "' is '", actual[i].first,
                    "' = ", actual[i].second.ToString(), ", not ", expected[i].second.ToString(),
                    "\n", Print(program));
    }
    return {};
  }

  /// The statements without those that the failure does not need.
  std::vector<Statement> Shrink(std::vector<Statement> statements, const std::string& pipeline,
                                uint64_t seed) {
    for (size_t size = statements.size() / 2; size > 0; size /= 2) {
      for (size_t at = 0; at + size <= statements.size();) {
        std::vector<Statement> fewer = statements;
        const auto first = fewer.begin() + static_cast<std::ptrdiff_t>(at);
        fewer.erase(first, first + static_cast<std::ptrdiff_t>(size));
        if (Check(MutableProgram(fewer), pipeline, seed).empty()) {
          at += size;
        } else {
          statements = std::move(fewer);
        }
      }
    }
    return statements;
  }

  static std::string RandomPipeline(uint64_t seed) {
    static constexpr const char* kPasses[] = {"maximize_value_semantics", "reduce_inplace_variants",
                                              "inplace", "simplify", "canonicalize"};
    RandomStream random(seed, 1);
    std::string pipeline;
    for (int64_t i = random.Int(1, 6); i > 0; --i) {
      pipeline += StrCat(pipeline.empty() ? "" : ",", kPasses[random.Int(0, 4)]);
    }
    return pipeline;
  }

  IrContext context_;
};

TEST_F(MutablePrograms, PassesInAnyOrderKeepEveryBit) {
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    const std::vector<Statement> statements = RandomStatements(seed, 10 + seed % 40);
    const std::string pipeline = RandomPipeline(seed);
    if (Check(MutableProgram(statements), pipeline, seed).empty()) continue;
    const std::string text = MutableProgram(Shrink(statements, pipeline, seed));
    FAIL() << "seed " << seed << ", passes " << pipeline << "\n"
           << text << Check(text, pipeline, seed);
  }
}

// Nothing stays mutable except what is written where no value can be carried out.
TEST_F(MutablePrograms, MaximizingLeavesNoWrite) {
  size_t clean = 0, all = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const std::string text = MutableProgram(RandomStatements(seed, 30));
    Program program = ParseProgram(context_, text, {.file_locations = false});
    PassManager manager({.verify_each = true});
    manager.Add("maximize_value_semantics");
    manager.Run(program);
    ++all;
    const bool in_map = text.find("nn.sequence_map") != std::string::npos;
    bool writes = false;
    for (OpWalker w(program.block()); Operation* op = w.Next();) writes |= op->HasTrait<Inplace>();
    clean += writes && !in_map ? 0 : 1;
  }
  EXPECT_EQ(clean, all);
}

}  // namespace
}  // namespace lathe::testing
