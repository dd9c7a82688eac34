// Operators of ai.onnx.ml that pipelines of classical learning contain, as operators of the
// standard. What the standard leaves open is what onnxruntime does.

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "lathe/support/error.h"
#include "src/frontend/onnx/classical.h"
#include "src/frontend/onnx/op_table.h"

namespace lathe::onnx {

std::vector<double> FloatsOf(const UpgradeContext& c, Text name) {
  const AttributeMsg* a = c.node.Find(name);
  return a == nullptr ? std::vector<double>() : a->floats;
}

std::vector<int64_t> IntsOf(const UpgradeContext& c, Text name) {
  return c.IntsAttr(name).value_or(std::vector<int64_t>());
}

std::vector<Text> StringsOf(const UpgradeContext& c, Text name) {
  const AttributeMsg* a = c.node.Find(name);
  return a == nullptr ? std::vector<Text>() : a->strings;
}

Tensor FloatTensor(Shape shape, const std::vector<double>& values, ElementType type) {
  return Cast(Tensor::Of<double>(std::move(shape), values), type);
}

Text AsFloat(UpgradeContext& c, size_t input) {
  const Text x = c.node.inputs[input];
  if (c.InputElement(input) == ElementType::kF32) return x;
  return Nodes(c)("Cast", {x}, {MakeInt("to", kF32)});
}

Text FloatRows(UpgradeContext& c, size_t input) {
  const int64_t rank = c.NeedRank(input);
  if (rank == 2) return AsFloat(c, input);
  if (rank != 1) c.Refuse(StrCat("input ", input, " is neither a vector nor a matrix"));
  Nodes make(c);
  return make("Unsqueeze", {AsFloat(c, input), make.Ints({0})});
}

Text Transformed(UpgradeContext& c, Text scores) {
  const Text name = c.StringAttr("post_transform").value_or("NONE");
  if (name == "NONE") return scores;
  if (name == "LOGISTIC") return Nodes(c)("Sigmoid", {scores});
  if (name != "SOFTMAX") c.Refuse(StrCat("post_transform ", Shown(name), " is not supported"));
  return Nodes(c)("Softmax", {scores}, {MakeInt("axis", -1)});
}

Tensor ClassLabels(UpgradeContext& c, Text ints_name) {
  const std::vector<int64_t> ints = IntsOf(c, ints_name);
  const std::vector<Text> strings = StringsOf(c, "classlabels_strings");
  if (ints.empty() == strings.empty())
    c.Refuse("the labels of classes are missing, or twice there");
  if (strings.empty()) return Tensor::Of<int64_t>({Count(ints)}, ints);
  return Tensor::Of<std::string>({Count(strings)},
                                 std::vector<std::string>(strings.begin(), strings.end()));
}

void GiveBest(UpgradeContext& c, Nodes& make, const Tensor& labels, Text scores) {
  const Text best = make("ArgMax", {scores}, {MakeInt("axis", 1), MakeInt("keepdims", 0)});
  c.Give(0, make("Gather", {c.AddConstant(labels), best}));
}

namespace {

// ---- features ----

// (x - offset) * scale, in f64 where x is.
void Scaler(UpgradeContext& c) {
  Nodes make(c);
  const bool wide = c.InputElement(0) == ElementType::kF64;
  const ElementType type = wide ? ElementType::kF64 : ElementType::kF32;
  const auto list = [&](Text name) {
    const std::vector<double> values = FloatsOf(c, name);
    if (values.empty()) c.Refuse(StrCat("attribute '", name, "' is missing"));
    return c.AddConstant(FloatTensor({Count(values)}, values, type));
  };
  const Text x = wide ? c.node.inputs[0] : AsFloat(c, 0);
  const Text y = make("Mul", {make("Sub", {x, list("offset")}), list("scale")});
  c.Give(0, wide ? make("Cast", {y}, {MakeInt("to", kF32)}) : y);
}

// Rows by their norm; those whose norm is 0 stay.
void Normalizer(UpgradeContext& c) {
  Nodes make(c);
  const Text norm = c.StringAttr("norm").value_or("MAX");
  const Text op = norm == "MAX"  ? "ReduceMax"
                  : norm == "L1" ? "ReduceL1"
                  : norm == "L2" ? "ReduceL2"
                                 : Text();
  if (op.empty()) c.Refuse(StrCat("norm ", Shown(norm), " is not supported"));
  const Text x = AsFloat(c, 0);
  const Text size = make(op, {x, make.Ints({-1})});
  const Text zero = c.AddConstant(Tensor::Scalar(0.0F)), one = c.AddConstant(Tensor::Scalar(1.0F));
  c.Give(0, make("Div", {x, make("Where", {make("Equal", {size, zero}), one, size})}));
}

// What takes the place of missing elements, by column or once: of the type of the input.
Tensor Imputed(UpgradeContext& c) {
  const bool ints = c.InputElement(0) == ElementType::kI64;
  if (!ints && c.InputElement(0) != ElementType::kF32) {
    c.Refuse("inputs other than f32 and i64 are not supported");
  }
  const std::vector<int64_t> whole = IntsOf(c, "imputed_value_int64s");
  const std::vector<double> values = FloatsOf(c, "imputed_value_floats");
  if (ints ? whole.empty() : values.empty()) {
    c.Refuse(StrCat("attribute 'imputed_value_", ints ? "int64s" : "floats", "' is missing"));
  }
  return ints ? Tensor::Of<int64_t>({Count(whole)}, whole) : FloatTensor({Count(values)}, values);
}

Text IsMissing(UpgradeContext& c, Nodes& make) {
  const Text x = c.node.inputs[0];
  if (c.InputElement(0) == ElementType::kI64) {
    return make("Equal", {x, make.Int(c.IntAttr("replaced_value_int64").value_or(0))});
  }
  const double missing = c.FloatAttr("replaced_value_float").value_or(0);
  return missing != missing ? make("IsNaN", {x}) : make("Equal", {x, make.Scalar(0, missing)});
}

void Imputer(UpgradeContext& c) {
  Nodes make(c);
  const Text by = c.AddConstant(Imputed(c));
  c.Give(0, make("Where", {IsMissing(c, make), by, c.node.inputs[0]}));
}

// `size` of them a row, where that is known: onnxruntime cuts off others, or fills up with zeros.
void NeedFeatures(UpgradeContext& c, size_t input, int64_t size) {
  const auto type = c.InputType(input).dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank() || type.rank() == 0) return;
  Dim features = 1;
  for (size_t a = type.rank() == 1 ? 0 : 1; a < type.rank(); ++a) features *= type.dims()[a];
  if (!features.is_constant() || features.IsConstant(size)) return;
  c.Refuse(StrCat("input ", input, " has ", features.value(), " features, not ", size,
                  " as 'inputdimensions' says"));
}

void FeatureVectorizer(UpgradeContext& c) {
  std::vector<Text> parts;
  const std::vector<int64_t> sizes = IntsOf(c, "inputdimensions");
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    if (i < sizes.size()) NeedFeatures(c, i, sizes[i]);
    const bool has_more = c.NeedRank(i) > 2;  // axes, which count as one
    parts.push_back(has_more ? Nodes(c)("Flatten", {AsFloat(c, i)}) : FloatRows(c, i));
  }
  c.Give(0, Nodes(c)("Concat", parts, {MakeInt("axis", 1)}));
}

