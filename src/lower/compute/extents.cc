#include "src/lower/compute/extents.h"

#include <algorithm>

#include "lathe/dialect/nn/indexing.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/order.h"
#include "lathe/dialect/nn/sampling.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/dialect/nn/signal.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/resize_axis.h"

namespace lathe::lower {
namespace {

// Whether an operand says how long that axis of result 0 is.
bool SaysExtent(const Operation& op, size_t axis) {
  if (op.name() == nn::ConstantOfShapeOp::kName) return true;
  if (op.name() == nn::ExpandOp::kName) return ExpandEntry(op, axis).has_value();
  if (op.name() == nn::TileOp::kName) {
    const std::vector<Dim> from = DimsOf(op.operand(0)), times = DimsOf(op.operand(1));
    return axis < from.size() && times[0].IsConstant(static_cast<int64_t>(from.size()));
  }
  if (op.name() == nn::TopKOp::kName || op.name() == nn::OneHotOp::kName) return true;
  if (op.name() == nn::RangeOp::kName) return CountsRange(op);
  if (op.name() == nn::ResizeOp::kName) return SaysExtentOfResize(op);
  if (op.name() == nn::PadOp::kName) return SaysExtentOfPad(op, axis);
  if (op.name() == nn::DftOp::kName) return SaysExtentOfDft(op, axis);
  if (op.name() == nn::SplitOp::kName) return SaysExtentsOfSplit(op, axis);
  if (op.name() == nn::AffineGridOp::kName) return axis + 1 < DimsOf(op.result(0)).size();
  return op.name() == nn::SliceOp::kName && SliceEntry(op, axis).has_value();
}

}  // namespace

std::optional<size_t> ExpandEntry(const Operation& op, size_t axis) {
  const Dim entries = DimsOf(op.operand(nn::ExpandOp::kShape))[0];
  if (!entries.is_constant()) return std::nullopt;
  const auto added = std::ssize(DimsOf(op.result(0))) - entries.value();
  const auto entry = static_cast<std::ptrdiff_t>(axis) - added;
  return entry < 0 ? std::nullopt : std::optional(static_cast<size_t>(entry));
}

Extents::Extents(const Block& function) {
  for (size_t i = 0; i < function.num_arguments(); ++i) {
    const std::vector<Dim> dims = DimsOf(function.argument(i));
    for (size_t a = 0; a < dims.size(); ++a) Add(dims[a], function.argument(i), nullptr, 0, a);
  }
  for (const Operation& op : function) {
    const bool is_split = op.name() == nn::SplitOp::kName;
    if (op.num_results() != 1 && op.name() != nn::TopKOp::kName && !is_split) continue;
    for (size_t i = 0; i < (is_split ? op.num_results() : 1); ++i) {
      const std::vector<Dim> dims = DimsOf(op.result(i));
      for (size_t a = 0; a < dims.size(); ++a) {
        const bool is_told = !Resolve(dims[a]) && SaysExtent(op, a);
        if (is_told && KnowsOperand(op, a)) Add(dims[a], {}, &op, i, a);
      }
    }
  }
}

void Extents::Add(const Dim& dim, Value argument, const Operation* op, size_t result, size_t axis) {
  if (!dim.is_expression()) return;
  for (const Source& s : sources_) {
    if (s.dim == dim) return;
  }
  const std::string symbol =
      dim.is_symbol() ? std::string(dim.symbol_name()) : StrCat("#", sources_.size());
  sources_.push_back({dim, argument, op, result, axis, symbol});
}

// An extent that is also made of the operand's one has a source if that has.
bool Extents::KnowsOperand(const Operation& op, size_t axis) const {
  constexpr std::string_view kMadeOfBoth[] = {nn::ExpandOp::kName, nn::PadOp::kName,
                                              nn::ResizeOp::kName, nn::SliceOp::kName,
                                              nn::TileOp::kName};
  if (std::ranges::find(kMadeOfBoth, op.name()) == std::end(kMadeOfBoth)) return true;
  const std::vector<Dim> from = DimsOf(op.operand(0));
  const size_t added = DimsOf(op.result(0)).size() - from.size();
  return axis < added || Resolve(from[axis - added]).has_value();
}

bool Extents::IsKnown(const Dim& dim, bool from_arguments) const {
  std::vector<std::string> names;
  dim.CollectSymbols(names);
  return std::ranges::all_of(names, [&](const std::string& name) {
    return std::ranges::any_of(sources_, [&](const Source& s) {
      if (from_arguments && s.op != nullptr) return false;
      return s.dim.is_symbol() && s.dim.symbol_name() == name;
    });
  });
}

// The extent of an argument is not computed from what an operation says: that may be computed from
// the argument.
std::optional<Dim> Extents::Resolve(const Dim& dim) const {
  if (dim.is_unknown()) return std::nullopt;
  if (dim.is_constant() || IsKnown(dim, true)) return dim;
  for (const Source& s : sources_) {
    if (s.dim == dim) return Dim::Symbol(s.symbol);
  }
  return IsKnown(dim, false) ? std::optional(dim) : std::nullopt;
}

}  // namespace lathe::lower
