#include "test/differential/excuses.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "lathe/ir/type.h"

namespace lathe::testing {

namespace {

bool HasNoElements(Type type) {
  const auto tensor = type.dyn_cast<AnyTensorType>();
  return tensor && tensor.has_rank() &&
         std::ranges::any_of(tensor.dims(), [](const Dim& d) { return d.IsConstant(0); });
}

/// Whether it is made of nothing but sizes and constants, so that a compiler may know it.
bool FollowsFromSizes(Value value) {
  std::vector<Value> todo{value};
  OpSet seen;
  while (!todo.empty()) {
    const Operation* op = todo.back().defining_op();
    todo.pop_back();
    if (op == nullptr || op->num_regions() != 0 || op->name() == "nn.feed") return false;
    if (op->name() == "nn.shape" || op->name() == "nn.size" || !seen.insert(op).second) continue;
    if (op->num_operands() == 0 && op->name() != "builtin.constant") return false;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      if (op->operand(i)) todo.push_back(op->operand(i));
    }
  }
  return true;
}

/// Where in a list of that many a constant position is; absent: the one given instead.
std::optional<size_t> PositionIn(Value position, size_t count, size_t absent) {
  if (!position) return absent;
  const Operation* made = position.defining_op();
  if (made == nullptr || made->name() != "builtin.constant") return std::nullopt;
  const Tensor& value = made->attribute("value").cast<TensorAttribute>().value();
  if (value.num_elements() != 1) return std::nullopt;
  const int64_t at = ToInt64s(value)[0];
  return static_cast<size_t>(at < 0 ? at + static_cast<int64_t>(count) : at);
}

Value OperandOrNull(const Operation* op, size_t i) {
  return i < op->num_operands() ? op->operand(i) : Value();
}

/// The tensors of a list that is made of them one by one, at constant positions; nothing if it is
/// made in another way, or not at all, as a position is outside of it.
std::optional<std::vector<Value>> ItemsOf(Value list) {
  std::vector<const Operation*> edits;
  const Operation* op = list.defining_op();
  for (; op != nullptr && (op->name() == "nn.sequence_insert" || op->name() == "nn.sequence_erase");
       op = op->operand(0).defining_op()) {
    edits.push_back(op);
  }
  std::vector<Value> items;
  if (op == nullptr || op->num_regions() != 0) return std::nullopt;
  if (op->name() != "nn.sequence_construct" && op->name() != "nn.sequence_empty")
    return std::nullopt;
  for (size_t i = 0; i < op->num_operands(); ++i) items.push_back(op->operand(i));
  for (auto edit = edits.rbegin(); edit != edits.rend(); ++edit) {
    const bool inserts = (*edit)->name() == "nn.sequence_insert";
    const size_t end = inserts ? items.size() + 1 : items.size();
    const auto at = PositionIn(OperandOrNull(*edit, inserts ? 2 : 1), items.size(), end - 1);
    if (!at || *at >= end) return std::nullopt;
    const auto place = items.begin() + static_cast<std::ptrdiff_t>(*at);
    if (inserts) {
      items.insert(place, (*edit)->operand(1));
    } else {
      items.erase(place);
    }
  }
  return items;
}

bool Holds(const Region& region, const Operation* op) {
  for (; op != nullptr; op = op->parent_op()) {
    if (op->block() != nullptr && op->block()->region() == &region) return true;
  }
  return false;
}

/// What decides the elements of outputs, not their shapes alone.
class Needs {
 public:
  /// The branches that hold `ran` are those that were taken.
  Needs(const Program& program, const Operation* ran) : ran_(ran) {
    for (const Operation& op : *program.block()) {
      if (op.name() == "nn.fetch") NeedOperands(&op, 0);
    }
    while (!todo_.empty()) {
      const Value value = todo_.back();
      todo_.pop_back();
      if (value.is_block_argument()) {
        EnterFromInside(value);
      } else {
        EnterFromOutside(value);
      }
    }
  }

