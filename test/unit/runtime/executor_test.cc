#include "lathe/runtime/executor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <new>
#include <optional>
#include <thread>

#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "test/unit/in_child.h"
#include "test/unit/runtime/plan_util.h"

namespace lathe::runtime {
namespace {

using namespace testing;  // NOLINT: what plans of tests are made of

template <class F>
std::string ErrorOf(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return StrCat(e.id(), ": ", e.message());
  }
  return "no error";
}

std::string RunError(const Executor& executor, const NamedTensors& inputs) {
  return ErrorOf([&] { executor.Run(inputs); });
}

std::string PlanErrorOf(Plan plan) {
  return ErrorOf([&] { Executor(TestKernels(), std::make_shared<Plan>(std::move(plan))); });
}

TEST(ExecutorTest, RunsFixedShapes) {
  for (const int threads : {1, 2, 7}) {
    const Executor executor(TestKernels(), AffinePlan(6), {.threads = threads});
    const NamedTensors out = executor.Run({{"x", Ramp(6)}});
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0].first, "z");
    EXPECT_EQ(out[0].second, AffineOf(Ramp(6)));
    EXPECT_EQ(executor.arena_bytes(), 128u + 120u);
  }
}

TEST(ExecutorTest, ServesAllShapes) {
  const Executor executor(TestKernels(), AffinePlan(), {.threads = 2});
  for (const int64_t rows : {3, 1, 0, 40, 3, 1000, 1}) {
    EXPECT_EQ(executor.Run({{"x", Ramp(rows)}})[0].second, AffineOf(Ramp(rows))) << rows;
  }
}

TEST(ExecutorTest, ForgetsOldShapes) {
  const Executor executor(TestKernels(), AffinePlan(), {.threads = 1, .max_placements = 3});
  for (int64_t i = 0; i < 50; ++i) {
    const int64_t rows = i * 7 % 11;
    EXPECT_EQ(executor.Run({{"x", Ramp(rows)}})[0].second, AffineOf(Ramp(rows))) << rows;
  }
}

TEST(ExecutorTest, RunsOnTheCallersMemory) {
  const Executor executor(TestKernels(), AffinePlan(), {.threads = 1});
  const Tensor x = Ramp(4);
  const InputView input{ElementType::kF32, x.raw(), x.shape()};
  EXPECT_EQ(executor.OutputShapes({&input, 1}), std::vector<Shape>{x.shape()});
  Tensor z(ElementType::kF32, {4, kColumns});
  const OutputView output{z.mutable_raw(), z.byte_size()};
  executor.Run({&input, 1}, {&output, 1});
  EXPECT_EQ(z, AffineOf(x));
}

TEST(ExecutorTest, RefusesTheCallersMemory) {
  const Executor executor(TestKernels(), AffinePlan(), {.threads = 1});
  Tensor x = Ramp(4);
  Tensor z = Ramp(4);
  const auto error = [&](const InputView& in, std::vector<OutputView> out) {
    return ErrorOf([&] { executor.Run({&in, 1}, out); });
  };
  const InputView good{ElementType::kF32, x.raw(), x.shape()};
  std::byte* to = z.mutable_raw();
  EXPECT_EQ(error({ElementType::kF32, nullptr, x.shape()}, {{to, 80}}),
            "run/input-data: the memory of input 'x' is not given");
  EXPECT_EQ(error({ElementType::kF32, x.raw() + 1, x.shape()}, {{to, 80}}),
            "run/input-data: the memory of input 'x' is not aligned to its elements");
  EXPECT_EQ(error(good, {}), "run/output-count: memory for 0 outputs is given; the program has 1");
  EXPECT_EQ(error(good, {{to, 79}}),
            "run/output-data: the memory for output 'z' has 79 bytes; it takes 80");
  EXPECT_EQ(error(good, {{nullptr, 80}}),
            "run/output-data: the memory for output 'z' has 0 bytes; it takes 80");
  EXPECT_EQ(error(good, {{to + 2, 80}}),
            "run/output-data: the memory for output 'z' is not aligned to its elements");
  EXPECT_EQ(error(good, {{x.mutable_raw() + 64, 80}}),
            "run/output-data: the memory for output 'z' overlaps input 'x'");
  EXPECT_EQ(ErrorOf([&] { executor.Run(std::span<const InputView>(), {}); }),
            "run/input-count: 0 inputs are given; the program has 1");
}

