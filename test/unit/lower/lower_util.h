#pragma once

#include <string>
#include <vector>

#include "lathe/driver/executable.h"
#include "lathe/ir/verify.h"
#include "lathe/lower/lower_function.h"
#include "test/unit/codegen/kernel_util.h"

namespace lathe::lower {

using codegen::CodeGenerator;
using codegen::KernelSource;
using codegen::Target;

/// A function to lower.
struct Case {
  std::vector<std::string> arguments;  // types
  std::string body;                    // from %a, %b, ... to %r
  std::string result;                  // its type
};

// A function of the body, and a call of it on the program's inputs.
inline std::string ProgramOf(const Case& c) {
  std::string arguments, feeds, operands, types;
  for (size_t i = 0; i < c.arguments.size(); ++i) {
    const char name = static_cast<char>('a' + i);
    const char* comma = i == 0 ? "" : ", ";
    arguments += StrCat(comma, "%", name, ": ", c.arguments[i]);
    feeds +=
        StrCat("  %", name, " = nn.feed() {name = \"", name, "\"} : () -> ", c.arguments[i], "\n");
    operands += StrCat(comma, "%", name);
    types += StrCat(comma, c.arguments[i]);
  }
  return StrCat("program {\n  builtin.func() {name = \"k\"} ({\n  ^(", arguments, "):\n", c.body,
                "\n  builtin.return(%r) : (", c.result, ") -> ()\n  })\n", feeds,
                "  %z = builtin.call(", operands, ") {callee = \"k\"} : (", types, ") -> ",
                c.result, "\n  nn.fetch(%z) {name = \"z\"} : (", c.result, ") -> ()\n}\n");
}

class LowerTest : public testing::Test {
 protected:
  void SetUp() override {
    codegen::NeedCodeGenerator();
    LoadAllDialects(context_);
  }

  NamedValues Inputs(const Program& program) {
    NamedValues inputs;
    uint64_t seed = 1;
    for (const Operation* feed : program.feeds()) {
      const auto type = feed->result(0).type().cast<AnyTensorType>();
      Shape shape;
      for (const Dim& d : type.dims()) shape.push_back(d.is_constant() ? d.value() : symbol_);
      Tensor tensor = RandomTensor(type.element(), shape, seed++);
      if (below_ > 0 && IsInteger(type.element())) {
        std::vector<int64_t> indices = ToInt64s(tensor);
        for (int64_t& i : indices) i = (i % below_ + below_) % below_ - (i % 3 == 0 ? below_ : 0);
        tensor = Cast(Tensor::Of<int64_t>(shape, indices), type.element());
      }
      inputs.emplace_back(feed->attribute("name").cast<StrAttribute>().value(), tensor);
    }
    return inputs;
  }

  // Gives the program's inputs the order that the loops take them in.
  static void PackInputs(Program& program, const std::vector<PackedLayout>& layouts,
                         NamedValues& inputs) {
    for (const PackedLayout& layout : layouts) {
      RtValue& value = inputs[layout.argument].second;
      value = Pack(value.tensor(), layout);
      const Operation* function = codegen::FirstFunction(program);
      const Type type = function->region(0).front()->argument(layout.argument).type();
      program.feeds()[layout.argument]->result(0).set_type(type);
    }
  }

  // The loops give in the interpreter, and as code of every target, what the operations give.
  void Expect(const Case& c, const std::string& strategy, double rtol = 0) {
    for (const Target* target : codegen::RunnableTargets()) {
      Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
      NamedValues inputs = Inputs(program);
      const Tensor wanted = Interpreter(program).Run(inputs)[0].second.tensor();
      Operation* function = codegen::FirstFunction(program);
      const Lowered lowered =
          LowerFunction(function, MachineOf(*target), constant_, {.implementation = only_});
      ASSERT_TRUE(lowered.done) << lowered.why_not;
      EXPECT_EQ(lowered.strategy, strategy);
      PackInputs(program, lowered.packed, inputs);
      VerifyOrThrow(program);
      if (wanted.num_elements() < 10000) {  // the interpreter copies memory on every store
        const Tensor looped = Interpreter(program).Run(inputs)[0].second.tensor();
        const Closeness same = AllClose(looped, wanted, rtol, rtol);
        EXPECT_TRUE(same) << "loops of " << target->name << ": " << same.description;
      }
      std::vector<Tensor> tensors;
      for (const auto& [name, value] : inputs) tensors.push_back(value.tensor());
      const codegen::CompiledKernel kernel(function->region(0).front(), *target);
      runtime::WorkerTeam team(3);
      const Tensor got = kernel.Call(tensors, {ZeroLike(wanted)}, &team)[0];
      const Closeness close = AllClose(got, wanted, rtol, rtol);
      EXPECT_TRUE(close) << "code of " << target->name << ": " << close.description;
    }
  }

  std::string Refusal(const Case& c) {
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    return LowerFunction(codegen::FirstFunction(program), MachineOf(Target::Host())).why_not;
  }

  IrContext context_;
  int64_t symbol_ = 5;
  std::string only_;            // the only strategy that is asked; empty: all
  std::vector<bool> constant_;  // per argument, whether it may be packed; empty: none
  int64_t below_ = 0;           // if not 0: integers are indices of an axis of that extent
};

}  // namespace lathe::lower
