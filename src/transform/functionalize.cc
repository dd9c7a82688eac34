#include "src/transform/functionalize.h"

#include <optional>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/context.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "src/dialect/cf/regions.h"
#include "src/transform/aliases.h"
#include "src/transform/scan_as_loop.h"
#include "src/transform/view_values.h"

namespace lathe {

namespace {

/// The type with every mutable tensor in it immutable. Types nest as deep as the parser allows.
Type AsValue(Type type) {
  if (const auto tensor = type.dyn_cast<AnyTensorType>()) return tensor.AsValue();
  const auto container = type.dyn_cast<ContainerType>();
  if (!container) return type;
  std::vector<Type> elements;
  for (const Type t : container.elements()) elements.push_back(AsValue(t));
  IrContext& context = *type.context();
  if (type.isa<ListType>()) return ListType::Get(context, elements);
  if (type.isa<OptionalType>()) return OptionalType::Get(context, elements);
  if (type.isa<DictType>()) return DictType::Get(context, elements);
  if (type.isa<TupleType>()) return TupleType::Get(context, elements);
  return StackType::Get(context, elements);
}

/// Equal, and known well enough for that to hold of the values.
bool SameForSure(Type a, Type b) {
  const auto x = a.dyn_cast<AnyTensorType>(), y = b.dyn_cast<AnyTensorType>();
  if (!x || !y || !x.has_rank() || x != y) return false;
  for (const Dim& d : x.dims()) {
    if (d.is_unknown()) return false;
  }
  return true;
}

bool OnlyHandsOn(const Operation* op) {
  return op->num_results() == 0 && op->num_regions() == 0 && !op->HasTrait<Terminator>();
}

class Functionalizer {
 public:
  Functionalizer(Graph& graph, Pass* pass, FunctionalizeScope scope)
      : program_(graph.program()),
        pass_(pass),
        all_(scope == FunctionalizeScope::kAll),
        aliases_(graph.program()),
        rewriter_(graph.program(), pass) {}

  void Run() {
    if (!aliases_.any()) return;
    Walk(program_.block());
    GiveBackInputs();
    for (const Operation* op : dead_) {  // where an unknown operation's regions read it
      if (op->isa<builtin::ToVtensorOp>()) {
        rewriter_.ReplaceAllUses(op->result(0), copied_.at(op->result(0)));
      }
    }
    for (size_t i = dead_.size(); i-- > 0;) rewriter_.Erase(dead_[i]);
    pass_->Count("writes", writes_);
    pass_->Count("tensors", tensors_);
    pass_->Count("kept", kept_);
  }

 private:
  struct Frame {
    Block* block;
    Operation* next;
    Operation* owner = nullptr;  // null at the top
    size_t region = 0;
    std::vector<Value> written = {};              // roots that the owner's regions write
    std::vector<Value> before = {};               // their values before the owner
    std::vector<std::vector<Value>> yields = {};  // per region, their values at its end
  };
  struct Shown {
    Value version;  // of the root
    Value value;    // what the view then shows
  };

  // ---- what is rewritten ----

  bool IsActive(Value value) const {
    if (!value || !aliases_.Contains(value)) return false;
    const Value root = aliases_.RootOf(value);
    return aliases_.kept(root) == nullptr && (all_ || aliases_.is_written(root));
  }
  bool IsKept(Value value) const {
    return value && aliases_.Contains(value) && aliases_.kept(aliases_.RootOf(value)) != nullptr;
  }

  /// A new root appears.
  void Define(Value value) {
    if (all_ && aliases_.IsKnownContainer(value)) return MakeImmutable(value);
    if (!value || !aliases_.Contains(value) || aliases_.Canonical(value) != value) return;
    if (const Aliases::Reason* reason = aliases_.kept(value)) {
      if (!all_ && !aliases_.is_written(value)) return;
      ++kept_;
      Report(value, *reason);
      if (all_) MakeCopy(value);
    } else if (IsActive(value)) {
      ++tensors_;
      if (all_) MakeImmutable(value);
      version_[value] = value;
    }
  }

  void MakeImmutable(Value value) {
    Operation* op = value.defining_op();
    if (op != nullptr) return rewriter_.SetResultType(op, value.index(), AsValue(value.type()));
    value.set_type(AsValue(value.type()));
  }