// ---- linear models ----

// x times the rows of `coefficients`, plus `intercepts`.
Text LinearScores(UpgradeContext& c, int64_t rows) {
  const std::vector<double> weights = FloatsOf(c, "coefficients");
  const std::vector<double> added = FloatsOf(c, "intercepts");
  if (rows < 1 || weights.empty() || Count(weights) % rows != 0) {
    c.Refuse(StrCat(weights.size(), " coefficients for ", rows, " targets"));
  }
  if (!added.empty() && Count(added) != rows) {
    c.Refuse(StrCat(added.size(), " intercepts for ", rows, " targets"));
  }
  const Text w = c.AddConstant(FloatTensor({rows, Count(weights) / rows}, weights));
  const Text bias = added.empty() ? Text() : c.AddConstant(FloatTensor({rows}, added));
  return Nodes(c)("Gemm", {FloatRows(c, 0), w, bias}, {MakeInt("transB", 1)});
}

void LinearRegressor(UpgradeContext& c) {
  c.Give(0, Transformed(c, LinearScores(c, c.IntAttr("targets").value_or(1))));
}

void LinearClassifier(UpgradeContext& c) {
  Nodes make(c);
  const Tensor labels = ClassLabels(c, "classlabels_ints");
  const int64_t classes = labels.num_elements();
  if (classes < 2) c.Refuse("there are fewer than two classes");
  const std::vector<double> added = FloatsOf(c, "intercepts");
  if (!added.empty() && Count(added) != classes) {
    c.Refuse(StrCat(added.size(), " intercepts for ", classes, " classes"));
  }
  const Text scores = LinearScores(c, classes);
  GiveBest(c, make, labels, scores);
  c.Give(1, Transformed(c, scores));
}

