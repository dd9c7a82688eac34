#include "src/driver/compiled_program.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/driver/compile_engine.h"
#include "lathe/driver/tune.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/split_function.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "lathe/support/hash.h"
#include "lathe/support/parallel.h"
#include "lathe/support/shared_chunks.h"
#include "lathe/transform/keep_constraints.h"
#include "src/driver/collective_kernel.h"
#include "src/driver/external_functions.h"
#include "src/driver/find_constraints.h"
#include "src/driver/function_compiler.h"
#include "src/driver/function_work.h"
#include "src/driver/pack_arguments.h"
#include "src/driver/shared_tables.h"
#include "src/lower/own_sizes.h"
#include "src/lower/pack.h"

namespace lathe {
namespace {

using codegen::CodeGenerator;
using codegen::Target;
using lower::PackedLayout;

constexpr const char* kGroup = "graph_fuse_partition,graph_fuse_compile";
// Each operation by itself.
constexpr const char* kGroupNone = "graph_fuse_partition{opt_level=0},graph_fuse_compile";
constexpr const char* kFusion = "graph_fuse_partition";

void RunPasses(Program& program, std::string_view passes) {
  PassManager manager;
  manager.Add(passes);
  manager.Run(program);
}

// What a function computes, and what lowering said of it; by name, looked up only.
struct LoweredFunction {
  std::string operations;
  FunctionWork work;
  lower::Lowered how;
  std::shared_ptr<const CompileEngine::Kernel> kernel;  // null: it stays loops
  bool is_apart = false;                                // not for us to lower
  std::vector<SizeConstraint> required;                 // as CompiledFunction::required
};
using LoweredFunctions = std::unordered_map<std::string, LoweredFunction>;

/// Whether a function calls another, which no kernel does: `inline` leaves only huge ones so.
bool CallsOthers(Operation* function) {
  for (OpWalker w(function); const Operation* op = w.Next();) {
    if (op->isa<builtin::CallOp>()) return true;
  }
  return false;
}

// Compiles all functions that compute something, or without an engine lowers them; takes those
// apart that no strategy took. Functions are independent of one another, and so is what becomes of
// them of the number of threads; the program around them is changed by one thread, in its order.
class KernelCompiler {
 public:
  KernelCompiler(Program& program, const Target& target, const CompileOptions& options,
                 CompileEngine* engine, const TuningRecords& records, ThreadPool& pool)
      : program_(program),
        target_(target),
        check_accesses_(options.check_accesses),
        engine_(engine),
        records_(records),
        pool_(pool),
        strict_(options.strict),
        precision_(options.precision),
        progress_(options.progress),
        records_hash_(records.size() > 0 ? HashString(records.ToText()) : 0),
        machine_(MachineOf(target)) {}

  LoweredFunctions Run() {
    while (Round()) continue;
    RunPasses(program_, "prune{keep_inputs=true}");
    return std::move(lowered_);
  }

 private:
  // Of the functions that are new; whether some were taken apart into others.
  bool Round() {
    const FunctionCalls calls(program_);
    const FunctionTable table(program_);
    std::vector<Operation*> functions;
    std::vector<LoweredFunction> results;
    bool again = false;
    for (Operation* f : table.functions()) {
      if (lowered_.contains(NameOf(f))) continue;
      if (waited_.emplace(NameOf(f)).second && SharesTable(f, calls, program_)) {
        again = true;
        continue;
      }
      functions.push_back(f);
      results.push_back({.operations = lower::OperationNames(f),
                         .work = WorkOf(f),
                         .how = {},
                         .kernel = {},
                         .required = required_[NameOf(f)]});
    }
    done_ = lowered_.size();
    pool_.ParallelFor(0, std::ssize(functions), 1, [&](int64_t i, int64_t) {
      const auto at = static_cast<size_t>(i);
      WhileDoing(StrCat("compiling ", NameOf(functions[at])),
                 [&] { Lower(functions[at], calls, results[at]); });
      Report(lowered_.size() + functions.size());
    });
    for (size_t i = 0; i < functions.size(); ++i) {
      Operation* f = functions[i];
      orders_.Add(calls.Of(f), results[i].how.packed);
      const std::string name = NameOf(f);
      const bool computes = !results[i].how.done && !results[i].is_apart;
      std::vector<lower::Remark>& remarks = results[i].how.remarks;
      const auto& before = remarks_of_whole_[name];
      remarks.insert(remarks.begin(), before.begin(), before.end());
      if (computes && Split(f, calls, remarks)) {
        again = true;
      } else {
        lowered_.emplace(name, std::move(results[i]));
      }
    }
    return again;
  }

