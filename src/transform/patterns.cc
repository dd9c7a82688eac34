#include "lathe/transform/patterns.h"

#include <initializer_list>

#include "lathe/dialect/nn/op_names.h"

namespace lathe::patterns {

namespace {

/// Adds nodes to a pattern under one scope.
class Piece {
 public:
  Piece(PDPattern* pattern, const std::string& scope) : pattern_(pattern), prefix_(scope + "/") {}

  PDNode* Var(const std::string& name) {
    return pattern_->NewNode(prefix_ + name)->assert_is_var();
  }
  PDNode* Input(PDNode* given, const std::string& name = "x") {
    return given != nullptr ? given : Var(name)->AsInput();
  }
  /// A weight, read by `op` as `arg`.
  PDNode* Weight(PDNode* op, const std::string& name, const std::string& type,
                 const std::string& arg) {
    PDNode* weight = Var(name)->assert_is_constant_var()->assert_is_op_input(type, arg)->AsInput();
    op->LinksFrom({weight});
    return weight;
  }
  PDNode* Constant(PDNode* op, const std::string& name) {
    PDNode* constant = Var(name)->assert_is_constant_var()->AsInput();
    op->LinksFrom({constant});
    return constant;
  }
  PDNode* Op(const std::vector<std::string>& types, const std::string& name,
             const std::vector<PDNode*>& from) {
    PDNode* op = pattern_->NewNode(prefix_ + name)->assert_is_ops(types)->AsIntermediate();
    op->LinksFrom(from);
    return op;
  }
  /// The first result of `op`, intermediate until the caller says otherwise.
  PDNode* Out(PDNode* op, const std::string& name) {
    PDNode* out = Var(name)->assert_more([](const Node& n) { return n.value().index() == 0; },
                                         "is a first result");
    out->LinksFrom({op});
    return out->AsIntermediate();
  }
  /// An op with its result `name`_out.
  PDNode* Apply(const std::string& type, const std::string& name,
                const std::vector<PDNode*>& from) {
    return Out(Op({type}, name, from), name + "_out");
  }

