#include "src/external/onednn/sequence.h"

#include "lathe/support/error.h"

namespace lathe::onednn {

// What a run writes to: the addresses of its memory objects.
struct Sequence::Context {
  explicit Context(const dnnl::engine& engine) : stream(engine) {}

  // A memory object whose address differs from run to run.
  struct Moving {
    dnnl_memory_t memory;
    Place place;
    void* now = nullptr;
  };
  dnnl::stream stream;
  std::vector<dnnl::memory> memories;
  std::vector<Moving> moving;
  std::vector<std::vector<dnnl_exec_arg_t>> arguments;  // by step
};

Sequence::Sequence(dnnl::engine engine) : engine_(std::move(engine)) {}
Sequence::~Sequence() = default;

std::unique_ptr<Sequence::Context> Sequence::MakeContext() const {
  auto context = std::make_unique<Context>(engine_);
  for (const Step& step : steps) {
    std::vector<dnnl_exec_arg_t>& arguments = context->arguments.emplace_back();
    for (const Step::Operand& o : step.operands) {
      const bool fixed = o.place.kind == Place::Kind::kConstant;
      void* data = fixed ? const_cast<void*>(constants[o.place.index].data) : DNNL_MEMORY_NONE;
      const dnnl::memory& memory = context->memories.emplace_back(o.layout, engine_, data);
      if (!fixed) context->moving.push_back({memory.get(), o.place});
      arguments.push_back({o.name, memory.get()});
    }
  }
  return context;
}

std::unique_ptr<Sequence::Context> Sequence::Take() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Context> context = std::move(idle_.back());
      idle_.pop_back();
      return context;
    }
    idle_.reserve(idle_.capacity() + 1);  // so that giving it back allocates nothing
  }
  return MakeContext();
}

void Sequence::Run(const KernelBuffer* buffers, Part part) const {
  const OneThread one;
  std::unique_ptr<Context> context = Take();
  const auto check = [](dnnl_status_t status) {
    if (status == dnnl_success) return;
    throw Error(ErrorCode::kInternal, "external/run", "oneDNN failed to run a primitive");
  };
  const auto address = [&](Place place) -> void* {
    switch (place.kind) {
      case Place::Kind::kArgument:
        return buffers[place.index].data;
      case Place::Kind::kResult:
        return buffers[num_arguments + place.index].data;
      default:
        break;
    }
    auto* arena = static_cast<std::byte*>(buffers[num_arguments + num_results].data);
    return arena + offsets[place.index];
  };
  for (Context::Moving& m : context->moving) {
    void* data = address(m.place);
    if (m.now != data) check(dnnl_memory_set_data_handle(m.memory, data));
    m.now = data;
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (part == Part::kWithoutMoves && steps[i].moves) continue;
    const std::vector<dnnl_exec_arg_t>& arguments = context->arguments[i];
    check(dnnl_primitive_execute(steps[i].primitive.get(), context->stream.get(),
                                 static_cast<int>(arguments.size()), arguments.data()));
  }
  check(dnnl_stream_wait(context->stream.get()));
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(context));
}

}  // namespace lathe::onednn
