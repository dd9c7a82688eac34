#include "lathe/driver/executable.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "lathe/codegen/code_generator.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/runtime/worker_team.h"
#include "lathe/support/error.h"
#include "lathe/support/parallel.h"
#include "src/driver/pack_arguments.h"

namespace lathe {
namespace {

using codegen::CodeGenerator;
using codegen::KernelLibrary;
using codegen::KernelSource;
using codegen::Target;

constexpr const char* kGroup = "graph_fuse_partition,graph_fuse_compile";

std::string_view NameOf(const Operation* op, const char* attribute) {
  return op->attribute(attribute).cast<StrAttribute>().value();
}

// "matmul add": without dialects, constants and the terminator.
std::string OperationsOf(const Operation* function) {
  std::string text;
  for (const Operation& op : *function->region(0).front()) {
    if (op.HasTrait<Terminator>() || op.HasTrait<ConstantLike>()) continue;
    text += StrCat(text.empty() ? "" : " ", op.name().substr(op.name().find('.') + 1));
  }
  return text;
}

// A function as machine code, and what its types are made of.
struct CompiledFunction {
  std::unique_ptr<KernelLibrary> library;
  KernelFunction call = nullptr;
  std::vector<AnyTensorType> arguments, results;
};

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

lower::Machine MachineOf(const Target& target) {
  return {.vector_bytes = target.vector_bytes,
          .vector_registers = target.vector_registers,
          .has_fma = target.has_fma,
          .has_instruction = [target](const Operation& op) {
            return CodeGenerator::Get().Supports(op, target);
          }};
}

struct Executable::Impl {
  Impl(const Program& source, CompileOptions o)
      : options(std::move(o)), program(source.Clone()), team(options.threads) {}

  void Prepare();
  void Lower(const Target& target);
  void Generate(const Target& target);
  bool RunCall(const Operation* call, std::span<const RtValue> arguments,
               std::span<RtValue> results);

  CompileOptions options;
  Program program;
  runtime::WorkerTeam team;
  std::vector<Operation*> functions;  // parallel to infos
  std::vector<CompiledFunctionInfo> infos;
  std::unordered_map<std::string_view, CompiledFunction> compiled;  // looked up by name
  std::optional<Interpreter> interpreter;
};

void Executable::Impl::Prepare() {
  Optimize(program, "inference", options.level);
  PassManager group;
  group.Add(kGroup);
  group.Run(program);
  std::map<std::string_view, size_t> calls;
  for (Operation& op : *program.block()) {
    if (op.name() == "builtin.call") ++calls[NameOf(&op, "callee")];
    if (op.name() == "builtin.func") functions.push_back(&op);
  }
  for (const Operation* f : functions) {
    const std::string_view name = NameOf(f, "name");
    infos.push_back({std::string(name), OperationsOf(f), calls[name], "", ""});
  }
}

void Executable::Impl::Lower(const Target& target) {
  const lower::Machine machine = MachineOf(target);
  const FunctionCalls calls(program);
  ArgumentPacker packer(program);
  for (size_t i = 0; i < functions.size(); ++i) {
    lower::Lowered lowered =
        lower::LowerFunction(functions[i], machine, calls.ConstantArguments(functions[i]));
    packer.Apply(calls.Of(functions[i]), lowered.packed);
    infos[i].strategy = std::move(lowered.strategy);
    infos[i].why_not = std::move(lowered.why_not);
  }
  PassManager drop;
  drop.Add("prune{keep_inputs=true}");
  drop.Run(program);
}

void Executable::Impl::Generate(const Target& target) {
  CodeGenerator& generator = CodeGenerator::Get();
  std::vector<CompiledFunction> results(functions.size());
  ParallelFor(0, static_cast<int64_t>(functions.size()), 1, [&](int64_t i, int64_t) {
    const auto at = static_cast<size_t>(i);
    if (infos[at].strategy.empty()) return;
    const Block* body = functions[at]->region(0).front();
    const KernelSource source{"kernel", body};
    CompiledFunction& f = results[at];
    f.library = generator.Compile({&source, 1}, target);
    f.call = f.library->Find("kernel");
    for (size_t a = 0; a < body->num_arguments(); ++a) {
      f.arguments.push_back(body->argument(a).type().cast<AnyTensorType>());
    }
    for (size_t r = 0; r < body->back()->num_operands(); ++r) {
      f.results.push_back(body->back()->operand(r).type().cast<AnyTensorType>());
    }
  });
  for (size_t i = 0; i < functions.size(); ++i) {
    if (results[i].call != nullptr) compiled[infos[i].name] = std::move(results[i]);
  }
}

bool Executable::Impl::RunCall(const Operation* call, std::span<const RtValue> arguments,
                               std::span<RtValue> results) {
  const auto found = compiled.find(NameOf(call, "callee"));
  if (found == compiled.end()) return false;
  const CompiledFunction& f = found->second;
  const auto shapes = ResultShapes(f, arguments);
  if (!shapes) return false;
  std::vector<KernelBuffer> buffers;
  for (const RtValue& v : arguments) {
    const Tensor& t = v.tensor();
    buffers.push_back({const_cast<std::byte*>(t.raw()), t.shape().data()});
  }
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    outputs.emplace_back(f.results[i].element(), (*shapes)[i]);
  }
  for (Tensor& t : outputs) buffers.push_back({t.mutable_raw(), t.shape().data()});
  f.call(buffers.data(), team.for_kernels());
  for (size_t i = 0; i < results.size(); ++i) results[i] = std::move(outputs[i]);
  return true;
}

Executable::Executable(const Program& program, CompileOptions options)
    : impl_(std::make_unique<Impl>(program, std::move(options))) {
  const std::string& name = impl_->options.target;
  const Target& target = name.empty() ? Target::Host() : Target::Named(name);
  if (!target.RunsHere()) {
    throw Error(ErrorCode::kUnsupported, "codegen/host",
                StrCat("this machine can not run code for '", target.name, "'"))
        .Hint(StrCat("the best target here is '", Target::Host().name, "'"));
  }
  impl_->Prepare();
  impl_->Lower(target);
  InterpreterOptions run;
  if (impl_->options.machine_code) {
    impl_->Generate(target);
    run.run_call = [impl = impl_.get()](const Operation* call, std::span<const RtValue> arguments,
                                        std::span<RtValue> results) {
      return impl->RunCall(call, arguments, results);
    };
  }
  impl_->interpreter.emplace(impl_->program, std::move(run));
}

Executable::~Executable() = default;
Executable::Executable(Executable&&) noexcept = default;

NamedValues Executable::Run(const NamedValues& inputs) { return impl_->interpreter->Run(inputs); }

const std::vector<CompiledFunctionInfo>& Executable::functions() const { return impl_->infos; }

const Program& Executable::program() const { return impl_->program; }

std::vector<std::pair<std::string, size_t>> Executable::interpreted_operations() const {
  std::map<std::string, size_t> counts;
  for (const Operation& op : *impl_->program.block()) {
    const bool is_data = op.HasTrait<ConstantLike>() || op.name() == "builtin.call" ||
                         op.name() == "builtin.func" || op.name() == "builtin.get_parameter" ||
                         op.name() == "nn.feed" || op.name() == "nn.fetch";
    if (!is_data) ++counts[std::string(op.name())];
  }
  return {counts.begin(), counts.end()};
}

}  // namespace lathe