// ---- trees ----

struct Trees {
  std::vector<int64_t> roots, features, true_nodes, true_leaves, false_nodes, false_leaves, missing;
  std::vector<uint8_t> modes;
  std::vector<double> splits;
  std::vector<int64_t> leaf_trees;  ///< tree by leaf
};

// Trees as the older operators number them: nodes by tree and number, leaves among them.
class TreeReader {
 public:
  explicit TreeReader(UpgradeContext& c)
      : c_(c),
        trees_(IntsOf(c, "nodes_treeids")),
        numbers_(IntsOf(c, "nodes_nodeids")),
        on_true_(IntsOf(c, "nodes_truenodeids")),
        on_false_(IntsOf(c, "nodes_falsenodeids")),
        features_(IntsOf(c, "nodes_featureids")),
        missing_(IntsOf(c, "nodes_missing_value_tracks_true")),
        splits_(FloatsOf(c, "nodes_values")),
        modes_(StringsOf(c, "nodes_modes")) {
    const size_t n = trees_.size();
    const auto fits = [n](const auto& list) { return list.size() == n; };
    if (n == 0 || !fits(numbers_) || !fits(on_true_) || !fits(on_false_) || !fits(features_) ||
        !fits(splits_) || !fits(modes_) || !(missing_.empty() || fits(missing_))) {
      c_.Refuse("the attributes of nodes have different lengths");
    }
    for (size_t i = 0; i < n; ++i) {
      if (!place_.emplace(Key(trees_[i], numbers_[i]), i).second) {
        c_.Refuse(StrCat("tree ", trees_[i], " has two nodes ", numbers_[i]));
      }
    }
  }

  /// The place of a leaf among the leaves.
  int64_t Leaf(int64_t tree, int64_t number) const {
    const size_t i = Find(tree, number);
    if (!IsLeaf(i)) c_.Refuse(StrCat("node ", number, " of tree ", tree, " is not a leaf"));
    return index_[i];
  }

  Trees Read() {
    Number();
    Trees t;
    for (size_t i = 0; i < trees_.size(); ++i) {
      const bool first = i == 0 || trees_[i] != trees_[i - 1];
      if (IsLeaf(i)) AddLeaf(t, i, first);
      if (!IsLeaf(i)) AddInner(t, i);
    }
    return t;
  }

 private:
  using Key = std::pair<int64_t, int64_t>;

  bool IsLeaf(size_t i) const { return modes_[i] == "LEAF"; }

  size_t Find(int64_t tree, int64_t number) const {
    const auto found = place_.find(Key(tree, number));
    if (found == place_.end()) c_.Refuse(StrCat("tree ", tree, " has no node ", number));
    return found->second;
  }

