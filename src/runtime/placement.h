#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "lathe/runtime/plan.h"

namespace lathe::runtime {

/// Shapes and places for one binding of the plan's symbols.
struct Placement {
  std::vector<int64_t> symbols;
  std::vector<int64_t> dims;  ///< of all values, one after the other
  std::vector<uint64_t> value_bytes;
  std::vector<bool> idle;    ///< of each step, whether nothing that it writes has an element
  std::vector<bool> broken;  ///< of each constraint, whether it is conditional and does not hold
  std::vector<uint64_t> storage_offsets;  ///< in the arena
  uint64_t arena_bytes = 0;
};

/// Nothing if the dim has no value for these symbols, which are in the order of the plan's.
std::optional<int64_t> NumberOf(const Plan& plan, const Dim& dim, std::span<const int64_t> symbols);

/// Makes placements, and remembers those used last. Thread-safe.
class Placements {
 public:
  /// `plan` is checked, and outlives this.
  Placements(const Plan& plan, size_t max_placements);

  /// Allocates nothing if these symbols are remembered. Throws the error of a constraint that does
  /// not hold, run/shape if a dim has no value, plan/value if a value does not fit into what holds
  /// it.
  std::shared_ptr<const Placement> For(std::span<const int64_t> symbols);

  /// Throws the error of a conditional constraint that does not hold.
  void Require(const Placement& placement, uint32_t constraint) const {
    if (placement.broken[constraint]) CheckConstraint(constraint, placement.symbols);
  }

  std::span<const int64_t> ShapeOf(const Placement& placement, uint32_t value) const {
    return {placement.dims.data() + first_dim_[value], plan_.values[value].dims.size()};
  }
  const Plan& plan() const { return plan_; }

 private:
  static bool IsIdle(const PlanStep& step, const Placement& placement);
  struct Entry {
    std::shared_ptr<const Placement> placement;
    uint64_t used = 0;  ///< when, counted in look-ups
  };

  uint32_t Distinct(const Dim& dim);
  std::shared_ptr<const Placement> Make(std::span<const int64_t> symbols) const;
  std::vector<bool> CheckSizes(std::span<const int64_t> symbols) const;
  void CheckConstraint(size_t constraint, std::span<const int64_t> symbols) const;
  std::vector<int64_t> Evaluate(std::span<const int64_t> symbols) const;
  void PlaceValues(const std::vector<int64_t>& dims, Placement& placement) const;
  void PlaceStorages(const std::vector<int64_t>& dims, Placement& placement) const;
  uint64_t HolderBytes(const PlanValue& value, const Placement& placement,
                       const std::vector<int64_t>& dims) const;
  void EvictOldest();

  const Plan& plan_;
  const size_t max_placements_;
  std::vector<Dim> distinct_;            // all dims, each once
  std::vector<uint32_t> first_dim_;      // per value, in Placement::dims and value_dims_
  std::vector<uint32_t> value_dims_;     // indices in distinct_
  std::vector<uint32_t> storage_bytes_;  // per storage, index in distinct_
  std::unordered_multimap<uint64_t, uint32_t> distinct_by_hash_;  // while constructing

  std::mutex mutex_;
  std::unordered_map<uint64_t, Entry> entries_;  // by hash of the symbols; looked up only
  uint64_t lookups_ = 0;
};

}  // namespace lathe::runtime
