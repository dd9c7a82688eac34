#include "lathe/lower/split_function.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "lathe/dialect/arithmetic.h"
#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/builtin/group.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/lower/compute/elements.h"
#include "src/lower/factors.h"

namespace lathe::lower {
namespace {

using Ops = std::vector<Operation*>;

bool IsData(const Operation& op) {
  return op.HasTrait<Terminator>() || op.HasTrait<ConstantLike>();
}

Ops OperationsOf(const Block& block) {
  Ops ops;
  for (Operation& op : block) {
    if (!IsData(op)) ops.push_back(&op);
  }
  return ops;
}

// A product, convolution, pool or resize, for which there are strategies that plain loops are far
// behind, of more than a few elements or of more arithmetic than a call takes.
bool IsHeavy(Operation& op) {
  constexpr int64_t kFew = 4096;
  if (KindOf(&op) != OpKind::kOutElementwiseFusable || op.num_results() == 0) return false;
  const auto is_more = [](const Dim& dim) { return !dim.is_constant() || dim.value() > kFew; };
  const Dim elements = op.result(0).type().cast<AnyTensorType>().shape().NumElements();
  return is_more(elements) || is_more(ArithmeticOf(&op));
}

// By number of the operation, the piece that it belongs to.
class PieceNumbers {
 public:
  PieceNumbers(const Ops& ops, const Machine& machine) : ops_(ops), pieces_(ops.size()) {
    for (size_t i = 0; i < ops.size(); ++i) numbers_.emplace(ops[i], i);
    for (Operation* op : ops) {
      is_anchor_.push_back(IsHeavy(*op) || !Elements::CanCompute(*op, machine));
      is_reduction_.push_back(is_anchor_.back() && KindOf(op) == OpKind::kReduction);
    }
    const bool leads = is_anchor_[0];
    has_more_ = std::any_of(is_anchor_.begin() + 1, is_anchor_.end(), [](bool v) { return v; });
    for (size_t i = 1; i < ops.size(); ++i) {
      const bool begins = has_more_ ? is_anchor_[i] : !leads || i == 1;
      pieces_[i] = pieces_[i - 1] + (begins ? 1 : 0);
    }
  }

  // Several pieces, as there are several operations.
  std::vector<size_t> Pieces() const {
    std::vector<size_t> pieces = WithWhatTheyRead();
    if (std::ranges::count(pieces, pieces[0]) < std::ssize(ops_)) return pieces;
    // One reduction with what it reads, or what is computed of it as well.
    const size_t behind = FirstOf(1) + 1;
    if (behind == ops_.size()) return pieces_;
    for (size_t i = 0; i < ops_.size(); ++i) pieces[i] = i < behind ? 0 : 1;
    return pieces;
  }

 private:
  // What is computed of arguments alone, and read by one piece alone that begins with a reduction,
  // belongs to that one.
  std::vector<size_t> WithWhatTheyRead() const {
    std::vector<size_t> moved = pieces_;
    const std::vector<bool> is_of_arguments = AreOfArguments();
    for (size_t i = ops_.size(); has_more_ && i-- > 0;) {  // readers first
      if (is_of_arguments[i]) moved[i] = ReaderOf(i, moved);
    }
    return moved;
  }

  std::vector<bool> AreOfArguments() const {
    std::vector<bool> are(ops_.size());
    for (size_t i = 0; i < ops_.size(); ++i) {
      are[i] = !is_anchor_[i];
      for (size_t k = 0; k < ops_[i]->num_operands(); ++k) {
        const Value v = ops_[i]->operand(k);
        const auto found = v ? numbers_.find(v.defining_op()) : numbers_.end();
        if (found != numbers_.end() && !are[found->second]) are[i] = false;
      }
    }
    return are;
  }
  // The only piece that reads it, if it may move there, else its own.
  size_t ReaderOf(size_t i, const std::vector<size_t>& moved) const {
    std::optional<size_t> reader;
    for (size_t r = 0; r < ops_[i]->num_results(); ++r) {
      for (const OpOperand use : ops_[i]->result(r).uses()) {
        const auto found = numbers_.find(use.owner());
        if (found == numbers_.end()) return pieces_[i];
        if (reader.value_or(moved[found->second]) != moved[found->second]) return pieces_[i];
        reader = moved[found->second];
      }
    }
    return reader && is_reduction_[FirstOf(*reader)] ? *reader : pieces_[i];
  }
  size_t FirstOf(size_t piece) const {
    return static_cast<size_t>(std::ranges::lower_bound(pieces_, piece) - pieces_.begin());
  }