  // A tree that is but a leaf gets a node before it.
  void Number() {
    int64_t inner = 0, leaves = 0;
    for (size_t i = 0; i < trees_.size(); ++i) {
      if (i > 0 && trees_[i] != trees_[i - 1] && !seen_.insert(trees_[i - 1]).second) {
        c_.Refuse("the nodes of a tree are not side by side");
      }
      const bool first = i == 0 || trees_[i] != trees_[i - 1];
      if (IsLeaf(i) && first) ++inner;
      index_.push_back(IsLeaf(i) ? leaves++ : inner++);
    }
  }

  void AddLeaf(Trees& t, size_t i, bool first) {
    if (first) AddNode(t, i, 0, index_[i], true, index_[i], true);
    t.leaf_trees.push_back(static_cast<int64_t>(t.roots.size()) - 1);
  }

  void AddInner(Trees& t, size_t i) {
    static constexpr Text kModes[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                      "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
    const auto mode = std::ranges::find(kModes, modes_[i]);
    if (mode == std::end(kModes)) c_.Refuse(StrCat("mode ", Shown(modes_[i])));
    const size_t yes = Find(trees_[i], on_true_[i]), no = Find(trees_[i], on_false_[i]);
    AddNode(t, i, static_cast<uint8_t>(mode - kModes), index_[yes], IsLeaf(yes), index_[no],
            IsLeaf(no));
  }

  void AddNode(Trees& t, size_t i, uint8_t mode, int64_t yes, bool yes_leaf, int64_t no,
               bool no_leaf) {
    if (i == 0 || trees_[i] != trees_[i - 1]) t.roots.push_back(Count(t.features));
    t.features.push_back(IsLeaf(i) ? 0 : features_[i]);
    t.modes.push_back(mode);
    t.splits.push_back(IsLeaf(i) ? 0 : splits_[i]);
    t.true_nodes.push_back(yes);
    t.true_leaves.push_back(yes_leaf ? 1 : 0);
    t.false_nodes.push_back(no);
    t.false_leaves.push_back(no_leaf ? 1 : 0);
    t.missing.push_back(missing_.empty() ? 0 : missing_[i]);
  }

  UpgradeContext& c_;
  std::vector<int64_t> trees_, numbers_, on_true_, on_false_, features_, missing_;
  std::vector<double> splits_;
  std::vector<Text> modes_;
  std::map<Key, size_t> place_;
  std::set<int64_t> seen_;
  std::vector<int64_t> index_;  ///< among the inner nodes, or among the leaves
};

AttributeMsg MakeTensor(Text name, const Tensor& value) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kTensor;
  a.made = value;
  return a;
}

// Which leaf of each tree a row comes to, i64[N, trees].
Text LeavesOf(UpgradeContext& c, const Trees& t) {
  const ElementType type =
      c.InputElement(0) == ElementType::kF64 ? ElementType::kF64 : ElementType::kF32;
  std::vector<double> numbers(t.leaf_trees.size());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
  constexpr size_t kExact = size_t{1} << 24;
  if (numbers.size() > kExact) c.Refuse(StrCat(numbers.size(), " leaves"));
  const Tensor modes = Tensor::Of<uint8_t>({Count(t.modes)}, t.modes);
  const Tensor splits = FloatTensor({Count(t.splits)}, t.splits, type);
  const Tensor weights = FloatTensor({Count(numbers)}, numbers, type);
  NodeMsg node =
      MakeNode("TreeEnsemble", {type == ElementType::kF64 ? c.node.inputs[0] : AsFloat(c, 0)});
  node.domain = "ai.onnx.ml";
  node.is_current = true;
  node.attributes = {MakeInt("n_targets", Count(t.roots)),
                     MakeInts("tree_roots", t.roots),
                     MakeInts("nodes_featureids", t.features),
                     MakeTensor("nodes_modes", modes),
                     MakeTensor("nodes_splits", splits),
                     MakeInts("nodes_truenodeids", t.true_nodes),
                     MakeInts("nodes_trueleafs", t.true_leaves),
                     MakeInts("nodes_falsenodeids", t.false_nodes),
                     MakeInts("nodes_falseleafs", t.false_leaves),
                     MakeInts("nodes_missing_value_tracks_true", t.missing),
                     MakeInts("leaf_targetids", t.leaf_trees),
                     MakeTensor("leaf_weights", weights)};
  const Text found = c.Emit(std::move(node));
  return Nodes(c)("Cast", {found}, {MakeInt("to", static_cast<int64_t>(ElementType::kI64))});
}

