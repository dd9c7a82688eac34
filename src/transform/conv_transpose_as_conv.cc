#include "lathe/dialect/nn/conv.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

using Ints = std::vector<int64_t>;

bool AreAll(const Ints& values, int64_t wanted) {
  return std::ranges::all_of(values, [&](int64_t v) { return v == wanted; });
}

// A transposed convolution whose input is as dense as its result.
struct DenseForm {
  Ints weights;  // shape [C, M / group, K...]
  Ints pads;     // of the convolution: begins, then ends
};

std::optional<DenseForm> FormOf(nn::ConvTransposeOp op) {
  const auto w = op.w().type().dyn_cast<AnyTensorType>();
  if (!w || !w.is_static() || w.rank() < 3) return std::nullopt;
  if (op.auto_pad() != "NOTSET" || op.output_shape()) return std::nullopt;
  const size_t rank = w.rank() - 2;
  if (!AreAll(op.strides().value_or(Ints()), 1)) return std::nullopt;
  if (!AreAll(op.output_padding().value_or(Ints()), 0)) return std::nullopt;
  DenseForm form;
  for (const Dim& d : w.dims()) form.weights.push_back(d.value());
  const Ints dilations = op.dilations().value_or(Ints(rank, 1));
  const Ints pads = op.pads().value_or(Ints(2 * rank, 0));
  for (size_t i = 0; i < 2 * rank; ++i) {
    const size_t axis = i % rank;
    form.pads.push_back((form.weights[axis + 2] - 1) * dilations[axis] - pads[i]);
  }
  const bool fits = std::ranges::all_of(form.pads, [](int64_t p) { return p >= 0; });
  const bool is_empty = std::ranges::find(form.weights, 0) != form.weights.end();
  return fits && !is_empty ? std::optional(form) : std::nullopt;
}

}  // namespace

class ConvTransposeAsConvPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    rewriter_ = &rewriter;
    std::vector<Operation*> found;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      if (op->isa<nn::ConvTransposeOp>()) found.push_back(op);
    }
    for (Operation* op : found) {
      if (const auto form = FormOf(op->cast<nn::ConvTransposeOp>())) Replace(op, *form);
    }
  }

 private:
  void Replace(Operation* op, const DenseForm& form) {
    const nn::ConvTransposeOp transposed(op);
    const Rewriter::Replacing replacing(*rewriter_, {&op, 1});
    std::vector<Value> operands{transposed.x(), Flipped(ForwardWeights(transposed, form))};
    if (transposed.b()) operands.push_back(transposed.b());
    std::vector<NamedAttribute> attributes{Attr("pads", form.pads)};
    if (transposed.dilations()) attributes.push_back(Attr("dilations", *transposed.dilations()));
    attributes.push_back(rewriter_->Named("group", rewriter_->Attr(transposed.group())));
    Operation* conv = rewriter_->Create(nn::kConv, operands, attributes);
    conv->result(0).set_type(op->result(0).type());
    rewriter_->Applied(op, "its strides are 1");
    rewriter_->ReplaceOp(op, conv->result(0));
    Count("convolutions");
  }

  // [C, M / g, K...] as [M, C / g, K...].
  Value ForwardWeights(nn::ConvTransposeOp op, const DenseForm& form) {
    const int64_t group = op.group();
    const Ints& from = form.weights;
    const Ints kernel(from.begin() + 2, from.end());
    if (group == 1) return Transposed(op.w(), 0, from.size());
    Ints apart{group, from[0] / group, from[1]}, joined{group * from[1], from[0] / group};
    apart.insert(apart.end(), kernel.begin(), kernel.end());
    joined.insert(joined.end(), kernel.begin(), kernel.end());
    return Reshaped(Transposed(Reshaped(op.w(), apart), 1, apart.size()), joined);
  }

  // Two neighboring axes, from `axis` on, in the other order.
  Value Transposed(Value x, size_t axis, size_t rank) {
    Ints order(rank);
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[axis], order[axis + 1]);
    const NamedAttribute perm = Attr("perm", order);
    return rewriter_->Create(nn::kTranspose, {&x, 1}, {&perm, 1})->result(0);
  }

  Value Reshaped(Value x, const Ints& shape) {
    const Value operands[] = {x, Constant(shape)};
    return rewriter_->Create(nn::kReshape, operands)->result(0);
  }

  // The places of the kernel in the reverse order.
  Value Flipped(Value x) {
    const auto dims = x.type().cast<AnyTensorType>().dims();
    Ints axes;
    for (size_t a = 2; a < dims.size(); ++a) {
      if (dims[a].value() > 1) axes.push_back(static_cast<int64_t>(a));
    }
    if (axes.empty()) return x;
    const Value operands[] = {x, Constant(Ints(axes.size(), -1)),
                              Constant(Ints(axes.size(), std::numeric_limits<int64_t>::min())),
                              Constant(axes), Constant(Ints(axes.size(), -1))};
    return rewriter_->Create(nn::kSlice, operands)->result(0);
  }

  Value Constant(const Ints& values) {
    return rewriter_->Constant(Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
  }
  NamedAttribute Attr(const char* name, const Ints& values) {
    return rewriter_->Named(name, rewriter_->Attr(std::span<const int64_t>(values)));
  }

  Rewriter* rewriter_ = nullptr;
};

REGISTER_PASS(conv_transpose_as_conv, ConvTransposeAsConvPass)
    .Doc(
        "a transposed convolution whose strides are 1 is a convolution by weights that are flipped")
    .Details(
        "Gradients of convolutions are such ones. Pads p become (K - 1) * dilation - p; where that "
        "is negative, it stays.");

}  // namespace lathe
