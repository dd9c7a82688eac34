#pragma once

#include <string>

#include "test/unit/lower/lower_util.h"

namespace lathe::lower {

/// What a strategy computes by pairs of bf16, of a function whose second argument is constant.
class PairsTest : public LowerTest {
 protected:
  /// `knobs`: what is chosen for the strategy, as in "{rows=4}".
  explicit PairsTest(std::string strategy, const std::string& knobs = "")
      : strategy_(std::move(strategy)) {
    if (!knobs.empty()) only_ = strategy_ + knobs;
    precision_ = Precision::kBf16;
    constant_ = {false, true};
  }

  // Pairs are multiplied by several instructions where there is none.
  static Machine WithPairs(const Target& target) {
    Machine machine = MachineOf(target);
    machine.has_bf16 = true;
    machine.has_tiles = false;
    return machine;
  }

  void ExpectPairs(const Case& c, double rtol = 3e-2) {
    Program given = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    ExpectPairs(c, Inputs(given), rtol);
  }
  void ExpectPairs(const Case& c, const NamedValues& inputs, double rtol) {
    for (const Target* target : codegen::RunnableTargets()) {
      Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
      const NamedValues wanted = Interpreter(program).Run(inputs);
      Operation* function = codegen::FirstFunction(program);
      const Lowered lowered =
          LowerFunction(function, WithPairs(*target), constant_,
                        {.implementation = only_, .precision = precision_, .strict = true});
      EXPECT_EQ(lowered.strategy, strategy_) << lowered.candidates;
      NamedValues packed = inputs;
      PackInputs(program, lowered.packed, packed);
      ASSERT_FALSE(lowered.packed.empty());
      EXPECT_EQ(lowered.packed[0].element, ElementType::kBF16);
      std::vector<Tensor> tensors;
      for (const auto& [name, value] : packed) tensors.push_back(value.tensor());
      const Tensor empty = ZeroLike(wanted[0].second.tensor());
      const codegen::CompiledKernel kernel(function->region(0).front(), *target, lowered.in_place);
      runtime::WorkerTeam team(3);
      FillStack(0xff);
      const std::vector<Tensor> got = kernel.Call(tensors, {empty}, &team);
      ExpectClose(got, wanted, rtol, target->name);
      EXPECT_EQ(kernel.Call(tensors, {empty})[0], got[0]) << "one thread gives other bits";
    }
  }

  std::string strategy_;
};

}  // namespace lathe::lower
