#include <algorithm>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/pool.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "src/dialect/nn/layout.h"
#include "src/dialect/nn/window.h"

namespace lathe {

namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kFewPlaces = 32;  // fewer are combined at once
constexpr int64_t kFewOfOne = 64;   // the same where the window may be the only one
constexpr int64_t kMost = 1 << 20;

bool KeepsPrecision(Type type) {
  const auto tensor = type.dyn_cast<AnyTensorType>();
  return tensor && (tensor.element() == ElementType::kF32 || tensor.element() == ElementType::kF64);
}

// The window of a pool that can go along one axis after the other; `spec` lists all axes.
std::optional<nn::WindowSpec> WindowOfAxes(Operation* op) {
  nn::WindowSpec spec;
  if (op->isa<nn::MaxPoolOp>()) {
    if (op->num_results() > 1 && !op->result(1).use_empty()) return std::nullopt;
    spec = nn::WindowOf(nn::MaxPoolOp(op));
  } else if (op->isa<nn::AveragePoolOp>() && KeepsPrecision(op->operand(0).type())) {
    spec = nn::WindowOf(nn::AveragePoolOp(op));
  } else {
    return std::nullopt;
  }
  const size_t rank = spec.kernel_shape->size();
  if (!spec.strides) spec.strides = Ints(rank, 1);
  if (!spec.dilations) spec.dilations = Ints(rank, 1);
  if (!spec.pads) spec.pads = Ints(2 * rank, 0);
  const bool fits = spec.strides->size() == rank && spec.dilations->size() == rank &&
                    spec.pads->size() == 2 * rank;
  return fits ? std::optional(spec) : std::nullopt;
}

// Elements that are combined for each element of the result, at once and axis by axis, the last one
// first.
bool IsWorthIt(const nn::WindowSpec& spec) {
  const auto product = [](int64_t a, int64_t b) { return std::min(a * std::min(b, kMost), kMost); };
  int64_t at_once = 1, apart = 0, rows = 1;
  for (size_t a = 0; a < spec.kernel_shape->size(); ++a) {
    const int64_t k = (*spec.kernel_shape)[a];
    at_once = product(at_once, k);
    if (k > 1) apart += product(rows, k);
    rows = product(rows, (*spec.strides)[a]);
  }
  return at_once > kFewPlaces && 2 * apart <= at_once;
}

// One window over all of it: there are no others that could share rows with it. Windows of symbolic
// planes without padding mostly are that, the pool before a classifier.
bool IsOneWindow(Operation* op, const nn::WindowSpec& spec) {
  const auto type = op->result(0).type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank()) return false;
  const size_t rank = spec.kernel_shape->size();
  const auto spatial = type.dims().subspan(nn::ChannelsLast(op) ? 1 : 2, rank);
  int64_t places = 1;
  for (const int64_t k : *spec.kernel_shape) places = std::min(places * std::min(k, kMost), kMost);
  const bool may_be = places <= kFewOfOne && !nn::IsSame(spec) &&
                      std::ranges::all_of(*spec.pads, [](int64_t pad) { return pad == 0; });
  return std::ranges::all_of(
      spatial, [&](const Dim& d) { return d.IsConstant(1) || (may_be && !d.is_constant()); });
}

}  // namespace

class SplitPoolPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    std::vector<Operation*> found;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) found.push_back(op);
    for (Operation* op : found) {
      const auto spec = WindowOfAxes(op);
      if (!spec || !IsWorthIt(*spec) || IsOneWindow(op, *spec)) continue;
      Split(rewriter, op, *spec);
    }
  }

 private:
  void Split(Rewriter& rewriter, Operation* op, const nn::WindowSpec& spec) {
    const Rewriter::Replacing replacing(rewriter, {&op, 1});
    const size_t rank = spec.kernel_shape->size();
    Value x = op->operand(0);
    for (size_t a = rank; a-- > 0;) {
      const bool is_trivial = (*spec.kernel_shape)[a] == 1 && (*spec.strides)[a] == 1 &&
                              (*spec.pads)[a] == 0 && (*spec.pads)[rank + a] == 0;
      if (!is_trivial) x = Along(rewriter, op, spec, a, x);
    }
    x.set_type(op->result(0).type());
    rewriter.Applied(op, "its window is large");
    std::vector<Value> results(op->num_results(), x);
    for (size_t i = 1; i < results.size(); ++i) results[i] = Value();
    rewriter.ReplaceOp(op, results);
    Count("pools");
  }

  // The pool along one axis only.
  static Value Along(Rewriter& rewriter, Operation* op, const nn::WindowSpec& spec, size_t axis,
                     Value x) {
    const size_t rank = spec.kernel_shape->size();
    const auto only = [&](const Ints& all, int64_t otherwise) {
      Ints values(all.size(), otherwise);
      for (size_t i = axis; i < all.size(); i += rank) values[i] = all[i];
      return rewriter.Attr(std::span<const int64_t>(values));
    };
    std::vector<NamedAttribute> attributes{
        rewriter.Named("kernel_shape", only(*spec.kernel_shape, 1)),
        rewriter.Named("strides", only(*spec.strides, 1)),
        rewriter.Named("dilations", only(*spec.dilations, 1))};
    if (spec.auto_pad == "NOTSET")
      attributes.push_back(rewriter.Named("pads", only(*spec.pads, 0)));
    for (const char* name : {"auto_pad", "ceil_mode", "count_include_pad", "layout"}) {
      if (const Attribute value = op->attribute(name)) {
        attributes.push_back(rewriter.Named(name, value));
      }
    }
    return rewriter.Create(op->name(), {&x, 1}, attributes)->result(0);
  }
};

REGISTER_PASS(split_pool, SplitPoolPass)
    .Doc("a pool of a large window goes along one axis after the other")
    .Details(
        "The greatest of a window is the greatest of its rows' greatest, and so with means of f32 "
        "and f64. Split where the window has more than 32 places, and rows that several windows "
        "share make the work half as much or less.");

}  // namespace lathe
