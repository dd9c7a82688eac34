#include "bench/kernels/measure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>

#include "bench/kernels/peer.h"
#include "lathe/codegen/code_generator.h"
#include "lathe/driver/executable.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/program.h"
#include "lathe/ir/text_format.h"
#include "lathe/lower/lower_function.h"
#include "lathe/support/clock.h"
#include "lathe/support/random.h"
#include "lathe/support/text.h"

namespace lathe::bench {
namespace {

using codegen::CodeGenerator;
using codegen::Target;

// Times of calls on this thread, of which one tenth are shorter than Tenth says: what takes longer
// mostly shares caches with others meanwhile.
class Timer {
 public:
  explicit Timer(std::function<void()> run) : run_(std::move(run)) {
    const double first = ThreadSeconds();
    run_();
    const double once = ThreadSeconds() - first;
    while (once * calls_ < 2e-5 && calls_ < 1024) calls_ *= 2;
  }

  void Sample(double seconds) {
    run_();  // others may have been at the caches
    size_t samples = 0;
    for (const double start = ThreadSeconds(); samples < 5 || ThreadSeconds() - start < seconds;
         ++samples) {
      const double before = ThreadSeconds();
      for (int i = 0; i < calls_; ++i) run_();
      times_.push_back((ThreadSeconds() - before) / calls_);
    }
  }

  double Tenth() {
    const auto tenth = times_.begin() + static_cast<std::ptrdiff_t>(times_.size() / 10);
    std::ranges::nth_element(times_, tenth);
    return *tenth;
  }

 private:
  std::function<void()> run_;
  int calls_ = 1;  // that take longer than reading the clock
  std::vector<double> times_;
};

// Of both by turns.
struct Times {
  double ours = 0, peer = 0;
};

Times TimesOf(const std::function<void()>& ours, const std::function<void()>& peer) {
  constexpr int kTurns = 4;
  constexpr double kSeconds = 0.5;
  Timer us(ours);
  std::optional<Timer> them;
  if (peer) them.emplace(peer);
  for (int i = 0; i < kTurns; ++i) {
    us.Sample(kSeconds / kTurns);
    if (them) them->Sample(kSeconds / kTurns);
  }
  return {us.Tenth(), them ? them->Tenth() : 0};
}

// What a peer computes must be what we do.
void CompareOutputs(const std::string& name, const Tensor& output, const Tensor& theirs) {
  const auto ours = output.data<float>(), other = theirs.data<float>();
  double largest = 1, difference = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(ours[i])));
    const double d = std::fabs(static_cast<double>(ours[i]) - other[i]);
    difference = d <= difference ? difference : d;  // NaN stays
  }
  if (difference <= 1e-4 * largest) return;
  std::fprintf(stderr, "%s: the outputs differ by %g\n", name.c_str(), difference);
  std::exit(1);
}

// The fields of a line about the peer; times it and `ours`.
std::string TimePeer(IrContext& context, const Job& job, const Tensor& our_output,
                     const std::function<void()>& ours, double& seconds) {
  std::string why;
  const std::unique_ptr<Peer> peer = MakePeer(context, job, why);
  if (peer == nullptr) {
    seconds = TimesOf(ours, {}).ours;
    return StrCat(", \"no_peer\": \"", why, "\"");
  }
  Tensor output(job.output.element_type(), job.output.shape());
  peer->RunAll(output);
  ours();
  CompareOutputs(job.name, our_output, output);
  const Times times = TimesOf(ours, [&] { peer->Run(); });
  seconds = times.ours;
  char text[160];
  std::snprintf(text, sizeof(text), "\", \"peer_seconds\": %.3e, \"ratio\": %.3f", times.peer,
                times.peer / times.ours);
  return StrCat(", \"peer\": \"", peer->code(), text);
}

struct Kernel {
  std::unique_ptr<codegen::KernelLibrary> library;
  KernelFunction call = nullptr;
  std::vector<AnyTensorType> types = {};
};

Kernel Compile(const Program& program, const lower::Lowered& how, const Target& target) {
  for (const Operation& op : *program.block()) {
    if (op.name() != "builtin.func") continue;
    const codegen::KernelSource source{"k", op.region(0).front(), how.in_place};
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

void Measure(IrContext& context, const Target& target, double peak, const MeasureOptions& options,
             Job job) {
  Program program = ParseProgram(context, job.text, {.file_locations = false});
  const lower::Lowered lowered =
      lower::LowerFunction(program.block()->front(), MachineOf(target), job.constant);
  if (!lowered.done) {
    std::fprintf(stderr, "%s\n", lowered.why_not.c_str());
    std::exit(1);
  }
  const Job unpacked = job;
  for (const lower::PackedLayout& layout : lowered.packed) {
    Tensor& input = job.inputs[layout.argument];
    input = lower::Pack(input, layout);
  }
  if (job.assembly) {
    const codegen::KernelSource source{"k", program.block()->front()->region(0).front(),
                                       lowered.in_place};
    std::puts(
        CodeGenerator::Get().EmitText({&source, 1}, target, codegen::CodeText::kAssembly).c_str());
    return;
  }
  const Kernel kernel = Compile(program, lowered, target);
  const std::vector<std::vector<Tensor>> copies = CopiesOf(job, options.cold);
  std::vector<Shape> shapes;
  for (const Tensor& t : job.inputs) shapes.push_back(t.shape());
  codegen::Workspaces scratch(kernel.library->image().Find("k").workspaces, kernel.types, shapes);
  size_t next = 0;
  std::vector<KernelBuffer> buffers;
  const auto ours = [&] {
    buffers.clear();
    for (const Tensor& t : copies[next++ % copies.size()]) {
      buffers.push_back({const_cast<std::byte*>(t.raw()), t.shape().data()});
    }
    buffers.push_back({job.output.mutable_raw(), job.output.shape().data()});
    scratch.AddTo(buffers);
    kernel.call(buffers.data(), nullptr);
  };
  double seconds = 0;
  std::string peer;
  if (options.peer) {
    peer = TimePeer(context, unpacked, job.output, ours, seconds);
  } else {
    seconds = TimesOf(ours, {}).ours;
  }
  const double gflops = 1e-9 * job.flops / seconds;
  std::printf(
      "{\"kernel\": \"%s\", \"strategy\": \"%s\", \"target\": \"%s\", \"seconds\": %.3e, "
      "\"gflops\": %.1f, \"peak_share\": %.3f, \"gbytes_per_s\": %.1f, \"read_share\": %.3f%s}\n",
      job.name.c_str(), lowered.strategy.c_str(), target.name.c_str(), seconds, gflops,
      gflops / peak, 1e-9 * job.bytes / seconds,
      1e-9 * job.bytes / seconds / ReadGbytes(context, target, job.bytes), peer.c_str());
  std::fflush(stdout);
}

}  // namespace lathe::bench
