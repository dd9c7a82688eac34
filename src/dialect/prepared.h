#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lathe/ir/interfaces.h"

namespace lathe {

/// What ops make of their attributes before they compute (tables, automata), kept from one run to
/// the next. The ops must neither change nor end before it does. Any number of threads may use it.
class PreparedOps {
 public:
  /// What `make` gave for the op the first time; each op has one such object.
  template <class Make>
  auto Get(const Operation* op, const Make& make) {
    using T = decltype(make());
    if (auto made = Find(op)) return std::static_pointer_cast<const T>(std::move(made));
    return std::static_pointer_cast<const T>(Add(op, std::make_shared<const T>(make())));
  }

 private:
  using Object = std::shared_ptr<const void>;

  Object Find(const Operation* op) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(op);
    return found == objects_.end() ? nullptr : found->second;
  }
  Object Add(const Operation* op, Object made) {
    const std::lock_guard lock(mutex_);
    return objects_.try_emplace(op, std::move(made)).first->second;
  }

  std::mutex mutex_;
  std::unordered_map<const Operation*, Object> objects_;  // looked up, never iterated
};

/// What else an `EvalContext` is that runs an op more than once.
class PreparedScope {
 public:
  virtual ~PreparedScope() = default;
  virtual PreparedOps& prepared() = 0;
};

/// What `make` gives for the op, now or in an earlier run.
template <class Make>
auto Prepared(EvalContext& c, const Make& make) -> std::shared_ptr<const decltype(make())> {
  if (auto* scope = dynamic_cast<PreparedScope*>(&c)) return scope->prepared().Get(c.op(), make);
  return std::make_shared<const decltype(make())>(make());
}

/// The random numbers of a run.
struct Draws {
  uint64_t seed = 0;
  uint64_t count = 0;  ///< of draws so far
};

/// As EvalOp of the interpreter, for an op that runs more than once, and may have what it reads.
std::vector<RtValue> EvalOp(Operation* op, std::vector<RtValue> inputs, Draws& draws,
                            PreparedOps& prepared);

}  // namespace lathe
