// Speed of generated kernels, as shares of what the machine's multiply-adds reach in registers.
//
//   bench_kernels matmul M K N [target]     one kernel
//   bench_kernels peak [target]             the peak alone
//
// Prints one line of JSON: the median seconds of one run, GFLOP/s, and the share of the peak.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lathe/codegen/code_generator.h"
#include "lathe/dialect/all.h"
#include "lathe/driver/executable.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/program.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/random.h"
#include "lathe/support/text.h"

namespace lathe {
namespace {

using codegen::CodeGenerator;
using codegen::Target;

// Of this thread: what other processes take does not count. Everything here runs on one thread.
double Now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Median time of one call over half a second.
template <class F>
double MedianSeconds(F&& run) {
  run();
  std::vector<double> times;
  for (const double start = Now(); times.size() < 5 || Now() - start < 0.5;) {
    const double before = Now();
    run();
    times.push_back(Now() - before);
  }
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

struct Kernel {
  std::unique_ptr<codegen::KernelLibrary> library;
  KernelFunction call = nullptr;
};

Kernel Compile(const Program& program, const Target& target) {
  for (const Operation& op : *program.block()) {
    if (op.name() != "builtin.func") continue;
    const codegen::KernelSource source{"k", op.region(0).front()};
    Kernel kernel{CodeGenerator::Get().Compile({&source, 1}, target)};
    kernel.call = kernel.library->Find("k");
    return kernel;
  }
  return {};
}

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
  const double seconds = MedianSeconds([&] { kernel.call(buffers, nullptr); });
  return 2.0 * kSums * lanes * kSteps / seconds * 1e-9;
}

void Matmul(IrContext& context, int64_t m, int64_t k, int64_t n, const Target& target) {
  const auto matrix = [](int64_t rows, int64_t columns) {
    return StrCat("v_tensor<[", rows, ", ", columns, "], f32>");
  };
  const std::string x = matrix(m, k), y = matrix(k, n), z = matrix(m, n);
  Program program =
      ParseProgram(context,
                   StrCat("program {\nbuiltin.func() {name = \"k\"} ({\n^(%x: ", x, ", %y: ", y,
                          "):\n%z = nn.matmul(%x, %y) : (", x, ", ", y, ") -> ", z,
                          "\nbuiltin.return(%z) : (", z, ") -> ()\n})\n}\n"),
                   {.file_locations = false});
  const lower::Lowered lowered = lower::LowerFunction(program.block()->front(), MachineOf(target));
  if (!lowered.done) {
    std::fprintf(stderr, "%s\n", lowered.why_not.c_str());
    std::exit(1);
  }
  const Kernel kernel = Compile(program, target);
  const Tensor a = RandomTensor(ElementType::kF32, {m, k}, 1);
  const Tensor b = RandomTensor(ElementType::kF32, {k, n}, 2);
  Tensor c(ElementType::kF32, {m, n});
  const KernelBuffer buffers[] = {{const_cast<std::byte*>(a.raw()), nullptr},
                                  {const_cast<std::byte*>(b.raw()), nullptr},
                                  {c.mutable_raw(), nullptr}};
  const double peak = PeakGflops(context, target);
  const double seconds = MedianSeconds([&] { kernel.call(buffers, nullptr); });
  const double gflops = 2e-9 * static_cast<double>(m * k * n) / seconds;
  const double gbytes = 4e-9 * static_cast<double>(m * k + k * n + m * n) / seconds;
  std::printf(
      "{\"kernel\": \"matmul %ld %ld %ld\", \"target\": \"%s\", \"seconds\": %.3e, "
      "\"gflops\": %.1f, \"peak_share\": %.3f, \"gbytes_per_s\": %.1f}\n",
      m, k, n, target.name.c_str(), seconds, gflops, gflops / peak, gbytes);
}

int Main(std::span<char*> arguments) {
  IrContext context;
  LoadAllDialects(context);
  const std::string kind = arguments.size() > 1 ? arguments[1] : "";
  const size_t numbers = kind == "matmul" ? 3 : 0;
  if ((kind != "matmul" && kind != "peak") || arguments.size() < 2 + numbers) {
    std::fprintf(stderr, "usage: bench_kernels matmul M K N [target] | peak [target]\n");
    return 2;
  }
  const Target& target =
      arguments.size() > 2 + numbers ? Target::Named(arguments[2 + numbers]) : Target::Host();
  if (kind == "peak") {
    std::printf("{\"kernel\": \"peak\", \"target\": \"%s\", \"gflops\": %.1f}\n",
                target.name.c_str(), PeakGflops(context, target));
    return 0;
  }
  Matmul(context, std::atoll(arguments[2]), std::atoll(arguments[3]), std::atoll(arguments[4]),
         target);
  return 0;
}

}  // namespace
}  // namespace lathe

int main(int argc, char** argv) {
  try {
    return lathe::Main({argv, static_cast<size_t>(argc)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