TEST(ExecutorTest, ChecksArguments) {
  const Executor executor(TestKernels(), AffinePlan(), {.threads = 1});
  EXPECT_EQ(RunError(executor, {{"y", Ramp(2)}}), "run/input-name: the program has no input 'y'");
  EXPECT_EQ(RunError(executor, {{"x", Ramp(2)}, {"x", Ramp(2)}}),
            "run/input-twice: input 'x' is given twice");
  EXPECT_EQ(RunError(executor, {}),
            "run/input-missing: input 'x' is missing; expected v_tensor<[N, 5], f32>");
  EXPECT_EQ(RunError(executor, {{"x", Tensor(ElementType::kI64, {2, 5})}}),
            "run/input-type: input 'x' is i64[2,5]; expected v_tensor<[N, 5], f32>");
  EXPECT_EQ(RunError(executor, {{"x", Tensor(ElementType::kF32, {2, 6})}}),
            "run/input-shape: input 'x' has shape [2,6]; expected [N,5]");
  EXPECT_EQ(RunError(executor, {{"x", Tensor(ElementType::kF32, {5})}}),
            "run/input-shape: input 'x' has shape [5]; expected [N,5]");
  EXPECT_EQ(executor.Run({{"x", Ramp(2)}})[0].second, AffineOf(Ramp(2)));
}

TEST(ExecutorTest, ChecksSymbolsAndExpressions) {
  const Dim n = Dim::Symbol("N");
  PlanMaker m;
  const uint32_t x = m.Input("x", {n, kColumns});
  m.Input("same", {n});
  m.Input("more", {n - 2});
  m.Step(0, {x, m.Output("y", {n, kColumns})}, "twice");
  const Executor executor(TestKernels(), m.Done(), {.threads = 1});
  const auto run = [&](int64_t rows, int64_t same, int64_t more) {
    return RunError(executor, {{"x", Ramp(rows)},
                               {"same", Tensor(ElementType::kF32, {same})},
                               {"more", Tensor(ElementType::kF32, {more})}});
  };
  EXPECT_EQ(run(4, 4, 2), "no error");
  EXPECT_EQ(run(3, 4, 2), "run/input-shape: dim N is 3 by input 'x' and 4 by input 'same'");
  EXPECT_EQ(run(3, 3, 2), "run/input-shape: dim N - 2 of input 'more' is 2; expected 1");
  EXPECT_EQ(run(1, 1, 0), "run/shape: dim N - 2 is -1");
}

TEST(ExecutorTest, ConstraintsHoldBeforeAnythingRuns) {
  Plan plan = *AffinePlan();
  plan.constraints.push_back(AtMostFortyRows());
  int calls = 0;
  const Executor::Kernel count = [&](const KernelBuffer*, KernelTeam*) { ++calls; };
  const Executor executor({count, count}, std::make_shared<Plan>(plan), {.threads = 1});
  EXPECT_EQ(RunError(executor, {{"x", Ramp(40)}}), "no error");
  EXPECT_EQ(calls, 3);
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(RunError(executor, {{"x", Ramp(41)}}), "shape/concat: nn.concat: more than 40 rows");
  }
  EXPECT_EQ(calls, 3);
  try {
    executor.Run({{"x", Ramp(41)}});
  } catch (const Error& error) {
    EXPECT_EQ(error.where(), "node 'join'");
    ASSERT_EQ(error.notes().size(), 3u);
    EXPECT_EQ(error.notes()[1].text, "it relies on 40 >= N");
    EXPECT_EQ(error.notes()[2].text, "N = 41 by input 'x'");
    EXPECT_EQ(error.hints(), std::vector<std::string>{"take less"});
  }
}

