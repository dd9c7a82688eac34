// Mixtures of experts of com.microsoft: each token goes through a few of many small networks.

#include <cmath>
#include <limits>

#include "lathe/support/divide.h"
#include "src/frontend/onnx/contrib.h"
#include "src/frontend/onnx/op_table.h"

namespace lathe::onnx {

namespace {

/// A layer of all experts: where its inputs are.
struct Layer {
  size_t weights, bias, scales = 0, zeros = 0;
};

class Experts {
 public:
  Experts(UpgradeContext& c, bool is_quantized)
      : c_(c),
        make_(c),
        is_quantized_(is_quantized),
        picked_(c.IntAttr("k").value_or(1)),
        count_(NeedSize(c, 2, 0)),
        width_(LastSize(c, 0)),
        activation_(c.StringAttr("activation_type").value_or("relu")) {
    constexpr int64_t kMost = 1024;
    if (picked_ < 1 || picked_ > count_ || count_ > kMost) c.Refuse("'k' or the number of experts");
    if (c.IntAttr("use_sparse_mixer").value_or(0) != 0) {
      c.Refuse("'use_sparse_mixer' is not supported");
    }
    if (c.IntAttr("swiglu_limit_after_activation").value_or(0) != 0) {
      c.Refuse("'swiglu_limit_after_activation' is not supported");
    }
    CheckGates();
  }

  void Write(const Layer& first, const Layer& second) {
    rows_ = make_("Reshape", {c_.node.inputs[0], make_.Ints({-1, width_})});
    Route();
    Text sum = make_("Expand", {make_.Scalar(0, 0), make_("Shape", {rows_})});
    for (int64_t e = 0; e < count_; ++e) sum = WithExpert(sum, e, first, second);
    c_.Give(0, make_("Reshape", {sum, make_("Shape", {c_.node.inputs[0]})}));
  }

 private:
  void CheckGates() {
    const int64_t fusion = c_.IntAttr("swiglu_fusion").value_or(0);
    if (activation_ == "swiglu" && fusion != 1 && fusion != 2) {
      c_.Refuse("'swiglu' whose parts lie in different weights");
    }
  }

  // For each token and expert, how much the expert counts, and whether it does.
  void Route() {
    const Text logits = c_.node.inputs[1];
    const std::vector<Text> top =
        make_.Many("TopK", {logits, make_.Ints({picked_})}, {MakeInt("axis", -1)}, 2);
    const std::vector<AttributeMsg> last = {MakeInt("axis", -1)};
    Text parts;
    if (c_.HasInput(kRouterWeights)) {
      parts = make_("GatherElements", {c_.node.inputs[kRouterWeights], top[1]}, last);
      if (IsNormalized()) {
        const Text all = make_("ReduceSum", {parts, make_.Ints({-1})}, {MakeInt("keepdims", 1)});
        parts = make_("Div", {parts, all});
      }
    } else if (IsNormalized() || is_quantized_) {
      parts = make_("Softmax", {top[0]}, last);
    } else {
      parts = make_("GatherElements", {make_("Softmax", {logits}, last), top[1]}, last);
    }
    const Text shape = make_("Shape", {logits});
    const std::vector<AttributeMsg> axis = {MakeInt("axis", 1)};
    const Text none = make_("Expand", {make_.Scalar(1, 0), shape});
    parts_ = make_("ScatterElements", {none, top[1], parts}, axis);
    const Text ones = make_("Expand", {make_.Scalar(1, 1), make_("Shape", {top[1]})});
    chosen_ = make_("ScatterElements", {none, top[1], ones}, axis);
  }

  bool IsNormalized() const { return c_.IntAttr("normalize_routing_weights").value_or(0) != 0; }

  // The column of an expert, as a list.
  Text Column(Text of, int64_t expert) {
    return make_("Gather", {of, make_.Int(expert)}, {MakeInt("axis", 1)});
  }

  // The expert computes the rows that chose it.
  Text WithExpert(Text sum, int64_t e, const Layer& first, const Layer& second) {
    const Text at = make_("Reshape", {make_("NonZero", {Column(chosen_, e)}), make_.Ints({-1})});
    const Text hidden = Activated(Product(make_("Gather", {rows_, at}), e, first));
    const Text share = make_("Gather", {Column(parts_, e), at});
    const Text y =
        make_("Mul", {Product(hidden, e, second), make_("Unsqueeze", {share, make_.Ints({1})})});
    return make_("ScatterND", {sum, make_("Unsqueeze", {at, make_.Ints({1})}), y},
                 {MakeString("reduction", "add")});
  }

  Text Of(size_t input, int64_t expert) {
    return make_("Gather", {c_.node.inputs[input], make_.Int(expert)});
  }

  Text Product(Text x, int64_t e, const Layer& layer) {
    const Text bias = c_.HasInput(layer.bias) ? Of(layer.bias, e) : Text();
    if (is_quantized_) return make_.Sum({BlockProduct(x, e, layer), bias});
    return make_("Gemm", {x, Of(layer.weights, e), bias}, {MakeInt("transB", 1)});
  }

