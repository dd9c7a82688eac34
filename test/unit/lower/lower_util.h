#pragma once

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <cfenv>
#include <cwchar>
#include <map>
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
  std::vector<std::string> more = {};  // types of further results %r1, %r2, ...
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
  std::string returned = "%r", called = "%z", results = c.result, fetches;
  for (size_t i = 0; i < c.more.size(); ++i) {
    returned += StrCat(", %r", i + 1);
    called += StrCat(", %z", i + 1);
    results += StrCat(", ", c.more[i]);
    fetches +=
        StrCat("  nn.fetch(%z", i + 1, ") {name = \"z", i + 1, "\"} : (", c.more[i], ") -> ()\n");
  }
  const std::string types_of_call = c.more.empty() ? results : StrCat("(", results, ")");
  return StrCat("program {\n  builtin.func() {name = \"k\"} ({\n  ^(", arguments, "):\n", c.body,
                "\n  builtin.return(", returned, ") : (", results, ") -> ()\n  })\n", feeds, "  ",
                called, " = builtin.call(", operands, ") {callee = \"k\"} : (", types, ") -> ",
                types_of_call, "\n  nn.fetch(%z) {name = \"z\"} : (", c.result, ") -> ()\n",
                fetches, "}\n");
}

// Below this frame, as far as kernels reach.
[[gnu::noinline]] inline void FillStack(uint32_t bits) {
  wchar_t memory[(2 << 20) / sizeof(wchar_t)];
  std::wmemset(memory, static_cast<wchar_t>(bits), std::size(memory));
  volatile wchar_t last = memory[0];
  (void)last;
}

// Whether a result lost digits for being subnormal; if `operands`, whether an operand was, where
// the processor tells.
inline bool HasSlowFlags([[maybe_unused]] bool operands) {
#ifdef __x86_64__
  constexpr unsigned kDenormalOperand = 0x02;
  if (operands && (_mm_getcsr() & kDenormalOperand) != 0) return true;
#endif
  return std::fetestexcept(FE_UNDERFLOW) != 0;
}
inline void ClearSlowFlags() {
#ifdef __x86_64__
  _mm_setcsr(_mm_getcsr() & ~0x3fU);
#endif
  std::feclearexcept(FE_ALL_EXCEPT);
}

class LowerTest : public ::testing::Test {
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
      for (const Dim& d : type.dims()) shape.push_back(SizeOf(d));
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

