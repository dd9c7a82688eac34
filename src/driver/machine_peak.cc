#include "lathe/driver/machine_peak.h"

#include <time.h>

#include <algorithm>

#include "lathe/codegen/code_generator.h"
#include "lathe/ir/program.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/random.h"
#include "lathe/support/text.h"

namespace lathe {
namespace {

using codegen::Target;

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The fastest run of the program's function, from one buffer to the other.
double FastestRun(const Program& program, const Target& target, const Tensor& from, Tensor& to) {
  const codegen::KernelSource source{"k", program.block()->front()->region(0).front()};
  const auto library = codegen::CodeGenerator::Get().Compile({&source, 1}, target);
  const KernelFunction kernel = library->Find("k");
  const KernelBuffer buffers[] = {{const_cast<std::byte*>(from.raw()), nullptr},
                                  {to.mutable_raw(), nullptr}};
  double best = 1e300;
  const double start = ThreadSeconds();
  for (int runs = 0; runs < 5 || ThreadSeconds() - start < 0.5; ++runs) {
    const double before = ThreadSeconds();
    kernel(buffers, nullptr);
    best = std::min(best, ThreadSeconds() - before);
  }
  return best;
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
  const Tensor x(ElementType::kF32, {kSums, lanes});
  Tensor o(ElementType::kF32, {kSums, lanes});
  const double seconds = FastestRun(program, target, x, o);
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
  const Tensor x = RandomTensor(ElementType::kF32, {kStreams, columns}, 1);
  Tensor o(ElementType::kF32, {kStreams * kUnroll, lanes});
  const double seconds = FastestRun(program, target, x, o);
  return 4e-9 * static_cast<double>(kStreams * columns) / seconds;
}

}  // namespace lathe