  Text BlockProduct(Text x, int64_t e, const Layer& layer) {
    const int64_t bits = c_.IntAttr("expert_weight_bits").value_or(4);
    if (bits != 2 && bits != 4 && bits != 8) c_.Refuse(StrCat("weights of ", bits, " bits"));
    const int64_t rows = NeedSize(c_, layer.weights, 1);
    const int64_t depth = NeedSize(c_, layer.weights, 2) * 8 / bits;
    const int64_t given = c_.IntAttr("block_size").value_or(0);
    if (depth == 0) c_.Refuse("weights of no columns");
    const int64_t block = given > 0 ? given : depth;
    const int64_t blocks = CeilDiv(depth, block);
    const auto shaped = [&](size_t input, std::vector<int64_t> shape) {
      return make_("Reshape", {Of(input, e), make_.Ints(std::move(shape))});
    };
    NodeMsg node = MakeNode("MatMulNBits", {x, shaped(layer.weights, {rows, blocks, -1}),
                                            shaped(layer.scales, {rows, blocks})});
    node.domain = "com.microsoft";
    if (c_.HasInput(layer.zeros)) {
      // Without blocks those of all rows lie in one list.
      const Text zeros =
          given > 0 ? Of(layer.zeros, e) : UnpackedBits(c_, Of(layer.zeros, e), 1, rows, bits);
      node.inputs.push_back(make_("Reshape", {zeros, make_.Ints({rows, -1})}));
    }
    node.attributes = {MakeInt("K", depth), MakeInt("N", rows), MakeInt("bits", bits),
                       MakeInt("block_size", block)};
    return c_.Emit(std::move(node));
  }

  Text Activated(Text x) {
    if (activation_ == "identity") return x;
    if (activation_ == "silu") return make_("Swish", {x});
    if (activation_ == "swiglu") return GatedSwish(x);
    if (activation_ == "relu") return make_("Relu", {x});
    if (activation_ != "gelu") {
      c_.Refuse(StrCat("activation ", Shown(activation_), " is not supported"));
    }
    return make_("Gelu", {x}, {MakeString("approximate", "tanh")});
  }

  // Gates and values in turns, or one after the other.
  Text GatedSwish(Text x) {
    std::vector<Text> parts;
    if (c_.IntAttr("swiglu_fusion").value_or(0) == 1) {
      constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
      for (const int64_t from : {0, 1}) {
        parts.push_back(make_("Slice", {x, make_.Ints({from}), make_.Ints({kEnd}), make_.Ints({1}),
                                        make_.Ints({2})}));
      }
    } else {
      parts = make_.Many("Split", {x}, {MakeInt("axis", 1), MakeInt("num_outputs", 2)}, 2);
    }
    if (const auto limit = c_.FloatAttr("swiglu_limit"); limit && std::isfinite(*limit)) {
      const Text most = make_.Scalar(0, *limit);
      parts[0] = make_("Min", {parts[0], most});
      parts[1] = make_("Clip", {parts[1], make_.Scalar(0, -*limit), most});
    }
    const auto alpha = static_cast<float>(c_.FloatAttr("activation_alpha").value_or(1));
    const Text gate = make_("Swish", {parts[0]}, {MakeFloat("alpha", alpha)});
    const Text beta = make_.Scalar(0, c_.FloatAttr("activation_beta").value_or(0));
    return make_("Mul", {gate, make_("Add", {parts[1], beta})});
  }

  static constexpr size_t kRouterWeights = 14;

  UpgradeContext& c_;
  Nodes make_;
  bool is_quantized_;
  int64_t picked_, count_, width_;
  Text activation_;
  Text rows_, parts_, chosen_;  // [T, width], [T, count] twice
};

void MoE(UpgradeContext& c) {
  if (c.HasInput(6) || c.HasInput(7)) c.Refuse("a third product is not supported");
  Experts(c, false).Write({.weights = 2, .bias = 3}, {.weights = 4, .bias = 5});
}

void QMoE(UpgradeContext& c) {
  for (size_t i = 8; i < c.node.inputs.size(); ++i) {
    if (c.HasInput(i) && i != 11 && i != 12 && i != 14) {
      c.Refuse(StrCat("input ", i, " is not supported"));
    }
  }
  if (!c.HasInput(3) || !c.HasInput(6)) c.Refuse("the scales are missing");
  if (c.StringAttr("quant_type").value_or("int") != "int") {
    c.Refuse("'quant_type' other than 'int' is not supported");
  }
  Experts(c, true).Write({.weights = 2, .bias = 4, .scales = 3, .zeros = 11},
                         {.weights = 5, .bias = 7, .scales = 6, .zeros = 12});
}

constexpr ContribRule kExperts[] = {
    {"MoE", 5, 8, 1, MoE,
     "activation_alpha activation_beta activation_type k normalize_routing_weights swiglu_fusion "
     "swiglu_limit swiglu_limit_after_activation use_sparse_mixer"},
    {"QMoE", 7, 15, 1, QMoE,
     "activation_alpha activation_beta activation_type block_size expert_weight_bits k "
     "normalize_routing_weights quant_type swiglu_fusion swiglu_limit "
     "swiglu_limit_after_activation use_sparse_mixer weights_prepacked"},
};

}  // namespace

std::span<const ContribRule> ContribExperts() { return kExperts; }

}  // namespace lathe::onnx
