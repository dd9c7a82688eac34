// The external compiler `onednn`: what it takes, and the library's entry.
#include "lathe/ir/context.h"
#include "lathe/lower/external.h"
#include "lathe/support/error.h"
#include "src/external/onednn/function_compiler.h"

namespace lathe::onednn {
namespace {

std::string WhyNotMade(const Node& node, Operation* op) {
  try {
    if (!IsFast(node.Make())) return StrCat("it has a plain loop only for ", op->name());
  } catch (const dnnl::error&) {
    return StrCat("it has no code for ", op->name(), " of these extents and attributes");
  }
  return {};
}

std::string Refuse(const Operation* op) {
  const OneThread one;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  auto* mutable_op = const_cast<Operation*>(op);
  const Described d = Describe(engine, mutable_op);
  return d.why_not.empty() ? WhyNotMade(d.node, mutable_op) : d.why_not;
}

std::string RefuseRegion(std::span<Operation* const> region) {
  for (const Operation* op : region) {
    if (IsAnchor(op)) return {};
  }
  return "there is nothing but elements to compute";
}

ExternalKernel Compile(const Operation* function, const Program& program) {
  try {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    FunctionCompiler compiler(engine, function, program);
    const std::shared_ptr<const Sequence> sequence = compiler.Compile();
    ExternalKernel kernel{
        [sequence](const KernelBuffer* buffers, KernelTeam* team) { sequence->Run(buffers, team); },
        {},
        compiler.steps()};
    if (!sequence->offsets.empty()) kernel.workspaces.push_back(compiler.arena_bytes());
    return kernel;
  } catch (const dnnl::error& error) {
    throw Error(ErrorCode::kUnsupported, "external/compile",
                StrCat("oneDNN could not compile a function: ", error.what()))
        .At(function->Describe());
  }
}

}  // namespace
}  // namespace lathe::onednn

extern "C" void LatheExternalCompiler(lathe::ExternalCompilers& compilers) {
  // The instruction set of the machine, whatever the environment says.
  dnnl::set_max_cpu_isa(dnnl::cpu_isa::isa_default);
  compilers.Register(
      {"onednn", lathe::onednn::Refuse, lathe::onednn::Compile, lathe::onednn::RefuseRegion});
}