struct Weights {
  Text trees, nodes, columns, values;  ///< names of attributes
  bool first_of_leaf = false;          ///< of several weights of a leaf the first one counts
};

// The rows of weights [leaves, width] of the leaves that a row of the input comes to.
Text LeafWeights(UpgradeContext& c, const Weights& names, int64_t width, bool one_column) {
  TreeReader reader(c);
  const Trees trees = reader.Read();
  const std::vector<int64_t> tree = IntsOf(c, names.trees), node = IntsOf(c, names.nodes);
  const std::vector<int64_t> column = IntsOf(c, names.columns);
  const std::vector<double> value = FloatsOf(c, names.values);
  if (tree.size() != value.size() || node.size() != value.size() || column.size() != value.size()) {
    c.Refuse("the attributes of weights have different lengths");
  }
  Tensor table(ElementType::kF64, {Count(trees.leaf_trees), width});
  const auto sums = table.mutable_data<double>();
  std::set<int64_t> weighed;
  for (size_t i = 0; i < value.size(); ++i) {
    const int64_t at = one_column ? 0 : column[i];
    if (at < 0 || at >= width) c.Refuse(StrCat("a weight for ", column[i], " of ", width));
    const int64_t leaf = reader.Leaf(tree[i], node[i]);
    if (names.first_of_leaf && !weighed.insert(leaf).second) continue;
    sums[static_cast<size_t>(leaf * width + at)] += value[i];
  }
  Nodes make(c);
  const Text rows = c.AddConstant(Cast(table, ElementType::kF32));
  return make("Gather", {rows, LeavesOf(c, trees)});
}

Text WithBase(UpgradeContext& c, Nodes& make, Text scores, int64_t width) {
  const std::vector<double> base = FloatsOf(c, "base_values");
  if (base.empty()) return scores;
  if (Count(base) != width) c.Refuse(StrCat(base.size(), " base_values for ", width, " scores"));
  return make("Add", {scores, c.AddConstant(FloatTensor({width}, base))});
}

Text Combined(UpgradeContext& c, Nodes& make, Text weights) {
  static constexpr std::pair<Text, Text> kWays[] = {
      {"SUM", "ReduceSum"}, {"AVERAGE", "ReduceMean"}, {"MIN", "ReduceMin"}, {"MAX", "ReduceMax"}};
  const Text name = c.StringAttr("aggregate_function").value_or("SUM");
  const auto* way = std::ranges::find(kWays, name, &std::pair<Text, Text>::first);
  if (way == std::end(kWays)) c.Refuse(StrCat("aggregate_function ", Shown(name)));
  return make(way->second, {weights, make.Ints({1})}, {MakeInt("keepdims", 0)});
}

void TreeRegressor(UpgradeContext& c) {
  Nodes make(c);
  const int64_t targets = c.IntAttr("n_targets").value_or(1);
  // A leaf has one weight for one target: skl2onnx writes it again for each class of a classifier.
  const Weights names = {"target_treeids", "target_nodeids", "target_ids", "target_weights",
                         targets == 1};
  if (targets < 1) c.Refuse("there is no target");
  const Text way = c.StringAttr("aggregate_function").value_or("SUM");
  if (targets > 1 && (way == "MIN" || way == "MAX")) {
    c.Refuse(StrCat("aggregate_function ", way, " of several targets"));
  }
  const Text scores = Combined(c, make, LeafWeights(c, names, targets, false));
  c.Give(0, Transformed(c, WithBase(c, make, scores, targets)));
}

