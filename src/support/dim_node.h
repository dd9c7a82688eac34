#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lathe/support/dim.h"

namespace lathe::internal {

// In the order in which unlike expressions are sorted.
enum class DimKind : uint8_t {
  kConstant,  // one that does not fit into the handle
  kSymbol,
  kFloorDiv,
  kCeilDiv,
  kMod,
  kMin,
  kMax,
  kBroadcast,
  kSum,
};

// coefficient * product of factors: symbols and functions, sorted, at least one.
struct DimTerm {
  int64_t coefficient = 0;
  std::vector<Dim> factors;
};

// A sum of products plus a constant. Terms are sorted by their factors, which differ between any
// two of them; no coefficient is 0.
struct DimPoly {
  int64_t constant = 0;
  std::vector<DimTerm> terms;

  [[nodiscard]] bool IsZero() const { return constant == 0 && terms.empty(); }
};

// Integers with infinities: |x| <= kInfinite, and what reaches it is infinite. Products of two
// finite numbers fit into 128 bits.
using Wide = __int128;
constexpr Wide kInfinite = (Wide{1} << 63) + 1;

struct Interval {
  Wide low = -kInfinite;
  Wide high = kInfinite;
};

// Immutable after construction. The size counts the nodes of the tree, the depth its levels; both
// are bounded (Dim::kMaxSize, kMaxDepth), so recursion over an expression is too.
struct DimNode {
  std::atomic<uint32_t> references{1};
  DimKind kind = DimKind::kConstant;
  uint32_t depth = 1;
  size_t size = 1;
  uint64_t hash = 0;
  Interval bounds;            // over all symbols >= 0
  std::string name;           // kSymbol
  std::vector<Dim> operands;  // functions
  DimPoly sum;                // kSum; kConstant has only sum.constant

  // Null for unknown and for constants inside the handle.
  static const DimNode* Of(const Dim& dim) {
    return dim.HasNode() ? reinterpret_cast<const DimNode*>(dim.bits_) : nullptr;
  }
  // Takes over the one reference.
  static Dim Adopt(DimNode* node) {
    Dim dim;
    dim.bits_ = reinterpret_cast<uintptr_t>(node);
    return dim;
  }
};

// From those of its parts.
[[nodiscard]] Interval FindBounds(const DimNode& node);

// Null for anything but expressions.
const DimNode* ExpressionOf(const Dim& dim);
[[nodiscard]] bool IsFunction(const Dim& dim, DimKind kind);
[[nodiscard]] const char* FunctionName(DimKind kind);

// A total order that depends on the expressions alone; zero iff equal. Not for unknown.
[[nodiscard]] int Compare(const Dim& a, const Dim& b);
[[nodiscard]] int Compare(const std::vector<Dim>& a, const std::vector<Dim>& b);

// The node as it is; unknown above the limits.
[[nodiscard]] Dim MakeFunction(DimKind kind, std::vector<Dim> operands);
// The simplest form of the sum.
[[nodiscard]] Dim MakeSum(DimPoly poly);

// The same sum, in which max(a + 1, b + 1) is max(a, b) + 1 beside max(a, b), so that one may
// cancel the other; nullopt where there is no such pair.
[[nodiscard]] std::optional<DimPoly> UniteExtrema(const DimPoly& poly);
// max(a, b) + 1 is max(a + 1, b + 1), which products keep whole; nullopt for other sums.
[[nodiscard]] std::optional<Dim> ShiftedExtremum(const DimPoly& poly);

// Precondition: not unknown.
[[nodiscard]] DimPoly PolyOf(const Dim& dim);
// nullopt on overflow, and for products far above the limits.
[[nodiscard]] std::optional<DimPoly> Add(const DimPoly& a, const DimPoly& b);
[[nodiscard]] std::optional<DimPoly> Multiply(const DimPoly& a, const DimPoly& b);
[[nodiscard]] std::optional<DimPoly> Scale(const DimPoly& a, int64_t factor);

// Applies `kind` to operands that may be anything, with simplification.
[[nodiscard]] Dim ApplyFunction(DimKind kind, const std::vector<Dim>& operands);

// Rounding division of constants; nullopt for division by zero and overflow.
[[nodiscard]] std::optional<int64_t> FloorDivide(int64_t a, int64_t b);
[[nodiscard]] std::optional<int64_t> CeilDivide(int64_t a, int64_t b);
[[nodiscard]] std::optional<int64_t> Modulo(int64_t a, int64_t b);

}  // namespace lathe::internal