  const Ops& ops_;
  std::vector<size_t> pieces_;  // in program order, which keeps every piece convex
  std::vector<bool> is_anchor_, is_reduction_;
  bool has_more_ = false;                                 // anchors behind the first operation
  std::unordered_map<const Operation*, size_t> numbers_;  // looked up, never iterated
};

std::vector<Ops> PiecesOf(const Ops& ops, const Machine& machine) {
  const std::vector<size_t> piece_of = PieceNumbers(ops, machine).Pieces();
  std::map<size_t, Ops> pieces;
  for (size_t i = 0; i < ops.size(); ++i) pieces[piece_of[i]].push_back(ops[i]);
  std::vector<Ops> result;
  for (auto& [number, piece] : pieces) result.push_back(std::move(piece));
  return result;
}

// A piece as a function: what it takes and gives are values of the old one.
struct Piece {
  Operation* function;
  std::vector<Value> arguments, results;
};

class Splitter {
 public:
  explicit Splitter(Operation* function) : function_(function) {}

  Piece Make(const Ops& ops, size_t number) {
    Piece piece{nullptr, {}, {}};
    Ops constants;
    for (const Operation* op : ops) FindInputs(op, ops, piece, constants);
    for (Operation* op : ops) {
      for (size_t r = 0; r < op->num_results(); ++r) {
        if (IsReadOutside(op->result(r), ops)) piece.results.push_back(op->result(r));
      }
    }
    piece.function = NewFunction(ops, number, constants.size());
    Block* body = piece.function->region(0).AddBlock();
    IrMapping mapping;
    for (const Value v : piece.arguments) mapping.Map(v, body->AddArgument(v.type()));
    for (const Operation* op : constants) body->PushBack(Clone(op, mapping));
    for (const Operation* op : ops) body->PushBack(Clone(op, mapping));
    std::vector<Value> results;
    for (const Value v : piece.results) results.push_back(mapping.Lookup(v));
    Builder b = Builder::AtEnd(body);
    b.Create(b.context().GetOp<builtin::ReturnOp>(), results, {}, {});
    return piece;
  }

  void Replace(Operation* call, const std::vector<Piece>& pieces) const {
    const Block& block = *function_->region(0).front();
    Builder b = Builder::Before(call);
    b.set_location(call->location());
    IrMapping mapping;
    for (size_t i = 0; i < block.num_arguments(); ++i) {
      mapping.Map(block.argument(i), call->operand(i));
    }
    for (const Piece& piece : pieces) {
      std::vector<Value> operands;
      std::vector<Type> types;
      for (const Value v : piece.arguments) operands.push_back(mapping.Lookup(v));
      for (const Value v : piece.results) types.push_back(v.type());
      const NamedAttribute callee = b.Named(builtin::CallOp::kCalleeAttr,
                                            piece.function->attribute(builtin::FuncOp::kNameAttr));
      const Operation* made =
          b.Create(b.context().GetOp<builtin::CallOp>(), operands, {&callee, 1}, types);
      for (size_t i = 0; i < piece.results.size(); ++i) {
        mapping.Map(piece.results[i], made->result(i));
      }
    }
    const Operation* end = block.terminator();
    std::vector<Value> results;
    for (size_t i = 0; i < end->num_operands(); ++i) {
      const Operation* maker = end->operand(i).defining_op();
      if (maker != nullptr && maker->HasTrait<ConstantLike>()) b.Insert(Clone(maker, mapping));
      results.push_back(mapping.Lookup(end->operand(i)));
    }
    call->ReplaceAllUsesWith(results);
    call->Erase();
  }

 private:
  static bool Holds(const Ops& ops, const Operation* op) {
    return std::ranges::find(ops, op) != ops.end();
  }

