#include "src/driver/kernel_errors.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/driver/extract.h"
#include "lathe/ir/functions.h"
#include "lathe/support/error.h"
#include "src/driver/compiled_program.h"
#include "src/driver/interpreted_run.h"
#include "src/driver/squared_error.h"
#include "src/driver/wide_program.h"

namespace lathe {
namespace {

bool IsFloats(const RtValue& value) {
  return value.is_tensor() && IsFloat(value.tensor().element_type());
}

}  // namespace

const KernelErrors::Wide& KernelErrors::WideOf(const Operation* function, const Program& program) {
  const auto [at, is_new] = wide_.try_emplace(FunctionTable::NameOf(function));
  if (!is_new) return at->second;
  try {
    at->second.executable.emplace(Widened(FunctionProgram(function, program)).program, options_);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kLimit) throw;
  }
  return at->second;
}

int64_t KernelErrors::not_compared() const {
  return std::ranges::count_if(wide_, [](const auto& w) { return !w.second.executable; });
}

std::optional<KernelError> KernelErrors::Compare(const Operation* function, const Program& program,
                                                 const RanOp& call) {
  if (std::ranges::none_of(call.outputs, IsFloats)) return std::nullopt;
  const Wide& wide = WideOf(function, program);
  if (!wide.executable) return std::nullopt;
  NamedValues arguments;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    arguments.emplace_back(StrCat("in", i), call.inputs[i]);
  }
  const NamedValues exact = wide.executable->Run(arguments);
  SquaredError sum;
  for (size_t i = 0; i < exact.size(); ++i) {
    if (!IsFloats(exact[i].second) || !IsFloats(call.outputs[i])) continue;
    sum.Add(exact[i].second.tensor(), call.outputs[i].tensor());
  }
  return KernelError{
      .place = call.op->Describe(), .relative_rms = sum.Relative(), .largest = sum.largest};
}

std::optional<KernelError> KernelErrors::Worst(const Program& program,
                                               const CompileOptions& options,
                                               const NamedValues& inputs) {
  const auto compiled = CompileProgram(program, options);
  std::optional<KernelError> worst;
  InterpreterOptions run = options.interpreter;
  run.observer = [&](const RanOp& ran) {
    if (!ran.op->isa<builtin::CallOp>()) return;
    const CompiledFunction* f = compiled->Find(builtin::CallOp(ran.op).callee());
    if (f == nullptr || !f->has_code()) return;
    auto error = Compare(f->function, compiled->program, ran);
    if (!error || !(error->relative_rms > (worst ? worst->relative_rms : 0))) return;
    const auto number = static_cast<size_t>(f - compiled->functions.data());
    error->operations = compiled->infos[number].operations;
    error->strategy = compiled->infos[number].strategy;
    worst = std::move(error);
  };
  const auto team = std::make_shared<runtime::WorkerTeam>(options.threads);
  InterpretedRun(*compiled, team, std::move(run)).Run(inputs);
  return worst;
}

}  // namespace lathe