TEST(ExecutorTest, AConstraintWithoutValueDoesNotHold) {
  Plan plan = *AffinePlan();
  plan.constraints.push_back(AtMostFortyRows());
  const Dim n = Dim::Symbol("N");
  plan.constraints[0].condition = SizeCondition::AtLeast(FloorDiv(7, n), 0);
  const Executor executor(TestKernels(), std::make_shared<Plan>(plan), {.threads = 1});
  EXPECT_EQ(RunError(executor, {{"x", Ramp(3)}}), "no error");
  EXPECT_EQ(RunError(executor, {{"x", Ramp(0)}}), "shape/concat: nn.concat: more than 40 rows");
}

TEST(ExecutorTest, CopiesWithoutKernel) {
  const Dim n = Dim::Symbol("N");
  PlanMaker m;
  const uint32_t x = m.Input("x", {n, kColumns});
  m.Step(kNone, {x, m.Output("flat", {n * kColumns})}, "reshape");
  const Executor executor(std::vector<Executor::Kernel>(), m.Done(), {.threads = 1});
  EXPECT_EQ(executor.Run({{"x", Ramp(3)}})[0].second, Ramp(3).Reshaped({15}));
  EXPECT_EQ(executor.Run({{"x", Ramp(0)}})[0].second, Ramp(0).Reshaped({0}));
}