  bool Contains(const Operation* op) const { return ops_.contains(op); }

 private:
  void Need(Value value) {
    if (value && !HasNoElements(value.type()) && values_.insert(value).second)
      todo_.push_back(value);
  }

  void NeedOperands(const Operation* op, size_t from) {
    ops_.insert(op);
    for (size_t i = from; i < op->num_operands(); ++i) Need(op->operand(i));
  }

  /// Of a list that is known one by one, what is read; what else it holds may never be computed.
  void NeedItems(const Operation* op) {
    const auto items = ItemsOf(op->operand(0));
    const bool reads_one = op->name() == "nn.sequence_at";
    const auto at = items && reads_one ? PositionIn(op->operand(1), items->size(), items->size())
                                       : std::nullopt;
    if (!items || (reads_one && (!at || *at >= items->size()))) return NeedOperands(op, 0);
    ops_.insert(op);
    for (size_t i = 0; i < items->size(); ++i) {
      if (!reads_one || i == *at) Need((*items)[i]);
    }
  }

  static const Operation* YieldOf(const Region& region) { return region.front()->back(); }

  /// A result: of an op with regions, what each of them yields for it.
  void EnterFromOutside(Value value) {
    const Operation* op = value.defining_op();
    const std::string_view name = op->name();
    if (name == "nn.shape" || name == "nn.size" || name == "nn.sequence_length") {
      ops_.insert(op);
    } else if (name == "nn.sequence_at" || name == "nn.concat_from_sequence") {
      NeedItems(op);
    } else if (name == "cf.if") {
      NeedOperands(op, 0);
      for (const Region& region : op->regions()) {
        if (MayRun(op, region)) NeedYield(region, value.index());
      }
    } else if (name == "cf.while") {
      ops_.insert(op);
      for (const size_t decides : {0, 1}) Need(op->operand(decides));
      NeedYield(op->regions()[0], 0);
      NeedCarried(op, value.index(), 2, 1);
    } else if (name == "cf.scan") {
      ops_.insert(op);
      NeedCarried(op, value.index(), 0, 0);
    } else {
      NeedOperands(op, name == "nn.where" && op->operand(1) == op->operand(2) ? 1 : 0);
      for (const Region& region : op->regions()) NeedOperands(YieldOf(region), 0);
    }
  }

  /// An argument of a body: what the next round gives it, and what the first one has.
  void EnterFromInside(Value value) {
    const Operation* op = value.argument_block()->parent_op();
    if (op->name() == "cf.while") {
      if (value.index() >= 2) NeedCarried(op, value.index() - 2, 2, 1);
    } else if (op->name() == "cf.scan") {
      if (value.index() < NumStates(op)) {
        NeedCarried(op, value.index(), 0, 0);
      } else {
        Need(op->operand(value.index()));
      }
    } else {
      NeedOperands(op, 0);
    }
  }

  static size_t NumStates(const Operation* scan) {
    const auto inputs = scan->attribute("num_scan_inputs").cast<IntAttribute>().value();
    return scan->num_operands() - static_cast<size_t>(inputs);
  }

  /// Result `i` of a loop whose carried values begin at an operand, and at a place of the yield.
  void NeedCarried(const Operation* op, size_t i, size_t operands, size_t yields) {
    const size_t carried = op->name() == "cf.scan" ? NumStates(op) : op->num_operands() - operands;
    NeedYield(op->regions()[0], i + yields);
    if (i < carried) Need(op->operand(i + operands));
  }

  void NeedYield(const Region& region, size_t i) {
    ops_.insert(YieldOf(region));
    Need(YieldOf(region)->operand(i));
  }

  /// False for the branch that an `if` with a constant condition never takes, and for both where
  /// only sizes decide: what is compiled may know them where types here do not tell.
  bool MayRun(const Operation* op, const Region& region) const {
    const Operation* condition = op->operand(0).defining_op();
    if (condition == nullptr || condition->name() != "builtin.constant") {
      return Holds(region, ran_) || !FollowsFromSizes(op->operand(0));
    }
    const Tensor& taken = condition->attribute("value").cast<TensorAttribute>().value();
    return taken.data<bool>()[0] == (&region == &op->regions()[0]);
  }

