#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lathe {

namespace internal {
struct DimNode;
}  // namespace internal

// The extent of one tensor dimension: a constant, unknown, or an expression over named symbols. A
// value of eight bytes, immutable, safe to share between threads. Symbols stand for integers >= 0.
//
// Expressions are kept in a canonical form (sums of products with integer coefficients, in name
// order), so equal polynomials are equal handles. Simplification never changes the value of an
// expression where it has one; where the original has none (division by zero, a broadcast of
// extents that differ and are not 1) the simplified form may have one. Overflow, and expressions
// above the size and depth limits, become unknown. Divisions round towards minus infinity
// (FloorDiv), plus infinity (CeilDiv); Mod(a, b) = a - b * FloorDiv(a, b).
class Dim {
 public:
  // Limits above which an expression becomes unknown.
  static constexpr size_t kMaxSize = 256;
  static constexpr size_t kMaxDepth = 32;

  Dim() = default;      // unknown
  Dim(int64_t value) {  // NOLINT: implicit, so that shapes read naturally
    if (FitsInline(value)) {
      bits_ = (static_cast<uint64_t>(value) << 1) | 1;
    } else {
      bits_ = BoxConstant(value);
    }
  }
  [[nodiscard]] static Dim Unknown() { return {}; }
  // Any non-empty name; one that is no identifier (or is a function's name) prints in quotes.
  [[nodiscard]] static Dim Symbol(std::string_view name);

  Dim(const Dim& other) : bits_(other.bits_) { Retain(); }
  Dim(Dim&& other) noexcept : bits_(std::exchange(other.bits_, 0)) {}
  Dim& operator=(const Dim& other) {
    Dim copy(other);
    std::swap(bits_, copy.bits_);
    return *this;
  }
  Dim& operator=(Dim&& other) noexcept {
    std::swap(bits_, other.bits_);
    return *this;
  }
  ~Dim() { Release(); }

  [[nodiscard]] bool is_constant() const { return (bits_ & 1) != 0 || (bits_ != 0 && IsBoxed()); }
  [[nodiscard]] bool is_unknown() const { return bits_ == 0; }
  // A single bare symbol.
  [[nodiscard]] bool is_symbol() const;
  // Neither constant nor unknown.
  [[nodiscard]] bool is_expression() const { return !is_constant() && !is_unknown(); }
  // Precondition: is_constant().
  [[nodiscard]] int64_t value() const {
    return (bits_ & 1) != 0 ? static_cast<int64_t>(bits_) >> 1 : BoxedValue();
  }
  // Precondition: is_symbol().
  [[nodiscard]] std::string_view symbol_name() const;
  [[nodiscard]] bool IsConstant(int64_t value) const {
    return is_constant() && this->value() == value;
  }

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  Dim& operator+=(const Dim& other) { return *this = *this + other; }
  Dim& operator-=(const Dim& other) { return *this = *this - other; }
  Dim& operator*=(const Dim& other) { return *this = *this * other; }

  // Same canonical form; unknown equals unknown here (but see ProvablyEqual).
  friend bool operator==(const Dim& a, const Dim& b) {
    return a.bits_ == b.bits_ || (((a.bits_ | b.bits_) & 1) == 0 && EqualSlow(a, b));
  }

  // Deterministic from run to run.
  [[nodiscard]] uint64_t Hash() const;

  void AppendTo(std::string& out) const;
  [[nodiscard]] std::string ToString() const;

  // Reads the text that ToString writes:
  //   sum := product (('+' | '-') product)*       product := factor ('*' factor)*
  //   factor := integer | '-' factor | symbol | '"' quoted '"' | '?' | '(' sum ')'
  //           | name '(' sum (',' sum)+ ')'
  //   name := floordiv | ceildiv | mod (two operands) | min | max | broadcast (two or more)
  //   symbol := [A-Za-z_][A-Za-z0-9_.$]*
  // `Parse` takes the whole text; `ParsePrefix` the longest prefix and moves `text` behind it. Both
  // throw parse/dim with the offset.
  [[nodiscard]] static Dim Parse(std::string_view text);
  [[nodiscard]] static Dim ParsePrefix(std::string_view& text);

