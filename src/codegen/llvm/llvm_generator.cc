#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Pass.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <algorithm>
#include <new>
#include <string>

#include "lathe/dialect/loop/tile.h"
#include "lathe/ir/walk.h"
#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "src/codegen/llvm/emit.h"
#include "src/codegen/llvm/kernel_emitter.h"
#include "src/codegen/llvm/object_image.h"

namespace lathe::codegen {
namespace {

// Checked accesses end blocks everywhere: what analyses loops then takes ten times as long, for
// code that need not be fast.
bool IsChecked(std::span<const KernelSource> sources) {
  return std::ranges::any_of(sources, &KernelSource::check_accesses);
}

bool HasTiles(const KernelSource& source) {
  for (OpWalker w(const_cast<Block*>(source.body)); const Operation* op = w.Next();) {
    if (op->isa<loop::TileMmaOp>()) return true;
  }
  return false;
}

// Checked code is compiled soon rather than well. LLVM 19 allocates no tile registers across blocks
// at its lowest level, and gives one several shapes at once.
llvm::CodeGenOptLevel LevelFor(std::span<const KernelSource> sources, const Target& target) {
  if (!IsChecked(sources)) return llvm::CodeGenOptLevel::Aggressive;
  const bool has_tiles = target.has_tiles() && std::ranges::any_of(sources, &HasTiles);
  return has_tiles ? llvm::CodeGenOptLevel::Less : llvm::CodeGenOptLevel::None;
}

std::unique_ptr<llvm::TargetMachine> MakeMachine(const Target& target,
                                                 std::span<const KernelSource> sources) {
  std::string message;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(target.triple, message);
  if (found == nullptr) throw Error(ErrorCode::kUnsupported, "codegen/target", message);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  return std::unique_ptr<llvm::TargetMachine>(
      found->createTargetMachine(target.triple, target.cpu, target.features, options,
                                 llvm::Reloc::PIC_, std::nullopt, LevelFor(sources, target)));
}

std::unique_ptr<llvm::Module> MakeModule(llvm::LLVMContext& context,
                                         std::span<const KernelSource> sources,
                                         const Target& target, const llvm::TargetMachine& machine) {
  auto module = std::make_unique<llvm::Module>("lathe", context);
  module->setTargetTriple(machine.getTargetTriple().str());
  module->setDataLayout(machine.createDataLayout());
  for (const KernelSource& source : sources) EmitKernel(*module, source, target);
  for (llvm::Function& function : *module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    function.addFnAttr("prefer-vector-width", "512");
    function.addFnAttr(llvm::Attribute::NoUnwind);
    function.addFnAttr("no-builtins");  // there is no C library to call
    function.addFnAttr("probe-stack", "inline-asm");
  }
  std::string message;
  llvm::raw_string_ostream stream(message);
  LATHE_CHECK(!llvm::verifyModule(*module, &stream), "invalid LLVM code: ", message);
  return module;
}

// Loops come vectorized and unrolled as they are to be, their indices outside of the loops that do
// not change them: LLVM shares what is computed twice, moves other values out of loops, allocates
// registers. A quarter of the time of its usual pipeline, code as fast.
constexpr const char* kPasses =
    "function<eager-inv>("
    "early-cse<memssa>,loop-mssa(licm<allowspeculation>),early-cse<memssa>,"
    "instcombine<no-verify-fixpoint>,simplifycfg)";

constexpr const char* kPassesOfChecked =
    "function<eager-inv>(sroa<modify-cfg>,early-cse<memssa>,simplifycfg)";

// Searches of LLVM that take long in large functions and find nothing better there; what a process
// that has LLVM for itself, too, has set stays.
void LimitSearches() {
  const auto& options = llvm::cl::getRegisteredOptions();
  const auto set = [&](const char* name, unsigned value) {
    const auto found = options.find(name);
    if (found == options.end() || found->second->getNumOccurrences() > 0) return;
    found->second->addOccurrence(1, name, std::to_string(value));
  };
  set("grow-region-complexity-budget", 100);  // of the register allocator: a fifth less code, too
}

void Optimize(llvm::Module& module, llvm::TargetMachine& machine, const char* pipeline) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::ModulePassManager passes;
  if (auto error = builder.parsePassPipeline(passes, pipeline)) {
    LATHE_CHECK(false, llvm::toString(std::move(error)));
  }
  passes.run(module, modules);
}

// Without passes that cost time and never make our code faster: x86 domain reassignment looks for
// scalar arithmetic on masks, whose closures it computes for each register of the function; loop
// strength reduction looks for the least registers to count by, which Indices writes.
class CodePasses : public llvm::legacy::PassManager {
 public:
  void add(llvm::Pass* pass) override {
    const llvm::StringRef name = pass->getPassName();
    if (name == "X86 Domain Reassignment Pass" || name == "Loop Strength Reduction") {
      delete pass;
    } else {
      llvm::legacy::PassManager::add(pass);
    }
  }
};

std::string EmitFile(llvm::Module& module, llvm::TargetMachine& machine,
                     llvm::CodeGenFileType kind) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  CodePasses passes;
  LATHE_CHECK(!machine.addPassesToEmitFile(passes, stream, nullptr, kind),
              "this target cannot be written to a file");
  passes.run(module);
  return std::string(bytes.data(), bytes.size());
}

class LlvmGenerator : public CodeGenerator {
 public:
  LlvmGenerator() {
    // Where LLVM calls malloc itself, it would end the process.
    llvm::install_bad_alloc_error_handler(
        [](void*, const char*, bool) -> void { throw std::bad_alloc(); });
    LimitSearches();
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
  }

  CodeImage EmitImage(std::span<const KernelSource> sources, const Target& target) override {
    const CodeImage image = ImageOfObject(EmitObject(sources, target));
    CodeImage ordered{image.bytes, {}};
    for (const KernelSource& source : sources) {
      CodeImage::Entry entry = image.Find(source.name);
      DescribeMemory(source, entry);
      ordered.entries.push_back(std::move(entry));
    }
    return ordered;
  }

  std::string EmitObject(std::span<const KernelSource> sources, const Target& target) override {
    llvm::LLVMContext context;
    const auto machine = MakeMachine(target, sources);
    const auto module = MakeModule(context, sources, target, *machine);
    CheckBudget();
    Optimize(*module, *machine, IsChecked(sources) ? kPassesOfChecked : kPasses);
    CheckBudget();
    return EmitFile(*module, *machine, llvm::CodeGenFileType::ObjectFile);
  }

  std::string EmitText(std::span<const KernelSource> sources, const Target& target,
                       CodeText kind) override {
    llvm::LLVMContext context;
    const auto machine = MakeMachine(target, sources);
    const auto module = MakeModule(context, sources, target, *machine);
    if (kind != CodeText::kLlvm)
      Optimize(*module, *machine, IsChecked(sources) ? kPassesOfChecked : kPasses);
    if (kind == CodeText::kAssembly) {
      return EmitFile(*module, *machine, llvm::CodeGenFileType::AssemblyFile);
    }
    std::string text;
    llvm::raw_string_ostream stream(text);
    module->print(stream, nullptr);
    return text;
  }

  bool Supports(const Operation& op, const Target& target) const override {
    return HasInstruction(op, target);
  }
};

}  // namespace
}  // namespace lathe::codegen

extern "C" lathe::codegen::CodeGenerator* LatheCodeGenerator() {
  static lathe::codegen::LlvmGenerator generator;
  return &generator;
}
