#include "src/external/onednn/sequence.h"

#include <atomic>

#include "lathe/support/error.h"

namespace lathe::onednn {

// What a run writes to: the addresses of its memory objects.
struct Sequence::Context {
  explicit Context(const dnnl::engine& engine) : stream(engine) {}

  // A memory object whose address differs from run to run.
  struct Moving {
    dnnl_memory_t memory;
    Place place;
    int64_t offset;
    void* now = nullptr;
  };
  dnnl::stream stream;
  std::vector<dnnl::memory> memories;
  std::vector<Moving> moving;
  std::vector<std::vector<dnnl_exec_arg_t>> arguments;  // by piece
};

namespace {

void Check(dnnl_status_t status) {
  if (status == dnnl_success) return;
  throw Error(ErrorCode::kInternal, "external/run", "oneDNN failed to run a primitive");
}

}  // namespace

Sequence::Sequence(dnnl::engine engine) : engine_(std::move(engine)) {}
Sequence::~Sequence() = default;

std::unique_ptr<Sequence::Context> Sequence::MakeContext() const {
  auto context = std::make_unique<Context>(engine_);
  for (const Step& step : steps) {
    for (const Piece& piece : step.pieces) {
      std::vector<dnnl_exec_arg_t>& arguments = context->arguments.emplace_back();
      for (const Piece::Operand& o : piece.operands) {
        const bool fixed = o.place.kind == Place::Kind::kConstant;
        void* data = fixed ? const_cast<void*>(constants[o.place.index].data) : DNNL_MEMORY_NONE;
        const dnnl::memory& memory = context->memories.emplace_back(o.layout, engine_, data);
        if (!fixed) context->moving.push_back({memory.get(), o.place, o.offset});
        arguments.push_back({o.name, memory.get()});
      }
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

// `first`: the number of the step's first piece. A stream of the processor has no state, so that
// threads may share one.
void Sequence::RunStep(const Step& step, const Context& context, size_t first, KernelTeam* team) {
  struct Job {
    const Step& step;
    const Context& context;
    size_t first;
    std::atomic<dnnl_status_t> status = dnnl_success;
  } job{step, context, first};
  const KernelTeam::Body body = [](int64_t begin, int64_t end, void* captured) {
    const OneThread one;
    auto& j = *static_cast<Job*>(captured);
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const std::vector<dnnl_exec_arg_t>& arguments = j.context.arguments[j.first + i];
      const dnnl_status_t status =
          dnnl_primitive_execute(j.step.pieces[i].primitive.get(), j.context.stream.get(),
                                 static_cast<int>(arguments.size()), arguments.data());
      if (status != dnnl_success) j.status = status;
    }
  };
  const auto pieces = static_cast<int64_t>(step.pieces.size());
  if (team == nullptr || pieces == 1) {
    body(0, pieces, &job);
  } else {
    team->run(team, pieces, body, &job);
  }
  Check(job.status);
}

void Sequence::Run(const KernelBuffer* buffers, KernelTeam* team, Which which) const {
  std::unique_ptr<Context> context = Take();
  const auto address = [&](Place place) -> std::byte* {
    size_t buffer = place.index;
    if (place.kind == Place::Kind::kResult) buffer += num_arguments;
    if (place.kind == Place::Kind::kArena) buffer = num_arguments + num_results;
    auto* data = static_cast<std::byte*>(buffers[buffer].data);
    return place.kind == Place::Kind::kArena ? data + offsets[place.index] : data;
  };
  for (Context::Moving& m : context->moving) {
    void* data = address(m.place) + m.offset;
    if (m.now != data) Check(dnnl_memory_set_data_handle(m.memory, data));
    m.now = data;
  }
  size_t first = 0;
  for (const Step& step : steps) {
    const bool skipped = which == Which::kWithoutMoves && step.moves;
    if (!skipped) RunStep(step, *context, first, team);
    first += step.pieces.size();
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(context));
}

}  // namespace lathe::onednn
