// Support vector machines of ai.onnx.ml, as operators of the standard. What the standard leaves
// open is what onnxruntime does.

#include <algorithm>
#include <numeric>

#include "lathe/support/error.h"
#include "src/frontend/onnx/classical.h"
#include "src/frontend/onnx/op_table.h"

namespace lathe::onnx {

namespace {

Text Constant(UpgradeContext& c, double value) {
  return c.AddConstant(Tensor::Scalar(static_cast<float>(value)));
}

// ---- kernels ----

struct KernelParams {
  double gamma = 0, coef0 = 0, degree = 0;
};

KernelParams ParamsOf(UpgradeContext& c) {
  const std::vector<double> params = FloatsOf(c, "kernel_params");
  if (params.size() != 3) c.Refuse(StrCat(params.size(), " kernel_params, three are expected"));
  return {params[0], params[1], params[2]};
}

// exp(-gamma |x - v|^2). Sums of squares of differences lose nothing where both are far from zero.
Text Rbf(UpgradeContext& c, const std::vector<double>& vectors, int64_t count) {
  Nodes make(c);
  const int64_t features = Count(vectors) / count;
  std::vector<double> columns(vectors.size());
  for (size_t i = 0; i < vectors.size(); ++i) {
    const size_t vector = i / features, feature = i % features;
    columns[feature * count + vector] = vectors[i];
  }
  const Text x = make("Reshape", {FloatRows(c, 0), make.Ints({0, features, 1})});
  const Text far = make("Sub", {x, c.AddConstant(FloatTensor({1, features, count}, columns))});
  const Text sum =
      make("ReduceSum", {make("Mul", {far, far}), make.Ints({1})}, {MakeInt("keepdims", 0)});
  return make("Exp", {make("Mul", {sum, Constant(c, -ParamsOf(c).gamma)})});
}

Text ToDegree(UpgradeContext& c, Text x, double degree) {
  Nodes make(c);
  if (degree == 2) return make("Mul", {x, x});
  if (degree == 3) return make("Mul", {make("Mul", {x, x}), x});
  return make("Pow", {x, Constant(c, degree)});
}

// Each row of the input with each of `count` vectors, f32[N, count].
Text Kernel(UpgradeContext& c, const std::vector<double>& vectors, int64_t count) {
  Nodes make(c);
  const Text kind = c.StringAttr("kernel_type").value_or("LINEAR");
  if (kind == "RBF") return Rbf(c, vectors, count);
  const Text v = c.AddConstant(FloatTensor({count, Count(vectors) / count}, vectors));
  const AttributeMsg transposed = MakeInt("transB", 1);
  if (kind == "LINEAR") return make("Gemm", {FloatRows(c, 0), v}, {transposed});
  if (kind != "POLY" && kind != "SIGMOID") c.Refuse(StrCat("kernel_type ", Shown(kind)));
  const KernelParams params = ParamsOf(c);
  const Text sum = make("Gemm", {FloatRows(c, 0), v, Constant(c, params.coef0)},
                        {transposed, MakeFloat("alpha", static_cast<float>(params.gamma))});
  return kind == "POLY" ? ToDegree(c, sum, params.degree) : make("Tanh", {sum});
}

// Of `count` vectors; the numbers of the node's attributes fit.
Text SupportKernel(UpgradeContext& c, int64_t count) {
  const std::vector<double> vectors = FloatsOf(c, "support_vectors");
  if (vectors.empty() || Count(vectors) % count != 0) {
    c.Refuse(StrCat(vectors.size(), " numbers of ", count, " support vectors"));
  }
  return Kernel(c, vectors, count);
}

// `rows` products of the input with coefficients, without support vectors. All have the first rho.
Text LinearProducts(UpgradeContext& c, int64_t rows) {
  const std::vector<double> weights = FloatsOf(c, "coefficients");
  const std::vector<double> rho = FloatsOf(c, "rho");
  if (weights.empty() || Count(weights) % rows != 0 || rho.empty()) {
    c.Refuse(StrCat(weights.size(), " coefficients and ", rho.size(), " rho for ", rows,
                    " linear functions"));
  }
  const Text w = c.AddConstant(FloatTensor({rows, Count(weights) / rows}, weights));
  return Nodes(c)("Gemm", {FloatRows(c, 0), w, Constant(c, rho[0])}, {MakeInt("transB", 1)});
}

// ---- one class against another ----

// Pairs of classes in the order of their scores: (0, 1), (0, 2), ..., (1, 2), ...
struct Pairs {
  explicit Pairs(int64_t count) : classes(count) {
    for (int64_t i = 0; i < classes; ++i) {
      for (int64_t j = i + 1; j < classes; ++j) all.emplace_back(i, j);
    }
  }
  int64_t classes;
  std::vector<std::pair<int64_t, int64_t>> all;
};

// Weights [vectors, pairs] of the scores. A vector of a class has a coefficient for each other one.
std::vector<double> PairWeights(UpgradeContext& c, const Pairs& pairs,
                                const std::vector<int64_t>& per_class) {
  const std::vector<double> given = FloatsOf(c, "coefficients");
  const int64_t vectors = std::accumulate(per_class.begin(), per_class.end(), int64_t{0});
  const int64_t width = Count(pairs.all);
  if (Count(given) != (pairs.classes - 1) * vectors) {
    c.Refuse(StrCat(given.size(), " coefficients for ", vectors, " support vectors of ",
                    pairs.classes, " classes"));
  }
  std::vector<double> weights(static_cast<size_t>(vectors * width));
  std::vector<int64_t> first(per_class.size());
  std::exclusive_scan(per_class.begin(), per_class.end(), first.begin(), int64_t{0});
  for (int64_t at = 0; at < width; ++at) {
    const auto [i, j] = pairs.all[at];
    const auto take = [&](int64_t of, int64_t row) {
      for (int64_t m = first[of]; m < first[of] + per_class[of]; ++m) {
        weights[m * width + at] = given[row * vectors + m];
      }
    };
    take(i, j - 1);
    take(j, i);
  }
  return weights;
}

Text PairScores(UpgradeContext& c, const Pairs& pairs, const std::vector<int64_t>& per_class) {
  const int64_t vectors = std::accumulate(per_class.begin(), per_class.end(), int64_t{0});
  const std::vector<double> rho = FloatsOf(c, "rho");
  const int64_t width = Count(pairs.all);
  const Text weights =
      c.AddConstant(FloatTensor({vectors, width}, PairWeights(c, pairs, per_class)));
  const Text kernel = SupportKernel(c, vectors);
  return Nodes(c)("Gemm", {kernel, weights, c.AddConstant(FloatTensor({width}, rho))});
}

// How many pairs each class wins, f32[N, classes].
Text Votes(UpgradeContext& c, const Pairs& pairs, Text scores) {
  Nodes make(c);
  const int64_t width = Count(pairs.all);
  std::vector<double> change(static_cast<size_t>(width * pairs.classes)), base(pairs.classes);
  for (int64_t at = 0; at < width; ++at) {
    const auto [i, j] = pairs.all[at];
    change[at * pairs.classes + i] = 1;
    change[at * pairs.classes + j] = -1;
    base[j] += 1;
  }
  const Text first =
      make("Cast", {make("Greater", {scores, Constant(c, 0)})}, {MakeInt("to", kF32)});
  return make("Gemm", {first, c.AddConstant(FloatTensor({width, pairs.classes}, change)),
                       c.AddConstant(FloatTensor({pairs.classes}, base))});
}

// ---- probabilities ----

// Nodes of the body of a loop, which sees the values around it.
class BodyNodes {
 public:
  explicit BodyNodes(UpgradeContext& c) : c_(c) {}