  // One more is done.
  void Report(size_t total) {
    if (!progress_) return;
    const std::lock_guard lock(progress_mutex_);
    progress_(++done_, total);
  }

  lower::LowerOptions HowToLower() const {
    return {.target = target_.name,
            .records = &records_,
            .precision = precision_,
            .strict = strict_,
            .may_split = true};
  }

  // Leaves the function's operations as they are, unless these become loops for the interpreter.
  void Lower(Operation* f, const FunctionCalls& calls, LoweredFunction& result) const {
    result.is_apart = AsDataFunction(f).has_value() || !CompilerOf(f).empty() || CallsOthers(f);
    if (result.is_apart) return;
    const std::vector<bool> constant = calls.ConstantArguments(f);
    const std::vector<PackedLayout> tables = PackedTables(f, calls, orders_);
    if (!tables.empty() && LowerWith(tables, f, constant, result)) return;
    LowerWith({}, f, constant, result);
  }

  // With arguments that are taken in the order that other kernels take them in.
  bool LowerWith(std::span<const PackedLayout> tables, Operation* f, std::vector<bool> constant,
                 LoweredFunction& result) const {
    IrMapping mapping;
    const OwningOp copy(Clone(f, mapping));
    ReadPackedTables(copy.get(), tables);
    for (const PackedLayout& table : tables) constant[table.argument] = false;
    ToCode(copy.get(), constant, result);
    if (!result.how.done && !tables.empty()) return false;
    if (!result.how.done || engine_ == nullptr) TakeBody(copy.get(), f);
    result.how.packed.insert(result.how.packed.end(), tables.begin(), tables.end());
    return true;
  }

  // The function becomes loops, and these code if there is an engine.
  void ToCode(Operation* f, const std::vector<bool>& constant, LoweredFunction& result) const {
    if (engine_ == nullptr) {
      FunctionCompiler compiler(f, machine_, constant, HowToLower());
      result.how = compiler.ToLoops();
      return;
    }
    if (!CompileStandard(f, constant, true, result)) CompileStandard(f, constant, false, result);
    if (strict_ && !result.how.remarks.empty()) lower::ThrowGivenUp(result.how.remarks[0], f);
  }

  // A copy with symbols of its own, so that there is one kernel for all functions that differ in
  // these. False if it is worth another try: what is no longer known to be equal may be what was
  // missing. Records are kept for functions as they are.
  bool CompileStandard(Operation* f, const std::vector<bool>& constant, bool own,
                       LoweredFunction& result) const {
    IrMapping mapping;
    const OwningOp copy(Clone(f, mapping));
    std::optional<lower::StandardSymbols> symbols;
    if (records_.size() == 0) symbols.emplace(copy.get(), own);
    FunctionCompiler compiler(copy.get(), machine_, constant, HowToLower());
    result.kernel = engine_->Compile(KeyOf(copy.get(), constant), [&] {
      return compiler.ToCode(target_, check_accesses_, result.how);
    });
    if (result.kernel) result.how = result.kernel->how;
    if (symbols) ToOutside(*symbols, result.how);
    return result.kernel != nullptr || !symbols || !own || !symbols->has_own();
  }

  static void ToOutside(const lower::StandardSymbols& symbols, lower::Lowered& how) {
    for (auto& [name, dim] : how.own_sizes) dim = symbols.Outside(dim);
    how.own_sizes.insert(how.own_sizes.end(), symbols.symbols().begin(), symbols.symbols().end());
    how.why_not = symbols.Outside(how.why_not);
    how.candidates = symbols.Outside(how.candidates);
    for (lower::Remark& remark : how.remarks) remark.message = symbols.Outside(remark.message);
  }