  const Operation* ran_;
  OpSet ops_;
  std::unordered_set<Value> values_;
  std::vector<Value> todo_;
};

/// Whether types tell the extents of all operands and results.
bool KnowsSizes(const Operation* op) {
  const auto is_open = [](Value v) {
    const auto type = v ? v.type().dyn_cast<AnyTensorType>() : AnyTensorType();
    return type && (!type.has_rank() || std::ranges::any_of(type.dims(), &Dim::is_unknown));
  };
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (is_open(op->operand(i))) return false;
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (is_open(op->result(i))) return false;
  }
  return true;
}

bool HasUnreadSlice(const Operation* scan) {
  const Block* body = scan->regions()[0].front();
  for (size_t i = 0; i < body->num_arguments(); ++i) {
    if (body->argument(i).use_empty()) return true;
  }
  return false;
}

/// Whether types leave open how many numbers a slice is given: within regions those are read that
/// are needed.
bool HasUncountedNumbers(const Operation* slice) {
  for (size_t i = 1; i < slice->num_operands(); ++i) {
    const auto type =
        slice->operand(i) ? slice->operand(i).type().dyn_cast<AnyTensorType>() : AnyTensorType();
    if (type && !type.is_static()) return true;
  }
  return false;
}

bool SaysAgain(const Operation* op, std::string_view id, bool within_region) {
  if (op->name() == "nn.slice")
    return within_region && id == "shape/slice" && HasUncountedNumbers(op);
  return op->name() == "cf.scan" && id == "shape/scan-length" && HasUnreadSlice(op);
}

/// Such as an index, or a string that is not a number.
bool IsAboutElements(const Error& error) {
  return error.id().starts_with("run/") || error.code() == ErrorCode::kParse;
}

}  // namespace

bool MayBeAccepted(const Program& program, const Operation* refused, const Error& error) {
  if (refused == nullptr || error.code() == ErrorCode::kInternal) return false;
  const bool within_region = refused->block() != program.block();
  if (SaysAgain(refused, error.id(), within_region)) return true;
  if (Needs(program, refused).Contains(refused)) return false;
  return within_region || IsAboutElements(error) || !KnowsSizes(refused);
}

namespace {

// Operations within `op` that read what it hands to its regions.
std::vector<const Operation*> ReadersOfArguments(const Operation* op) {
  std::vector<const Operation*> readers;
  for (const Region& region : op->regions()) {
    for (const Block& block : region) {
      for (size_t i = 0; i < block.num_arguments(); ++i) {
        for (const auto& use : block.argument(i).uses()) readers.push_back(use.owner());
      }
    }
  }
  return readers;
}

OpSet Behind(const OpSet& ops) {
  OpSet reached = ops;
  std::vector<const Operation*> todo(ops.begin(), ops.end());
  const auto reach = [&](const Operation* op) {
    if (op != nullptr && reached.insert(op).second) todo.push_back(op);
  };
  while (!todo.empty()) {
    const Operation* op = todo.back();
    todo.pop_back();
    reach(op->parent_op());
    for (size_t i = 0; i < op->num_results(); ++i) {
      for (const auto& use : op->result(i).uses()) {
        reach(use.owner());
        for (const Operation* reader : ReadersOfArguments(use.owner())) reach(reader);
      }
    }
  }
  return reached;
}

}  // namespace

std::vector<bool> OutputsBehind(const Program& program, const OpSet& ops) {
  const OpSet reached = Behind(ops);
  std::vector<bool> outputs;
  for (const Operation& op : *program.block()) {
    if (op.name() == "nn.fetch") outputs.push_back(reached.contains(&op));
  }
  return outputs;
}

bool IsBehind(const OpSet& ops, const Operation* op) {
  return op != nullptr && Behind(ops).contains(op);
}

}  // namespace lathe::testing