  static void ExpectClose(std::span<const Tensor> got, const NamedValues& wanted, double rtol,
                          const std::string& what) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Closeness close = AllClose(got[i], wanted[i].second.tensor(), rtol, rtol);
      EXPECT_TRUE(close) << what << ": " << close.description;
    }
  }

  // Each result that may take an operand's memory is the same there.
  static void ExpectInPlace(const codegen::CompiledKernel& kernel, const Lowered& lowered,
                            const std::vector<Tensor>& inputs, const std::vector<Tensor>& wanted,
                            KernelTeam* team) {
    for (const auto& pair : lowered.in_place) {
      std::vector<Tensor> outputs;
      for (const Tensor& t : wanted) outputs.push_back(ZeroLike(t));
      const std::vector<Tensor> got = kernel.CallInPlace(inputs, std::move(outputs), {pair}, team);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(std::ranges::equal(got[i].bytes(), wanted[i].bytes()))
            << "result " << i << " is another one where result " << pair.second
            << " lies over operand " << pair.first;
      }
    }
  }

  Machine MachineFor(const Target& target) const {
    Machine machine = MachineOf(target);
    if (l2_bytes_ > 0) machine.l2_bytes = l2_bytes_;
    machine.has_tiles = machine.has_tiles || tiles_;
    return machine;
  }

  // Whether the tile registers of the target may multiply what `strategy` multiplies elsewhere.
  bool TakesTiles(const Target& target, const std::string& strategy) const {
    return target.has_tiles() && !tiles_ && (strategy == "matmul" || strategy == "matmul_bytes");
  }

  // The loops give in the interpreter, and as code of every target, what the operations give.
  void Expect(const Case& c, const std::string& strategy, double rtol = 0) {
    for (const Target* target : codegen::RunnableTargets()) {
      Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
      NamedValues inputs = Inputs(program);
      const NamedValues wanted = Interpreter(program).Run(inputs);
      Operation* function = codegen::FirstFunction(program);
      const Lowered lowered =
          LowerFunction(function, MachineFor(*target), constant_,
                        {.implementation = only_, .precision = precision_, .strict = true});
      ASSERT_TRUE(lowered.done) << lowered.why_not;
      if (!(TakesTiles(*target, strategy) && lowered.strategy == "matmul_tiles")) {
        EXPECT_EQ(lowered.strategy, strategy);
      }
      PackInputs(program, lowered.packed, inputs);
      VerifyOrThrow(program);
      std::vector<Tensor> tensors, outputs, looped;
      for (const auto& [name, value] : inputs) tensors.push_back(value.tensor());
      for (const auto& [name, value] : wanted) outputs.push_back(ZeroLike(value.tensor()));
      if (outputs[0].num_elements() < 10000) {  // the interpreter copies memory on every store
        for (auto& [name, value] : Interpreter(program).Run(inputs))
          looped.push_back(value.tensor());
        ExpectClose(looped, wanted, rtol, StrCat("loops of ", target->name));
      }
      codegen::CompiledKernel kernel(function->region(0).front(), *target, lowered.in_place);
      runtime::WorkerTeam team(3);
      const std::vector<Tensor> got = kernel.Call(tensors, outputs, &team);
      ExpectClose(got, wanted, rtol, StrCat("code of ", target->name));
      if (target == codegen::RunnableTargets().back()) {
        ExpectDefinedMemory(kernel, tensors, outputs);
      }
      for (const int threads : {1, 2, 7}) {
        runtime::WorkerTeam others(threads);
        const std::vector<Tensor> again = kernel.Call(tensors, outputs, others.for_kernels());
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_TRUE(std::ranges::equal(again[i].bytes(), got[i].bytes()))
              << threads << " threads give other bits on " << target->name;
        }
        ExpectInPlace(kernel, lowered, tensors, got, others.for_kernels());
      }
    }
  }

  // Memory is numbers before a kernel computes with it, also for lanes whose results it drops: what
  // was there may be subnormal, which takes a hundred times as long on some processors. Here it is
  // -1.2e-38 (f32) or -3e-306 (f64), whose products lose digits; 5.9e-39 (f32) is subnormal itself.
  void ExpectDefinedMemory(codegen::CompiledKernel& kernel, const std::vector<Tensor>& tensors,
                           const std::vector<Tensor>& outputs) const {
    const auto raises = [&](uint32_t bits) {
      runtime::WorkerTeam team(1);
      kernel.FillMemory(bits);
      FillStack(bits);
      ClearSlowFlags();
      kernel.Call(tensors, outputs, team.for_kernels());
      return HasSlowFlags(refuses_subnormal_operands_);
    };
    constexpr uint32_t kTiny = 0x80808080, kSubnormal = 0x00400000;
    const bool is_slow = raises(kTiny) || (refuses_subnormal_operands_ && raises(kSubnormal));
    EXPECT_TRUE(!is_slow || raises(0)) << "it computes with memory that nothing wrote";
  }

  std::string Refusal(const Case& c) {
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    return LowerFunction(codegen::FirstFunction(program), MachineOf(Target::Host()), {},
                         {.strict = true})
        .why_not;
  }

  IrContext context_;
  bool refuses_subnormal_operands_ = false;  // of what nobody wrote
  int64_t SizeOf(const Dim& dim) const {
    const auto of_symbol = [&](std::string_view name) -> std::optional<int64_t> {
      const auto known = sizes_.find(std::string(name));
      return known == sizes_.end() ? symbol_ : known->second;
    };
    return dim.Evaluate(of_symbol).value();
  }

  std::map<std::string, int64_t> sizes_;  // of symbols
  int64_t symbol_ = 5;                    // of the others
  int64_t l2_bytes_ = 0;                  // for a machine with smaller caches; 0: as it is
  bool tiles_ = false;                    // tile registers, in vectors where there are none
  std::string only_;                      // the only strategy that is asked; empty: all
  Precision precision_ = Precision::kStrict;
  std::vector<bool> constant_;  // per argument, whether it may be packed; empty: none
  int64_t below_ = 0;           // if not 0: integers are indices of an axis of that extent
};

}  // namespace lathe::lower