  // Whether the function became several, or a simpler one. The first of them says what was given
  // up.
  bool Split(Operation* f, const FunctionCalls& calls, std::vector<lower::Remark>& remarks) {
    std::vector<Operation*> pieces;
    const std::vector<SizeConstraint> required = Required(f);
    try {
      pieces = lower::SplitFunction(f, calls.Of(f), machine_);
    } catch (const std::exception& error) {
      std::optional<lower::Remark> remark = lower::RemarkOn(error, "");
      if (!remark) throw;
      if (strict_) lower::ThrowGivenUp(*remark, f);
      remarks.push_back(*std::move(remark));
    }
    if (!pieces.empty() && !remarks.empty()) remarks_of_whole_[NameOf(pieces[0])] = remarks;
    for (Operation* piece : pieces) required_[NameOf(piece)] = required;
    return !pieces.empty();
  }

  // Of the function as it is, and as it was before.
  std::vector<SizeConstraint> Required(Operation* f) {
    std::vector<SizeConstraint> required = required_[NameOf(f)];
    try {
      std::ranges::move(FindSizeConstraints(program_, FunctionTable::Body(f)),
                        std::back_inserter(required));
    } catch (const Error& error) {
      required.push_back({SizeCondition::Equal(0, 1), error});
    }
    return required;
  }

  static void TakeBody(Operation* from, Operation* f) {
    f->region(0).Clear();
    f->region(0).TakeBody(from->region(0));
  }

  // Which implementation a function takes follows from the records, too.
  std::string KeyOf(Operation* f, const std::vector<bool>& constant) const {
    std::string key = CompileEngine::KeyOf(f, constant, target_);
    if (!key.empty()) key += StrCat("\nprecision ", Name(precision_));
    if (!key.empty() && check_accesses_) key += "\nchecked accesses";
    const bool tuned = !key.empty() && records_.size() > 0 &&
                       records_.Best(lower::WorkloadOf(f), target_.name).has_value();
    return tuned ? StrCat(key, "\nrecords ", records_hash_) : key;
  }

  static std::string NameOf(Operation* f) { return std::string(f->cast<builtin::FuncOp>().name()); }