// Two classes and weights for the first alone, which stand for the second: those that are all
// positive add up to a share, others to a distance.
void GiveBinary(UpgradeContext& c, Nodes& make, const Tensor& labels, Text score) {
  const std::vector<double> weights = FloatsOf(c, "class_weights");
  const bool share = std::ranges::all_of(weights, [](double w) { return w >= 0; });
  const Text post = c.StringAttr("post_transform").value_or("NONE");
  const Text least = c.AddConstant(Tensor::Scalar(share ? 0.5F : 0.0F));
  const Text is_second = make("Cast", {make("Greater", {score, least})},
                              {MakeInt("to", static_cast<int64_t>(ElementType::kI64))});
  const Text place = make("Squeeze", {is_second, make.Ints({1})});
  c.Give(0, make("Gather", {c.AddConstant(labels), place}));
  if (post != "NONE" && post != "LOGISTIC") {
    c.Refuse(StrCat("post_transform ", Shown(post), " of one score for two classes"));
  }
  const Text one = c.AddConstant(Tensor::Scalar(1.0F));
  const Text other = share && post == "NONE" ? make("Sub", {one, score}) : make("Neg", {score});
  c.Give(1, Transformed(c, make("Concat", {other, score}, {MakeInt("axis", 1)})));
}

void TreeClassifier(UpgradeContext& c) {
  Nodes make(c);
  const Tensor labels = ClassLabels(c, "classlabels_int64s");
  const std::vector<int64_t> ids = IntsOf(c, "class_ids");
  const bool one = std::ranges::all_of(ids, [](int64_t id) { return id == 0; });
  const bool binary = labels.num_elements() == 2 && one;
  if (labels.num_elements() < 2) c.Refuse("there are fewer than two classes");
  const int64_t width = binary ? 1 : labels.num_elements();
  const Weights names = {"class_treeids", "class_nodeids", "class_ids", "class_weights"};
  const Text each = LeafWeights(c, names, width, binary);
  const Text sum = make("ReduceSum", {each, make.Ints({1})}, {MakeInt("keepdims", 0)});
  const Text scores = WithBase(c, make, sum, width);
  if (binary) return GiveBinary(c, make, labels, scores);
  GiveBest(c, make, labels, scores);
  c.Give(1, Transformed(c, scores));
}

// ---- categories ----

// Elements as what stands for their keys in a table; `otherwise` for what is not a key.
Text Encoded(UpgradeContext& c, Text x, const Tensor& keys, const Tensor& values,
             const Tensor& otherwise) {
  NodeMsg node = MakeNode("LabelEncoder", {x});
  node.domain = "ai.onnx.ml";
  node.is_current = true;
  node.attributes = {MakeTensor("keys_tensor", keys), MakeTensor("values_tensor", values),
                     MakeTensor("default_tensor", otherwise)};
  return c.Emit(std::move(node));
}

Tensor StringTensor(const std::vector<Text>& strings) {
  return Tensor::Of<std::string>({Count(strings)},
                                 std::vector<std::string>(strings.begin(), strings.end()));
}

// Strings as numbers, or numbers as strings.
void CategoryMapper(UpgradeContext& c) {
  const std::vector<int64_t> ints = IntsOf(c, "cats_int64s");
  const std::vector<Text> strings = StringsOf(c, "cats_strings");
  if (ints.size() != strings.size()) {
    c.Refuse(StrCat("there are ", ints.size(), " numbers for ", strings.size(), " strings"));
  }
  const Tensor numbers = Tensor::Of<int64_t>({Count(ints)}, ints), names = StringTensor(strings);
  if (c.InputElement(0) == ElementType::kString) {
    const int64_t other = c.IntAttr("default_int64").value_or(-1);
    return c.Give(0,
                  Encoded(c, c.node.inputs[0], names, numbers, Tensor::Of<int64_t>({1}, {other})));
  }
  const Text other = c.StringAttr("default_string").value_or("_Unused");
  c.Give(0, Encoded(c, c.node.inputs[0], numbers, names, StringTensor({other})));
}