TEST(ExecutorTest, ConcurrentRunsWithChangingShapes) {
  const Executor executor(TestKernels(), AffinePlan(), {.threads = 2, .max_placements = 8});
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        const Tensor x = Ramp((i * (t + 3)) % 37, static_cast<float>(t));
        ASSERT_EQ(executor.Run({{"x", x}})[0].second, AffineOf(x));
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(ExecutorTest, AForkedChildRunsAndDestroys) {
  std::optional<Executor> executor;
  executor.emplace(TestKernels(), AffinePlan(), ExecutorOptions{.threads = 3});
  const auto right = [&](int64_t rows) {
    const Tensor x = Ramp(rows);
    return executor->Run({{"x", x}})[0].second == AffineOf(x);
  };
  EXPECT_TRUE(right(20));
  const Child child = InChild([&] {
    const bool fine = right(20) && right(30);
    executor.reset();
    return fine ? 0 : 1;
  });
  EXPECT_EQ(child.exit_code, 0) << "signal " << child.signal;
  EXPECT_TRUE(right(40));
}

TEST(ExecutorTest, CapsMemory) {
  const Executor executor(TestKernels(), AffinePlan(), {.threads = 1, .max_bytes = 1024});
  EXPECT_EQ(RunError(executor, {{"x", Ramp(20)}}), "no error");
  EXPECT_EQ(RunError(executor, {{"x", Ramp(200)}}),
            "limit/memory: a run needs 7.9 KiB for its tensors; the limit is 1.0 KiB, of which "
            "other runs hold 0 B");
  EXPECT_EQ(RunError(executor, {{"x", Ramp(20)}}), "no error");
  EXPECT_GT(executor.arena_bytes(), 0u);
  executor.Trim();
  EXPECT_EQ(executor.arena_bytes(), 0u);
  EXPECT_EQ(RunError(executor, {{"x", Ramp(20)}}), "no error");
}

TEST(ExecutorTest, TakesMemoryFromElsewhere) {
  std::vector<uint64_t> asked;
  bool has_more = true;
  const Executor executor(TestKernels(), AffinePlan(), {.threads = 1, .allocate = [&](uint64_t n) {
                                                          asked.push_back(n);
                                                          if (!has_more) throw std::bad_alloc();
                                                          return Buffer::Allocate(n);
                                                        }});
  EXPECT_EQ(RunError(executor, {{"x", Ramp(20)}}), "no error");
  EXPECT_EQ(RunError(executor, {{"x", Ramp(10)}}), "no error");
  EXPECT_EQ(asked, std::vector{executor.arena_bytes()});
  has_more = false;
  EXPECT_THROW(executor.Run({{"x", Ramp(200)}}), std::bad_alloc);
  EXPECT_EQ(executor.arena_bytes(), 0U);
}

// A storage of fixed size and one that the symbol sizes, one after the other, share memory.
// A damaged plan may lead around the step that says how large a tensor is.
TEST(ExecutorTest, RunsNothingWithoutASize) {
  const Dim rows = Dim::Symbol("M");
  const auto run = [&](uint32_t first) {
    PlanMaker m;
    const uint32_t x = m.Input("x", {4, kColumns});
    const uint32_t z = m.Output("z", {rows, kColumns});
    m.plan.symbols.push_back({"M", kNone});
    m.plan.constants.push_back(Tensor::Scalar<int64_t>(4));
    m.plan.values.push_back({ElementType::kI64, {}, Place::kConstant, 0});
    m.plan.steps.push_back({.values = {}, .label = "jump", .origin = {}});
    m.plan.steps.back().kind = PlanStep::Kind::kJump;
    m.plan.steps.back().target = first;
    m.plan.steps.push_back({.values = {2}, .reads = 1, .label = "bind", .origin = {}});
    m.plan.steps.back().kind = PlanStep::Kind::kBind;
    m.plan.steps.back().target = 0;
    m.Step(0, {x, z}, "twice");
    return RunError(Executor(TestKernels(), m.Done(), {.threads = 1}), {{"x", Ramp(4)}});
  };
  EXPECT_EQ(run(1), "no error");
  EXPECT_EQ(run(2), "run/shape: dim M has no value");
}

TEST(ExecutorTest, PacksFixedSizesWithSymbolicOnes) {
  PlanMaker m;
  const uint32_t x = m.Input("x", {Dim::Symbol("N"), 16});
  const uint32_t fixed = m.Input("fixed", {8, 16});
  const uint32_t a = m.Arena({Dim::Symbol("N"), 16}, 0, 1);
  const uint32_t b = m.Arena({8, 16}, 2, 3);
  const uint32_t y = m.Output("y", {Dim::Symbol("N"), 16});
  const uint32_t z = m.Output("z", {8, 16});
  m.Step(0, {x, a}, "twice");
  m.Step(0, {a, y}, "twice");
  m.Step(0, {fixed, b}, "twice");
  m.Step(0, {b, z}, "twice");
  const Executor executor({Twice}, m.Done(), {.threads = 1});
  const Tensor eight = RandomTensor(ElementType::kF32, {8, 16}, 1);
  EXPECT_EQ(executor.Run({{"x", eight}, {"fixed", eight}})[0].second,
            executor.Run({{"x", eight}, {"fixed", eight}})[1].second);
  EXPECT_EQ(executor.arena_bytes(), 8U * 16 * 4);
}

TEST(ExecutorTest, StopsWhenCancelled) {
  CancelToken token;
  std::vector<Executor::Kernel> kernels = TestKernels();
  int calls = 0;
  kernels[0] = [&](const KernelBuffer* buffers, KernelTeam* team) {
    Twice(buffers, team);
    if (++calls == 2) token.Cancel();
  };
  const Executor executor(kernels, AffinePlan(), {.threads = 1});
  EXPECT_EQ(ErrorOf([&] { executor.Run({{"x", Ramp(2)}}, {.cancel = &token}); }),
            "run/cancelled: the work was cancelled");
  EXPECT_EQ(calls, 2);
  token.Reset();
  EXPECT_EQ(executor.Run({{"x", Ramp(2)}}, {.cancel = &token})[0].second, AffineOf(Ramp(2)));
}

// A kernel of a minute, in one parallel loop, that does not ask by itself.
void Slow(const KernelBuffer*, KernelTeam* team) {
  const KernelTeam::Body body = [](int64_t begin, int64_t end, void*) {
    for (int64_t i = begin; i < end; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  };
  constexpr int64_t kPieces = 600'000;
  team == nullptr ? body(0, kPieces, nullptr) : team->run(team, kPieces, body, nullptr);
}

Executor WithFirstKernel(Executor::Kernel kernel, int threads) {
  std::vector<Executor::Kernel> kernels = TestKernels();
  kernels[0] = std::move(kernel);
  return Executor(kernels, AffinePlan(), {.threads = threads});
}

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(ExecutorTest, StopsWithinLongKernels) {
  for (const int threads : {1, 3}) {
    const Executor executor = WithFirstKernel(Slow, threads);
    CancelToken token;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      token.Cancel();
    });
    EXPECT_LT(SecondsOf([&] {
                EXPECT_EQ(ErrorOf([&] { executor.Run({{"x", Ramp(2)}}, {.cancel = &token}); }),
                          "run/cancelled: the work was cancelled");
              }),
              10);
    other.join();
    EXPECT_LT(SecondsOf([&] {
                EXPECT_EQ(
                    ErrorOf([&] { executor.Run({{"x", Ramp(2)}}, {.timeout_seconds = 0.02}); }),
                    "limit/time: not done within the limit of 0.02 seconds");
              }),
              10);
    EXPECT_LT(SecondsOf([&] {
                EXPECT_EQ(ErrorOf([&] {
                            RunUnder({.seconds = 0.02}, [&] { executor.Run({{"x", Ramp(2)}}); });
                          }),
                          "limit/time: not done within the limit of 0.02 seconds");
              }),
              10);
  }
}

