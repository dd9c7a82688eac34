#include <algorithm>

#include "lathe/dialect/region_interface.h"
#include "lathe/ir/context.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/support/buffer.h"
#include "lathe/support/error.h"
#include "lathe/support/repeat.h"
#include "test/differential/evaluate.h"
#include "test/differential/graph_grower.h"

// Ops with regions: what is in them is grown like what is around them, and reads that, too.
namespace lathe::testing {

namespace {

constexpr int kMostRounds = 100;  ///< of all regions within one op

bool IsNumeric(ElementType element) {
  return (IsFloat(element) && BitWidth(element) >= 16) || element == ElementType::kI64 ||
         element == ElementType::kI32;
}

int64_t LengthOf(const Tensor& data, int64_t axis) {
  return data.shape()[static_cast<size_t>(axis < 0 ? axis + data.rank() : axis)];
}

}  // namespace

bool GraphGrower::WithRegions() {
  static constexpr std::string_view kOps[] = {"cf.if", "cf.if", "cf.while", "cf.while", "cf.scan"};
  const std::string op(kOps[Pick(std::size(kOps))]);
  if (!regions_.contains(op)) return false;
  return op == "cf.if" ? If() : op == "cf.while" ? Loop() : Scan();
}

// ---- what surrounds regions ----

/// One bool: constant, given, or computed of elements or of sizes.
Value GraphGrower::Condition() {
  const Value v = AnyValue();
  const ElementType element = ElementOf(v);
  const size_t kind = Pick(6);
  if (kind == 0) return Constant(Tensor::Scalar<bool>(OneIn(2)));
  if (kind == 1) {
    const Value number = Op("size", {v});
    return number
               ? Op("greater", {number, Scalar(ElementType::kI64, static_cast<double>(Int(0, 30)))})
               : number;
  }
  if (kind < 4 && IsNumeric(element)) {
    const Value most = Op(OneIn(2) ? "reduce_max" : "reduce_sum", {v}, {Named("keepdims", false)});
    return most ? Op("greater", {most, Scalar(element, static_cast<double>(Int(-2, 6)) / 4)})
                : most;
  }
  const Value fed = LeafOf(Tensor::Scalar<bool>(OneIn(2)), {}, LeafKind::kFeed);
  feeds_.back().decides = true;
  return fed;
}

/// How often a loop runs: constant, given, computed; null: as often as its condition says.
Value GraphGrower::TripCount() {
  const auto scalar = [](int64_t n) { return Tensor::Scalar<int64_t>(n); };
  switch (Pick(6)) {
    case 0:
      return {};
    case 1:
    case 2:
      return Constant(scalar(Int(0, 4)));
    case 3: {
      const Value number = Op("size", {AnyValue()});
      return number ? Op("min", {number, Constant(scalar(Int(0, 4)))}) : number;
    }
    default:
      return Computed(scalar(Int(0, 4)));
  }
}

/// A value of the same element type and rank, mostly another one.
Value GraphGrower::Like(Value v, bool same_shape) {
  const ElementType element = ElementOf(v);
  Shape shape = DataOf(v).shape();
  for (int tries = 0; tries < 12; ++tries) {
    const Value w = AnyValue();
    const bool fits =
        same_shape ? DataOf(w).shape() == shape : DataOf(w).rank() == DataOf(v).rank();
    if (fits && w != v && ElementOf(w) == element) return w;
  }
  std::vector<Dim> dims = DimsOf(v);
  if (!same_shape && !dims.empty()) {
    const size_t axis = Pick(dims.size());
    dims[axis] = shape[axis] = Extent();
  }
  const bool adapt = IsFloat(element) && BitWidth(element) >= 16 && OneIn(2);
  return adapt && NumElements(shape) <= 1000 ? Adapted(element, shape) : Leaf(element, dims);
}

// ---- the ops ----

bool GraphGrower::If() {
  const Value condition = Condition();
  if (!condition) return false;
  const size_t results = 1 + Pick(2);
  const bool same_shape = !OneIn(3);
  Operation* op = Open("cf.if", {condition}, {}, results, 2);
  Yields first;
  const auto steps = [&] {
    for (size_t i = 0, count = Pick(4); i < count; ++i) (void)Step();
  };
  bool filled = Fill(op->region(0), {}, [&] {
    steps();
    while (first.size() < results) first.push_back(AnyValue());
    return first;
  });
  filled = filled && Fill(op->region(1), {}, [&] {
             steps();
             Yields second;
             for (const Value v : first) second.push_back(Like(v, same_shape));
             return second;
           });
  return Close(op, filled);
}

/// Whether there is another round. Where nothing else ends the loop, the number of rounds does.
Value GraphGrower::GoesOn(Value iteration, bool ends) {
  if (!ends && OneIn(2)) return Constant(Tensor::Scalar<bool>(true));
  if (!ends && OneIn(3)) return Condition();
  return Op("less", {iteration, Constant(Tensor::Scalar<int64_t>(Int(0, 3)))});
}

/// What a carried value becomes.
Value GraphGrower::Next(Value carried) {
  static constexpr std::string_view kOps[] = {"add", "mul", "sub", "max"};
  if (OneIn(3)) return Like(carried, !OneIn(6));
  const ElementType element = ElementOf(carried);
  if (!IsNumeric(element) || OneIn(8)) return OneIn(3) ? carried : Like(carried, true);
  const Value other = Partner(carried, element);
  return other ? Op(kOps[Pick(std::size(kOps))], {carried, other}) : other;
}

bool GraphGrower::Loop() {
  const Value trips = TripCount();
  const Value condition = !trips && OneIn(2) ? Value()
                          : OneIn(3)         ? Condition()
                          : OneIn(2)         ? Constant(Tensor::Scalar<bool>(true))
                                             : Value();
  const bool counts = static_cast<bool>(trips);
  std::vector<Value> operands = {
      trips, !counts && !condition ? Constant(Tensor::Scalar<bool>(true)) : condition};
  const size_t carried = 1 + Pick(2), scans = Pick(3);
  std::vector<Tensor> arguments = {Tensor::Scalar<int64_t>(0), Tensor::Scalar<bool>(true)};
  for (size_t i = 0; i < carried; ++i) {
    operands.push_back(AnyValue());
    arguments.push_back(DataOf(operands.back()));
  }
  Operation* op = Open("cf.while", operands, {}, carried + scans, 1);
  const bool filled = Fill(op->region(0), arguments, [&] {
    const Block& body = *op->region(0).front();
    for (size_t i = 0, count = Pick(4); i < count; ++i) (void)Step();
    Yields yields = {GoesOn(body.argument(0), !counts)};
    for (size_t i = 0; i < carried; ++i) yields.push_back(Next(body.argument(2 + i)));
    for (size_t i = 0; i < scans; ++i) yields.push_back(AnyValue());
    return yields;
  });
  return Close(op, filled);
}

bool GraphGrower::Scan() {
  std::vector<Value> operands;
  std::vector<Tensor> arguments;
  for (size_t i = 0, states = Pick(2); i < states; ++i) {
    operands.push_back(AnyValue());
    arguments.push_back(DataOf(operands.back()));
  }
  const size_t states = operands.size(), scans = 1 + Pick(2);
  const Value first = AnyValue();
  const int64_t rank = DataOf(first).rank();
  if (rank == 0) return false;
  const int64_t axis = OneIn(2) ? 0 : Int(-rank, rank - 1);
  const int64_t length = LengthOf(DataOf(first), axis);
  if (length > 12 || length == 0) return false;
  for (size_t i = 0; i < scans; ++i) {
    operands.push_back(i == 0 ? first : OneIn(3) ? first : Leaf(Element(), DimsOf(first)));
    if (!operands.back()) return false;
    Tensor slice = DataOf(operands.back());
    Shape shape = slice.shape();
    shape.erase(shape.begin() + (axis < 0 ? axis + rank : axis));
    if (slice.num_elements() == 0) return false;
    arguments.push_back(Repeated(slice, shape));
  }
  const size_t outputs = (states == 0 ? 1 : 0) + Pick(2);
  const auto entries = [&](size_t count, int64_t low, int64_t high) {
    std::vector<int64_t> list(count);
    for (int64_t& x : list) x = Int(low, high);
    return list;
  };
  Attributes attributes = {Named("num_scan_inputs", static_cast<int64_t>(scans))};
  if (axis != 0) attributes.push_back(List("scan_input_axes", std::vector<int64_t>(scans, axis)));
  if (OneIn(3)) attributes.push_back(List("scan_input_directions", entries(scans, 0, 1)));
  if (OneIn(3)) attributes.push_back(List("scan_output_axes", entries(outputs, -1, 0)));
  if (OneIn(3)) attributes.push_back(List("scan_output_directions", entries(outputs, 0, 1)));
  Operation* op = Open("cf.scan", operands, attributes, states + outputs, 1);
  const bool filled = Fill(op->region(0), arguments, [&] {
    const Block& body = *op->region(0).front();
    for (size_t i = 0, count = Pick(4); i < count; ++i) (void)Step();
    Yields yields;
    for (size_t i = 0; i < states; ++i) yields.push_back(Next(body.argument(i)));
    for (size_t i = 0; i < outputs; ++i) yields.push_back(AnyValue());
    return yields;
  });
  return Close(op, filled);
}

// ---- growing within ----

Operation* GraphGrower::Open(std::string_view name, const std::vector<Value>& operands,
                             const Attributes& attributes, size_t num_results, size_t num_regions) {
  return b_->CreateInferred(context_.FindOp(name), operands, attributes, num_results, num_regions);
}

template <class F>
bool GraphGrower::Fill(Region& region, const std::vector<Tensor>& arguments, F&& grow) {
  Operation* op = region.parent_op();
  Block* around = b_->block();
  Block* block = region.AddBlock();
  for (const Tensor& data : arguments) data_[block->AddArgument(NoneType::Get(context_))] = data;
  if (const auto typed = op->dyn_cast<RegionArgumentsInterface>()) typed.Set(RegionRound::kFirst);
  const std::vector<Value> before = values_;
  for (size_t i = 0; i < block->num_arguments(); ++i) values_.push_back(block->argument(i));
  Operation* const outer = outermost_;
  if (outermost_ == nullptr) outermost_ = op;
  ++depth_;
  b_->SetInsertionPointToEnd(block);
  const Yields yields = grow();
  const bool filled = std::ranges::all_of(yields, [](Value v) { return static_cast<bool>(v); });
  if (filled) b_->Create("cf.yield", yields);
  b_->SetInsertionPointToEnd(around);
  --depth_;
  outermost_ = outer;
  // Inputs lie outside.
  std::erase_if(values_, [&](Value v) {
    const Operation* by = v.defining_op();
    return (by == nullptr || by->name() != "nn.feed") &&
           std::ranges::find(before, v) == before.end();
  });
  return filled;
}

/// Infers and evaluates it; takes it out if it does not work.
bool GraphGrower::Close(Operation* op, bool filled) {
  const auto runs = [&] {
    facts_->Visit(op);
    if (!Verify(op).empty()) return false;
    Evaluator evaluator(
        program_->parameters(),
        [](Operation* one, const std::vector<RtValue>& inputs) { return EvalOp(one, inputs); },
        kMostRounds);
    evaluator.values = data_;
    const AllocationLimit limit(1 << 20);
    evaluator.Run(op);
    for (size_t i = 0; i < op->num_results(); ++i) {
      const RtValue& result = evaluator.values.at(op->result(i));
      if (!result.is_tensor() || result.tensor().num_elements() > 6000) return false;
      if (!op->result(i).type().isa<AnyTensorType>()) return false;
      data_[op->result(i)] = result;
    }
    return true;
  };
  try {
    if (filled && runs()) {
      for (size_t i = 0; i < op->num_results(); ++i) values_.push_back(op->result(i));
      last_ = op;
      return true;
    }
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInternal) throw;
  }
  Bury(op);
  return false;
}

void GraphGrower::Bury(Operation* op) {
  op->RemoveFromBlock();
  for (OpWalker walk(op); Operation* each = walk.Next();) {
    for (size_t i = 0; i < each->num_operands(); ++i) each->set_operand(i, {});
  }
  buried_.emplace_back(op);
}

}  // namespace lathe::testing
