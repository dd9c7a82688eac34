#include "src/runtime/placement.h"

#include <algorithm>

#include "lathe/runtime/constraints.h"
#include "lathe/support/hash.h"
#include "lathe/support/pack_blocks.h"
#include "lathe/support/tensor.h"
#include "src/runtime/plan_check.h"

namespace lathe::runtime {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 62;

Error TooLarge(const PlanValue& value, std::span<const int64_t> shape) {
  return {ErrorCode::kLimit, "limit/size",
          StrCat("a tensor ", Name(value.element), ShapeToString(shape), " is too large")};
}

uint64_t BytesOf(const PlanValue& value, std::span<const int64_t> shape) {
  const auto bits = static_cast<uint64_t>(BitWidth(value.element));
  uint64_t elements = 1;
  uint64_t total = 0;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(extent), &elements)) {
      const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
      if (empty) return 0;
      throw TooLarge(value, shape);
    }
  }
  if (__builtin_mul_overflow(elements, bits, &total) || total / 8 > kMostBytes) {
    throw TooLarge(value, shape);
  }
  return StorageBytes(value.element, elements);
}

const char* PlaceName(PlanValue::Place place) {
  switch (place) {
    case PlanValue::Place::kInput:
      return "input";
    case PlanValue::Place::kOutput:
      return "output";
    case PlanValue::Place::kConstant:
      return "constant";
    default:
      return "storage";
  }
}

uint64_t HashOf(std::span<const int64_t> symbols) {
  return HashBytes(symbols.data(), symbols.size_bytes());
}

std::optional<int64_t> ValueOf(const Plan& plan, std::string_view symbol,
                               std::span<const int64_t> symbols) {
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (plan.symbols[i].name == symbol) return symbols[i];
  }
  return std::nullopt;
}

bool AllFixed(const Plan& plan) {
  return std::ranges::all_of(plan.storages,
                             [](const PlanStorage& s) { return s.bytes.is_constant(); });
}

}  // namespace

std::optional<int64_t> NumberOf(const Plan& plan, const Dim& dim,
                                std::span<const int64_t> symbols) {
  if (dim.is_constant()) return dim.value();
  return dim.Evaluate([&](std::string_view name) { return ValueOf(plan, name, symbols); });
}

Placements::Placements(const Plan& plan, size_t max_placements)
    : plan_(plan), max_placements_(std::max<size_t>(1, max_placements)) {
  for (const PlanValue& value : plan.values) {
    first_dim_.push_back(static_cast<uint32_t>(value_dims_.size()));
    for (const Dim& dim : value.dims) value_dims_.push_back(Distinct(dim));
  }
  for (const PlanStorage& storage : plan.storages)
    storage_bytes_.push_back(Distinct(storage.bytes));
  distinct_by_hash_.clear();
}

uint32_t Placements::Distinct(const Dim& dim) {
  const auto [first, last] = distinct_by_hash_.equal_range(dim.Hash());
  for (auto it = first; it != last; ++it) {
    if (distinct_[it->second] == dim) return it->second;
  }
  const auto index = static_cast<uint32_t>(distinct_.size());
  distinct_.push_back(dim);
  distinct_by_hash_.emplace(dim.Hash(), index);
  return index;
}

std::shared_ptr<const Placement> Placements::For(std::span<const int64_t> symbols) {
  const uint64_t hash = HashOf(symbols);
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(hash);
    if (found != entries_.end() &&
        std::equal(symbols.begin(), symbols.end(), found->second.placement->symbols.begin())) {
      found->second.used = ++lookups_;
      return found->second.placement;
    }
  }
  std::shared_ptr<const Placement> made = Make(symbols);
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= max_placements_ && !entries_.contains(hash)) EvictOldest();
  entries_[hash] = {made, ++lookups_};
  return made;
}