  /// A tensor that stays mutable though its maker takes and gives values now: a copy of what is
  /// made.
  void MakeCopy(Value value) {
    Operation* op = value.defining_op();
    const bool stays = op != nullptr && (!aliases_.IsKnown(op) || op->isa<nn::FeedOp>() ||
                                         op->isa<builtin::ToTensorOp>());
    if (stays) return;
    Operation* next = op != nullptr ? op->next() : value.argument_block()->front();
    rewriter_.SetInsertionPointToEnd(value.parent_block());
    if (next != nullptr) rewriter_.SetInsertionPoint(next);
    Operation* copy = rewriter_.Create(builtin::kToTensor, {&value, 1});
    rewriter_.ReplaceAllUses(value, copy->result(0));
    copy->set_operand(0, value);
    MakeImmutable(value);
    aliases_.Rename(value, copy->result(0));
  }

  void Report(Value root, const Aliases::Reason& reason) {
    const Operation* maker = root.defining_op();
    const std::string what =
        maker != nullptr ? StrCat("the tensor made by ", maker->Describe()) : "a region's argument";
    rewriter_.Missed(reason.op, StrCat(what, " stays mutable with all its views: it ", reason.why));
  }

  // ---- values ----

  Value Read(Value value) {
    Value at = aliases_.Canonical(value);
    const Value version = version_.at(aliases_.place(at).root);
    std::vector<Value> path;
    std::optional<Value> shown;
    while (aliases_.place(at).view != nullptr && !(shown = Known(at, version))) {
      path.push_back(at);
      at = aliases_.place(at).parent;
    }
    Value result = shown.value_or(version);
    for (size_t i = path.size(); i-- > 0;) {
      result = Typed(ReadView(rewriter_, aliases_.place(path[i]).view, result), path[i].type());
      shown_[path[i]] = {version, result};
    }
    return result;
  }

  std::optional<Value> Known(Value view, Value version) const {
    const auto at = shown_.find(view);
    if (at == shown_.end() || at->second.version != version) return std::nullopt;
    return at->second.value;
  }

  /// The value with the type that was declared for what it stands for.
  Value Typed(Value value, Type declared) {
    const auto known = value.type().dyn_cast<AnyTensorType>();
    const auto wanted = declared.dyn_cast<AnyTensorType>();
    if (known && wanted) {
      value.set_type(known.is_value() ? wanted.AsValue() : wanted.AsMutable());
    }
    return value;
  }

  Value Snapshot(Value value) {
    return rewriter_.Create(builtin::kToVtensor, {&value, 1})->result(0);
  }

  void Write(Operation* op) {
    const Value target = aliases_.Canonical(op->operand(0));
    const Value root = aliases_.place(target).root;
    Value value = Written(op);
    std::vector<std::pair<Value, Value>> through;
    Value at = target;
    while (const auto view = aliases_.place(at).view) {
      const Value parent = aliases_.place(at).parent;
      const Value base = Read(parent);
      through.emplace_back(at, value);
      value = Typed(WriteView(rewriter_, view, base, value), parent.type());
      at = parent;
    }
    version_[root] = value;
    for (const auto& [view, shown] : through) shown_[view] = {value, shown};
    dead_.push_back(op);
    ++writes_;
    rewriter_.Applied(op, "a write became a new value");
  }

  /// What the in-place op would leave in its first operand.
  Value Written(Operation* op) {
    std::vector<Value> operands;
    for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(Current(op, i));
    const bool copies = op->isa<nn::CopyInplaceOp>() && operands.size() == 2;
    if (copies && !IsKept(op->operand(1)) &&
        SameForSure(all_ ? AsValue(op->operand(0).type()) : op->operand(0).type(),
                    operands[1].type())) {
      return operands[1];
    }
    const Value value =
        rewriter_.Create(ValueTwin(op), operands, op->attributes().entries(), 1)->result(0);
    return Typed(value, op->operand(0).type());
  }

  Value Current(Operation* op, size_t i) {
    const Value value = op->operand(i);
    if (const auto copy = copied_.find(value); copy != copied_.end()) return copy->second;
    if (all_ && IsKept(value)) return Snapshot(value);
    return IsActive(value) ? Read(value) : value;
  }

  // ---- ops ----

