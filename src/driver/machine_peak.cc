#include "lathe/driver/machine_peak.h"

#include <algorithm>
#include <barrier>
#include <numeric>
#include <thread>
#include <vector>

#include "lathe/codegen/code_generator.h"
#include "lathe/dialect/all.h"
#include "lathe/ir/program.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/clock.h"
#include "lathe/support/text.h"

namespace lathe {
namespace {

using codegen::Target;

// What a thread passes to the kernel of a program: from one buffer to the other.
struct Buffers {
  Tensor from, to;
};

// Seconds of the fastest run.
double FastestRun(KernelFunction kernel, Buffers& b, double seconds) {
  const KernelBuffer buffers[] = {{b.from.mutable_raw(), nullptr}, {b.to.mutable_raw(), nullptr}};
  double best = 1e300;
  const double start = ThreadSeconds();
  for (int runs = 0; runs < 5 || ThreadSeconds() - start < seconds; ++runs) {
    const double before = ThreadSeconds();
    kernel(buffers, nullptr);
    best = std::min(best, ThreadSeconds() - before);
  }
  return best;
}

// How often per second all threads together run the program's function.
template <class MakeBuffers>
double RunsPerSecond(const Program& program, const Target& target, int threads, double seconds,
                     MakeBuffers&& make_buffers) {
  const codegen::KernelSource source{"k", program.block()->front()->region(0).front()};
  const auto library = codegen::CodeGenerator::Get().Compile({&source, 1}, target);
  const KernelFunction kernel = library->Find("k");
  std::vector<Buffers> buffers;
  for (int i = 0; i < threads; ++i) buffers.push_back(make_buffers());
  std::vector<double> rates(buffers.size());
  std::barrier ready(threads);
  std::vector<std::jthread> running;
  for (size_t i = 0; i < buffers.size(); ++i) {
    running.emplace_back([&, i] {
      ready.arrive_and_wait();
      rates[i] = 1 / FastestRun(kernel, buffers[i], seconds);
    });
  }
  running.clear();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace

// Sums in as many registers as hide the latency, nothing from memory.
double PeakGflops(IrContext& context, const Target& target, int threads, double seconds) {
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
  const double runs = RunsPerSecond(program, target, threads, seconds, [&] {
    return Buffers{Tensor(ElementType::kF32, {kSums, lanes}),
                   Tensor(ElementType::kF32, {kSums, lanes})};
  });
  return 2e-9 * kSums * lanes * kSteps * runs;
}

// Sums of all vectors, in `kStreams` parts of the memory side by side.
double ReadGbytes(IrContext& context, const Target& target, double bytes, int threads,
                  double seconds) {
  constexpr int kStreams = 4, kUnroll = 4;
  const int lanes = target.lanes(4);
  const int64_t step = threads * kStreams * kUnroll * lanes;
  const int64_t steps = static_cast<int64_t>(bytes) / 4 / step + 1;
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
  const double runs = RunsPerSecond(program, target, threads, seconds, [&] {
    Tensor x(ElementType::kF32, {kStreams, columns});
    std::ranges::fill(x.mutable_data<float>(), 1.0F);  // memory that was never written is one page
    return Buffers{std::move(x), Tensor(ElementType::kF32, {kStreams * kUnroll, lanes})};
  });
  return 4e-9 * static_cast<double>(kStreams * columns) * runs;
}

MachinePeak MeasureMachine(const Target& target, int threads) {
  IrContext context;
  LoadAllDialects(context);
  constexpr double kSeconds = 0.1;
  constexpr double kBytes = 256 << 20;  // more than caches hold
  return {threads, PeakGflops(context, target, threads, kSeconds),
          ReadGbytes(context, target, kBytes, threads, kSeconds)};
}

Bound BoundOf(double gflop, double gigabytes, const MachinePeak& machine) {
  if (gflop < 0 || gigabytes < 0 || machine.gflops <= 0 || machine.gbytes <= 0) return {};
  const double compute = gflop / machine.gflops * 1e3, memory = gigabytes / machine.gbytes * 1e3;
  return {std::max(compute, memory), memory > compute};
}

}  // namespace lathe