TEST(ExecutorTest, LimitsThatAreKeptChangeNothing) {
  const CancelToken token;
  for (const int threads : {1, 3}) {
    const Executor executor(TestKernels(), AffinePlan(), {.threads = threads});
    for (const int64_t rows : {0, 1, 2, 50, 3000}) {
      EXPECT_EQ(
          executor.Run({{"x", Ramp(rows)}}, {.cancel = &token, .timeout_seconds = 1000})[0].second,
          AffineOf(Ramp(rows)));
    }
  }
}

// Whoever cancels may take it back at once: a kernel that has left out a part is no success.
TEST(ExecutorTest, APartThatWasLeftOutIsNoResult) {
  CancelToken token;
  const Executor executor = WithFirstKernel(
      [&](const KernelBuffer* buffers, KernelTeam* team) {
        token.Cancel();
        Twice(buffers, team);
        token.Reset();
      },
      1);
  EXPECT_EQ(ErrorOf([&] { executor.Run({{"x", Ramp(2)}}, {.cancel = &token}); }),
            "run/cancelled: the work was cancelled");
}

TEST(ExecutorTest, ErrorsOfKernelsComeThrough) {
  std::vector<Executor::Kernel> kernels = TestKernels();
  kernels[1] = [](const KernelBuffer*, KernelTeam*) {
    throw Error(ErrorCode::kUnsupported, "test/kernel", "no");
  };
  const Executor executor(kernels, AffinePlan(), {.threads = 1});
  EXPECT_EQ(RunError(executor, {{"x", Ramp(2)}}), "test/kernel: no");
  EXPECT_EQ(RunError(executor, {{"x", Ramp(3)}}), "test/kernel: no");
}

// Those that are not code of a plan may still refuse what they read.
TEST(ExecutorTest, CodeThatFillsNothingIsNotCalled) {
  const KernelFunction called = [](const KernelBuffer*, KernelTeam*) {
    throw Error(ErrorCode::kUnsupported, "test/kernel", "called");
  };
  for (const bool is_code : {true, false}) {
    std::vector<Executor::Kernel> kernels = TestKernels();
    for (Executor::Kernel& kernel : kernels) {
      kernel = called;
      if (!is_code) kernel = [called](const KernelBuffer* b, KernelTeam* t) { called(b, t); };
    }
    const Executor executor(kernels, AffinePlan(), {.threads = 1});
    EXPECT_EQ(RunError(executor, {{"x", Ramp(0)}}), is_code ? "no error" : "test/kernel: called");
    EXPECT_EQ(RunError(executor, {{"x", Ramp(1)}}), "test/kernel: called");
  }
}

#if defined(__x86_64__)
// A caller that flushes denormals gets what others get, on all threads, and keeps its setting.
TEST(ExecutorTest, SetsTheFloatingPointMode) {
  Tensor x = Ramp(20);
  for (float& v : x.mutable_data<float>()) v = 1e-40f;
  const unsigned before = __builtin_ia32_stmxcsr();
  constexpr unsigned kFlush = 0x8040;
  PlanMaker m;
  const uint32_t in = m.Input("x", {20, kColumns});
  const uint32_t a = m.Arena({20, kColumns}, 0, 1);
  m.Step(0, {in, a}, "twice");
  m.Step(0, {a, m.Output("y", {20, kColumns})}, "twice");
  const Executor twice(TestKernels(), m.Done(), {.threads = 3});
  __builtin_ia32_ldmxcsr(before | kFlush);
  const Tensor y = twice.Run({{"x", x}})[0].second;
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before);
  EXPECT_EQ(after & kFlush, kFlush);
  for (const float v : y.data<float>()) EXPECT_EQ(v, 4 * 1e-40f);
}
#endif

