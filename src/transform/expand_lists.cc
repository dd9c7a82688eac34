#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "lathe/dialect/cf/cf.h"
#include "lathe/dialect/cf/op_names.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/sequence.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/support/error.h"
#include "src/dialect/bound_sizes.h"
#include "src/dialect/cf/loop_sizes.h"
#include "src/transform/data_sizes.h"
#include "src/transform/refine_types.h"

namespace lathe {

namespace {

// A list of more pieces is left to whoever reads it.
constexpr int64_t kMostPieces = 256;
// Positions times chunks stay far from the end of the type.
constexpr int64_t kMostChunk = std::numeric_limits<int32_t>::max();

// What a list holds: some tensors, then the rows of another one along axis 0.
struct List {
  std::vector<Value> items;
  Value rows;
};

bool HoldsLists(const Block& block) {
  for (OpWalker w(const_cast<Block*>(&block)); const Operation* op = w.Next();) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      if (op->result(i).type().isa<ListType>()) return true;
    }
  }
  return false;
}

// What may be written to is another tensor later.
bool IsValue(Value v) {
  const AnyTensorType type = TensorOrNull(v);
  return type && type.is_value();
}

bool HasKnownExtents(AnyTensorType type) {
  return type && type.is_value() && type.has_rank() &&
         std::ranges::none_of(type.dims(), &Dim::is_unknown);
}

bool SameExtents(AnyTensorType a, AnyTensorType b) {
  return HasKnownExtents(a) && HasKnownExtents(b) &&
         std::ranges::equal(a.dims(), b.dims(), ProvablyEqual);
}

// A list that a loop carries, and to whose end each round puts one tensor.
struct GrowingList {
  size_t carried;
  Operation* insert;
};

}  // namespace

