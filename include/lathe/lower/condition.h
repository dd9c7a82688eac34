#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lathe/support/dim.h"

namespace lathe {

enum class Truth : uint8_t { kFalse, kUnknown, kTrue };

/// A statement about extents, such as `C >= 16 and mod(C, 8) == 0`. A value; immutable.
class Condition {
 public:
  enum class Relation : uint8_t { kLess, kLessEqual, kEqual, kNotEqual };

  Condition();  ///< always true
  static Condition Always(bool value);
  static Condition Compare(const Dim& a, Relation relation, const Dim& b);
  static Condition Less(const Dim& a, const Dim& b) { return Compare(a, Relation::kLess, b); }
  static Condition AtMost(const Dim& a, const Dim& b) {
    return Compare(a, Relation::kLessEqual, b);
  }
  static Condition AtLeast(const Dim& a, const Dim& b) { return AtMost(b, a); }
  static Condition Greater(const Dim& a, const Dim& b) { return Less(b, a); }
  static Condition Equal(const Dim& a, const Dim& b) { return Compare(a, Relation::kEqual, b); }
  static Condition Different(const Dim& a, const Dim& b) {
    return Compare(a, Relation::kNotEqual, b);
  }
  static Condition Divides(int64_t divisor, const Dim& a) { return Equal(Mod(a, divisor), 0); }

  friend Condition operator&&(const Condition& a, const Condition& b);
  friend Condition operator||(const Condition& a, const Condition& b);
  friend Condition operator!(const Condition& a);

  /// Whether it holds whatever the symbols (integers >= 0) are. What is proven is so; what is not
  /// may be unknown for want of a proof. Unknown extents prove nothing.
  Truth Prove() const;
  /// Whether it holds for these values of the symbols; nullopt if it has no value for them.
  std::optional<bool> Evaluate(const Dim::Lookup& lookup) const;
  /// 1 where it holds, else 0.
  Dim Indicator() const;

  std::string ToString() const;
  bool operator==(const Condition& other) const { return ToString() == other.ToString(); }

 private:
  struct Node;
  explicit Condition(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

}  // namespace lathe
