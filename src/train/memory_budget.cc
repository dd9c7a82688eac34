#include "lathe/train/memory_budget.h"

#include <algorithm>

#include "lathe/driver/compile_engine.h"
#include "lathe/driver/plan_summary.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe::train {
namespace {

constexpr int kMostTries = 3;         // between what is too much and what is more than needed
constexpr double kNearEnough = 0.05;  // of the part of the peak that may be used
constexpr double kLightest = 0.999;   // hardly anything is computed twice

// Of a plan.
struct Size {
  uint64_t bytes = 0;  // between steps of the plan
  double work = 0;     // arithmetic
};

uint64_t HeldBy(const Program& step) {
  uint64_t bytes = 0;
  for (const auto& [name, variable] : step.parameters()) bytes += variable.data.byte_size();
  return bytes;
}

class Fitter {
 public:
  Fitter(const Program& step, std::span<const Dim::Binding> sizes, uint64_t budget,
         CompileOptions& options)
      : step_(step), options_(options), trade_{.budget = budget, .held = HeldBy(step)} {
    options_.recompute = {.keep = 1, .sizes = {sizes.begin(), sizes.end()}};
    if (!options_.engine) {
      options_.engine = std::make_shared<CompileEngine>(options_.cache, options_.cache_limit);
    }
  }

  MemoryTrade Run() {
    const Size whole = SizeAt(1);
    trade_.before = trade_.after = trade_.held + whole.bytes;
    if (trade_.before <= trade_.budget) return trade_;
    options_.recompute.keep = Find();
    trade_.after = trade_.held + found_.bytes;
    trade_.added_work = (found_.work - whole.work) / std::max(whole.work, 1.0);
    return trade_;
  }

 private:
  // The estimate of the pass is not the plan: what fits is looked for between too much and the
  // least that there is.
  double Find() {
    found_ = SizeAt(kLightest);
    if (Fits(found_)) return kLightest;
    double fails = kLightest;
    double fits = static_cast<double>(Room()) / static_cast<double>(found_.bytes);
    found_ = SizeAt(fits);
    if (!Fits(found_)) {
      fails = fits;
      fits = 0;
      found_ = SizeAt(fits);
      if (!Fits(found_)) Refuse(found_);
    }
    for (int k = 0; k < kMostTries && fails - fits > kNearEnough; ++k) {
      const double middle = (fits + fails) / 2;
      const Size tried = SizeAt(middle);
      (Fits(tried) ? fits : fails) = middle;
      if (Fits(tried)) found_ = tried;
    }
    return fits;
  }

  uint64_t Room() const { return trade_.budget - std::min(trade_.budget, trade_.held); }
  bool Fits(const Size& size) const { return trade_.held + size.bytes <= trade_.budget; }

  [[noreturn]] void Refuse(const Size& least) const {
    throw Error(ErrorCode::kInvalidArgument, "train/memory",
                StrCat("a step needs at least ", HumanBytes(trade_.held + least.bytes),
                       ", more than ", HumanBytes(trade_.budget)))
        .Note(StrCat(HumanBytes(trade_.held),
                     " of that are parameters and states of the optimizer; ",
                     "if nothing is computed twice, it needs ", HumanBytes(trade_.before)))
        .Hint("a smaller batch needs less");
  }

  Size SizeAt(double keep) {
    options_.recompute.keep = keep;
    const Executable executable(step_, options_);
    if (executable.executor() == nullptr) {
      throw Error(ErrorCode::kUnsupported, "train/memory",
                  StrCat("the interpreter runs the step, which plans no memory: ",
                         executable.obstacles()[0]));
    }
    const runtime::Plan& plan = executable.executor()->plan();
    CheckSizes(plan);
    const std::span<const Dim::Binding> sizes = options_.recompute.sizes;
    Size size{.bytes = static_cast<uint64_t>(Summarize(plan, sizes).arena_bytes)};
    for (const runtime::PlanStep& step : plan.steps) {
      size.work += static_cast<double>(step.flops.Evaluate(sizes).value_or(0));
    }
    return size;
  }

  void CheckSizes(const runtime::Plan& plan) const {
    for (const runtime::PlanStorage& storage : plan.storages) {
      std::vector<std::string> names;
      storage.bytes.CollectSymbols(names);
      for (const std::string& name : names) {
        const bool is_input = std::ranges::any_of(
            plan.symbols, [&](const auto& s) { return s.name == name && !s.is_computed(); });
        const auto at = std::ranges::find(options_.recompute.sizes, name, &Dim::Binding::first);
        if (!is_input || at != options_.recompute.sizes.end()) continue;
        throw Error(ErrorCode::kInvalidArgument, "train/memory",
                    StrCat("how much a step needs depends on the size '", name, "'"))
            .Hint(StrCat("--dim ", name, "=64 says what it is"));
      }
    }
  }

  const Program& step_;
  CompileOptions& options_;
  MemoryTrade trade_;
  Size found_;
};

}  // namespace

MemoryTrade FitMemory(const Program& step, std::span<const Dim::Binding> sizes, uint64_t budget,
                      CompileOptions& options) {
  return Fitter(step, sizes, budget, options).Run();
}

}  // namespace lathe::train
