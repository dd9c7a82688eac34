// Speed of generated kernels, as shares of what the machine's multiply-adds reach in registers.
//
//   bench_kernels [--target NAME] [--cold | --peer] matmul X Y [FLAG]...
//   bench_kernels [--target NAME] [--cold | --peer] conv MODEL|all
//   bench_kernels [--target NAME] [--cold | --peer] conv CHANNELS FILTERS EXTENT KERNEL STRIDE
//   [GROUPS] bench_kernels [--target NAME] [--cold | --peer] depthwise|pool MODEL|all bench_kernels
//   [--target NAME] [--cold | --peer] rows bench_kernels [--target NAME] [--cold | --peer] movement
//   bench_kernels [--target NAME] peak
//
// --cold: weights come from memory, not from the caches.
// --peer: what oneDNN makes of it, too, measured by turns.
// Prints one line of JSON for each kernel; see measure.h.

#include <cstdio>
#include <map>
#include <string_view>

#include "bench/kernels/measure.h"
#include "lathe/dialect/all.h"

namespace lathe::bench {
namespace {

using codegen::Target;

int Main(std::span<char* const> arguments) {
  static const std::map<std::string_view, Kind> kinds = {
      {"conv", &ConvJobs}, {"depthwise", &DepthwiseJobs},
      {"pool", &PoolJobs}, {"matmul", &MatmulJobs},
      {"rows", &RowJobs},  {"movement", &MovementJobs}};
  IrContext context;
  LoadAllDialects(context);
  const Target* target = &Target::Host();
  if (arguments.size() > 1 && std::string_view(arguments[0]) == "--target") {
    target = &Target::Named(arguments[1]);
    arguments = arguments.subspan(2);
  }
  const std::string_view flag = arguments.empty() ? "" : arguments[0];
  const MeasureOptions options{.cold = flag == "--cold", .peer = flag == "--peer"};
  if (options.cold || options.peer) arguments = arguments.subspan(1);
  const std::string_view name = arguments.empty() ? "" : arguments[0];
  if (name == "peak") {
    std::printf("{\"kernel\": \"peak\", \"target\": \"%s\", \"gflops\": %.1f}\n",
                target->name.c_str(), PeakGflops(context, *target));
    return 0;
  }
  const auto kind = kinds.find(name);
  if (kind == kinds.end()) {
    std::fprintf(stderr, "usage: bench_kernels [--target NAME] [--cold | --peer] peak");
    for (const auto& [known, jobs] : kinds) std::fprintf(stderr, " | %s ...", known.data());
    std::fprintf(stderr, "\n");
    return 2;
  }
  const double peak = PeakGflops(context, *target);
  for (Job& job : kind->second(arguments.subspan(1))) {
    Measure(context, *target, peak, options, std::move(job));
  }
  return 0;
}

}  // namespace
}  // namespace lathe::bench

int main(int argc, char** argv) {
  try {
    return lathe::bench::Main(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
