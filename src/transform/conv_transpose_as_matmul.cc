#include <algorithm>
#include <optional>
#include <vector>

#include "lathe/dialect/nn/conv.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"

namespace lathe {

namespace {

using Ints = std::vector<int64_t>;

bool AreAll(const std::optional<Ints>& values, int64_t wanted) {
  return std::ranges::all_of(values.value_or(Ints()), [&](int64_t v) { return v == wanted; });
}

// Whether each image is one position, of which each element of the kernel makes one output.
bool IsOfOnePosition(nn::ConvTransposeOp op) {
  const auto x = op.x().type().dyn_cast<AnyTensorType>();
  const auto w = op.w().type().dyn_cast<AnyTensorType>();
  if (!x || !w || !x.has_rank() || !w.is_static() || op.group() != 1) return false;
  if (op.auto_pad() != "NOTSET" || op.output_shape() || !AreAll(op.dilations(), 1)) return false;
  if (!AreAll(op.pads(), 0) || !AreAll(op.output_padding(), 0)) return false;
  const auto is_one = [](const Dim& dim) { return dim.IsConstant(1); };
  return std::ranges::all_of(x.dims().subspan(2), is_one) &&
         std::ranges::none_of(w.dims(), [](const Dim& dim) { return dim.IsConstant(0); });
}

}  // namespace

class ConvTransposeAsMatmulPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Rewriter rewriter(graph.program(), this);
    rewriter_ = &rewriter;
    std::vector<Operation*> found;
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      if (op->isa<nn::ConvTransposeOp>()) found.push_back(op);
    }
    for (Operation* op : found) {
      if (IsOfOnePosition(op->cast<nn::ConvTransposeOp>())) Replace(op);
    }
  }

 private:
  // [N, C] times [C, M * K], as [N, M, K...].
  void Replace(Operation* op) {
    const nn::ConvTransposeOp conv(op);
    const Rewriter::Replacing replacing(*rewriter_, {&op, 1});
    Ints weights, result{0}, ones;
    for (const Dim& dim : conv.w().type().cast<AnyTensorType>().dims()) {
      weights.push_back(dim.value());
    }
    result.insert(result.end(), weights.begin() + 1, weights.end());
    ones.assign(weights.size() - 1, 1);
    ones[0] = weights[1];
    const Value factors[] = {Reshaped(conv.x(), {0, weights[0]}),
                             Reshaped(conv.w(), {weights[0], -1})};
    Value y = Reshaped(rewriter_->Create(nn::kMatmul, factors)->result(0), result);
    if (conv.b()) {
      const Value terms[] = {y, Reshaped(conv.b(), ones)};
      y = rewriter_->Create(nn::kAdd, terms)->result(0);
    }
    y.set_type(op->result(0).type());
    rewriter_->Applied(op, "its images are one position");
    rewriter_->ReplaceOp(op, y);
    Count("convolutions");
  }

  Value Reshaped(Value x, const Ints& shape) {
    const Tensor wanted = Tensor::Of<int64_t>({static_cast<int64_t>(shape.size())}, shape);
    const Value operands[] = {x, rewriter_->Constant(wanted)};
    return rewriter_->Create(nn::kReshape, operands)->result(0);
  }

  Rewriter* rewriter_ = nullptr;
};

REGISTER_PASS(conv_transpose_as_matmul, ConvTransposeAsMatmulPass)
    .Doc("a transposed convolution of images of one position is a product by its weights")
    .Details("The first layer of a generator. With groups, padding or dilations it stays.");

}  // namespace lathe