  static void FindInputs(const Operation* op, const Ops& ops, Piece& piece, Ops& constants) {
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const Value v = op->operand(i);
      if (!v || Holds(ops, v.defining_op())) continue;
      if (v.defining_op() != nullptr && v.defining_op()->HasTrait<ConstantLike>()) {
        if (!Holds(constants, v.defining_op())) constants.push_back(v.defining_op());
      } else if (std::ranges::find(piece.arguments, v) == piece.arguments.end()) {
        piece.arguments.push_back(v);
      }
    }
  }

  static bool IsReadOutside(Value v, const Ops& ops) {
    return std::ranges::any_of(v.uses(), [&](OpOperand use) { return !Holds(ops, use.owner()); });
  }

  Operation* NewFunction(const Ops& ops, size_t number, size_t constants) const {
    Builder b = Builder::Before(function_);
    std::vector<Location> locations;
    OpKind kind = OpKind::kElementwise;
    for (const Operation* op : ops) {
      locations.push_back(op->location());
      kind = std::max(kind, KindOf(op));
    }
    b.set_location(Location::Fused(b.context(), locations));
    const auto old = function_->attribute(builtin::FuncOp::kNameAttr).cast<StrAttribute>();
    const std::vector<NamedAttribute> attributes = {
        b.Named(builtin::FuncOp::kNameAttr, b.Attr(StrCat(old.value(), ".", number))),
        b.Named(builtin::GroupOp::kKindAttr, b.Attr(Name(kind))),
        b.Named(builtin::GroupOp::kAnchorAttr, b.Attr(static_cast<int64_t>(constants)))};
    return b.Create(b.context().GetOp<builtin::FuncOp>(), {}, attributes, {}, 1);
  }

  Operation* function_;
};

// Whether what the operation would become has a chance to be lowered.
bool IsWorthDecomposing(const Operation* op) {
  const auto fits = [](Value v) {
    const auto type = v.type().dyn_cast<AnyTensorType>();
    if (!type || !type.has_rank()) return false;
    return std::ranges::none_of(type.dims(), &Dim::is_unknown);
  };
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (op->operand(i) && !fits(op->operand(i))) return false;
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    if (!fits(op->result(i))) return false;
  }
  return op->HasInterface<DecomposeInterface>();
}

std::vector<Type> ResultTypes(const Block& block) {
  const Operation* end = block.terminator();
  std::vector<Type> types;
  for (size_t i = 0; i < end->num_operands(); ++i) types.push_back(end->operand(i).type());
  return types;
}

// Constants say more about the shapes of what was made of them than a builder sees. The results of
// the function stay as they were.
void InferAgain(Block* block, const std::vector<Type>& given) {
  const Operation* end = block->terminator();
  ShapeInferencer shapes;
  for (Operation& op : *block) {
    if (!op.HasTrait<Terminator>()) shapes.Visit(&op);
  }
  for (size_t i = 0; i < end->num_operands(); ++i) end->operand(i).set_type(given[i]);
}

// False if the operation has no simpler form.
bool Decompose(Operation* op) {
  if (!IsWorthDecomposing(op)) return false;
  Builder b = Builder::Before(op);
  b.set_location(op->location());
  const std::vector<Value> simpler = DecomposeForKernel(op, b);
  if (simpler.empty()) return false;
  Block* block = op->block();
  const std::vector<Type> given = ResultTypes(*block);
  op->ReplaceAllUsesWith(simpler);
  op->Erase();
  InferAgain(block, given);
  return true;
}

}  // namespace

bool IsBetterApart(const Block& function) {
  const Ops ops = OperationsOf(function);
  return ops.size() > 1 && std::ranges::any_of(ops, [](Operation* op) { return IsHeavy(*op); });
}

std::vector<Operation*> SplitFunction(Operation* function, std::span<Operation* const> calls,
                                      const Machine& machine) {
  const Ops ops = OperationsOf(*function->region(0).front());
  if (ops.size() == 1 && Decompose(ops[0])) return {function};
  if (ops.size() < 2) return {};
  Splitter splitter(function);
  std::vector<Piece> pieces;
  for (const Ops& piece : PiecesOf(ops, machine)) {
    pieces.push_back(splitter.Make(piece, pieces.size()));
  }
  for (Operation* call : calls) splitter.Replace(call, pieces);
  function->Erase();
  std::vector<Operation*> functions;
  for (const Piece& piece : pieces) functions.push_back(piece.function);
  return functions;
}

}  // namespace lathe::lower