  Text operator()(Text op, std::vector<Text> inputs, std::vector<AttributeMsg> attributes = {}) {
    NodeMsg node = MakeNode(op, std::move(inputs));
    node.attributes = std::move(attributes);
    node.is_current = true;
    node.outputs = {c_.FreshName(op)};
    body.nodes.push_back(std::move(node));
    return body.nodes.back().outputs[0];
  }
  Text Input(Text hint) {
    body.inputs.push_back({c_.FreshName(hint), {}});
    return body.inputs.back().name;
  }
  void Output(Text name) { body.outputs.push_back({name, {}}); }

  GraphMsg body;

 private:
  UpgradeContext& c_;
};

// Probabilities of classes from those of each pair, by the second method of Wu, Lin and Weng
// (Probability Estimates for Multi-class Classification by Pairwise Coupling, 2004): minimizes
// p^T Q p by Gauss-Seidel sweeps until the gradient is even, for each row by itself.
class Coupling {
 public:
  Coupling(UpgradeContext& c, const Pairs& pairs, Text first)
      : c_(c), make_(c), pairs_(pairs), classes_(pairs.classes) {
    one_ = Constant(c, 1);
    two_ = Constant(c, 2);
    least_ = Constant(c, 0.005F / static_cast<float>(classes_));
    MakeQ(first);
  }

