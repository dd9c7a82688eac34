#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/support/dim.h"

namespace lathe {

/// Whether `op` may write its only result over operand `operand`, which dies there and has the
/// result's size. The default allows what is computed element by element.
using InPlaceRule = std::function<bool(const Operation* op, size_t operand)>;
bool ElementwiseInPlace(const Operation* op, size_t operand);

struct MemoryPlanOptions {
  std::vector<Dim::Binding> symbols = {};  ///< sizes of symbolic dims
  size_t alignment = 64;                   ///< of every offset; a power of two
  bool share = true;                       ///< results over operands, reshapes of one storage
  InPlaceRule in_place = ElementwiseInPlace;
};

/// Which bytes of one arena each tensor of a program takes, decided before it runs. Values that
/// hold the same bytes, or follow one another in them, are one storage; storages that are alive at
/// the same step do not overlap. Inputs, constants and parameters lie outside the arena, as does
/// what has no size before the program runs.
///
/// A step is an operation in program order, those of regions included. What a region op reads is
/// alive until its last inner step, so a loop may repeat. What groups and functions compute inside
/// is not part of the plan.
class MemoryPlan {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Storage {
    bool in_arena = true;
    size_t bytes = 0;
    size_t offset = 0;          ///< in the arena
    uint32_t begin = 0;         ///< first step at which it holds something
    uint32_t end = 0;           ///< last one
    std::vector<Value> values;  ///< in program order
  };
  /// Throws memory/symbol for names that no dim has.
  explicit MemoryPlan(const Program& program, const MemoryPlanOptions& options = {});

  /// In order of `begin`.
  const std::vector<Storage>& storages() const { return storages_; }
  /// Index of the value's storage; kNone if its size is unknown or it is not a tensor.
  uint32_t storage_of(Value value) const;
  /// Tensors and containers whose size is not known, in program order.
  const std::vector<Value>& dynamic() const { return dynamic_; }
  /// Bytes of the arena.
  size_t peak() const { return peak_; }
  /// No arena can be smaller: what is alive at the worst step.
  size_t lower_bound() const { return lower_bound_; }
  /// What all values would take side by side.
  size_t unshared() const { return unshared_; }

 private:
  friend class MemoryPlanner;
  std::vector<Storage> storages_;
  std::vector<Value> dynamic_;
  std::unordered_map<Value, uint32_t> storage_of_;  // look-up only
  size_t peak_ = 0;
  size_t lower_bound_ = 0;
  size_t unshared_ = 0;
};

}  // namespace lathe