TEST(ExecutorTest, PoisonsWhatStepsWrite) {
  std::vector<Executor::Kernel> kernels = TestKernels();
  int calls = 0;
  kernels[0] = [&](const KernelBuffer* buffers, KernelTeam* team) {
    if (++calls == 3) return;  // the first step of the second run writes nothing
    Twice(buffers, team);
  };
  const Executor executor(kernels, AffinePlan(), {.threads = 1, .poison = true});
  EXPECT_EQ(executor.Run({{"x", Ramp(2)}})[0].second, AffineOf(Ramp(2)));
  const Tensor after = executor.Run({{"x", Ramp(2)}})[0].second;
  for (const float v : after.data<float>()) EXPECT_NE(v, v);
}

TEST(ExecutorTest, TracesSteps) {
  Plan plan = *AffinePlan();
  plan.steps[0].flops = kColumns * Dim::Symbol("N");
  plan.steps[2].bytes = 7;
  const Executor executor(TestKernels(), std::make_shared<Plan>(std::move(plan)), {.threads = 1});
  Profile profile;
  executor.Run({{"x", Ramp(2)}}, {.profile = &profile});
  const std::vector<Profile::Event> events = profile.events();
  ASSERT_EQ(events.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i].step, i);
    EXPECT_LE(events[i].begin_ns, events[i].end_ns);
    EXPECT_EQ(events[i].bytes, i < 2 ? 80 : 7);
    EXPECT_EQ(events[i].flops, i == 0 ? 10 : -1);
  }
  const std::string trace = profile.ChromeTrace(executor.plan(), 100, 10);
  EXPECT_NE(trace.find("\"bytes\":80,\"flop\":10,"), std::string::npos) << trace;
  EXPECT_NE(trace.find("\"roofline\":"), std::string::npos) << trace;
  EXPECT_NE(trace.find("\"name\":\"twice again\""), std::string::npos) << trace;
  EXPECT_NE(trace.find("\"origin\":\"node 'add'\""), std::string::npos) << trace;
}

Plan PlanFor(const std::shared_ptr<const Plan>& plan) { return *plan; }

