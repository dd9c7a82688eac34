// Mutable parameters of executors, with kernels that do as the tests want.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "lathe/runtime/artifacts.h"
#include "lathe/runtime/executor.h"
#include "lathe/runtime/lx_file.h"
#include "lathe/support/error.h"
#include "test/unit/runtime/plan_util.h"
#include "test/unit/temp_folder.h"

namespace lathe::runtime {
namespace {

using testing::Place;
using testing::PlanMaker;

template <class F>
std::string IdOf(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.id();
  }
  return "";
}

Tensor Row(float a) { return Tensor::Of<float>({2, 5}, std::vector<float>(10, a)); }

// y = 2 x by way of the arena; then a = 2 a, b = 2 b.
PlanMaker TwoUpdates() {
  PlanMaker m;
  const uint32_t x = m.Input("x", {2, 5}), y = m.Output("y", {2, 5});
  const uint32_t arena = m.Arena({2, 5}, 0, 1);
  for (const char* name : {"a", "b"}) {
    m.plan.variables.push_back({static_cast<uint32_t>(m.plan.constants.size())});
    m.Constant(Row(1));
    m.plan.constant_names.emplace_back(name);
  }
  const uint32_t a = m.Value(Place::kVariable, 0, {2, 5});
  const uint32_t b = m.Value(Place::kVariable, 1, {2, 5});
  m.Step(0, {x, arena}, "first");
  m.Step(0, {arena, y}, "second");
  m.Step(0, {a, a}, "update a");
  m.Step(0, {b, b}, "update b");
  return m;
}

std::string PlanErrorOf(PlanMaker m) {
  return IdOf([&] { const Executor executor({&testing::Twice}, m.Done()); });
}

TEST(VariablesTest, RunsUpdateThem) {
  const Executor executor({&testing::Twice}, TwoUpdates().Done());
  EXPECT_EQ(executor.MutableParameters(), (std::vector<std::string>{"a", "b"}));
  executor.Run({{"x", Row(1)}});
  executor.SetParameter("b", Row(5));
  executor.Run({{"x", Row(1)}});
  EXPECT_EQ(executor.GetParameter("a"), Row(4));
  EXPECT_EQ(executor.GetParameter("b"), Row(10));
  EXPECT_EQ(executor.plan().constants[0], Row(1));
  const std::shared_ptr<const Plan> now = executor.CurrentPlan();
  EXPECT_EQ(now->constants[1], Row(10));
  EXPECT_EQ(now->variables.size(), 2u);
}

// What the kernel below does beside its work.
std::function<void()>& Hook() {
  static std::function<void()> hook;
  return hook;
}
void TwiceWithHook(const KernelBuffer* buffers, KernelTeam*) {
  testing::Twice(buffers, nullptr);
  Hook()();
}

// Whoever cancels while the first step runs that writes a variable comes too late.
TEST(VariablesTest, CancelledRunsUpdateAllOrNone) {
  for (const size_t at : {0, 1, 2, 3}) {
    CancelToken token;
    size_t step = 0;
    Hook() = [&] {
      if (step++ == at) token.Cancel();
    };
    const Executor executor({&TwiceWithHook}, TwoUpdates().Done());
    const std::string id = IdOf([&] { executor.Run({{"x", Row(1)}}, {.cancel = &token}); });
    const bool done = at >= 2;
    EXPECT_EQ(id, done ? "" : "run/cancelled") << at;
    for (const char* name : {"a", "b"}) {
      EXPECT_EQ(executor.GetParameter(name), Row(done ? 2 : 1)) << name << ", step " << at;
    }
  }
}

TEST(VariablesTest, RunsWaitForTheirTurnUnderTheirLimits) {
  CancelToken token;
  std::atomic<bool> goes_on = false, is_waiting = true;
  Hook() = [&] {
    goes_on = true;
    while (is_waiting) std::this_thread::yield();
  };
  const Executor executor({&TwiceWithHook}, TwoUpdates().Done());
  std::jthread first([&] { executor.Run({{"x", Row(1)}}); });
  while (!goes_on) std::this_thread::yield();
  token.Cancel();
  EXPECT_EQ(IdOf([&] { executor.Run({{"x", Row(1)}}, {.cancel = &token}); }), "run/cancelled");
  EXPECT_EQ(IdOf([&] { executor.Run({{"x", Row(1)}}, {.timeout_seconds = 1e-3}); }), "limit/time");
  is_waiting = false;
  first.join();
  EXPECT_EQ(executor.GetParameter("b"), Row(2));
}

TEST(VariablesTest, FilesHoldThem) {
  const TempFolder folder;
  PlanMaker m = TwoUpdates();
  m.plan.code = testing::DoubleCode();
  for (PlanValue& value : m.plan.values) value.dims = {10};
  for (Tensor& constant : m.plan.constants) constant = constant.Reshaped({10});
  const std::shared_ptr<const Plan> plan = m.Done();
  for (const char* name : {"file.lx", "file.json"}) {
    SavePlan(*plan, folder / name);
    VerifyFile(folder / name);
    const std::shared_ptr<const Plan> loaded = LoadPlan(folder / name);
    ASSERT_EQ(loaded->variables.size(), 2u) << name;
    EXPECT_EQ(loaded->variables[1].initial, 1u) << name;
    const Executor executor(loaded);
    executor.Run({{"x", Row(1).Reshaped({10})}});
    EXPECT_EQ(executor.GetParameter("b"), Row(2).Reshaped({10})) << name;
  }
}

TEST(VariablesTest, PlansThatMayLeaveAnUpdateHalfDoneAreRefused) {
  PlanMaker jumps = TwoUpdates();
  PlanStep& jump = jumps.plan.steps.emplace_back();
  jump.label = "jump";
  jump.kind = PlanStep::Kind::kJump;
  jump.target = 5;
  EXPECT_EQ(PlanErrorOf(std::move(jumps)), "plan/step");
  PlanMaker checks = TwoUpdates();
  checks.plan.storages.push_back({16, 3, 3, 64});
  checks.plan.values.push_back({ElementType::kU8, {sizeof(KernelStatus)}, Place::kArena, 1, 0});
  checks.plan.storages.back().bytes = static_cast<int64_t>(sizeof(KernelStatus));
  checks.plan.steps[3].values.push_back(static_cast<uint32_t>(checks.plan.values.size() - 1));
  checks.plan.steps[3].checks = true;
  EXPECT_EQ(PlanErrorOf(std::move(checks)), "plan/step");
}

TEST(VariablesTest, PlansWhoseVariablesAreNoneAreRefused) {
  PlanMaker beyond = TwoUpdates();
  beyond.plan.variables[1].initial = 7;
  EXPECT_EQ(PlanErrorOf(std::move(beyond)), "plan/variable");
  PlanMaker twice = TwoUpdates();
  twice.plan.variables[1].initial = 0;
  EXPECT_EQ(PlanErrorOf(std::move(twice)), "plan/variable");
  PlanMaker unnamed = TwoUpdates();
  unnamed.plan.constant_names.clear();
  EXPECT_EQ(PlanErrorOf(std::move(unnamed)), "plan/variable");
  PlanMaker missing = TwoUpdates();
  missing.plan.values.back().index = 2;
  EXPECT_EQ(PlanErrorOf(std::move(missing)), "plan/value");
}

}  // namespace
}  // namespace lathe::runtime