  Text Run() {
    constexpr int64_t kMostSweeps = 100;
    const Text even = make_(
        "Expand", {Constant(c_, 1.0F / static_cast<float>(classes_)), make_("Shape", {rows_[0]})});
    const State start = Check(make_, even);
    BodyNodes body(c_);
    body.Input("sweep");
    body.Input("go_on");
    const State in = {body.Input("p"), body.Input("qp"), body.Input("pqp"), body.Input("open"), {}};
    const Text swept = body("Where", {in.open, Sweep(body, in), in.p});
    const State out = Check(body, swept);
    for (const Text name : {out.any, out.p, out.qp, out.pqp, out.open}) body.Output(name);
    AttributeMsg graph;
    graph.name = "body";
    graph.type = AttrType::kGraph;
    graph.graphs.push_back(std::make_shared<GraphMsg>(std::move(body.body)));
    return make_.Many("Loop",
                      {make_.Int(kMostSweeps), start.any, start.p, start.qp, start.pqp, start.open},
                      {graph}, 4)[0];
  }

 private:
  /// p, Q p, p^T Q p, whether a row goes on, whether any row does.
  struct State {
    Text p, qp, pqp, open, any;
  };

  // Q [N, classes, classes] from the probabilities [N, pairs] that the first of a pair wins.
  void MakeQ(Text first) {
    const Text both = make_("Concat", {first, make_("Sub", {one_, first})}, {MakeInt("axis", 1)});
    std::vector<int64_t> wins(classes_ * classes_), losses(wins.size());
    std::vector<uint8_t> same(wins.size());
    for (int64_t at = 0; at < Count(pairs_.all); ++at) {
      const auto [i, j] = pairs_.all[at];
      wins[i * classes_ + j] = losses[j * classes_ + i] = at;
      wins[j * classes_ + i] = losses[i * classes_ + j] = at + Count(pairs_.all);
    }
    for (int64_t i = 0; i < classes_; ++i) same[i * classes_ + i] = 1;
    const auto table = [&](const std::vector<int64_t>& index) {
      const Text flat = make_("Gather", {both, make_.Ints(index)}, {MakeInt("axis", 1)});
      return make_("Reshape", {flat, make_.Ints({0, classes_, classes_})});
    };
    const Text diagonal = c_.AddConstant(
        Cast(Tensor::Of<uint8_t>({1, classes_, classes_}, same), ElementType::kBool));
    const Text r = table(wins), t = table(losses);
    const Text squares = make_("Where", {diagonal, Constant(c_, 0), make_("Mul", {t, t})});
    const Text sums = make_("ReduceSum", {squares, make_.Ints({2})});
    q_ = make_("Where", {diagonal, sums, make_("Neg", {make_("Mul", {r, t})})});
    for (int64_t i = 0; i < classes_; ++i) {
      rows_.push_back(make_("Gather", {q_, make_.Int(i)}, {MakeInt("axis", 1)}));
      middle_.push_back(Column(make_, rows_.back(), i));
    }
  }

  template <typename N>
  Text Column(N& make, Text of, int64_t at) {
    return make("Slice", {of, make_.Ints({at}), make_.Ints({at + 1}), make_.Ints({1})});
  }