  void Visit(Operation* op) {
    rewriter_.SetInsertionPoint(op);
    rewriter_.set_location(op->location());
    if (op->HasTrait<Inplace>() && op->num_operands() > 0 && IsActive(op->operand(0))) {
      return Write(op);
    }
    if (op->HasTrait<ViewLike>() && op->num_operands() > 0 && IsActive(op->operand(0))) {
      dead_.push_back(op);
      return;
    }
    if (all_ && VisitCopy(op)) return;
    const bool snapshots = all_ && aliases_.IsKnown(op) && !OnlyHandsOn(op) &&
                           !op->HasTrait<Inplace>() && !op->HasTrait<ViewLike>();
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value value = op->operand(i);
      if (IsActive(value) || copied_.count(value) != 0) {
        const Value current = Current(op, i);
        if (current != value) rewriter_.SetOperand(op, i, current);
      } else if (snapshots && IsKept(value) && !op->isa<builtin::ToVtensorOp>()) {
        rewriter_.SetOperand(op, i, Snapshot(value));
      }
    }
    for (size_t i = 0; i < op->num_results(); ++i) Define(op->result(i));
    if (all_ && aliases_.IsKnown(op)) MakeAttributesImmutable(op);
  }

  /// An attribute that says of which type an absent value is.
  void MakeAttributesImmutable(Operation* op) {
    for (const NamedAttribute& a : op->attributes().entries()) {
      const auto type = a.value.dyn_cast<TypeAttribute>();
      if (!type || AsValue(type.value()) == type.value()) continue;
      rewriter_.SetAttribute(op, a.name.value(), TypeAttribute::Get(AsValue(type.value())));
    }
  }

  /// Copies between mutable and immutable tensors vanish.
  bool VisitCopy(Operation* op) {
    if (op->isa<builtin::ToTensorOp>() && IsActive(op->result(0))) {
      const Value value = Current(op, 0);
      Define(op->result(0));
      version_[op->result(0)] = value;
    } else if (op->isa<builtin::ToVtensorOp>() && !IsKept(op->operand(0))) {
      // Not replaced at once: the current value may be a root, and what reads this copy later must
      // not be taken for a reader of that root.
      copied_[op->result(0)] = Current(op, 0);
    } else {
      return false;
    }
    dead_.push_back(op);
    return true;
  }

  // ---- regions ----

  void Walk(Block* top) {
    stack_.push_back({top, top->front()});
    while (!stack_.empty()) {
      Operation* op = stack_.back().next;
      if (op == nullptr) {
        Leave();
        continue;
      }
      stack_.back().next = op->next();
      Visit(op);
      if (op->num_regions() > 0 && aliases_.IsKnown(op)) Enter(op);
    }
  }

  void Enter(Operation* op) {
    Frame frame{nullptr, nullptr, op};
    for (const Value root : aliases_.WrittenInside(op)) {
      if (!IsActive(root)) continue;
      frame.written.push_back(root);
      frame.before.push_back(version_.at(root));
    }
    stack_.push_back(std::move(frame));
    EnterRegion();
  }

  /// Enters the next region of the innermost op, or ends the op.
  void EnterRegion() {
    Frame& f = stack_.back();
    while (f.region < f.owner->num_regions() && f.owner->region(f.region).empty()) ++f.region;
    if (f.region == f.owner->num_regions()) return LeaveOp();
    f.block = f.owner->region(f.region).front();
    f.next = f.block->front();
    for (size_t i = 0; i < f.block->num_arguments(); ++i) Define(f.block->argument(i));
    if (!f.owner->isa<cf::WhileOp>()) return;
    for (size_t i = 0; i < f.written.size(); ++i) {
      version_[f.written[i]] = f.block->AddArgument(f.before[i].type());
    }
  }

  void Leave() {
    Frame& f = stack_.back();
    if (f.owner == nullptr) {
      stack_.pop_back();
      return;
    }
    shown_.clear();  // what was computed inside cannot be used outside
    f.yields.emplace_back();
    for (size_t i = 0; i < f.written.size(); ++i) {
      f.yields.back().push_back(version_.at(f.written[i]));
      version_[f.written[i]] = f.before[i];
    }
    ++f.region;
    EnterRegion();
  }

  void LeaveOp() {
    const Frame f = std::move(stack_.back());
    stack_.pop_back();
    if (!f.written.empty()) Rebuild(f);
  }

  /// The same op that also gives the tensors that its regions write.
  void Rebuild(const Frame& f) {
    Operation* op = f.owner;
    const bool loop = op->isa<cf::WhileOp>();
    const size_t carried = loop ? NumCarried(op) : op->num_results();
    std::vector<Value> operands;
    for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(op->operand(i));
    if (loop) {
      operands.resize(std::max<size_t>(operands.size(), cf::WhileOp::kCarried));
      operands.insert(operands.end(), f.before.begin(), f.before.end());
    }
    for (size_t r = 0; r < f.yields.size(); ++r) {
      ExtendYield(op->region(r).front()->terminator(), carried + (loop ? 1 : 0), f.yields[r]);
    }
    std::vector<Type> types;
    for (size_t i = 0; i < op->num_results(); ++i) types.push_back(op->result(i).type());
    const std::vector<Type> extra = ExtraTypes(f, loop);
    types.insert(types.begin() + static_cast<std::ptrdiff_t>(carried), extra.begin(), extra.end());
    Replace(f, operands, types, carried);
  }