// The categories as a tensor, of the type that elements are looked up in.
Tensor Categories(UpgradeContext& c) {
  const std::vector<int64_t> ints = IntsOf(c, "cats_int64s");
  const std::vector<Text> strings = StringsOf(c, "cats_strings");
  if (ints.empty() == strings.empty()) c.Refuse("the categories are missing, or twice there");
  if ((c.InputElement(0) == ElementType::kString) == strings.empty()) {
    c.Refuse("the categories are of another type than the input");
  }
  if (strings.empty()) return Tensor::Of<int64_t>({Count(ints)}, ints);
  return StringTensor(strings);
}

// Elements as their places among the categories; what is none of them is behind the last. Numbers
// are truncated before.
Text PlacesOf(UpgradeContext& c, const Tensor& categories, const Tensor& places) {
  Text x = c.node.inputs[0];
  if (categories.element_type() == ElementType::kI64) {
    x = Nodes(c)("Cast", {x}, {MakeInt("to", static_cast<int64_t>(ElementType::kI64))});
  }
  const int64_t none = categories.num_elements();
  return Encoded(c, x, categories, places, Tensor::Of<int64_t>({1}, {none}));
}

void OneHotEncoder(UpgradeContext& c) {
  Nodes make(c);
  const Tensor categories = Categories(c);
  const int64_t count = categories.num_elements();
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Tensor places = Tensor::Of<int64_t>({count}, numbers);
  Text place = PlacesOf(c, categories, places);
  // Places that are out of range are errors of Gather, and rows of zeros of OneHot.
  if (c.IntAttr("zeros").value_or(1) == 0) place = make("Gather", {c.AddConstant(places), place});
  const Text off_on = c.AddConstant(Tensor::Of<float>({2}, {0, 1}));
  c.Give(0, make("OneHot", {place, make.Int(count), off_on}, {MakeInt("axis", -1)}));
}

#define LATHE_TREE_NODES                                                                 \
  "nodes_treeids nodes_nodeids nodes_truenodeids nodes_falsenodeids nodes_featureids "   \
  "nodes_missing_value_tracks_true nodes_values nodes_modes nodes_hitrates base_values " \
  "post_transform "

#define LATHE_SVM "coefficients kernel_params kernel_type post_transform rho support_vectors "

constexpr ContribRule kClassical[] = {
    {"CategoryMapper", 1, 1, 1, CategoryMapper,
     "cats_int64s cats_strings default_int64 default_string"},
    {"FeatureVectorizer", 1, SIZE_MAX, 1, FeatureVectorizer, "inputdimensions"},
    {"Imputer", 1, 1, 1, Imputer,
     "imputed_value_floats imputed_value_int64s replaced_value_float replaced_value_int64"},
    {"LinearClassifier", 1, 1, 2, LinearClassifier,
     "classlabels_ints classlabels_strings coefficients intercepts multi_class post_transform"},
    {"LinearRegressor", 1, 1, 1, LinearRegressor, "coefficients intercepts post_transform targets"},
    {"Normalizer", 1, 1, 1, Normalizer, "norm"},
    {"OneHotEncoder", 1, 1, 1, OneHotEncoder, "cats_int64s cats_strings zeros"},
    {"SVMClassifier", 1, 1, 2, SvmClassifier,
     LATHE_SVM "classlabels_ints classlabels_strings prob_a prob_b vectors_per_class"},
    {"SVMRegressor", 1, 1, 1, SvmRegressor, LATHE_SVM "n_supports one_class"},
    {"Scaler", 1, 1, 1, Scaler, "offset scale"},
    {"TreeEnsembleClassifier", 1, 1, 2, TreeClassifier,
     LATHE_TREE_NODES "class_treeids class_nodeids class_ids class_weights classlabels_int64s "
                      "classlabels_strings"},
    {"TreeEnsembleRegressor", 1, 1, 1, TreeRegressor,
     LATHE_TREE_NODES "target_treeids target_nodeids target_ids target_weights n_targets "
                      "aggregate_function"},
};

#undef LATHE_TREE_NODES
#undef LATHE_SVM

}  // namespace

std::span<const ContribRule> ContribClassical() { return kClassical; }

}  // namespace lathe::onnx