  template <typename N>
  State Check(N& make, Text p) {
    const Text row = make("Unsqueeze", {p, make_.Ints({1})});
    const AttributeMsg drop = MakeInt("keepdims", 0);
    const Text qp = make("ReduceSum", {make("Mul", {q_, row}), make_.Ints({2})}, {drop});
    const Text pqp = make("ReduceSum", {make("Mul", {p, qp}), make_.Ints({1})});
    const Text off = make("Abs", {make("Sub", {qp, pqp})});
    const Text open = make("GreaterOrEqual", {make("ReduceMax", {off, make_.Ints({1})}), least_});
    const Text marks = make("Cast", {open}, {MakeInt("to", kF32)});
    const Text any = make("Greater", {make("ReduceMax", {marks}, {drop}), Constant(c_, 0)});
    return {p, qp, pqp, open, any};
  }

  // Each class in turn is set to what is best given the others, and all are scaled to sum 1.
  Text Sweep(BodyNodes& make, const State& start) {
    Text p = start.p, qp = start.qp, pqp = start.pqp;
    for (int64_t t = 0; t < classes_; ++t) {
      std::vector<double> unit(classes_);
      unit[t] = 1;
      const Text at = c_.AddConstant(FloatTensor({classes_}, unit));
      const Text here = Column(make, qp, t);
      const Text step = make("Div", {make("Sub", {pqp, here}), middle_[t]});
      const Text scale = make("Add", {one_, step});
      const Text grown = make("Add", {make("Mul", {step, middle_[t]}), make("Mul", {two_, here})});
      const Text sum = make("Add", {pqp, make("Mul", {step, grown})});
      pqp = make("Div", {make("Div", {sum, scale}), scale});
      qp = make("Div", {make("Add", {qp, make("Mul", {step, rows_[t]})}), scale});
      p = make("Div", {make("Add", {p, make("Mul", {step, at})}), scale});
    }
    return p;
  }

