#include "bench/kernels/measure.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "lathe/codegen/code_generator.h"
#include "lathe/driver/executable.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/program.h"
#include "lathe/ir/text_format.h"
#include "lathe/lower/lower_function.h"
#include "lathe/support/random.h"
#include "lathe/support/text.h"

namespace lathe::bench {
namespace {

using codegen::CodeGenerator;
using codegen::Target;

// Of this thread: what other processes take does not count. Everything here runs on one thread.
double Now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Time of one call over half a second: one tenth of the measurements are shorter. What takes longer
// mostly shares caches with others meanwhile.
template <class F>
double SecondsOf(F&& run) {
  const double first = Now();
  run();
  const double once = Now() - first;
  int calls = 1;  // that take longer than reading the clock
  while (once * calls < 2e-5 && calls < 1024) calls *= 2;
  std::vector<double> times;
  for (const double start = Now(); times.size() < 10 || Now() - start < 0.5;) {
    const double before = Now();
    for (int i = 0; i < calls; ++i) run();
    times.push_back((Now() - before) / calls);
  }
  const auto tenth = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 10);
  std::ranges::nth_element(times, tenth);
  return *tenth;
}

struct Kernel {
  std::unique_ptr<codegen::KernelLibrary> library;
  KernelFunction call = nullptr;
  std::vector<AnyTensorType> types = {};
};

Kernel Compile(const Program& program, const Target& target) {
  for (const Operation& op : *program.block()) {
    if (op.name() != "builtin.func") continue;
    const codegen::KernelSource source{"k", op.region(0).front()};
    Kernel kernel{CodeGenerator::Get().Compile({&source, 1}, target), nullptr, {}};
    kernel.call = kernel.library->Find("k");
    kernel.types = codegen::ArgumentTypes(*source.body);
    return kernel;
  }
  return {};
}

}  // namespace

namespace {

// The inputs; cold: several times, so that constants have left the caches when they come again.
std::vector<std::vector<Tensor>> CopiesOf(const Job& job, bool cold) {
  constexpr size_t kBytes = 128 << 20, kMost = 256;
  size_t bytes = 1;
  for (size_t i = 0; i < job.constant.size(); ++i) {
    if (job.constant[i]) bytes += job.inputs[i].byte_size();
  }
  std::vector<std::vector<Tensor>> copies{job.inputs};
  while (cold && copies.size() < std::min(kBytes / bytes + 1, kMost)) {
    std::vector<Tensor>& copy = copies.emplace_back(job.inputs);
    for (size_t i = 0; i < job.constant.size(); ++i) {
      if (job.constant[i]) copy[i].mutable_raw()[0] = job.inputs[i].raw()[0];  // its own memory
    }
  }
  return copies;
}

}  // namespace

void Measure(IrContext& context, const Target& target, double peak, bool cold, Job job) {
  Program program = ParseProgram(context, job.text, {.file_locations = false});
  const lower::Lowered lowered =
      lower::LowerFunction(program.block()->front(), MachineOf(target), job.constant);
  if (!lowered.done) {
    std::fprintf(stderr, "%s\n", lowered.why_not.c_str());
    std::exit(1);
  }
  for (const lower::PackedLayout& layout : lowered.packed) {
    Tensor& input = job.inputs[layout.argument];
    input = lower::Pack(input, layout);
  }
  if (job.assembly) {
    const codegen::KernelSource source{"k", program.block()->front()->region(0).front()};
    std::puts(
        CodeGenerator::Get().EmitText({&source, 1}, target, codegen::CodeText::kAssembly).c_str());
    return;
  }
  const Kernel kernel = Compile(program, target);
  const std::vector<std::vector<Tensor>> copies = CopiesOf(job, cold);
  std::vector<Shape> shapes;
  for (const Tensor& t : job.inputs) shapes.push_back(t.shape());
  codegen::Workspaces scratch(kernel.library->image().Find("k").workspaces, kernel.types, shapes);
  size_t next = 0;
  const double seconds = SecondsOf([&] {
    std::vector<KernelBuffer> buffers;
    for (const Tensor& t : copies[next++ % copies.size()]) {
      buffers.push_back({const_cast<std::byte*>(t.raw()), t.shape().data()});
    }
    buffers.push_back({job.output.mutable_raw(), job.output.shape().data()});
    scratch.AddTo(buffers);
    kernel.call(buffers.data(), nullptr);
  });
  const double gflops = 1e-9 * job.flops / seconds;
  std::printf(
      "{\"kernel\": \"%s\", \"strategy\": \"%s\", \"target\": \"%s\", \"seconds\": %.3e, "
      "\"gflops\": %.1f, \"peak_share\": %.3f, \"gbytes_per_s\": %.1f, \"read_share\": %.3f}\n",
      job.name.c_str(), lowered.strategy.c_str(), target.name.c_str(), seconds, gflops,
      gflops / peak, 1e-9 * job.bytes / seconds,
      1e-9 * job.bytes / seconds / ReadGbytes(context, target, job.bytes));
  std::fflush(stdout);
}

}  // namespace lathe::bench