  Program& program_;
  const Target& target_;
  const bool check_accesses_;
  CompileEngine* engine_;
  const TuningRecords& records_;
  ThreadPool& pool_;
  const bool strict_;
  const Precision precision_;
  const std::function<void(size_t, size_t)>& progress_;
  std::mutex progress_mutex_;
  size_t done_ = 0;              // with the mutex
  const uint64_t records_hash_;  // of all
  const lower::Machine machine_;
  PackedOrders orders_;  // of rounds before
  LoweredFunctions lowered_;
  std::map<std::string, std::vector<lower::Remark>> remarks_of_whole_;  // by its first piece
  std::map<std::string, std::vector<SizeConstraint>> required_;         // by function
  std::set<std::string> waited_;  // functions that were looked at for shared tables
};

void ListFunctions(CompiledProgram& compiled, LoweredFunctions& lowered) {
  std::map<std::string_view, size_t> calls;
  for (OpWalker w(compiled.program.block()); Operation* op = w.Next();) {
    if (op->isa<builtin::FuncOp>()) w.SkipRegions();
    if (const auto call = op->dyn_cast<builtin::CallOp>()) ++calls[call.callee()];
  }
  const FunctionTable table(compiled.program);
  for (Operation* f : table.functions()) {
    const std::string_view name = f->cast<builtin::FuncOp>().name();
    compiled.by_name[name] = compiled.functions.size();
    CompiledFunction& made = compiled.functions.emplace_back();
    made.function = f;
    auto& [operations, work, how, kernel, is_apart, required] = lowered.at(std::string(name));
    if (!how.done && CompilerOf(f).empty()) made.data = AsDataFunction(f);
    made.in_place = how.in_place;
    made.own_sizes = how.own_sizes;
    made.packed = how.packed;
    made.required = std::move(required);
    compiled.infos.push_back({.name = std::string(name),
                              .operations = std::move(operations),
                              .calls = calls[name],
                              .strategy = how.strategy,
                              .why_not = how.why_not,
                              .candidates = how.candidates,
                              .remarks = how.remarks,
                              .flops = work.flops,
                              .bytes = work.bytes});
    if (made.data) compiled.infos.back().strategy = kMemoryStrategy;
  }
}

// Machine code of what has any.
void TakeCode(CompiledProgram& compiled, LoweredFunctions& lowered) {
  compiled.kernels.resize(compiled.functions.size());
  for (size_t i = 0; i < compiled.functions.size(); ++i) {
    CompiledFunction& f = compiled.functions[i];
    compiled.kernels[i] = std::move(lowered.at(compiled.infos[i].name).kernel);
    if (compiled.kernels[i] == nullptr) continue;
    const codegen::KernelLibrary& code = compiled.kernels[i]->code;
    f.code = code.Find(kKernelEntry);
    const codegen::CodeImage::Entry& entry = code.image().Find(kKernelEntry);
    f.workspaces = entry.workspaces;
    f.checks = entry.checks;
    ReadTypes(f);
  }
}

// A symbol of the program that is named as one of the function's own is another one.
AnyTensorType WithOwnSizes(const CompiledFunction& f, Type of) {
  const auto type = of.cast<AnyTensorType>();
  if (f.own_sizes.empty()) return type;
  const auto is_own = [&](std::string_view name) {
    return std::ranges::find(f.own_sizes, name, &std::pair<std::string, Dim>::first) !=
           f.own_sizes.end();
  };
  const auto own_of = [&](const Dim& dim) -> std::optional<Dim> {
    const auto own = std::ranges::find(f.own_sizes, dim, &std::pair<std::string, Dim>::second);
    return own == f.own_sizes.end() ? std::nullopt : std::optional(Dim::Symbol(own->first));
  };
  std::vector<Dim> dims(type.dims().begin(), type.dims().end());
  for (Dim& dim : dims) {
    const auto own = own_of(dim);
    dim = own ? *own : dim.Substitute([&](std::string_view name) {
      const auto symbol = own_of(Dim::Symbol(name));
      return symbol || !is_own(name) ? symbol : Dim::Symbol(StrCat("outside_", name));
    });
  }
  return type.With(type.element(), SymShape(std::move(dims))).cast<AnyTensorType>();
}

}  // namespace

void ReadTypes(CompiledFunction& f) {
  const Block* body = f.function->region(0).front();
  for (size_t i = 0; i < body->num_arguments(); ++i) {
    f.arguments.push_back(WithOwnSizes(f, body->argument(i).type()));
  }
  for (const PackedLayout& layout : f.packed) {
    AnyTensorType& type = f.arguments[layout.argument];
    type = lower::PackedType(type, layout).cast<AnyTensorType>();
  }
  for (size_t i = 0; i < body->back()->num_operands(); ++i) {
    f.results.push_back(WithOwnSizes(f, body->back()->operand(i).type()));
  }
}

PackedConstants PackedFor(const CompiledProgram& compiled, std::span<Operation* const> calls) {
  PackedConstants constants(compiled.program);
  for (Operation* op : calls) {
    const auto call = op->dyn_cast<builtin::CallOp>();
    const CompiledFunction* f = call ? compiled.Find(call.callee()) : nullptr;
    if (f != nullptr) constants.Add(op, f->packed);
  }
  return constants;
}

const CompiledFunction* CompiledProgram::Find(std::string_view name) const {
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : &functions[found->second];
}

const Target& TargetOf(const CompileOptions& options) {
  return options.target.empty() ? Target::Host() : Target::Named(options.target);
}

const CompileOptions& CheckHost(const CompileOptions& options) {
  const Target& target = TargetOf(options);
  if (target.RunsHere()) return options;
  throw Error(ErrorCode::kUnsupported, "codegen/host",
              StrCat("this machine cannot run code for '", target.name, "'"))
      .Hint(StrCat("the best target here is '", Target::Host().name, "'"));
}

lower::Machine MachineOf(const Target& target) {
  return {.vector_bytes = target.vector_bytes,
          .vector_registers = target.vector_registers,
          .has_fma = target.has_fma,
          .has_tiles = target.has_tiles(),
          .has_dots = target.has_dots(),
          .has_bf16 = target.has_bf16(),
          .has_instruction = [target](const Operation& op) {
            return CodeGenerator::Get().Supports(op, target);
          }};
}

namespace {

bool Fuses(const CompileOptions& options) {
  if (std::ranges::find(options.disabled, kFusion) != options.disabled.end()) return false;
  return options.level > 0 || std::ranges::find(options.enabled, kFusion) != options.enabled.end();
}

}  // namespace

void OptimizeFor(const CompileOptions& options, Program& program,
                 std::shared_ptr<PassInstrumentation> instrumentation) {
  std::vector<std::string> enabled = options.enabled;
  std::erase(enabled, kFusion);  // which is not a pass of the pipeline
  std::vector<std::string> disabled = options.disabled;
  if (options.precision == Precision::kStrict) disabled.emplace_back("skip_rounding");
  PassManager manager(
      {.disabled = std::move(disabled), .level = options.level, .enabled = std::move(enabled)});
  if (instrumentation) manager.AddInstrumentation(std::move(instrumentation));
  manager.Add("inference");
  manager.Run(program);
}

namespace {

std::string RecomputeText(const RecomputeOptions& options) {
  std::string sizes;
  for (const auto& [name, value] : options.sizes) {
    sizes += StrCat(sizes.empty() ? "" : ",", name, "=", value);
  }
  return StrCat("recompute{keep=", options.keep, ",sizes=[", sizes, "]}");
}

}  // namespace

void GroupOperations(Program& program, const CompileOptions& options) {
  CompiledProgram compiled(std::move(program));
  GroupOperations(compiled, options);
  program = std::move(compiled.program);
}

void GroupOperations(CompiledProgram& compiled, const CompileOptions& options) {
  const SharedChunks chunks;  // of weights that passes have changed
  Program& program = compiled.program;
  std::vector<SizeConstraint> declared = BindDeclaredSizes(program);
  NameUnknownExtents(program);
  const auto kept = std::make_shared<KeptConstraints>(program, std::move(declared));
  RunPasses(program,
            StrCat("random_state{seed=", static_cast<int64_t>(options.interpreter.seed), "}"));
  OptimizeFor(options, program, kept);
  kept->Replace(TakeReleasedSizes(program));
  kept->Finish(program);
  compiled.constraints = PlanConstraintsOf(kept->constraints());
  compiled.conditional = PlanConstraintsOf(kept->conditional());
  for (runtime::PlanConstraint& c : compiled.conditional) c.is_conditional = true;
  MarkExternal(program, options);
  if (options.recompute.keep < 1) RunPasses(program, RecomputeText(options.recompute));
  RunPasses(program, Fuses(options) ? kGroup : kGroupNone);
  if (options.machine_code) OutlineCollectives(program);
}

namespace {

// The program's loops get their constants in the order that they take them in.
void TakePacked(CompiledProgram& compiled) {
  std::vector<Operation*> calls;
  for (OpWalker w(compiled.program.block()); Operation* op = w.Next();) calls.push_back(op);
  PackedConstants constants = PackedFor(compiled, calls);
  constants.Pack(compiled.threads);
  PassPacked(compiled.program, constants);
  for (CompiledFunction& f : compiled.functions) f.packed.clear();
  RunPasses(compiled.program, "prune{keep_inputs=true}");
}

// None for loops.
std::shared_ptr<CompileEngine> EngineOf(const CompileOptions& options) {
  if (!options.machine_code) return nullptr;
  return options.engine ? options.engine
                        : std::make_shared<CompileEngine>(options.cache, options.cache_limit);
}

}  // namespace

namespace {

std::unique_ptr<CompiledProgram> CompileWithin(const Program& source,
                                               const CompileOptions& options) {
  const Target& target = TargetOf(options);
  auto compiled = std::make_unique<CompiledProgram>(source.Clone());
  compiled->program.RefreshMutability();
  compiled->target = &target;
  compiled->threads = options.threads;
  compiled->precision = options.precision;
  compiled->seed = options.interpreter.seed;
  GroupOperations(*compiled, options);
  const std::shared_ptr<CompileEngine> engine = EngineOf(options);
  TuningRecords records;
  if (!options.records.empty()) records = ReadTuningRecords(options.records);
  ThreadPool pool(options.threads);
  LoweredFunctions lowered =
      KernelCompiler(compiled->program, target, options, engine.get(), records, pool).Run();
  ListFunctions(*compiled, lowered);
  if (options.machine_code) {
    TakeCode(*compiled, lowered);
    CompileExternal(*compiled);
  } else {
    TakePacked(*compiled);
  }
  return compiled;
}

}  // namespace

std::unique_ptr<CompiledProgram> CompileProgram(const Program& source,
                                                const CompileOptions& options) {
  return RunUnder(LimitsOf(options), [&] { return CompileWithin(source, options); });
}

}  // namespace lathe