void Placements::EvictOldest() {
  entries_.erase(
      std::min_element(entries_.begin(), entries_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
}

std::shared_ptr<const Placement> Placements::Make(std::span<const int64_t> symbols) const {
  auto placement = std::make_shared<Placement>();
  placement->symbols.assign(symbols.begin(), symbols.end());
  placement->broken = CheckSizes(symbols);
  const std::vector<int64_t> dims = Evaluate(symbols);
  PlaceStorages(dims, *placement);
  PlaceValues(dims, *placement);
  for (const PlanStep& step : plan_.steps) placement->idle.push_back(IsIdle(step, *placement));
  return placement;
}

// A kernel that fills no element may well have astronomically many rows of none. One that checks
// what it reads has to.
bool Placements::IsIdle(const PlanStep& step, const Placement& placement) {
  const auto written =
      std::span(step.values).subspan(std::min<size_t>(step.reads, step.values.size()));
  return !step.checks && !written.empty() &&
         std::ranges::all_of(written, [&](uint32_t v) { return placement.value_bytes[v] == 0; });
}

// Which of the conditional constraints do not hold.
std::vector<bool> Placements::CheckSizes(std::span<const int64_t> symbols) const {
  std::vector<bool> broken(plan_.constraints.size());
  const auto value_of = [&](std::string_view name) { return ValueOf(plan_, name, symbols); };
  for (size_t i = 0; i < plan_.constraints.size(); ++i) {
    const PlanConstraint& constraint = plan_.constraints[i];
    if (constraint.condition.Holds(value_of)) continue;
    broken[i] = constraint.is_conditional;
    if (!constraint.is_conditional) CheckConstraint(i, symbols);
  }
  return broken;
}

void Placements::CheckConstraint(size_t constraint, std::span<const int64_t> symbols) const {
  std::vector<BoundSymbol> bound;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const PlanSymbol& symbol = plan_.symbols[i];
    bound.push_back({symbol.name, symbols[i], plan_.inputs[symbol.input].name});
  }
  CheckConstraints(std::span(plan_.constraints).subspan(constraint, 1), bound);
}

std::vector<int64_t> Placements::Evaluate(std::span<const int64_t> symbols) const {
  std::vector<int64_t> results;
  for (const Dim& dim : distinct_) {
    const auto value = NumberOf(plan_, dim, symbols);
    if (!value || *value < 0) {
      Error error(ErrorCode::kShape, "run/shape",
                  value ? StrCat("dim ", dim.ToString(), " is ", *value)
                        : StrCat("dim ", dim.ToString(), " has no value"));
      for (size_t i = 0; i < symbols.size(); ++i) {
        error.Note(StrCat(plan_.symbols[i].name, " = ", symbols[i], " by input '",
                          plan_.inputs[plan_.symbols[i].input].name, "'"));
      }
      throw error;
    }
    results.push_back(*value);
  }
  return results;
}

void Placements::PlaceStorages(const std::vector<int64_t>& dims, Placement& placement) const {
  std::vector<MemoryBlock> blocks;
  uint64_t end = 0;
  uint64_t total = 0;
  for (size_t i = 0; i < plan_.storages.size(); ++i) {
    const PlanStorage& storage = plan_.storages[i];
    const auto bytes = static_cast<uint64_t>(dims[storage_bytes_[i]]);
    if (bytes > kMostBytes || __builtin_add_overflow(total, bytes, &total) || total > kMostBytes) {
      throw Error(ErrorCode::kLimit, "limit/size",
                  StrCat("a tensor of ", HumanBytes(bytes), " is too large"));
    }
    if (bytes > 0) end = std::max(end, storage.offset + bytes);
    blocks.push_back({bytes, storage.begin, storage.end, storage.offset});
  }
  placement.arena_bytes = AllFixed(plan_) ? end : PackBlocks(blocks, kStorageAlignment);
  for (const MemoryBlock& block : blocks) placement.storage_offsets.push_back(block.offset);
}

uint64_t Placements::HolderBytes(const PlanValue& value, const Placement& placement,
                                 const std::vector<int64_t>& dims) const {
  switch (value.place) {
    case PlanValue::Place::kInput:
      return placement.value_bytes[plan_.inputs[value.index].value];
    case PlanValue::Place::kOutput:
      return placement.value_bytes[plan_.outputs[value.index].value];
    case PlanValue::Place::kConstant:
      return plan_.constants[value.index].byte_size();
    default:
      return static_cast<uint64_t>(dims[storage_bytes_[value.index]]);
  }
}

void Placements::PlaceValues(const std::vector<int64_t>& dims, Placement& placement) const {
  for (const uint32_t dim : value_dims_) placement.dims.push_back(dims[dim]);
  for (uint32_t i = 0; i < plan_.values.size(); ++i) {
    placement.value_bytes.push_back(BytesOf(plan_.values[i], ShapeOf(placement, i)));
  }
  for (uint32_t i = 0; i < plan_.values.size(); ++i) {
    const PlanValue& value = plan_.values[i];
    const uint64_t bytes = placement.value_bytes[i];
    const uint64_t holder = HolderBytes(value, placement, dims);
    if (bytes == 0 || (bytes <= holder && value.offset <= holder - bytes)) continue;
    throw PlanError("plan/value", "value ", i, " : ", Name(value.element),
                    ShapeToString(ShapeOf(placement, i)), " at byte ", value.offset,
                    " does not fit into ", PlaceName(value.place), " ", value.index, " of ", holder,
                    " bytes");
  }
}

}  // namespace lathe::runtime
