#include "src/runtime/placement.h"

#include <algorithm>
#include <set>

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
    case PlanValue::Place::kVariable:
      return "variable";
    default:
      return "storage";
  }
}

uint64_t HashOf(std::span<const int64_t> symbols) {
  return HashBytes(symbols.data(), symbols.size_bytes());
}

std::string WhereFrom(const Plan& plan, const PlanSymbol& symbol) {
  if (symbol.is_computed()) return ", computed by the program";
  return StrCat(" by input '", plan.inputs[symbol.input].name, "'");
}

}  // namespace

std::span<const Dim> PlacedDims(const PlanValue& value) {
  return value.is_object() ? std::span<const Dim>() : std::span(value.dims);
}

SymbolTable::SymbolTable(const Plan& plan)
    : num_inputs_(static_cast<size_t>(std::ranges::find_if(plan.symbols, &PlanSymbol::is_computed) -
                                      plan.symbols.begin())) {
  for (uint32_t i = 0; i < plan.symbols.size(); ++i) numbers_.emplace(plan.symbols[i].name, i);
}

std::optional<int64_t> SymbolTable::ValueOf(std::string_view name,
                                            std::span<const int64_t> symbols) const {
  const auto found = numbers_.find(name);
  if (found == numbers_.end() || found->second >= symbols.size()) return std::nullopt;
  const int64_t value = symbols[found->second];
  return value == kUnbound ? std::nullopt : std::optional(value);
}

std::optional<int64_t> SymbolTable::NumberOf(const Dim& dim,
                                             std::span<const int64_t> symbols) const {
  if (dim.is_constant()) return dim.value();
  return dim.Evaluate([&](std::string_view name) { return ValueOf(name, symbols); });
}

uint32_t SymbolTable::StageOf(const Dim& dim) const {
  if (dim.is_constant() || num_inputs_ == numbers_.size()) return 0;
  std::vector<std::string> names;
  dim.CollectSymbols(names);
  size_t stage = 0;
  for (const std::string& name : names) {
    const auto found = numbers_.find(name);
    if (found == numbers_.end() || found->second < num_inputs_) continue;
    stage = std::max(stage, found->second - num_inputs_ + 1);
  }
  return static_cast<uint32_t>(stage);
}

Placements::Placements(const Plan& plan, size_t max_placements)
    : plan_(plan), symbols_(plan), max_placements_(std::max<size_t>(1, max_placements)) {
  for (const PlanValue& value : plan.values) {
    first_dim_.push_back(static_cast<uint32_t>(value_dims_.size()));
    for (const Dim& dim : PlacedDims(value)) value_dims_.push_back(Distinct(dim));
  }
  for (const PlanStorage& storage : plan.storages)
    storage_bytes_.push_back(Distinct(storage.bytes));
  distinct_by_hash_.clear();
  all_fixed_ = std::ranges::all_of(plan.storages,
                                   [](const PlanStorage& s) { return s.bytes.is_constant(); });
  branches_ = std::ranges::any_of(plan.steps, [](const PlanStep& step) {
    return step.kind == PlanStep::Kind::kBranch || step.kind == PlanStep::Kind::kBelow;
  });
  MakeStages();
}

uint32_t Placements::StageOfDims(uint32_t value) const {
  uint32_t stage = 0;
  for (size_t i = 0; i < PlacedDims(plan_.values[value]).size(); ++i) {
    stage = std::max(stage, distinct_stage_[value_dims_[first_dim_[value] + i]]);
  }
  return stage;
}

uint32_t Placements::ComputeStage(uint32_t v) const {
  const PlanValue& value = plan_.values[v];
  const uint32_t stage = StageOfDims(v);
  if (value.place == PlanValue::Place::kArena) return std::max(stage, StageOfStorage(value.index));
  if (value.place != PlanValue::Place::kOutput) return stage;
  return std::max(stage, StageOfDims(plan_.outputs[value.index].value));
}

// What belongs to no computed symbol is placed when the inputs are known.
void Placements::MakeStages() {
  stages_.resize(1 + plan_.symbols.size() - symbols_.num_inputs());
  const auto index = [](size_t i) { return static_cast<uint32_t>(i); };
  for (size_t i = 0; i < distinct_.size(); ++i) {
    distinct_stage_.push_back(symbols_.StageOf(distinct_[i]));
    stages_[distinct_stage_[i]].dims.push_back(index(i));
  }
  for (size_t i = 0; i < plan_.values.size(); ++i) {
    value_stage_.push_back(ComputeStage(index(i)));
    stages_[value_stage_[i]].values.push_back(index(i));
  }
  for (size_t i = 0; i < plan_.storages.size(); ++i) {
    stages_[StageOfStorage(index(i))].storages.push_back(index(i));
  }
  for (size_t i = 0; i < plan_.constraints.size(); ++i) {
    const SizeCondition& c = plan_.constraints[i].condition;
    const uint32_t stage = std::max(symbols_.StageOf(c.a), symbols_.StageOf(c.b));
    stages_[stage].constraints.push_back(index(i));
  }
  // A loop may place what a step writes after what it reads, whichever comes later in the order.
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    std::set<uint32_t> used;
    for (const uint32_t v : plan_.steps[i].values) used.insert(value_stage_[v]);
    if (used.empty() || used.size() > 1) used.erase(0);
    if (used.empty()) used.insert(0);
    for (const uint32_t stage : used) stages_[stage].steps.push_back(index(i));
  }
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
  placement->symbols.resize(plan_.symbols.size(), kUnbound);
  placement->distinct.resize(distinct_.size(), -1);
  placement->dims.resize(value_dims_.size());
  placement->value_bytes.resize(plan_.values.size());
  placement->states.resize(plan_.steps.size(), StepState::kMisfit);  // until they are placed
  placement->broken.resize(plan_.constraints.size());
  placement->storage_offsets.resize(plan_.storages.size());
  placement->arena_bytes.resize(stages_.size());
  placement->placed.resize(stages_.size());
  Place(0, *placement);
  return placement;
}