 private:
  PDPattern* pattern_;
  std::string prefix_;
};

/// The result of a whole piece may be read by anyone.
PDNode* Result(PDNode* out) { return out->AsOutput(); }

PDNode* BatchNorm(Piece& piece, PDNode* x) {
  const std::string type = nn::kBatchNormalization;
  PDNode* bn = piece.Op({type}, "bn", {x});
  bn->assert_op_attr("training_mode", false);
  for (const char* arg : {"scale", "b", "mean", "var"}) piece.Weight(bn, arg, type, arg);
  return piece.Out(bn, "bn_out");
}

}  // namespace

PDNode* FC(PDPattern* pattern, const std::string& scope, PDNode* x, const FcOptions& options) {
  Piece piece(pattern, scope);
  PDNode* mul = piece.Op({nn::kMatmul}, "mul", {piece.Input(x)});
  PDNode* w = piece.Var("w")->assert_is_op_input(nn::kMatmul, "y")->AsInput();
  mul->LinksFrom({w});
  PDNode* out = piece.Out(mul, "mul_out");
  if (options.with_bias) {
    PDNode* b = piece.Var("b")->AsInput();
    out = piece.Apply(nn::kAdd, "add", {out, b});
  }
  if (!options.activation.empty()) out = piece.Apply(options.activation, "act", {out});
  return Result(out);
}

PDNode* ConvBN(PDPattern* pattern, const std::string& scope, PDNode* x) {
  Piece piece(pattern, scope);
  PDNode* conv = piece.Op({nn::kConv}, "conv", {piece.Input(x)})->assert_is_not_op_input("b");
  piece.Weight(conv, "w", nn::kConv, "w");
  return Result(BatchNorm(piece, piece.Out(conv, "conv_out")));
}

PDNode* ConvBiasAct(PDPattern* pattern, const std::string& scope, PDNode* x,
                    const ConvOptions& options) {
  Piece piece(pattern, scope);
  PDNode* conv = piece.Op({nn::kConv}, "conv", {piece.Input(x)});
  piece.Weight(conv, "w", nn::kConv, "w");
  if (options.with_bias) {
    piece.Weight(conv, "b", nn::kConv, "b");
  } else {
    conv->assert_is_not_op_input("b");
  }
  PDNode* out = piece.Out(conv, "conv_out");
  if (options.with_residual) {
    out = piece.Apply(nn::kAdd, "add", {out, piece.Var("residual")->AsInput()});
  }
  if (!options.activations.empty()) {
    out = piece.Out(piece.Op(options.activations, "act", {out}), "act_out");
  }
  return Result(out);
}

PDNode* BatchNormAct(PDPattern* pattern, const std::string& scope, PDNode* x,
                     const std::string& activation) {
  Piece piece(pattern, scope);
  return Result(piece.Apply(activation, "act", {BatchNorm(piece, piece.Input(x))}));
}

PDNode* LayerNorm(PDPattern* pattern, const std::string& scope, PDNode* x) {
  Piece piece(pattern, scope);
  x = piece.Input(x);
  PDNode* mean = piece.Apply(nn::kReduceMean, "mean", {x});
  PDNode* sub = piece.Apply(nn::kSub, "sub", {x, mean});
  PDNode* square = piece.Out(piece.Op({nn::kPow, nn::kMul}, "square", {sub}), "square_out");
  PDNode* variance = piece.Apply(nn::kReduceMean, "variance", {square});
  PDNode* add = piece.Op({nn::kAdd}, "add_eps", {variance});
  piece.Constant(add, "eps");
  PDNode* root = piece.Apply(nn::kSqrt, "sqrt", {piece.Out(add, "add_eps_out")});
  PDNode* div = piece.Apply(nn::kDiv, "div", {sub, root});
  PDNode* scaled = piece.Apply(nn::kMul, "scale_op", {div, piece.Var("scale")->AsInput()});
  return Result(piece.Apply(nn::kAdd, "shift_op", {scaled, piece.Var("shift")->AsInput()}));
}

PDNode* Gelu(PDPattern* pattern, const std::string& scope, PDNode* x) {
  Piece piece(pattern, scope);
  x = piece.Input(x);
  PDNode* div = piece.Op({nn::kDiv, nn::kMul}, "div", {x});
  piece.Constant(div, "root2");
  PDNode* erf = piece.Apply(nn::kErf, "erf", {piece.Out(div, "div_out")});
  PDNode* add = piece.Op({nn::kAdd}, "add", {erf});
  piece.Constant(add, "one");
  PDNode* mul = piece.Apply(nn::kMul, "mul", {x, piece.Out(add, "add_out")});
  PDNode* half = piece.Op({nn::kMul}, "half", {mul});
  piece.Constant(half, "half_constant");
  return Result(piece.Out(half, "half_out"));
}

PDNode* Softmax(PDPattern* pattern, const std::string& scope, PDNode* x) {
  Piece piece(pattern, scope);
  x = piece.Input(x);
  PDNode* greatest = piece.Apply(nn::kReduceMax, "max", {x});
  PDNode* shifted = piece.Apply(nn::kSub, "sub", {x, greatest});
  PDNode* exp = piece.Apply(nn::kExp, "exp", {shifted});
  PDNode* sum = piece.Apply(nn::kReduceSum, "sum", {exp});
  return Result(piece.Apply(nn::kDiv, "div", {exp, sum}));
}

PDNode* Attention(PDPattern* pattern, const std::string& scope, const AttentionOptions& options) {
  Piece piece(pattern, scope);
  const std::string matmul = nn::kMatmul;
  PDNode* q = piece.Var("q")->assert_is_op_input(matmul, "x")->AsInput();
  PDNode* kt = piece.Var("kt")->assert_is_op_input(matmul, "y")->AsInput();
  PDNode* scores = piece.Apply(matmul, "qk", {q, kt});
  if (!options.scale.empty()) {
    PDNode* scale = piece.Op({options.scale}, "scale_op", {scores});
    piece.Constant(scale, "scale");
    scores = piece.Out(scale, "scale_op_out");
  }
  if (options.with_mask) {
    scores = piece.Apply(nn::kAdd, "mask_op", {scores, piece.Var("mask")->AsInput()});
  }
  PDNode* weights = piece.Out(piece.Op({nn::kSoftmax}, "softmax", {scores}), "weights");
  weights->assert_is_op_input(matmul, "x");
  PDNode* v = piece.Var("v")->assert_is_op_input(matmul, "y")->AsInput();
  return Result(piece.Apply(matmul, "out", {weights, v}));
}

static PDNode* Recurrent(PDPattern* pattern, const std::string& scope, PDNode* x,
                         const std::string& type) {
  Piece piece(pattern, scope);
  PDNode* rnn = piece.Op({type}, "rnn", {piece.Input(x)});
  piece.Weight(rnn, "w", type, "w");
  piece.Weight(rnn, "r", type, "r");
  return Result(piece.Out(rnn, "rnn_out"));
}

PDNode* LSTM(PDPattern* pattern, const std::string& scope, PDNode* x) {
  return Recurrent(pattern, scope, x, nn::kLstm);
}
PDNode* GRU(PDPattern* pattern, const std::string& scope, PDNode* x) {
  return Recurrent(pattern, scope, x, nn::kGru);
}

PDNode* EmbeddingLayerNorm(PDPattern* pattern, const std::string& scope, int tables, bool fused) {
  Piece piece(pattern, scope);
  PDNode* sum = nullptr;
  for (int i = 0; i < tables; ++i) {
    const std::string number = StrCat(i);
    PDNode* gather = piece.Op({nn::kGather}, "gather" + number, {});
    piece.Weight(gather, "table" + number, nn::kGather, "data");
    PDNode* ids = piece.Var("ids" + number)->assert_is_op_input(nn::kGather, "indices")->AsInput();
    gather->LinksFrom({ids});
    PDNode* out = piece.Out(gather, "gather" + number + "_out");
    sum = sum == nullptr ? out : piece.Apply(nn::kAdd, "sum" + number, {sum, out});
  }
  if (!fused) return LayerNorm(pattern, scope, sum);
  return Result(piece.Apply(nn::kLayerNormalization, "norm", {sum}));
}

}  // namespace lathe::patterns