  UpgradeContext& c_;
  Nodes make_;
  const Pairs& pairs_;
  int64_t classes_;
  Text one_, two_, least_, q_;
  std::vector<Text> rows_, middle_;  ///< of Q, [N, classes], and its diagonal, [N, 1]
};

Text Probabilities(UpgradeContext& c, const Pairs& pairs, Text scores) {
  // A sweep is as many steps as there are classes, each made of operators of its own.
  constexpr int64_t kMostClasses = 64;
  if (pairs.classes > kMostClasses) {
    c.Refuse(StrCat("probabilities of ", pairs.classes, " classes, more than ", kMostClasses));
  }
  Nodes make(c);
  const std::vector<double> a = FloatsOf(c, "prob_a"), b = FloatsOf(c, "prob_b");
  const int64_t width = Count(pairs.all);
  if (Count(a) != width || Count(b) != width) {
    c.Refuse(
        StrCat(a.size(), " prob_a and ", b.size(), " prob_b for ", width, " pairs of classes"));
  }
  const Text scaled = make("Mul", {scores, c.AddConstant(FloatTensor({width}, a))});
  const Text fitted = make("Add", {scaled, c.AddConstant(FloatTensor({width}, b))});
  const Text first = make("Sigmoid", {make("Neg", {fitted})});
  constexpr float kLeast = 1e-7F;
  const Text inside = make("Clip", {first, Constant(c, kLeast), Constant(c, 1 - kLeast)});
  return Coupling(c, pairs, inside).Run();
}

// ---- classes ----

// The one score of two classes, for both of them.
Text ForBoth(UpgradeContext& c, Text score) {
  Nodes make(c);
  const Text post = c.StringAttr("post_transform").value_or("NONE");
  const bool shares = post == "SOFTMAX";
  const Text other = shares ? make("Sub", {Constant(c, 1), score}) : make("Neg", {score});
  const Text both = make("Concat", {other, score}, {MakeInt("axis", 1)});
  return shares ? both : Transformed(c, both);
}

// The rho of the file bound how many classes there are, so that sums and pairs of them fit.
void CheckVectors(UpgradeContext& c, int64_t classes, const std::vector<int64_t>& per_class) {
  if (Count(per_class) != classes) {
    c.Refuse(StrCat(per_class.size(), " vectors_per_class for ", classes, " classes"));
  }
  if (std::ranges::min(per_class) < 0) c.Refuse("vectors_per_class has negative numbers");
  const int64_t most = std::ranges::max(per_class);
  if (most > kMostSize) c.Refuse(StrCat(most, " support vectors of a class"));
  const int64_t rho = Count(FloatsOf(c, "rho")), pairs = classes * (classes - 1) / 2;
  if (rho != pairs) c.Refuse(StrCat(rho, " rho for ", pairs, " pairs of classes"));
}

void FromVectors(UpgradeContext& c, const Tensor& labels, const std::vector<int64_t>& per_class) {
  Nodes make(c);
  CheckVectors(c, labels.num_elements(), per_class);
  const Pairs pairs(labels.num_elements());
  const Text scores = PairScores(c, pairs, per_class);
  GiveBest(c, make, labels, Votes(c, pairs, scores));
  if (!c.HasOutput(1)) return;
  if (!FloatsOf(c, "prob_a").empty()) {
    c.Give(1, Transformed(c, Probabilities(c, pairs, scores)));
  } else {
    c.Give(1, pairs.classes == 2 ? ForBoth(c, scores) : Transformed(c, scores));
  }
}

// A score for each class. Of two classes the second wins where any score is high enough.
void FromProducts(UpgradeContext& c, const Tensor& labels) {
  Nodes make(c);
  const Text scores = LinearProducts(c, labels.num_elements());
  c.Give(1, Transformed(c, scores));
  if (labels.num_elements() != 2 || !FloatsOf(c, "prob_a").empty()) {
    return GiveBest(c, make, labels, scores);
  }
  const bool shares =
      std::ranges::all_of(FloatsOf(c, "coefficients"), [](double w) { return w >= 0; });
  const AttributeMsg drop = MakeInt("keepdims", 0);
  const Text most = make("ReduceMax", {scores, make.Ints({1})}, {drop});
  const Text high = shares ? make("GreaterOrEqual", {most, Constant(c, 0.5)})
                           : make("Greater", {most, Constant(c, 0)});
  const Text best = make("ArgMax", {scores}, {MakeInt("axis", 1), drop});
  const Text place = make("Where", {high, make.Int(1), best});
  c.Give(0, make("Gather", {c.AddConstant(labels), place}));
}

}  // namespace

void SvmClassifier(UpgradeContext& c) {
  const Tensor labels = ClassLabels(c, "classlabels_ints");
  const std::vector<int64_t> per_class = IntsOf(c, "vectors_per_class");
  if (labels.num_elements() < 2) c.Refuse("there are fewer than two classes");
  const bool vectors = std::ranges::any_of(per_class, [](int64_t n) { return n != 0; });
  vectors ? FromVectors(c, labels, per_class) : FromProducts(c, labels);
}

void SvmRegressor(UpgradeContext& c) {
  Nodes make(c);
  const int64_t vectors = c.IntAttr("n_supports").value_or(0);
  const Text post = c.StringAttr("post_transform").value_or("NONE");
  if (post != "NONE") c.Refuse(StrCat("post_transform ", Shown(post), " is not supported"));
  if (vectors < 0) c.Refuse(StrCat(vectors, " support vectors"));
  Text y;
  if (vectors == 0) {
    y = LinearProducts(c, 1);
  } else {
    const std::vector<double> weights = FloatsOf(c, "coefficients"), rho = FloatsOf(c, "rho");
    if (Count(weights) != vectors || rho.empty()) {
      c.Refuse(StrCat(weights.size(), " coefficients and ", rho.size(), " rho for ", vectors,
                      " support vectors"));
    }
    const Text w = c.AddConstant(FloatTensor({vectors, 1}, weights));
    y = make("Gemm", {SupportKernel(c, vectors), w, Constant(c, rho[0])});
  }
  if (c.IntAttr("one_class").value_or(0) != 0) {
    y = make("Where", {make("Greater", {y, Constant(c, 0)}), Constant(c, 1), Constant(c, -1)});
  }
  c.Give(0, y);
}

}  // namespace lathe::onnx