TEST(ExecutorTest, RefusesPlansThatContradictThemselves) {
  const auto broken = [](auto change) {
    Plan plan = PlanFor(AffinePlan(6));
    change(plan);
    return PlanErrorOf(plan);
  };
  EXPECT_EQ(broken([](Plan&) {}), "no error");
  EXPECT_EQ(broken([](Plan& p) { p.storages[1].offset = 64; }),
            "plan/overlap: storages 0 and 1 are alive at one step and overlap");
  EXPECT_EQ(broken([](Plan& p) { p.storages[1].offset = 0; }),
            "plan/overlap: storages 0 and 1 are alive at one step and overlap");
  EXPECT_EQ(broken([](Plan& p) { p.storages[1].offset = 129; }),
            "plan/storage: storage 1 of 120 bytes lies at offset 129");
  EXPECT_EQ(broken([](Plan& p) { p.storages[1].end = 3; }),
            "plan/storage: storage 1 lives from step 1 to 3 of 3");
  EXPECT_EQ(broken([](Plan& p) { p.storages[1].end = 1; }),
            "plan/step: it uses value 4, whose storage 1 lives from step 1 to 1");
  EXPECT_EQ(broken([](Plan& p) { p.steps[0].kernel = 2; }), "plan/step: there is no kernel 2 of 2");
  EXPECT_EQ(broken([](Plan& p) { p.steps[0].checks = true; }),
            "plan/step: there is no memory for what it checks");
  EXPECT_EQ(broken([](Plan& p) { p.steps[2].reads = 1; }),
            "plan/step: it writes value 2, which is a constant");
  EXPECT_EQ(broken([](Plan& p) { p.steps[2].reads = 4; }), "plan/step: it reads 4 of 3 values");
  EXPECT_EQ(broken([](Plan& p) { p.steps[1].values[0] = 99; }), "plan/step: there is no value 99");
  const auto controlled = [&](PlanStep::Kind kind, uint32_t target, auto... value) {
    return broken([&](Plan& p) {
      PlanStep step{.values = {static_cast<uint32_t>(value)...}, .label = "if", .origin = {}};
      step.reads = static_cast<uint32_t>(step.values.size());
      step.kind = kind;
      step.target = target;
      p.steps.push_back(step);
    });
  };
  using Kind = PlanStep::Kind;
  EXPECT_EQ(controlled(Kind::kJump, 4), "no error");
  EXPECT_EQ(controlled(Kind::kJump, 3), "plan/step: step 3 of 4 cannot come after it");
  EXPECT_EQ(controlled(Kind::kJump, 5), "plan/step: step 5 of 4 cannot come after it");
  EXPECT_EQ(controlled(Kind::kBranch, 4), "plan/step: it is of no kind: 1");
  EXPECT_EQ(controlled(Kind::kBranch, 4, 0), "plan/step: value 0 is not one bool");
  EXPECT_EQ(controlled(Kind::kBranch, 4, 99), "plan/step: there is no value 99");
  EXPECT_EQ(controlled(Kind::kRequire, 0), "plan/step: constraint 0 of 0 does not exist");
  EXPECT_EQ(controlled(Kind::kRepeat, 0), "no error");
  EXPECT_EQ(controlled(Kind::kRepeat, 3), "plan/step: step 3 is not before it");
  EXPECT_EQ(controlled(Kind::kRepeat, 1),
            "plan/step: storage 0 lives from step 0 to 1, within the loop from step 1");
  EXPECT_EQ(controlled(Kind::kBind, 0, 0), "plan/step: value 0 is not one i64");
  const auto computed = [&](auto change) {
    return broken([&](Plan& p) {
      p.symbols.push_back({"M", kNone});
      p.values.push_back({ElementType::kI64, {}, Place::kConstant, 0});
      PlanStep step{
          .values = {static_cast<uint32_t>(p.values.size() - 1)}, .label = "", .origin = {}};
      step.reads = 1;
      step.kind = Kind::kBind;
      step.target = 0;
      p.steps.push_back(step);
      change(p);
    });
  };
  EXPECT_EQ(computed([](Plan&) {}), "no error");
  EXPECT_EQ(computed([](Plan& p) { p.steps.back().target = 1; }),
            "plan/step: symbol 1 of 1 is not computed");
  EXPECT_EQ(computed([](Plan& p) { p.steps.pop_back(); }), "plan/symbol: no step computes dim M");
  EXPECT_EQ(computed([](Plan& p) { p.values[3].dims = {Dim::Symbol("M"), 0}; }),
            "plan/step: it uses value 3 before dim M is computed");
  EXPECT_EQ(controlled(Kind::kBelow, 4, 0, 0), "plan/step: value 0 is not one i64");
  EXPECT_EQ(controlled(static_cast<Kind>(99), 4), "plan/step: it is of no kind: 99");
  EXPECT_EQ(broken([](Plan& p) { p.values[3].dims = {7, kColumns}; }),
            "plan/value: value 3 : f32[7,5] at byte 0 does not fit into storage 0 of 120 bytes");
  EXPECT_EQ(broken([](Plan& p) { p.values[3].offset = 2; }),
            "plan/value: value 3 of type f32 lies at offset 2");
  EXPECT_EQ(broken([](Plan& p) { p.values[3].offset = ~uint64_t{3}; }),
            "plan/value: value 3 : f32[6,5] at byte 18446744073709551612 does not fit into "
            "storage 0 of 120 bytes");
  EXPECT_EQ(broken([](Plan& p) { p.values[2].index = 1; }),
            "plan/value: value 2 lies in number 1 of 1");
  EXPECT_EQ(broken([](Plan& p) { p.values[2].dims = {Dim::Symbol("M")}; }),
            "plan/dim: value 2 has dim M, but M is not a symbol of the plan");
  const auto relies_on = [&](const SizeCondition& condition) {
    return broken(
        [&](Plan& p) { p.constraints.push_back({condition, false, "", "", "", "", {}}); });
  };
  EXPECT_EQ(relies_on(SizeCondition::Equal(Dim::Symbol("M"), 1)),
            "plan/dim: constraint 0 has dim M, but M is not a symbol of the plan");
  EXPECT_EQ(relies_on(SizeCondition::Equal(Dim(), 1)), "plan/constraint: constraint 0 has dim ?");
  EXPECT_EQ(relies_on({SizeCondition::Kind{4}, 1, 1}),
            "plan/constraint: constraint 0 is of no kind: 4");
  EXPECT_EQ(broken([](Plan& p) { p.values[2].dims = {Dim()}; }), "plan/dim: value 2 has dim ?");
  EXPECT_EQ(broken([](Plan& p) { p.outputs[0].value = 0; }),
            "plan/port: output 'z' is a value that lies elsewhere than in the caller's memory");
  EXPECT_EQ(broken([](Plan& p) { p.symbols = {{"N", 0, 0}}; }),
            "plan/symbol: axis 0 of input 'x' is not dim N");
  EXPECT_EQ(broken([](Plan& p) { p.values[0].dims = {int64_t{1} << 40, int64_t{1} << 40}; }),
            "limit/size: a tensor f32[1099511627776,1099511627776] is too large");
}

