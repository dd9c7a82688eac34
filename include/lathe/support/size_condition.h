#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lathe/support/dim.h"

namespace lathe {

/// A statement about two extents that a rule of shapes relies on.
struct SizeCondition {
  enum class Kind : uint8_t {
    kEqual,        ///< a = b
    kAtLeast,      ///< a >= b
    kBroadcast,    ///< they are equal, or one of them is 1
    kBroadcastTo,  ///< they are equal, or a is 1
  };
  Kind kind = Kind::kEqual;
  Dim a, b;

  static SizeCondition Equal(const Dim& a, const Dim& b) { return {Kind::kEqual, a, b}; }
  static SizeCondition AtLeast(const Dim& a, const Dim& b) { return {Kind::kAtLeast, a, b}; }
  static SizeCondition Divides(const Dim& divisor, const Dim& a) {
    return {Kind::kEqual, Mod(a, divisor), 0};
  }
  static SizeCondition Broadcast(const Dim& a, const Dim& b) { return {Kind::kBroadcast, a, b}; }
  static SizeCondition BroadcastTo(const Dim& a, const Dim& b) {
    return {Kind::kBroadcastTo, a, b};
  }

  /// What is proven for all symbols (integers >= 0); nullopt if they decide, or if an extent is
  /// unknown.
  std::optional<bool> Decide() const;
  /// Whether it holds for these values of the symbols. False if an extent has no value for them.
  bool Holds(const Dim::Lookup& lookup) const;
  /// "K = M", "T >= 3", "T = 50, or T = 1", "T = S, or one of them is 1".
  std::string ToString() const;

  friend bool operator==(const SizeCondition&, const SizeCondition&) = default;
};

/// A condition that is neither proven nor refuted, and the error where it does not hold.
struct SizeAssumption {
  SizeCondition condition;
  std::string id;  ///< "shape/concat"
  std::string message;
  std::string hint = {};
};

/// While one exists, what rules of shapes assume on this thread goes to its list, in order; without
/// one it is dropped. Rules are functions of shapes that inference shares with evaluation, where
/// extents are numbers and nothing is left to assume.
class AssumptionScope {
 public:
  explicit AssumptionScope(std::vector<SizeAssumption>& list);
  ~AssumptionScope();
  AssumptionScope(const AssumptionScope&) = delete;
  AssumptionScope& operator=(const AssumptionScope&) = delete;

  static bool IsOpen();
  static void Add(SizeAssumption assumption);

 private:
  std::vector<SizeAssumption>* outer_;
};

/// Throws the error of an assumption that does not hold.
[[noreturn]] void FailAssumption(const SizeAssumption& assumption);

/// A rule of shapes relies on `condition`: throws kShape `id` if it is refuted, and is an
/// assumption of the innermost scope if symbols decide. `message` makes the text, if one is wanted.
template <class Message>
void Assume(const SizeCondition& condition, const char* id, const Message& message,
            const char* hint = "") {
  const std::optional<bool> holds = condition.Decide();
  if (holds == true || (!holds && !AssumptionScope::IsOpen())) return;
  SizeAssumption assumption{condition, id, message(), hint};
  if (holds == false) FailAssumption(assumption);
  AssumptionScope::Add(std::move(assumption));
}

}  // namespace lathe
