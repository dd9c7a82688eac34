#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lathe/runtime/plan.h"

namespace lathe::runtime {

/// What a computed symbol is before a step says it.
inline constexpr int64_t kUnbound = -1;

enum class StepState : uint8_t {
  kRuns,
  kIdle,    ///< nothing that it writes has an element
  kMisfit,  ///< sizes of what it uses contradict each other, or are not computed yet: the way must
            ///< not lead there
};

/// Shapes and places for one binding of the plan's symbols. What is made of computed symbols is
/// empty until they are bound.
struct Placement {
  std::vector<int64_t> symbols;
  std::vector<int64_t> distinct;  ///< what each of the plan's dims is; -1: nothing
  std::vector<int64_t> dims;      ///< of all values, one after the other
  std::vector<uint64_t> value_bytes;
  std::vector<StepState> states;  ///< of each step
  std::vector<bool> broken;  ///< of each constraint, whether it is conditional and does not hold
  std::vector<uint64_t> storage_offsets;  ///< in the arena of its stage
  std::vector<uint64_t> arena_bytes;      ///< of each stage
  std::vector<bool> placed;               ///< each stage, as a whole, for the symbols as they are
};

/// What is placed at once: stage 0 when the inputs are known, stage k when computed symbol k - 1,
/// counted among the computed ones, is bound. A thing belongs to the last stage that it depends on,
/// a step to all of them.
struct Stage {
  std::vector<uint32_t> dims;  ///< indices in the distinct ones
  std::vector<uint32_t> values, storages, constraints, steps;
};

/// The dims of what is placed; an object has a shape of its own.
std::span<const Dim> PlacedDims(const PlanValue& value);

/// The symbols of a plan by name.
class SymbolTable {
 public:
  /// `plan` outlives this.
  explicit SymbolTable(const Plan& plan);

  /// Of those that inputs decide, which come before those that the program computes.
  size_t num_inputs() const { return num_inputs_; }
  /// What the symbol of that name is, where `symbols` are those of the plan in its order; nothing
  /// if it has no value.
  std::optional<int64_t> ValueOf(std::string_view name, std::span<const int64_t> symbols) const;
  /// The same of a dim.
  std::optional<int64_t> NumberOf(const Dim& dim, std::span<const int64_t> symbols) const;
  /// 1 + the number, among computed symbols, of the last one that occurs in the dim; 0 if none
  /// does.
  uint32_t StageOf(const Dim& dim) const;

 private:
  std::unordered_map<std::string_view, uint32_t> numbers_;  // looked up only
  size_t num_inputs_;
};

/// Makes placements, and remembers those used last. Thread-safe.
class Placements {
 public:
  /// `plan` is checked, and outlives this.
  Placements(const Plan& plan, size_t max_placements);

  /// Stage 0, for the symbols of inputs. Allocates nothing if these are remembered. Throws the
  /// error of a constraint that does not hold, run/shape if a dim has no value, plan/value if a
  /// value does not fit into what holds it.
  std::shared_ptr<const Placement> For(std::span<const int64_t> symbols);

  /// Computed symbol `symbol` is `value`: places the stage of that number, which is returned, as in
  /// `before` if that, a placement for the same inputs, was made for the same sizes. Throws as For.
  uint32_t Bind(Placement& placement, uint32_t symbol, int64_t value,
                const Placement* before) const;

  uint32_t num_stages() const { return static_cast<uint32_t>(stages_.size()); }
  uint32_t StageOfValue(uint32_t value) const { return value_stage_[value]; }
  uint32_t StageOfStorage(uint32_t storage) const {
    return distinct_stage_[storage_bytes_[storage]];
  }

  /// Throws what is wrong with the sizes of what step `step` uses.
  [[noreturn]] void ThrowMisfit(const Placement& placement, uint32_t step) const;

  /// Throws the error of a conditional constraint that does not hold.
  void Require(const Placement& placement, uint32_t constraint) const {
    if (placement.broken[constraint]) CheckConstraint(constraint, placement.symbols);
  }

  std::span<const int64_t> ShapeOf(const Placement& placement, uint32_t value) const {
    return {placement.dims.data() + first_dim_[value], PlacedDims(plan_.values[value]).size()};
  }
  const Plan& plan() const { return plan_; }
  const SymbolTable& symbols() const { return symbols_; }

 private:
  StepState StateOf(const PlanStep& step, const Placement& placement) const;
  bool Fits(uint32_t value, const Placement& placement) const;
  void CheckFits(uint32_t value, const Placement& placement) const;
  struct Entry {
    std::shared_ptr<const Placement> placement;
    uint64_t used = 0;  ///< when, counted in look-ups
  };

  uint32_t Distinct(const Dim& dim);
  uint32_t StageOfDims(uint32_t value) const;
  uint32_t ComputeStage(uint32_t value) const;
  void MakeStages();
  std::shared_ptr<const Placement> Make(std::span<const int64_t> symbols) const;
  void Place(uint32_t stage, Placement& placement) const;
  void PlaceAs(uint32_t stage, const Placement& before, Placement& placement) const;
  void SetStates(const Stage& stage, Placement& placement) const;
  void CheckSizes(const Stage& stage, Placement& placement) const;
  void CheckConstraint(size_t constraint, std::span<const int64_t> symbols) const;
  void Evaluate(const Stage& stage, Placement& placement) const;
  void CheckDim(uint32_t dim, const Placement& placement) const;
  void PlaceValues(const Stage& stage, Placement& placement) const;
  void PlaceStorages(uint32_t stage, Placement& placement) const;
  uint64_t StorageBytesOf(uint32_t storage, const Placement& placement) const;
  uint64_t HolderBytes(const PlanValue& value, const Placement& placement) const;
  void EvictOldest();

  const Plan& plan_;
  const SymbolTable symbols_;
  const size_t max_placements_;
  bool branches_ = false;   // some steps may not be run
  bool all_fixed_ = false;  // the bytes of all storages are known
  std::vector<Stage> stages_;
  std::vector<uint32_t> value_stage_;
  std::vector<Dim> distinct_;  // all dims, each once
  std::vector<uint32_t> distinct_stage_;
  std::vector<uint32_t> first_dim_;      // per value, in Placement::dims and value_dims_
  std::vector<uint32_t> value_dims_;     // indices in distinct_
  std::vector<uint32_t> storage_bytes_;  // per storage, index in distinct_
  std::unordered_multimap<uint64_t, uint32_t> distinct_by_hash_;  // while constructing

  std::mutex mutex_;
  std::unordered_map<uint64_t, Entry> entries_;  // by hash of the symbols; looked up only
  uint64_t lookups_ = 0;
};

}  // namespace lathe::runtime