uint32_t Placements::Bind(Placement& placement, uint32_t symbol, int64_t value,
                          const Placement* before) const {
  const auto stage = static_cast<uint32_t>(symbol - symbols_.num_inputs() + 1);
  // Later stages may be made of it, too; a loop that binds it again need not come by them.
  const bool is_other = placement.symbols[symbol] != value;
  std::fill(placement.placed.begin() + stage,
            is_other ? placement.placed.end() : placement.placed.begin() + stage + 1, false);
  placement.symbols[symbol] = value;
  const auto decisive = [&](const Placement& p) { return std::span(p.symbols).first(symbol + 1); };
  const bool is_alike = before != nullptr && before->placed[stage] &&
                        std::ranges::equal(decisive(*before), decisive(placement));
  is_alike ? PlaceAs(stage, *before, placement) : Place(stage, placement);
  return stage;
}

void Placements::Place(uint32_t stage, Placement& placement) const {
  CheckSizes(stages_[stage], placement);
  Evaluate(stages_[stage], placement);
  PlaceStorages(stage, placement);
  PlaceValues(stages_[stage], placement);
  SetStates(stages_[stage], placement);
  placement.placed[stage] = true;
}

void Placements::PlaceAs(uint32_t stage, const Placement& before, Placement& placement) const {
  const Stage& s = stages_[stage];
  for (const uint32_t i : s.constraints) placement.broken[i] = before.broken[i];
  for (const uint32_t i : s.dims) placement.distinct[i] = before.distinct[i];
  for (const uint32_t i : s.storages) placement.storage_offsets[i] = before.storage_offsets[i];
  for (const uint32_t i : s.values) {
    std::ranges::copy(ShapeOf(before, i), placement.dims.begin() + first_dim_[i]);
    placement.value_bytes[i] = before.value_bytes[i];
  }
  placement.arena_bytes[stage] = before.arena_bytes[stage];
  SetStates(s, placement);
  placement.placed[stage] = true;
}

void Placements::SetStates(const Stage& stage, Placement& placement) const {
  for (const uint32_t i : stage.steps) placement.states[i] = StateOf(plan_.steps[i], placement);
}

// A kernel that fills no element may well have astronomically many rows of none. One that checks
// what it reads has to.
StepState Placements::StateOf(const PlanStep& step, const Placement& placement) const {
  const auto fits = [&](uint32_t v) { return Fits(v, placement); };
  if (!std::ranges::all_of(step.values, fits)) return StepState::kMisfit;
  const auto written =
      std::span(step.values).subspan(std::min<size_t>(step.reads, step.values.size()));
  const auto is_empty = [&](uint32_t v) {
    return placement.value_bytes[v] == 0 && !plan_.values[v].is_object();
  };
  const bool idle = !step.checks && !written.empty() && std::ranges::all_of(written, is_empty);
  return idle ? StepState::kIdle : StepState::kRuns;
}

void Placements::ThrowMisfit(const Placement& placement, uint32_t step) const {
  for (const uint32_t v : plan_.steps[step].values) CheckFits(v, placement);
  LATHE_CHECK(false, "step ", step, " fits");
}

// Notes which of the conditional constraints do not hold.
void Placements::CheckSizes(const Stage& stage, Placement& placement) const {
  const std::span<const int64_t> symbols = placement.symbols;
  const auto value_of = [&](std::string_view name) { return symbols_.ValueOf(name, symbols); };
  for (const uint32_t i : stage.constraints) {
    const PlanConstraint& constraint = plan_.constraints[i];
    const bool holds = constraint.condition.Holds(value_of);
    placement.broken[i] = !holds && constraint.is_conditional;
    if (!holds && !constraint.is_conditional) CheckConstraint(i, symbols);
  }
}

void Placements::CheckConstraint(size_t constraint, std::span<const int64_t> symbols) const {
  std::vector<BoundSymbol> bound;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i] == kUnbound) continue;
    const PlanSymbol& symbol = plan_.symbols[i];
    std::string_view input;
    if (!symbol.is_computed()) input = plan_.inputs[symbol.input].name;
    bound.push_back({symbol.name, symbols[i], input});
  }
  CheckConstraints(std::span(plan_.constraints).subspan(constraint, 1), bound);
}

