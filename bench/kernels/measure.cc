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

// Sums in as many registers as hide the latency, nothing from memory.
double PeakGflops(IrContext& context, const Target& target) {
  constexpr int kSums = 12;
  constexpr int64_t kSteps = 1 << 20;
  const int lanes = target.lanes(4);
  const std::string vector = StrCat("v_tensor<[", lanes, "], f32>");
  const std::string memory = StrCat("<[", kSums, ", ", lanes, "], f32>");
  std::string text = StrCat("program {\n builtin.func() {name = \"k\"} ({\n ^(%x: v_tensor", memory,
                            "):\n %o = loop.alloc() : () -> tensor", memory, "\n");
  std::string initial, types, sums, body, next, stores;
  for (int i = 0; i < kSums; ++i) {
    const std::string index = StrCat("%i", i);
    text += StrCat(index, " = loop.index() {expr = dim<", i, ">} : () -> v_tensor<[], i64>\n");
    text += StrCat("%x", i, " = loop.load(%x, none, ", index, ", %i0) {lanes = ", lanes,
                   "} : (v_tensor", memory, ", none, v_tensor<[], i64>, v_tensor<[], i64>) -> ",
                   vector, "\n");
    initial += StrCat(", %x", i);
    types += StrCat(", ", vector);
    sums += StrCat(", %s", i, ": ", vector);
    const std::string signature = StrCat("(", vector, ", ", vector, ", ", vector, ") -> ", vector);
    if (target.has_fma) {
      body += StrCat("%n", i, " = loop.fma(%x0, %x1, %s", i, ") : ", signature, "\n");
    } else {
      body += StrCat("%m", i, " = nn.mul(%x0, %s", i, ") : (", vector, ", ", vector, ") -> ",
                     vector, "\n%n", i, " = nn.add(%m", i, ", %x1) : (", vector, ", ", vector,
                     ") -> ", vector, "\n");
    }
    next += StrCat(i == 0 ? "" : ", ", "%n", i);
    stores += StrCat("%d", i, " = loop.store_(%o, %r", i, ", none, ", index, ", %i0) : (tensor",
                     memory, ", ", vector,
                     ", none, v_tensor<[], i64>, v_tensor<[], i64>) -> tensor", memory, "\n");
  }
  std::string results;
  for (int i = 0; i < kSums; ++i) results += StrCat(i == 0 ? "" : ", ", "%r", i);
  const std::string all = types.substr(2);
  text += StrCat(results, " = loop.for(none", initial, ") {extent = ", kSteps,
                 "} ({\n^(%k: v_tensor<[], i64>", sums, "):\n", body, "cf.yield(", next, ") : (",
                 all, ") -> ()\n}) : (none", types, ") -> (", all, ")\n", stores,
                 "%v = builtin.to_vtensor(%o) : (tensor", memory, ") -> v_tensor", memory,
                 "\nbuiltin.return(%v) : (v_tensor", memory, ") -> ()\n})\n}\n");
  const Program program = ParseProgram(context, text, {.file_locations = false});
  const Kernel kernel = Compile(program, target);
  const Tensor x(ElementType::kF32, {kSums, lanes});
  Tensor o(ElementType::kF32, {kSums, lanes});
  const KernelBuffer buffers[] = {{const_cast<std::byte*>(x.raw()), nullptr},
                                  {o.mutable_raw(), nullptr}};
  const double seconds = SecondsOf([&] { kernel.call(buffers, nullptr); });
  return 2.0 * kSums * lanes * kSteps / seconds * 1e-9;
}

// Sums of all vectors, in `kStreams` parts of the memory side by side.
double ReadGbytes(IrContext& context, const Target& target, double bytes) {
  constexpr int kStreams = 4, kUnroll = 4;
  const int lanes = target.lanes(4);
  const int64_t steps = static_cast<int64_t>(bytes) / 4 / (kStreams * kUnroll * lanes) + 1;
  const int64_t columns = steps * kUnroll * lanes;
  const std::string vector = StrCat("v_tensor<[", lanes, "], f32>"), i64 = "v_tensor<[], i64>";
  const std::string in = StrCat("<[", kStreams, ", ", columns, "], f32>");
  const std::string out = StrCat("<[", kStreams * kUnroll, ", ", lanes, "], f32>");
  std::string text = StrCat("program {\n builtin.func() {name = \"k\"} ({\n ^(%x: v_tensor", in,
                            "):\n %o = loop.alloc() : () -> tensor", out,
                            "\n %z = builtin.constant() {value = tensor<[", lanes, "], f32> [");
  for (int i = 0; i < lanes; ++i) text += i == 0 ? "0.0" : ", 0.0";
  text += StrCat("]} : () -> ", vector, "\n");
  std::string initial, types, sums, body, next, stores, results;
  for (int i = 0; i < kStreams * kUnroll; ++i) {
    text += StrCat("%i", i, " = loop.index() {expr = dim<", i, ">} : () -> ", i64, "\n");
    const char* comma = i == 0 ? "" : ", ";
    initial += ", %z";
    types += StrCat(", ", vector);
    sums += StrCat(", %s", i, ": ", vector);
    body +=
        StrCat("%k", i, " = loop.index(%k) {expr = dim<d0 * ", kUnroll * lanes, " + ",
               i % kUnroll * lanes, ">} : (", i64, ") -> ", i64, "\n%l", i,
               " = loop.load(%x, none, %i", i / kUnroll, ", %k", i, ") {lanes = ", lanes,
               "} : (v_tensor", in, ", none, ", i64, ", ", i64, ") -> ", vector, "\n%n", i,
               " = nn.add(%l", i, ", %s", i, ") : (", vector, ", ", vector, ") -> ", vector, "\n");
    next += StrCat(comma, "%n", i);
    results += StrCat(comma, "%r", i);
    stores += StrCat("%d", i, " = loop.store_(%o, %r", i, ", none, %i", i, ", %i0) : (tensor", out,
                     ", ", vector, ", none, ", i64, ", ", i64, ") -> tensor", out, "\n");
  }
  const std::string all = types.substr(2);
  text += StrCat(results, " = loop.for(none", initial, ") {extent = ", steps, "} ({\n^(%k: ", i64,
                 sums, "):\n", body, "cf.yield(", next, ") : (", all, ") -> ()\n}) : (none", types,
                 ") -> (", all, ")\n", stores, "%v = builtin.to_vtensor(%o) : (tensor", out,
                 ") -> v_tensor", out, "\nbuiltin.return(%v) : (v_tensor", out, ") -> ()\n})\n}\n");
  const Program program = ParseProgram(context, text, {.file_locations = false});
  const Kernel kernel = Compile(program, target);
  const Tensor x = RandomTensor(ElementType::kF32, {kStreams, columns}, 1);
  Tensor o(ElementType::kF32, {kStreams * kUnroll, lanes});
  const KernelBuffer buffers[] = {{const_cast<std::byte*>(x.raw()), nullptr},
                                  {o.mutable_raw(), nullptr}};
  const double seconds = SecondsOf([&] { kernel.call(buffers, nullptr); });
  return 4e-9 * static_cast<double>(kStreams * columns) / seconds;
}

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