  // Value of a symbol, or nullopt when it has none.
  using Lookup = std::function<std::optional<int64_t>(std::string_view)>;
  using Binding = std::pair<std::string, int64_t>;
  // nullopt if a symbol is unbound, on unknown, overflow, division by zero or a bad broadcast.
  [[nodiscard]] std::optional<int64_t> Evaluate(const Lookup& lookup) const;
  [[nodiscard]] std::optional<int64_t> Evaluate(std::span<const Binding> bindings) const;

  // Every symbol for which `replace` returns a Dim is replaced by it, all at once.
  using Replacement = std::function<std::optional<Dim>(std::string_view)>;
  [[nodiscard]] Dim Substitute(const Replacement& replace) const;

  // Proven bounds over all symbols >= 0; nullopt when there is none. Unknown is >= 0.
  [[nodiscard]] std::optional<int64_t> LowerBound() const;
  [[nodiscard]] std::optional<int64_t> UpperBound() const;

  // Appends the names that occur, each once, in the order of first occurrence; those already in
  // `names` are not repeated.
  void CollectSymbols(std::vector<std::string>& names) const;

 private:
  friend struct internal::DimNode;

  static bool FitsInline(int64_t value) {
    return value >= -(int64_t{1} << 62) && value < (int64_t{1} << 62);
  }
  static uint64_t BoxConstant(int64_t value);
  static bool EqualSlow(const Dim& a, const Dim& b);
  [[nodiscard]] bool HasNode() const { return bits_ != 0 && (bits_ & 1) == 0; }
  [[nodiscard]] bool IsBoxed() const;
  [[nodiscard]] int64_t BoxedValue() const;
  void Retain() const {
    if (HasNode()) RetainNode();
  }
  void Release() {
    if (HasNode()) ReleaseNode();
  }
  void RetainNode() const;
  void ReleaseNode();

  // 0: unknown; lowest bit set: a constant in the upper 63; else a DimNode of which we own a count.
  uint64_t bits_ = 0;
};
static_assert(sizeof(Dim) == 8);

[[nodiscard]] Dim FloorDiv(const Dim& a, const Dim& b);
[[nodiscard]] Dim CeilDiv(const Dim& a, const Dim& b);
[[nodiscard]] Dim Mod(const Dim& a, const Dim& b);
[[nodiscard]] Dim Min(const Dim& a, const Dim& b);
[[nodiscard]] Dim Max(const Dim& a, const Dim& b);
// numpy's rule for one pair of extents: equal, or one of them is 1 and the other one wins.
[[nodiscard]] Dim Broadcast(const Dim& a, const Dim& b);

// Equal (different) whatever the symbols are. Unknown is never provably anything.
[[nodiscard]] bool ProvablyEqual(const Dim& a, const Dim& b);
[[nodiscard]] bool ProvablyDifferent(const Dim& a, const Dim& b);

// A shape at compile time. Unknown rank, rank 0 and an extent of 0 are three different things.
struct SymShape {
  bool ranked = false;
  std::vector<Dim> dims;  // empty when not ranked

  SymShape() = default;                                               // unknown rank
  SymShape(std::vector<Dim> d) : ranked(true), dims(std::move(d)) {}  // NOLINT: implicit
  SymShape(std::initializer_list<Dim> d) : ranked(true), dims(d) {}   // NOLINT
  [[nodiscard]] static SymShape Unranked() { return {}; }
  [[nodiscard]] static SymShape OfRank(size_t rank) { return SymShape(std::vector<Dim>(rank)); }
  [[nodiscard]] static SymShape FromConstants(std::span<const int64_t> extents);

  [[nodiscard]] size_t rank() const { return dims.size(); }
  [[nodiscard]] bool IsConstant() const;
  // All extents when every one is constant.
  [[nodiscard]] std::optional<std::vector<int64_t>> Constants() const;
  // The product; unknown when not ranked.
  [[nodiscard]] Dim NumElements() const;
  // "[S0,3,?]"; "[*]" when not ranked.
  [[nodiscard]] std::string ToString() const;

  friend bool operator==(const SymShape&, const SymShape&) = default;
};

// numpy's broadcasting rule. Throws shape/broadcast when two extents cannot fit.
[[nodiscard]] SymShape Broadcast(const SymShape& a, const SymShape& b);

// What is known when both hold for the same value (an unknown extent takes the other's); throws
// shape/contradiction when they provably differ.
[[nodiscard]] SymShape Meet(const SymShape& a, const SymShape& b);

}  // namespace lathe