// Where there are branches, those who use what has no size, or less than none, may not be run.
void Placements::Evaluate(const Stage& stage, Placement& placement) const {
  for (const uint32_t i : stage.dims) {
    const auto value = symbols_.NumberOf(distinct_[i], placement.symbols);
    placement.distinct[i] = std::max<int64_t>(value.value_or(-1), -1);
    if (!branches_) CheckDim(i, placement);
  }
}

void Placements::CheckDim(uint32_t dim, const Placement& placement) const {
  if (placement.distinct[dim] >= 0) return;
  const std::string text = distinct_[dim].ToString();
  const auto value = symbols_.NumberOf(distinct_[dim], placement.symbols);
  Error error(ErrorCode::kShape, "run/shape",
              value ? StrCat("dim ", text, " is ", *value) : StrCat("dim ", text, " has no value"));
  for (size_t s = 0; s < plan_.symbols.size(); ++s) {
    if (placement.symbols[s] == kUnbound) continue;
    error.Note(StrCat(plan_.symbols[s].name, " = ", placement.symbols[s],
                      WhereFrom(plan_, plan_.symbols[s])));
  }
  throw error;
}

uint64_t Placements::StorageBytesOf(uint32_t storage, const Placement& placement) const {
  return static_cast<uint64_t>(std::max<int64_t>(placement.distinct[storage_bytes_[storage]], 0));
}

void Placements::PlaceStorages(uint32_t stage, Placement& placement) const {
  const std::vector<uint32_t>& storages = stages_[stage].storages;
  std::vector<MemoryBlock> blocks;
  uint64_t end = 0;
  uint64_t total = 0;
  for (const uint32_t i : storages) {
    const PlanStorage& storage = plan_.storages[i];
    const uint64_t bytes = StorageBytesOf(i, placement);
    if (bytes > kMostBytes || __builtin_add_overflow(total, bytes, &total) || total > kMostBytes) {
      throw Error(ErrorCode::kLimit, "limit/size",
                  StrCat("a tensor of ", HumanBytes(bytes), " is too large"));
    }
    if (bytes > 0) end = std::max(end, storage.offset + bytes);
    blocks.push_back({bytes, storage.begin, storage.end, storage.offset});
  }
  placement.arena_bytes[stage] = all_fixed_ ? end : PackBlocks(blocks, kStorageAlignment);
  for (size_t i = 0; i < blocks.size(); ++i) {
    placement.storage_offsets[storages[i]] = blocks[i].offset;
  }
}

uint64_t Placements::HolderBytes(const PlanValue& value, const Placement& placement) const {
  switch (value.place) {
    case PlanValue::Place::kInput:
      return placement.value_bytes[plan_.inputs[value.index].value];
    case PlanValue::Place::kOutput:
      return placement.value_bytes[plan_.outputs[value.index].value];
    case PlanValue::Place::kConstant:
      return plan_.constants[value.index].byte_size();
    case PlanValue::Place::kVariable:
      return plan_.constants[plan_.variables[value.index].initial].byte_size();
    default:
      return StorageBytesOf(value.index, placement);
  }
}

void Placements::PlaceValues(const Stage& stage, Placement& placement) const {
  for (const uint32_t i : stage.values) {
    if (plan_.values[i].is_object()) continue;
    const size_t rank = plan_.values[i].dims.size();
    for (size_t d = first_dim_[i]; d < first_dim_[i] + rank; ++d) {
      placement.dims[d] = placement.distinct[value_dims_[d]];
    }
    const std::span<const int64_t> shape = ShapeOf(placement, i);
    const bool open = std::ranges::find(shape, -1) != shape.end();
    placement.value_bytes[i] = open ? 0 : BytesOf(plan_.values[i], shape);
  }
  if (branches_) return;
  for (const uint32_t i : stage.values) CheckFits(i, placement);
}

bool Placements::Fits(uint32_t value, const Placement& placement) const {
  const std::span<const int64_t> shape = ShapeOf(placement, value);
  if (std::ranges::find(shape, -1) != shape.end()) return false;
  const uint64_t bytes = placement.value_bytes[value];
  const uint64_t offset = plan_.values[value].offset;
  if (bytes == 0) return true;
  const uint64_t holder = HolderBytes(plan_.values[value], placement);
  return bytes <= holder && offset <= holder - bytes;
}

void Placements::CheckFits(uint32_t i, const Placement& placement) const {
  const PlanValue& value = plan_.values[i];
  for (size_t d = 0; d < PlacedDims(value).size(); ++d) {
    CheckDim(value_dims_[first_dim_[i] + d], placement);
  }
  if (Fits(i, placement)) return;
  throw PlanError("plan/value", "value ", i, " : ", Name(value.element),
                  ShapeToString(ShapeOf(placement, i)), " at byte ", value.offset,
                  " does not fit into ", PlaceName(value.place), " ", value.index, " of ",
                  HolderBytes(value, placement), " bytes");
}

}  // namespace lathe::runtime
