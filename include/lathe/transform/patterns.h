#pragma once

#include <string>
#include <vector>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/pass/pattern_detector.h"

/// Ready pieces of patterns (S2). Each adds its nodes to `pattern` under names that begin with
/// `scope` + "/", takes variable nodes and gives the variable node of its result, so that pieces
/// compose: `FC(p, "b", FC(p, "a", x)->AsIntermediate())`. Ops and what lies between them are
/// intermediate, weights inputs, the result an output. An input that is a null pointer is
/// made, as `scope`/x. Nodes are found again with `pattern->RetrieveNode("b/w")`.
namespace lathe::patterns {

struct FcOptions {
  bool with_bias = true;
  std::string activation = "";  ///< an op type such as "nn.relu"; empty: none
};
/// matmul, add, act: nodes mul, w, mul_out, add, b, add_out, act, act_out.
PDNode* FC(PDPattern* pattern, const std::string& scope, PDNode* x, const FcOptions& options = {});

/// conv with a constant filter, no bias, and batch norm with fixed statistics: nodes conv, w,
/// conv_out, bn, scale, b, mean, var, bn_out.
PDNode* ConvBN(PDPattern* pattern, const std::string& scope, PDNode* x);

struct ConvOptions {
  bool with_bias = true;  ///< an operand of the conv
  bool with_residual = false;
  std::vector<std::string> activations = {};  ///< one of these op types; empty: none
};
/// conv, residual add, act: nodes conv, w, b, conv_out, add, residual, add_out, act, act_out.
PDNode* ConvBiasAct(PDPattern* pattern, const std::string& scope, PDNode* x,
                    const ConvOptions& options = {});

/// Batch norm and an activation: nodes bn, scale, b, mean, var, bn_out, act, act_out.
PDNode* BatchNormAct(PDPattern* pattern, const std::string& scope, PDNode* x,
                     const std::string& activation);

/// Layer normalization as exporters write it, with scale and bias: nodes mean, sub, sub_out,
/// square, variance, add_eps, eps, sqrt, div, scale_op, scale, shift_op, shift, shift_op_out.
PDNode* LayerNorm(PDPattern* pattern, const std::string& scope, PDNode* x);

/// x (1 + erf(x / sqrt 2)) / 2 in the order of PyTorch: nodes div, erf, add, mul, half.
PDNode* Gelu(PDPattern* pattern, const std::string& scope, PDNode* x);

/// exp(x - max) / sum: nodes max, sub, exp, exp_out, sum, div.
PDNode* Softmax(PDPattern* pattern, const std::string& scope, PDNode* x);

struct AttentionOptions {
  std::string scale = nn::kDiv;  ///< the op that scales the scores; empty: none
  bool with_mask = true;         ///< added to the scores
};
/// softmax(q k^T scaled + mask) v: nodes q, kt, v, qk, scale_op, scale, mask_op, mask, softmax,
/// weights, out.
PDNode* Attention(PDPattern* pattern, const std::string& scope,
                  const AttentionOptions& options = {});

/// A recurrent op on x with its weights: nodes rnn, w, r, and the sequence of outputs rnn_out.
PDNode* LSTM(PDPattern* pattern, const std::string& scope, PDNode* x);
PDNode* GRU(PDPattern* pattern, const std::string& scope, PDNode* x);

/// Sum of `tables` gathered embeddings and the layer normalization of it: nodes gather<i>,
/// table<i>, ids<i>, sum<i>, and those of LayerNorm or, if `fused`, norm.
PDNode* EmbeddingLayerNorm(PDPattern* pattern, const std::string& scope, int tables, bool fused);

}  // namespace lathe::patterns
