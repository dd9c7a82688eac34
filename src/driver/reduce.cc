#include "lathe/driver/reduce.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <unordered_set>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "lathe/support/hash.h"
#include "src/driver/reduce_data.h"
#include "src/driver/reduce_edits.h"

namespace lathe {
namespace {

using reduction::CaseValues;
using reduction::Edit;
using reduction::FirstChunk;

// Of what can differ between candidates: weights change together with the text.
uint64_t HashOf(const FailingCase& c) {
  std::string text = Print(c.program);
  for (const LabeledInputs& set : c.inputs) text += StrCat("\n", set.label);
  return HashString(text);
}

// Runs tests at a time; each is true, false, or has thrown.
class TestRunner {
 public:
  TestRunner(const FailureTest& test, int jobs) : test_(test), jobs_(std::max(1, jobs)) {}

  size_t jobs() const { return static_cast<size_t>(jobs_); }

  /// For each case whether it fails. Throws what is not an Error, of the first case that has
  /// thrown.
  std::vector<char> Run(std::span<const FailingCase> cases) const {
    std::vector<char> fails(cases.size());
    std::vector<std::exception_ptr> thrown(cases.size());
    const Budget* budget = Budget::Current();
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < cases.size(); ++i) {
      threads.emplace_back([&, i] {
        const Budget::Share share(budget);
        fails[i] = RunOne(cases[i], thrown[i]);
      });
    }
    if (!cases.empty()) fails[0] = RunOne(cases[0], thrown[0]);
    threads.clear();  // joins
    for (const std::exception_ptr& e : thrown) {
      if (e) std::rethrow_exception(e);
    }
    return fails;
  }

 private:
  bool RunOne(const FailingCase& c, std::exception_ptr& thrown) const {
    try {
      return test_(c);
    } catch (const Error&) {
      return false;
    } catch (...) {
      thrown = std::current_exception();
      return false;
    }
  }

  const FailureTest& test_;
  const int jobs_;
};

class Reducer {
 public:
  Reducer(const FailingCase& failing, const FailureTest& test, const ReduceOptions& options)
      : best_(failing.Clone()), runner_(test, options.jobs), options_(options) {
    runs_ = 1;
    if (!test(best_)) {
      throw Error(ErrorCode::kInvalidArgument, "reduce/no-failure",
                  "the program to reduce does not fail");
    }
    seen_.insert(HashOf(best_));
    Report(/*is_new=*/true);
  }

  ReducedCase Run() {
    while (AnyOf(reduction::Edits()) || AnyOf(reduction::LastEdits())) continue;
    return {std::move(best_), runs_, !exhausted_};
  }

 private:
  /// Candidates that are tested at a time.
  struct Batch {
    std::vector<FailingCase> cases;
    std::vector<size_t> begins;  ///< of the items that were edited
    std::vector<uint64_t> hashes;
  };

  bool AnyOf(std::span<const Edit> edits) {
    bool any = false;
    for (const Edit& edit : edits) any |= Try(edit);
    return any && !exhausted_;
  }

  bool Try(const Edit& edit) {
    const size_t count = edit.count(best_);
    size_t chunk = edit.first == FirstChunk::kOne    ? std::min<size_t>(count, 1)
                   : edit.first == FirstChunk::kHalf ? (count + 1) / 2
                                                     : count;
    bool any = false;
    for (; chunk > 0 && !exhausted_; chunk /= 2) any |= Sweep(edit, chunk);
    return any;
  }

  /// Each chunk once, from the end on: what an edit leaves unused lies before.
  bool Sweep(const Edit& edit, size_t chunk) {
    bool any = false;
    CaseValues values(best_);
    for (size_t end = edit.count(best_); end > 0 && !exhausted_;) {
      CheckBudget();
      Batch batch = NextBatch(edit, chunk, end, values);
      const std::optional<size_t> found = FirstFailing(batch);
      if (!found) continue;
      any = true;
      best_ = std::move(batch.cases[*found]);
      values = CaseValues(best_);
      end = std::min(batch.begins[*found], edit.count(best_));
      Report(/*is_new=*/true);
    }
    return any;
  }

  /// Moves `end` to where the items of the last candidate begin.
  Batch NextBatch(const Edit& edit, size_t chunk, size_t& end, CaseValues& values) {
    Batch batch;
    while (end > 0 && batch.cases.size() < runner_.jobs()) {
      const size_t begin = end > chunk ? end - chunk : 0;
      FailingCase candidate = best_.Clone();
      if (IsCandidate(candidate, edit, begin, end, values)) Add(std::move(candidate), begin, batch);
      end = begin;
    }
    return batch;
  }

  /// Edits `c`, a copy of the smallest; false if nothing comes of it.
  static bool IsCandidate(FailingCase& c, const Edit& edit, size_t begin, size_t end,
                          CaseValues& values) {
    try {
      if (!edit.apply(c, begin, end, values)) return false;
      reduction::EraseUnused(c);
      return Verify(c.program).empty();
    } catch (const Error&) {
      return false;
    }
  }

  /// Unless it has been tested, or is going to be.
  void Add(FailingCase candidate, size_t begin, Batch& batch) {
    const uint64_t hash = HashOf(candidate);
    if (seen_.contains(hash) || std::ranges::find(batch.hashes, hash) != batch.hashes.end()) return;
    if (options_.max_runs > 0 && runs_ + std::ssize(batch.cases) >= options_.max_runs) {
      exhausted_ = true;
      return;
    }
    batch.cases.push_back(std::move(candidate));
    batch.begins.push_back(begin);
    batch.hashes.push_back(hash);
  }

  /// What lies behind the one that is found does not count: one test at a time would not run it.
  std::optional<size_t> FirstFailing(const Batch& batch) {
    const std::vector<char> fails = runner_.Run(batch.cases);
    const auto found = static_cast<size_t>(std::ranges::find(fails, 1) - fails.begin());
    const size_t tested = std::min(found + 1, fails.size());
    seen_.insert(batch.hashes.begin(), batch.hashes.begin() + static_cast<int64_t>(tested));
    runs_ += static_cast<int64_t>(tested);
    if (found < fails.size()) {
      exhausted_ = false;  // the next candidate says whether a run is left for it
      return found;
    }
    if (tested > 0) Report(/*is_new=*/false);
    return std::nullopt;
  }

  void Report(bool is_new) const {
    if (options_.progress) options_.progress({runs_, best_, is_new});
  }

  FailingCase best_;
  const TestRunner runner_;
  const ReduceOptions& options_;
  std::unordered_set<uint64_t> seen_;
  int64_t runs_ = 0;
  bool exhausted_ = false;  ///< there was a candidate and no run left for it
};

}  // namespace

FailingCase FailingCase::Clone() const { return {program.Clone(), inputs}; }

ReducedCase Reduce(const FailingCase& failing, const FailureTest& test,
                   const ReduceOptions& options) {
  return Reducer(failing, test, options).Run();
}

size_t CountOperations(const Program& program) {
  size_t count = 0;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    const bool is_leaf = op->num_operands() == 0 || reduction::IsSplat(*op);
    if (!is_leaf && op->name() != nn::kFetch && !op->HasTrait<Terminator>()) ++count;
  }
  return count;
}

}  // namespace lathe