// A size that a loop says anew is made of symbols that are bound, and what grows lies alone.
TEST(ExecutorTest, RefusesSizesThatContradictThePlan) {
  using Kind = PlanStep::Kind;
  const auto resized = [&](Kind kind, const Dim& size, auto change) {
    Plan plan = PlanFor(AffinePlan(6));
    plan.symbols.push_back({"M", kNone});
    plan.steps.push_back({.values = {}, .label = "", .origin = {}});
    plan.steps.back().kind = kind;
    plan.steps.back().target = 0;
    plan.steps.back().size = size;
    change(plan);
    return PlanErrorOf(plan);
  };
  const auto as_it_is = [](Plan&) {};
  EXPECT_EQ(resized(Kind::kResize, 3, as_it_is), "no error");
  EXPECT_EQ(resized(Kind::kResize, 3, [](Plan& p) { p.steps.back().target = 1; }),
            "plan/step: symbol 1 of 1 is not computed");
  EXPECT_EQ(resized(Kind::kResize, Dim::Symbol("M"), as_it_is),
            "plan/step: it reads its size before dim M is computed");
  EXPECT_EQ(resized(Kind::kResize, Dim::Symbol("K"), as_it_is),
            "plan/dim: step 3 has dim K, but K is not a symbol of the plan");
  EXPECT_EQ(resized(Kind::kResize, Dim(), as_it_is), "plan/dim: step 3 has dim ?");
  EXPECT_EQ(resized(Kind::kGrow, 3, as_it_is), "no error");
  const auto add_storages = [](Plan& p) {
    p.storages.push_back({Dim::Symbol("M"), 3, 3});
    p.storages.push_back({2 * Dim::Symbol("M"), 3, 3});
  };
  EXPECT_EQ(resized(Kind::kGrow, 3, add_storages), "plan/step: 2 storages are made of dim M");
}

TEST(ExecutorTest, RefusesCodeForAnotherProcessor) {
  Plan plan = PlanFor(AffinePlan(6));
  plan.code = {"moon", {"warp_drive"}, "\xc3", {0, 0}};
  EXPECT_EQ(ErrorOf([&] { Executor(std::make_shared<Plan>(plan)); }),
            "run/processor: the program was compiled for 'moon'; this processor lacks warp_drive");
  plan.code.features.clear();
  plan.code.entries[1] = 1;
  EXPECT_EQ(ErrorOf([&] { Executor(std::make_shared<Plan>(plan)); }),
            "plan/code: kernel 1 begins at byte 1 of 1");
}

#if defined(__x86_64__)
TEST(ExecutorTest, RunsMachineCode) {
  const Executor executor(DoublePlan(), {.threads = 1});
  EXPECT_EQ(executor.Run({{"x", Tensor::Of<float>({3}, {1, 2, 3})}})[0].second,
            Tensor::Of<float>({3}, {2, 4, 6}));
}
#endif

}  // namespace
}  // namespace lathe::runtime
