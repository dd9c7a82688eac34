#include "bench/kernels/peer.h"

#ifdef LATHE_WITH_ONEDNN

#include <optional>

#include "lathe/ir/builder.h"
#include "lathe/ir/program.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/text.h"
#include "src/external/onednn/function_compiler.h"

namespace lathe::bench {
namespace {

using onednn::Sequence;

class OneDnnPeer : public Peer {
 public:
  OneDnnPeer(std::shared_ptr<const Sequence> sequence, int64_t arena_bytes, std::string code,
             const Job& job)
      : sequence_(std::move(sequence)),
        code_(std::move(code)),
        inputs_(job.inputs),
        arena_(ElementType::kU8, {arena_bytes + 64}) {}

  void RunAll(Tensor& output) override {
    for (const Tensor& t : inputs_) Add(const_cast<std::byte*>(t.raw()));
    Add(output.mutable_raw());
    auto at = reinterpret_cast<uintptr_t>(arena_.mutable_raw());
    at = (at + 63) / 64 * 64;
    Add(reinterpret_cast<void*>(at));
    sequence_->Run(buffers_.data());
  }
  void Run() override { sequence_->Run(buffers_.data(), nullptr, Sequence::Which::kWithoutMoves); }
  std::string code() const override { return code_; }

 private:
  void Add(void* data) { buffers_.push_back({data, nullptr}); }

  std::shared_ptr<const Sequence> sequence_;
  std::string code_;
  std::vector<Tensor> inputs_;
  Tensor arena_;
  std::vector<KernelBuffer> buffers_;
};

// Constant arguments become parameters.
void BindConstants(Program& program, Operation* function, const Job& job) {
  Block* body = function->region(0).front();
  Builder b = Builder::Before(body->front());
  for (size_t i = 0; i < job.constant.size(); ++i) {
    if (!job.constant[i]) continue;
    const std::string name = StrCat("p", i);
    program.parameters().Insert(StrAttribute::Get(b.context(), name), {job.inputs[i], false});
    const NamedAttribute attribute = b.Named("name", b.Attr(std::string_view(name)));
    const Type type = body->argument(i).type();
    Value read = b.Create("builtin.get_parameter", {}, {&attribute, 1}, {&type, 1})->result(0);
    body->argument(i).ReplaceAllUsesWith(read);
  }
}

// The codes of primitives that do more than to bring a tensor into another order.
std::string CodesOf(const std::string& steps) {
  std::string codes, line;
  for (const char c : steps) {
    if (c != '\n') {
      line += c;
      continue;
    }
    if (!line.starts_with("reorder")) {
      codes += StrCat(codes.empty() ? "" : " ", line.substr(line.rfind("  ") + 2));
    }
    line.clear();
  }
  return codes;
}

}  // namespace

std::unique_ptr<Peer> MakePeer(IrContext& context, const Job& job, std::string& why) {
  Program program = ParseProgram(context, job.text, {.file_locations = false});
  Operation* function = program.block()->front();
  BindConstants(program, function, job);
  const onednn::OneThread one;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  try {
    for (Operation& op : *function->region(0).front()) {
      if (op.name() == "builtin.return" || onednn::IsConstant(op.result(0))) continue;
      onednn::Described d = onednn::Describe(engine, &op);
      why = d.why_not;
      if (why.empty() && !onednn::IsFast(d.node.Make())) why = "it has a plain loop only";
      if (!why.empty()) return nullptr;
    }
    onednn::FunctionCompiler compiler(engine, function, program, false);
    const auto sequence = compiler.Compile();
    return std::make_unique<OneDnnPeer>(sequence, compiler.arena_bytes(), CodesOf(compiler.steps()),
                                        job);
  } catch (const dnnl::error& error) {
    why = error.what();
    return nullptr;
  }
}

}  // namespace lathe::bench

#else

namespace lathe::bench {

std::unique_ptr<Peer> MakePeer(IrContext&, const Job&, std::string& why) {
  why = "built without oneDNN (scripts/install.sh bench)";
  return nullptr;
}

}  // namespace lathe::bench

#endif
