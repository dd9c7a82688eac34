#include "lathe/driver/machine_peak.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <system_error>
#include <thread>
#include <vector>

#include "lathe/codegen/code_generator.h"
#include "lathe/dialect/all.h"
#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/driver/executable.h"
#include "lathe/ir/program.h"
#include "lathe/lower/loop_builder.h"
#include "lathe/support/clock.h"
#include "src/lower/register_tile.h"

namespace lathe {
namespace {

using codegen::Target;

// What a thread passes to a kernel: from one buffer to the other.
struct Buffers {
  Tensor from, to;
};

Type FloatsType(IrContext& context, std::initializer_list<Dim> dims) {
  return VTensorType::Get(context, SymShape(dims), ElementType::kF32);
}

std::array<Value, 2> Row(lower::LoopBuilder& lb, int i) { return {lb.Int(i), lb.Int(0)}; }

// A program of one function, of one tensor and giving one, whose loops `write` writes.
template <class Write>
Program KernelOf(IrContext& context, Type from, Type to, Write&& write) {
  Program program(context);
  Builder b = Builder::AtEnd(program.block());
  const NamedAttribute name = b.Named("name", b.Attr("k"));
  Block* body = b.Create(builtin::kFunc, {}, {&name, 1}, {}, 1)->region(0).AddBlock();
  body->AddArgument(from);
  lower::LoopBuilder lb(body);
  const Value memory = lb.Alloc(to.cast<AnyTensorType>());
  write(lb, body->argument(0), memory);
  const Value result = builtin::ToVtensorOp::Create(lb.b(), memory).y();
  builtin::ReturnOp::Create(lb.b(), {&result, 1});
  return program;
}

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
  std::atomic<bool> ready = false;
  std::vector<std::jthread> running;
  try {
    for (size_t i = 0; i < buffers.size(); ++i) {
      running.emplace_back([&, i] {
        ready.wait(false);
        rates[i] = 1 / FastestRun(kernel, buffers[i], seconds);
      });
    }
  } catch (const std::system_error&) {  // a limit is reached: what there are count
  }
  ready = true;
  ready.notify_all();
  running.clear();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace

// Sums in as many registers as hide the latency, nothing from memory.
double PeakGflops(IrContext& context, const Target& target, int threads, double seconds) {
  constexpr int kSums = 12;
  constexpr int64_t kSteps = 1 << 20;
  const int lanes = target.lanes(4);
  const lower::Machine machine = MachineOf(target);
  const Type type = FloatsType(context, {kSums, lanes});
  const Program program =
      KernelOf(context, type, type, [&](lower::LoopBuilder& lb, Value from, Value to) {
        std::vector<Value> starts;
        for (int i = 0; i < kSums; ++i) {
          starts.push_back(lb.Load(from, Row(lb, i), lanes));
        }
        const auto step = [&](Value, std::span<const Value> sums) {
          std::vector<Value> next;
          for (const Value sum : sums) {
            next.push_back(lower::MulAdd(lb, machine, starts[0], sum, starts[1]));
          }
          return next;
        };
        const std::vector<Value> sums = lb.For(Dim(kSteps), starts, step);
        for (int i = 0; i < kSums; ++i) {
          lb.Store(to, sums[static_cast<size_t>(i)], Row(lb, i));
        }
      });
  const double runs = RunsPerSecond(program, target, threads, seconds, [&] {
    return Buffers{Tensor(ElementType::kF32, {kSums, lanes}),
                   Tensor(ElementType::kF32, {kSums, lanes})};
  });
  return 2e-9 * kSums * lanes * kSteps * runs;
}

// Sums of all vectors, in `kStreams` parts of the memory side by side.
double ReadGbytes(IrContext& context, const Target& target, double bytes, int threads,
                  double seconds) {
  constexpr int kStreams = 4, kUnroll = 4, kSums = kStreams * kUnroll;
  const int lanes = target.lanes(4);
  const int64_t at_once = kUnroll * lanes;  // elements of a stream
  const int64_t steps = static_cast<int64_t>(bytes) / 4 / (threads * kStreams * at_once) + 1;
  const Type in = FloatsType(context, {kStreams, steps * at_once});
  const Type out = FloatsType(context, {kSums, lanes});
  const Program program =
      KernelOf(context, in, out, [&](lower::LoopBuilder& lb, Value from, Value to) {
        const std::vector<Value> zeros(kSums, lb.Splat(ElementType::kF32, 0, lanes));
        const auto step = [&](Value k, std::span<const Value> sums) {
          std::vector<Value> next;
          for (int i = 0; i < kSums; ++i) {
            const Dim column = lower::LoopBuilder::D0() * at_once + i % kUnroll * lanes;
            const Value at[] = {lb.Int(i / kUnroll), lb.Index(column, k)};
            const Value vector = lb.Load(from, at, lanes);
            next.push_back(nn::AddOp::Create(lb.b(), vector, sums[next.size()]).c());
          }
          return next;
        };
        const std::vector<Value> sums = lb.For(Dim(steps), zeros, step);
        for (int i = 0; i < kSums; ++i) {
          lb.Store(to, sums[static_cast<size_t>(i)], Row(lb, i));
        }
      });
  const int64_t columns = steps * at_once;
  const double runs = RunsPerSecond(program, target, threads, seconds, [&] {
    Tensor x(ElementType::kF32, {kStreams, columns});
    std::ranges::fill(x.mutable_data<float>(), 1.0F);  // memory that was never written is one page
    return Buffers{std::move(x), Tensor(ElementType::kF32, {kSums, lanes})};
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