/// Plans and kernels know tensors only. A list whose tensors are known one by one, such as the
/// pieces of a split, becomes these; one that a loop appends to becomes a tensor that stacks them.
class ExpandListsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    if (graph.block() != program.block() || !HoldsLists(*graph.block())) return;
    names_ = SymbolNames(program);
    lists_.clear();
    rewriter_.emplace(program, this);
    facts_.emplace(&program.parameters());
    build_.emplace(*rewriter_, *facts_, names_);
    VisitBlock(graph.block());
  }

 private:
  // As deep as programs nest.
  void VisitBlock(Block* block) {
    for (Operation* op = block->front(); op != nullptr;) {
      if (op->isa<cf::WhileOp>()) op = StackCarried(op);
      if (InferAgain(op, *facts_) == true) MarkChanged();
      for (Region& region : op->regions()) VisitBlock(region.front());
      Operation* const next = op->next();
      Visit(op);
      op = next;
    }
  }

  void Visit(Operation* op) {
    rewriter_->SetInsertionPoint(op);
    rewriter_->set_location(op->location());
    if (const auto construct = op->dyn_cast<nn::SequenceConstructOp>()) {
      std::vector<Value> items = construct.inputs();
      if (std::ranges::all_of(items, IsValue)) lists_[op->result(0)] = {std::move(items), {}};
    } else if (op->isa<nn::SequenceEmptyOp>()) {
      lists_[op->result(0)] = {};
    } else if (const auto insert = op->dyn_cast<nn::SequenceInsertOp>()) {
      Insert(insert);
    } else if (const auto erase = op->dyn_cast<nn::SequenceEraseOp>()) {
      Erase(erase);
    } else if (const auto split = op->dyn_cast<nn::SplitToSequenceOp>()) {
      Split(split);
    } else if (const Value value = ValueOf(op)) {
      rewriter_->Applied(op, "what the list holds is known");
      rewriter_->ReplaceOp(op, value);
      Count("expanded");
      MarkChanged();
    }
  }

  // What tells something of a list, as a tensor; null if that is not known.
  Value ValueOf(Operation* op) {
    if (const auto at = op->dyn_cast<nn::SequenceAtOp>()) return At(at);
    if (!op->isa<nn::SequenceLengthOp>() && !op->isa<nn::ConcatFromSequenceOp>()) return {};
    const List* list = Find(op->operand(0));
    const auto split = SplitOf(op->operand(0));
    if (list == nullptr && split && op->isa<nn::SequenceLengthOp>()) return NumPieces(split);
    if (list == nullptr) return {};
    return op->isa<nn::SequenceLengthOp>() ? Length(*list)
                                           : Join(nn::ConcatFromSequenceOp(op), *list);
  }

  const List* Find(Value list) const {
    const auto found = lists_.find(list);
    return found == lists_.end() ? nullptr : &found->second;
  }

  // ---- lists ----

  void Insert(nn::SequenceInsertOp op) {
    const List* before = Find(op.input_sequence());
    if (before == nullptr || !IsValue(op.value())) return;
    List list = *before;
    if (list.rows && (!op.position() || IsNegative(op.position()))) return;
    const auto count = std::ssize(list.items);
    const auto at = op.position() ? PositionOf(op.position(), count) : count;
    if (!at || *at > count) return;
    list.items.insert(list.items.begin() + *at, op.value());
    lists_[op->result(0)] = std::move(list);
  }

  void Erase(nn::SequenceEraseOp op) {
    const List* before = Find(op.input_sequence());
    if (before == nullptr || (!op.position() && before->rows)) return;
    List list = *before;
    const auto count = std::ssize(list.items);
    const auto at = op.position() ? PositionOf(op.position(), count) : count - 1;
    if (!at || *at < 0 || *at >= count || (before->rows && IsNegative(op.position()))) return;
    list.items.erase(list.items.begin() + *at);
    lists_[op->result(0)] = std::move(list);
  }

  std::optional<int64_t> NumberOf(Value v) {
    const Tensor* t = v ? facts_->Constant(v) : nullptr;
    if (t == nullptr || !IsInteger(t->element_type()) || t->num_elements() != 1) {
      return std::nullopt;
    }
    return ToInt64s(*t)[0];
  }

  bool IsNegative(Value v) { return v && NumberOf(v).value_or(0) < 0; }

  // Of a list of that many, counted from its front; nothing if it is not known or before the list.
  std::optional<int64_t> PositionOf(Value position, int64_t count) {
    std::optional<int64_t> at = NumberOf(position);
    if (at && *at < 0) *at += count;
    return at && *at >= 0 ? at : std::nullopt;
  }

  // Pieces of a constant number.
  void Split(nn::SplitToSequenceOp op) {
    const auto sizes = IsValue(op.input()) ? PieceSizes(op) : std::nullopt;
    if (!sizes || sizes->empty() || std::ssize(*sizes) > kMostPieces) return;
    const Value split = build_->Vector(*sizes);
    Operation* pieces =
        rewriter_->Create(nn::kSplit, std::vector{op.input(), split},
                          std::vector{build_->Attr("axis", op.axis())}, sizes->size());
    if (!InferAgain(pieces, *facts_)) return;
    List& list = lists_[op->result(0)];
    for (size_t i = 0; i < sizes->size(); ++i) {
      const Value piece = pieces->result(i);
      list.items.push_back(Keeps(op) ? piece : Squeezed(piece, op.axis()));
    }
  }

  static bool Keeps(nn::SplitToSequenceOp op) { return op.split() || op.keepdims(); }

  Value Squeezed(Value v, int64_t axis) {
    return build_->Create(nn::kSqueeze, {v, build_->Vector({&axis, 1})});
  }

  std::optional<Dim> SplitExtent(nn::SplitToSequenceOp op) {
    const AnyTensorType type = TensorOrNull(op.input());
    if (!type || !type.has_rank() || type.rank() == 0) return std::nullopt;
    const auto rank = static_cast<int64_t>(type.rank());
    const int64_t axis = op.axis() < 0 ? op.axis() + rank : op.axis();
    if (axis < 0 || axis >= rank) return std::nullopt;
    return type.dims()[static_cast<size_t>(axis)];
  }

  std::optional<std::vector<int64_t>> PieceSizes(nn::SplitToSequenceOp op) {
    const auto extent = SplitExtent(op);
    const Tensor* split = op.split() ? facts_->Constant(op.split()) : nullptr;
    if (!extent || (op.split() && split == nullptr)) return std::nullopt;
    if (split != nullptr && split->rank() == 1) return FittingSizes(ToInt64s(*split), *extent);
    if (split != nullptr && split->rank() != 0) return std::nullopt;
    const int64_t chunk = split == nullptr ? 1 : ToInt64s(*split)[0];
    const bool is_known = extent->is_constant() && chunk > 0;
    if (!is_known || extent->value() / chunk > kMostPieces) return std::nullopt;
    std::vector<int64_t> sizes;
    for (int64_t left = extent->value(); left > 0; left -= chunk) {
      sizes.push_back(std::min(left, chunk));
    }
    return sizes;
  }

  // Those that do not add up are for whoever runs the split to refuse.
  static std::optional<std::vector<int64_t>> FittingSizes(std::vector<int64_t> sizes,
                                                          const Dim& extent) {
    int64_t sum = 0;
    for (const int64_t size : sizes) {
      if (size < 0 || __builtin_add_overflow(sum, size, &sum)) return std::nullopt;
    }
    if (extent.is_constant() && extent.value() != sum) return std::nullopt;
    return sizes;
  }

  // ---- what is read of them ----

  Value At(nn::SequenceAtOp op) {
    if (const List* list = Find(op.input_sequence())) {
      const bool from_back = list->rows && IsNegative(op.position());
      const auto at = PositionOf(op.position(), std::ssize(list->items));
      if (at && !from_back && *at < std::ssize(list->items)) {
        return list->items[static_cast<size_t>(*at)];
      }
      const Value rows = Stacked(*list);
      return rows ? Row(rows, op.position(), 0, false) : Value();
    }
    const auto split = SplitOf(op.input_sequence());
    if (!split) return {};
    if (IsOneByOne(split)) return Row(split.input(), op.position(), split.axis(), Keeps(split));
    return Piece(split, op.position());
  }

  // Whether each piece has one row: without sizes, or by as many ones as there are rows.
  bool IsOneByOne(nn::SplitToSequenceOp split) {
    if (!split.split()) return true;
    Operation* ones = split.split().defining_op();
    const auto extent = SplitExtent(split);
    const AnyTensorType type = TensorOrNull(split.split());
    if (ones == nullptr || !ones->isa<nn::ConstantOfShapeOp>() || !extent) return false;
    if (!type || !type.has_rank() || type.rank() != 1) return false;
    const auto one = nn::ConstantOfShapeOp(ones).value();
    return one && IsInteger(one->element_type()) && one->num_elements() == 1 &&
           ToInt64s(*one)[0] == 1 && ProvablyEqual(type.dims()[0], *extent);
  }

  // What has cut a tensor into the list.
  static nn::SplitToSequenceOp SplitOf(Value list) {
    Operation* made = list.defining_op();
    const auto split = made ? made->dyn_cast<nn::SplitToSequenceOp>() : nn::SplitToSequenceOp();
    return split && IsValue(split.input()) ? split : nn::SplitToSequenceOp();
  }

  // One of the pieces of that extent. Whoever reads it has said that there is such a one.
  Value Piece(nn::SplitToSequenceOp split, Value position) {
    const auto chunk = ChunkOf(split), at = NumberOf(position);
    if (!chunk || !at || *at < 0 || *at > kMostChunk || !SplitExtent(split)) return {};
    const int64_t begin = *at * *chunk, end = begin + *chunk, axis = split.axis();
    return build_->Create(nn::kSlice, {split.input(), build_->Vector({&begin, 1}),
                                       build_->Vector({&end, 1}), build_->Vector({&axis, 1})});
  }

  std::optional<int64_t> ChunkOf(nn::SplitToSequenceOp split) {
    const Tensor* t = split.split() ? facts_->Constant(split.split()) : nullptr;
    if (t == nullptr || t->rank() != 0) return std::nullopt;
    const int64_t chunk = ToInt64s(*t)[0];
    return chunk > 0 && chunk <= kMostChunk ? std::optional(chunk) : std::nullopt;
  }

  // How many pieces there are.
  Value NumPieces(nn::SplitToSequenceOp split) {
    const auto extent = SplitExtent(split);
    const auto chunk = IsOneByOne(split) ? 1 : ChunkOf(split);
    if (!extent || !chunk) return {};
    const auto rank = static_cast<int64_t>(TensorOrNull(split.input()).rank());
    const int64_t axis = split.axis() < 0 ? split.axis() + rank : split.axis();
    const Value count = build_->Extent(split.input(), static_cast<size_t>(axis));
    const Value rounded = build_->Create(nn::kAdd, {count, build_->Scalar(*chunk - 1)});
    return build_->Create(nn::kDiv, {rounded, build_->Scalar(*chunk)});
  }

  // The extent 1 at that position along an axis, which a position outside of it fails.
  Value Row(Value of, Value position, int64_t axis, bool keeps) {
    const Value at = keeps ? build_->Reshape(position, {1}) : position;
    return build_->Create(nn::kGather, {of, at}, {build_->Attr("axis", axis)});
  }

  // The tensors of a list along a new axis 0; null if nobody knows that they are of one shape.
  Value Stacked(const List& list) {
    std::vector<Value> parts;
    for (const Value item : list.items) {
      if (!SameExtents(TensorOrNull(item), TensorOrNull(list.items[0]))) return {};
      parts.push_back(Unsqueezed(item, 0));
    }
    if (list.rows) parts.push_back(list.rows);
    if (parts.empty()) return {};
    return parts.size() == 1 ? parts[0] : Concat(parts, 0);
  }

  Value Unsqueezed(Value v, int64_t axis) {
    return build_->Create(nn::kUnsqueeze, {v, build_->Vector({&axis, 1})});
  }

  Value Concat(std::span<const Value> parts, int64_t axis) {
    Operation* joined =
        rewriter_->Create(nn::kConcat, parts, std::vector{build_->Attr("axis", axis)});
    facts_->Visit(joined);
    return joined->result(0);
  }

  Value Length(const List& list) {
    const Value items = build_->Scalar(std::ssize(list.items));
    return list.rows ? build_->Create(nn::kAdd, {build_->Extent(list.rows, 0), items}) : items;
  }

  Value Join(nn::ConcatFromSequenceOp op, const List& list) {
    if (list.rows) return JoinRows(op, Stacked(list));
    if (list.items.empty()) return {};
    std::vector<Value> parts;
    for (const Value item : list.items) {
      parts.push_back(op.new_axis() ? Unsqueezed(item, op.axis()) : item);
    }
    return Concat(parts, op.axis());
  }

  Value JoinRows(nn::ConcatFromSequenceOp op, Value rows) {
    const AnyTensorType type = TensorOrNull(rows);
    const auto rank = static_cast<int64_t>(type.rank()) - (op.new_axis() ? 0 : 1);
    const int64_t axis = op.axis() < 0 ? op.axis() + rank : op.axis();
    const Value moved = Moved(rows, axis);
    return op.new_axis() ? moved : Merged(moved, static_cast<size_t>(axis));
  }

  // Axis 0 behind `axis` others.
  Value Moved(Value v, int64_t axis) {
    if (axis == 0) return v;
    std::vector<int64_t> perm(TensorOrNull(v).rank());
    for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
    std::rotate(perm.begin(), perm.begin() + 1, perm.begin() + axis + 1);
    const Attribute order = rewriter_->Attr(std::span<const int64_t>(perm));
    return build_->Create(nn::kTranspose, {v}, {rewriter_->Named("perm", order)});
  }

  // Axes `axis` and `axis` + 1 as one. There is nothing to join if the first is empty, which is an
  // error, as is the first of no elements.
  Value Merged(Value v, size_t axis) {
    std::vector<Value> extents;
    for (size_t i = 0; i < TensorOrNull(v).rank(); ++i) {
      Value extent = build_->Reshape(build_->Extent(v, i), {1});
      const Dim& dim = TensorOrNull(v).dims()[i];
      if (i == axis && !(dim.is_constant() && dim.value() > 0)) {
        const Value copies = build_->Create(nn::kExpand, {extent, extent});
        extent = Row(copies, build_->Scalar(0), 0, true);
      }
      if (i == axis + 1) {
        extents.back() = build_->Create(nn::kMul, {extents.back(), extent});
      } else {
        extents.push_back(extent);
      }
    }
    return build_->Create(nn::kReshape, {v, Concat(extents, 0)}, {build_->Attr("allowzero", true)});
  }

  // ---- loops ----

  // The loop with a scan output in place of each carried list that its rounds append to.
  Operation* StackCarried(Operation* loop) {
    while (const auto growing = FindGrowing(loop)) {
      InferAgain(loop, *facts_);
      const Value item = growing->insert->operand(nn::SequenceInsertOp::kValue);
      const auto axis = JoinedAlong(loop->result(growing->carried));
      if (MayBeRow(item, loop, *growing)) {
        loop = WithRows(loop, *growing);
      } else if (axis && MayBeJoined(item, loop, *growing, *axis)) {
        loop = WithJoined(loop, *growing, *axis);
      } else {
        break;
      }
      Count("stacked");
      MarkChanged();
    }
    return loop;
  }

  std::optional<GrowingList> FindGrowing(Operation* loop) const {
    Block& body = *loop->region(0).front();
    for (size_t i = 0; cf::WhileOp::kCarried + i < loop->num_operands(); ++i) {
      const List* start = Find(loop->operand(cf::WhileOp::kCarried + i));
      const Value argument = body.argument(cf::kLoopArguments + i);
      if (start == nullptr || start->rows || !argument.has_one_use()) continue;
      Operation* insert = (*argument.uses().begin()).owner();
      const bool appends = insert->isa<nn::SequenceInsertOp>() && insert->block() == &body &&
                           insert->operand(0) == argument &&
                           !nn::SequenceInsertOp(insert).position();
      if (!appends || !insert->result(0).has_one_use()) continue;
      if (body.back()->operand(i + 1) != insert->result(0)) continue;
      return GrowingList{i, insert};
    }
    return std::nullopt;
  }

  // By operations that need not know its tensors one by one, which have `rank`.
  static bool IsReadAsRows(Value list, size_t rank) {
    return std::ranges::all_of(list.uses(), [&](const auto& use) {
      const auto join = use.owner()->template dyn_cast<nn::ConcatFromSequenceOp>();
      if (!join)
        return use.owner()->template isa<nn::SequenceAtOp>() ||
               use.owner()->template isa<nn::SequenceLengthOp>();
      const auto axes = static_cast<int64_t>(rank) + (join.new_axis() ? 1 : 0);
      return -axes <= join.axis() && join.axis() < axes;
    });
  }

  // Whether each round appends a tensor of one shape, which is that of what the list starts with.
  bool MayBeRow(Value item, Operation* loop, const GrowingList& growing) const {
    const AnyTensorType type = TensorOrNull(item);
    if (!HasKnownExtents(type) || !IsReadAsRows(loop->result(growing.carried), type.rank())) {
      return false;
    }
    std::vector<std::string> bound, used;
    for (OpWalker w(loop->region(0).front()); const Operation* op = w.Next();) {
      std::ranges::copy(BoundSizes(op), std::back_inserter(bound));
    }
    for (const Dim& dim : type.dims()) dim.CollectSymbols(used);
    const auto is_bound = [&](const std::string& name) {
      return std::ranges::find(bound, name) != bound.end();
    };
    if (std::ranges::any_of(used, is_bound)) return false;
    const List& start = *Find(loop->operand(cf::WhileOp::kCarried + growing.carried));
    return std::ranges::all_of(start.items,
                               [&](Value v) { return SameExtents(TensorOrNull(v), type); });
  }

  Operation* WithRows(Operation* loop, const GrowingList& growing) {
    const List start = *Find(loop->operand(cf::WhileOp::kCarried + growing.carried));
    const Value item = growing.insert->operand(nn::SequenceInsertOp::kValue);
    Block* old = loop->region(0).front();
    std::vector<Value> operands, yields;
    std::vector<Type> types;
    for (size_t i = 0; i < loop->num_operands(); ++i) {
      if (i != cf::WhileOp::kCarried + growing.carried) operands.push_back(loop->operand(i));
    }
    for (size_t i = 0; i < loop->num_results(); ++i) {
      if (i != growing.carried) types.push_back(loop->result(i).type());
    }
    for (size_t i = 0; i < old->back()->num_operands(); ++i) {
      if (i != growing.carried + 1) yields.push_back(old->back()->operand(i));
    }
    yields.push_back(item);
    types.push_back(item.type());
    rewriter_->SetInsertionPoint(loop);
    rewriter_->set_location(loop->location());
    const OpInfo info = rewriter_->context().FindOp(cf::kWhile);
    Operation* made = rewriter_->Builder::Create(info, operands, {}, types, 1);
    MoveBody(old, made->region(0).AddBlock(), cf::kLoopArguments + growing.carried, yields,
             growing.insert);
    InferAgain(made, *facts_);
    ReplaceResults(loop, made, growing.carried);
    rewriter_->Erase(loop);
    return made;
  }

  void MoveBody(Block* from, Block* to, size_t without, std::span<const Value> yields,
                Operation* insert) {
    std::vector<Value> arguments;
    for (size_t i = 0; i < from->num_arguments(); ++i) {
      if (i == without) continue;
      arguments.push_back(to->AddArgument(from->argument(i).type()));
    }
    Operation* yield = from->back();
    rewriter_->SetInsertionPoint(yield);
    rewriter_->Create(cf::kYield, yields);
    rewriter_->Erase(yield);
    rewriter_->Erase(insert);
    for (size_t i = 0, next = 0; i < from->num_arguments(); ++i) {
      if (i != without) rewriter_->ReplaceAllUses(from->argument(i), arguments[next++]);
    }
    while (Operation* op = from->front()) op->MoveToEnd(to);
  }

  // The list is what it started with and the last result of the new loop.
  void ReplaceResults(Operation* loop, Operation* made, size_t without) {
    for (size_t i = 0, next = 0; i < loop->num_results(); ++i) {
      if (i != without) rewriter_->ReplaceAllUses(loop->result(i), made->result(next++));
    }
    Value list = loop->result(without);
    const List rows{Find(loop->operand(cf::WhileOp::kCarried + without))->items,
                    made->result(made->num_results() - 1)};
    std::vector<Operation*> readers;
    for (const auto& use : list.uses()) readers.push_back(use.owner());
    lists_[list] = rows;
    for (Operation* reader : readers) Visit(reader);
  }

  // ---- loops whose rounds append more or less ----

  // The axis along which everyone who reads the list joins its tensors.
  static std::optional<int64_t> JoinedAlong(Value list) {
    std::optional<int64_t> axis;
    for (const auto& use : list.uses()) {
      const auto join = use.owner()->dyn_cast<nn::ConcatFromSequenceOp>();
      if (!join || join.new_axis() || join.axis() < 0) return std::nullopt;
      if (axis && *axis != join.axis()) return std::nullopt;
      axis = join.axis();
    }
    return axis;
  }

  // Whether what is joined can start with a tensor of no extent: all others are numbers, or sizes
  // of inputs.
  bool MayBeJoined(Value item, Operation* loop, const GrowingList& growing, int64_t axis) const {
    const AnyTensorType type = TensorOrNull(item);
    if (!type || !type.is_value() || !type.has_rank()) return false;
    if (axis >= static_cast<int64_t>(type.rank()) || type.element() == ElementType::kString) {
      return false;
    }
    for (size_t i = 0; i < type.rank(); ++i) {
      const Dim& dim = type.dims()[i];
      const bool is_known = dim.is_constant() || (dim.is_symbol() && SizeOfInput(dim, loop));
      if (static_cast<int64_t>(i) != axis && !is_known) return false;
    }
    return Find(loop->operand(cf::WhileOp::kCarried + growing.carried))->items.empty();
  }

  // The input that has the symbol as an extent, and its axis.
  static std::optional<std::pair<Value, size_t>> SizeOfInput(const Dim& symbol, Operation* at) {
    const Block* block = at->block();
    while (block->parent_op() != nullptr && block->parent_op()->block() != nullptr) {
      block = block->parent_op()->block();
    }
    for (Operation* op = block->front(); op != nullptr; op = op->next()) {
      if (!op->isa<nn::FeedOp>()) continue;
      const AnyTensorType type = TensorOrNull(op->result(0));
      if (!type || !type.has_rank()) continue;
      for (size_t axis = 0; axis < type.rank(); ++axis) {
        if (ProvablyEqual(type.dims()[axis], symbol)) return std::pair(op->result(0), axis);
      }
    }
    return std::nullopt;
  }

  // The loop with what is joined so far in place of the list, and how much each round adds.
  Operation* WithJoined(Operation* loop, const GrowingList& growing, int64_t axis) {
    const Value item = growing.insert->operand(nn::SequenceInsertOp::kValue);
    const AnyTensorType type = TensorOrNull(item);
    SymShape shape = type.shape();
    shape.dims[static_cast<size_t>(axis)] = Dim();
    const Type joined = type.With(type.element(), shape);
    rewriter_->SetInsertionPoint(loop);
    rewriter_->set_location(loop->location());
    std::vector<Value> operands;
    for (size_t i = 0; i < loop->num_operands(); ++i) operands.push_back(loop->operand(i));
    operands[cf::WhileOp::kCarried + growing.carried] = Nothing(type, axis, loop);
    std::vector<Type> types;
    for (size_t i = 0; i < loop->num_results(); ++i) types.push_back(loop->result(i).type());
    types[growing.carried] = joined;
    types.push_back(type.With(ElementType::kI64, SymShape::OfRank(1)));
    const OpInfo info = rewriter_->context().FindOp(cf::kWhile);
    Operation* made = rewriter_->Builder::Create(info, operands, {}, types, 1);
    MoveJoiningBody(loop, made->region(0).AddBlock(), growing, joined, axis);
    InferAgain(made, *facts_);
    ReplaceJoined(loop, made, growing.carried, axis);
    rewriter_->Erase(loop);
    return made;
  }

  // A tensor like `type` of no extent along an axis.
  Value Nothing(AnyTensorType type, int64_t axis, Operation* loop) {
    std::vector<Value> extents;
    for (size_t i = 0; i < type.rank(); ++i) {
      const bool is_open = static_cast<int64_t>(i) == axis;
      const Dim dim = is_open ? Dim(0) : type.dims()[i];
      if (dim.is_constant()) {
        const int64_t extent = dim.value();
        extents.push_back(build_->Vector({&extent, 1}));
      } else {
        const auto [input, at] = *SizeOfInput(dim, loop);
        extents.push_back(build_->Reshape(build_->Extent(input, at), {1}));
      }
    }
    const Attribute zero = rewriter_->Attr(Tensor(type.element(), {1}));
    return build_->Create(nn::kConstantOfShape, {Concat(extents, 0)},
                          {rewriter_->Named("value", zero)});
  }

  void MoveJoiningBody(Operation* loop, Block* to, const GrowingList& growing, Type joined,
                       int64_t axis) {
    Block* from = loop->region(0).front();
    const size_t at = cf::kLoopArguments + growing.carried;
    for (size_t i = 0; i < from->num_arguments(); ++i) {
      to->AddArgument(i == at ? joined : from->argument(i).type());
    }
    Operation* yield = from->back();
    const Value item = growing.insert->operand(nn::SequenceInsertOp::kValue);
    rewriter_->SetInsertionPoint(yield);
    rewriter_->set_location(growing.insert->location());
    std::vector<Value> yields;
    for (size_t i = 0; i < yield->num_operands(); ++i) yields.push_back(yield->operand(i));
    yields[growing.carried + 1] = Concat(std::vector{to->argument(at), item}, axis);
    yields.push_back(build_->Extent(item, static_cast<size_t>(axis)));
    rewriter_->Create(cf::kYield, yields);
    rewriter_->Erase(yield);
    rewriter_->Erase(growing.insert);
    for (size_t i = 0; i < from->num_arguments(); ++i) {
      if (i != at) rewriter_->ReplaceAllUses(from->argument(i), to->argument(i));
    }
    while (Operation* op = from->front()) op->MoveToEnd(to);
  }

  // There is nothing to join without a round, which is an error: the first one adds no more than
  // there is in the end.
  void ReplaceJoined(Operation* loop, Operation* made, size_t carried, int64_t axis) {
    for (size_t i = 0; i < loop->num_results(); ++i) {
      if (i != carried) rewriter_->ReplaceAllUses(loop->result(i), made->result(i));
    }
    rewriter_->SetInsertionPoint(made->next());
    const Value all = made->result(carried);
    const Value added = made->result(made->num_results() - 1);
    std::vector<Value> extents;
    for (size_t i = 0; i < TensorOrNull(all).rank(); ++i) {
      Value extent = build_->Reshape(build_->Extent(all, i), {1});
      if (static_cast<int64_t>(i) == axis) {
        extent = build_->Create(nn::kMax, {extent, Row(added, build_->Scalar(0), 0, true)});
      }
      extents.push_back(extent);
    }
    const Value checked =
        build_->Create(nn::kReshape, {all, Concat(extents, 0)}, {build_->Attr("allowzero", true)});
    std::vector<Operation*> readers;
    for (const auto& use : loop->result(carried).uses()) readers.push_back(use.owner());
    for (Operation* reader : readers) {
      rewriter_->SetResultType(reader, 0, checked.type());
      rewriter_->ReplaceOp(reader, checked);
    }
  }

  std::set<std::string> names_;
  std::optional<Rewriter> rewriter_;
  std::optional<ShapeInferencer> facts_;
  std::optional<SizeBuilder> build_;
  std::unordered_map<Value, List> lists_;  // looked up, never iterated
};

REGISTER_PASS(expand_lists, ExpandListsPass)
    .Doc(
        "lists of tensors that are known one by one become these, and lists that loops append to "
        "tensors of one more axis: plans know tensors only");

}  // namespace lathe
