#include "src/driver/interpreted_run.h"

#include <optional>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/runtime/index_error.h"

namespace lathe {
namespace {

// The dims of the results for arguments of given shapes; nothing if they do not follow.
std::optional<std::vector<Shape>> ResultShapes(const CompiledFunction& f,
                                               std::span<const RtValue> arguments) {
  std::vector<Dim::Binding> symbols;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Shape& shape = arguments[i].tensor().shape();
    for (size_t a = 0; a < shape.size(); ++a) {
      const Dim& dim = f.arguments[i].dims()[a];
      if (dim.is_symbol()) symbols.emplace_back(dim.symbol_name(), shape[a]);
    }
  }
  std::vector<Shape> shapes;
  for (const AnyTensorType type : f.results) {
    Shape& shape = shapes.emplace_back();
    for (const Dim& dim : type.dims()) {
      const auto extent = dim.Evaluate(symbols);
      if (!extent) return std::nullopt;
      shape.push_back(*extent);
    }
  }
  return shapes;
}

}  // namespace

InterpretedRun::InterpretedRun(CompiledProgram& compiled, std::shared_ptr<runtime::WorkerTeam> team,
                               InterpreterOptions options)
    : compiled_(compiled), team_(std::move(team)), interpreter_(compiled.program, [&] {
        options.run_call = [this](const Operation* call, std::span<const RtValue> arguments,
                                  std::span<RtValue> results) {
          return RunCall(call, arguments, results);
        };
        return std::move(options);
      }()) {}

NamedValues InterpretedRun::Run(const NamedValues& inputs) {
  const std::lock_guard lock(mutex_);
  const runtime::WorkerTeam::InRun in_run(*team_);
  return interpreter_.Run(inputs);
}

bool InterpretedRun::RunCall(const Operation* call, std::span<const RtValue> arguments,
                             std::span<RtValue> results) {
  const std::string_view callee = builtin::CallOp(const_cast<Operation*>(call)).callee();
  const CompiledFunction* f = compiled_.Find(callee);
  if (f == nullptr || !f->has_code()) return false;
  const auto shapes = ResultShapes(*f, arguments);
  if (!shapes) return false;
  std::vector<KernelBuffer> buffers;
  std::vector<Shape> argument_shapes;
  for (const RtValue& v : arguments) {
    const Tensor& t = v.tensor();
    buffers.push_back({const_cast<std::byte*>(t.raw()), t.shape().data()});
    argument_shapes.push_back(t.shape());
  }
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    outputs.emplace_back(f->results[i].element(), (*shapes)[i]);
  }
  for (Tensor& t : outputs) buffers.push_back({t.mutable_raw(), t.shape().data()});
  codegen::Workspaces scratch(f->workspaces, f->arguments, argument_shapes);
  scratch.AddTo(buffers);
  f->Call(buffers.data(), team_->for_kernels());
  if (f->checks) {
    const auto* status = static_cast<const KernelStatus*>(buffers.back().data);
    const std::string place =
        call->location().is_unknown() ? "" : call->location().ToString(*call->context());
    if (status->failed != 0)
      throw runtime::IndexError(*status, compiled_.infos[compiled_.by_name.at(callee)].operations,
                                place);
  }
  for (size_t i = 0; i < results.size(); ++i) results[i] = std::move(outputs[i]);
  return true;
}

}  // namespace lathe
