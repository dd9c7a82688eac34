#include "src/lower/fusion_price.h"

#include <algorithm>
#include <cmath>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/matmul.h"
#include "lathe/dialect/op_kind.h"
#include "src/lower/op_cost.h"

namespace lathe::fusion {
namespace {

constexpr int64_t kUsualExtent = 64;  // of what is not known
constexpr double kCopiedRows = 8;  // of a convolution's output, for which rows are copied at once
constexpr double kPackedWidth = 512;  // columns or rows that a packed block is multiplied by
constexpr double kLanes = 8;
constexpr double kReadApart = 16;  // instructions

double ExtentOf(const Dim& dim) {
  const Dim usual =
      dim.Substitute([](std::string_view) { return std::optional(Dim(kUsualExtent)); });
  return static_cast<double>(usual.is_constant() ? usual.value() : kUsualExtent);
}

// Extents of the last axes, the last one first; 1 where there is no such axis.
double ExtentFromBack(Value v, size_t i) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank()) return kUsualExtent;
  return i < type.rank() ? ExtentOf(type.dims()[type.rank() - 1 - i]) : 1;
}

// Whether a position reads no more than the step to the next one: the others of a kernel's places
// are copied for each of them where the number of positions is symbolic.
bool ReadsOnce(const nn::ConvOp& op, AnyTensorType w) {
  int64_t places = 1, apart = 1;
  for (size_t a = 2; a < w.rank(); ++a) {
    places *= w.dims()[a].value();
    const auto strides = op.strides();
    apart *= strides ? (*strides)[a - 2] : 1;
  }
  return places <= apart;
}

bool HasStaticPositions(Value result) {
  const auto type = result.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank()) return false;
  return std::all_of(type.dims().begin() + 2, type.dims().end(),
                     [](const Dim& dim) { return dim.is_constant(); });
}

// Rows are copied with those that the windows of the next block see again.
double TimesCopied(const Operation* conv) {
  const auto w = conv->operand(1).type().dyn_cast<AnyTensorType>();
  if (!w || !w.is_static() || w.rank() < 3) return 0;
  const nn::ConvOp op(conv);
  if (op.group() != 1) return 0;
  if (!HasStaticPositions(conv->result(0)) && !ReadsOnce(op, w)) return 0;
  if (w.rank() < 4) return 1;
  const double seen = ExtentFromBack(conv->operand(1), 1) - 1;
  return 1 + seen / kCopiedRows;
}

// A stack that is broadcast is packed for each matrix that it is multiplied by.
double TimesPacked(const Operation* product, size_t operand) {
  const Value m = product->operand(operand), z = product->result(0);
  const auto stacks = [](Value v) {
    return ElementsOf(v) / ExtentFromBack(v, 0) / ExtentFromBack(v, 1);
  };
  const double others = ExtentFromBack(z, operand == 0 ? 0 : 1);
  const double blocks = std::max(std::ceil(others / kPackedWidth), 1.0);
  return blocks * std::max(stacks(z) / stacks(m), 1.0);
}

// Runs of neighbors that lie anywhere are read one by one. Instructions per element; 0 where no
// index is read, or runs are as long as vectors, which takes no more than reading what was written.
double ReadsApart(const Operation* op) {
  if (op->isa<nn::GatherElementsOp>()) return kReadApart;
  if (!op->isa<nn::GatherOp>()) return 0;
  const nn::GatherOp gather(op);
  const auto type = op->operand(nn::GatherOp::kData).type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank() || ElementsOf(op->operand(nn::GatherOp::kIndices)) <= 1) return 0;
  const int64_t rank = type.rank(), axis = gather.axis() < 0 ? gather.axis() + rank : gather.axis();
  double run = 1;
  for (int64_t i = 0; i < rank - 1 - axis; ++i) {
    run *= ExtentFromBack(op->operand(nn::GatherOp::kData), static_cast<size_t>(i));
  }
  return run < kReadApart ? kReadApart / std::max(run, 1.0) : 0;
}

}  // namespace

double ElementsOf(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank()) return kUsualExtent;
  double elements = 1;
  for (const Dim& dim : type.dims()) elements *= ExtentOf(dim);
  return std::max(elements, 1.0);
}

double BytesOf(Value v) {
  const auto type = v.type().dyn_cast<AnyTensorType>();
  const double bits =
      type && type.element() != ElementType::kUndefined && type.element() != ElementType::kString
          ? BitWidth(type.element())
          : 32;
  return ElementsOf(v) * bits / 8;
}

double ArithmeticNs(const Operation* op) {
  if (op->num_results() == 0) return 0;
  if (KindOf(op) > OpKind::kBroadcast) {
    return ElementsOf(op->result(0)) * ReadsApart(op) / kElementsPerNs;
  }
  return ElementsOf(op->result(0)) * lower::InstructionsOf(*op) / kElementsPerNs;
}

double TimesComputed(const Operation* op, size_t operand) {
  if (op->isa<nn::ConvOp>()) return operand == 0 ? TimesCopied(op) : 0;
  const bool is_product = op->isa<nn::MatmulOp>() || op->isa<nn::GemmOp>();
  return is_product && operand < 2 ? TimesPacked(op, operand) : 0;
}

double TimesRepeated(Value from, Value to) {
  const double times = ElementsOf(to) / ElementsOf(from);
  // What is the same along the last axis is computed once for a vector.
  const bool once = ExtentFromBack(from, 0) == 1 && ExtentFromBack(to, 0) > 1;
  return once ? times / std::min(ExtentFromBack(to, 0), kLanes) : times;
}

}  // namespace lathe::fusion