  static size_t NumCarried(const Operation* op) {
    const size_t first = cf::WhileOp::kCarried;
    return op->num_operands() > first ? op->num_operands() - first : 0;
  }

  void ExtendYield(Operation* yield, size_t at, const std::vector<Value>& values) {
    std::vector<Value> operands;
    for (size_t i = 0; i < yield->num_operands(); ++i) operands.push_back(yield->operand(i));
    operands.insert(operands.begin() + static_cast<std::ptrdiff_t>(at), values.begin(),
                    values.end());
    rewriter_.SetInsertionPoint(yield);
    rewriter_.set_location(yield->location());
    rewriter_.Create(yield->name(), operands, yield->attributes().entries());
    rewriter_.Erase(yield);
  }

  /// Types that cover what enters and what the regions yield.
  static std::vector<Type> ExtraTypes(const Frame& f, bool loop) {
    std::vector<Type> types;
    for (size_t i = 0; i < f.written.size(); ++i) {
      Type type = loop ? f.before[i].type() : f.yields[0][i].type();
      for (const std::vector<Value>& yields : f.yields) {
        const Type joined = cf::Join(type, yields[i].type());
        LATHE_CHECK(joined, "a tensor is ", type.ToString(), " and ", yields[i].type().ToString());
        type = joined;
      }
      types.push_back(type);
      if (!loop) continue;
      const Block* body = f.owner->region(0).front();
      body->argument(body->num_arguments() - f.written.size() + i).set_type(type);
    }
    return types;
  }

  /// The old op stays, without regions, as the name of its results until the end.
  void Replace(const Frame& f, std::span<const Value> operands, std::span<const Type> types,
               size_t carried) {
    Operation* op = f.owner;
    rewriter_.SetInsertionPoint(op);
    rewriter_.set_location(op->location());
    Operation* made = rewriter_.Builder::Create(op->info(), operands, op->attributes().entries(),
                                                types, op->num_regions());
    for (size_t r = 0; r < op->num_regions(); ++r) made->region(r).TakeBody(op->region(r));
    for (size_t i = 0; i < op->num_results(); ++i) {
      const Value to = made->result(i < carried ? i : i + f.written.size());
      const Value from = op->result(i);
      rewriter_.ReplaceAllUses(from, to);
      if (!aliases_.Contains(from)) continue;
      aliases_.Rename(from, to);
      if (version_.count(from) != 0) version_[from] = to;
    }
    for (size_t i = 0; i < f.written.size(); ++i) {
      version_[f.written[i]] = made->result(carried + i);
    }
    dead_.push_back(op);
  }

  /// The caller sees what was written to an input.
  void GiveBackInputs() {
    for (Operation* feed : program_.feeds()) {
      const Value root = feed->result(0);
      if (!IsActive(root) || !aliases_.is_written(root)) continue;
      rewriter_.SetInsertionPointToEnd(program_.block());
      rewriter_.set_location(feed->location());
      const Attribute name = feed->attribute("name");
      const NamedAttribute attributes[] = {rewriter_.Named("name", name),
                                           rewriter_.Named("aliases", name)};
      const Value value = version_.at(root);
      rewriter_.Create(nn::kFetch, {&value, 1}, attributes);
    }
  }

  Program& program_;
  Pass* pass_;
  bool all_;
  Aliases aliases_;
  Rewriter rewriter_;
  std::vector<Frame> stack_;
  std::vector<Operation*> dead_;  // erased at the end, last first
  // Looked up, never iterated.
  std::unordered_map<Value, Value> version_;  // of each root: what it holds here
  std::unordered_map<Value, Shown> shown_;    // of views: what was computed last
  std::unordered_map<Value, Value> copied_;   // results of to_vtensor: what they are copies of
  int64_t writes_ = 0, tensors_ = 0, kept_ = 0;
};

}  // namespace

void Functionalize(Graph& graph, Pass* pass, FunctionalizeScope scope) {
  LoopsForWritingScans(graph.program(), pass);
  Functionalizer(graph, pass, scope).Run();
}

}  // namespace lathe
