#include "lathe/dialect/nn/features.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "src/dialect/move.h"
#include "src/dialect/nn/features_labels.h"
#include "src/dialect/prepared.h"
#include "src/dialect/wide.h"

namespace lathe::nn {

// ---- label_encoder ----

namespace {

template <class T>
Tensor Vector(const std::vector<T>& values) {
  return Tensor::Of<T>({static_cast<int64_t>(values.size())}, values);
}

// The one of the four attributes that is given.
Tensor Column(const std::optional<Tensor>& tensor,
              const std::optional<std::vector<std::string>>& strings,
              const std::optional<std::vector<int64_t>>& ints,
              const std::optional<std::vector<double>>& floats, const char* what) {
  const int given = (tensor ? 1 : 0) + (strings ? 1 : 0) + (ints ? 1 : 0) + (floats ? 1 : 0);
  if (given != 1) {
    eval::FailArgument("type/label-encoder",
                       StrCat("one of the ", what, "_ attributes is expected, not ", given));
  }
  if (tensor) return *tensor;
  if (strings) return Vector(*strings);
  if (ints) return Vector(*ints);
  return Cast(Vector(*floats), ElementType::kF32);
}

Tensor Keys(LabelEncoderOp op) {
  return Column(op.keys_tensor(), op.keys_strings(), op.keys_int64s(), op.keys_floats(), "keys");
}

Tensor Labels(LabelEncoderOp op) {
  return Column(op.values_tensor(), op.values_strings(), op.values_int64s(), op.values_floats(),
                "values");
}

Tensor Fallback(LabelEncoderOp op, ElementType type) {
  Tensor value;
  if (const auto tensor = op.default_tensor()) {
    value = *tensor;
  } else if (type == ElementType::kString) {
    value = Tensor::Scalar(std::string(op.default_string()));
  } else if (IsFloat(type)) {
    value = Cast(Tensor::Scalar(op.default_float()), type);
  } else {
    value = Cast(Tensor::Scalar(op.default_int64()), type);
  }
  if (value.element_type() == type && value.num_elements() == 1) return value;
  eval::FailArgument("type/label-encoder", StrCat("the default is ", value.TypeString(),
                                                  ", but one ", Name(type), " is expected"));
}

// Places of the elements of `x` among the keys, -1 for those that are not there.
template <class T>
std::vector<int64_t> Look(std::span<const T> x, std::span<const T> keys) {
  const auto below = [](T a, T b) { return eval::Below(a, b); };
  std::map<T, int64_t, decltype(below)> places(below);
  for (size_t i = 0; i < keys.size(); ++i) places[keys[i]] = static_cast<int64_t>(i);
  std::vector<int64_t> result;
  for (const T& value : x) {
    const auto found = places.find(value);
    result.push_back(found == places.end() ? -1 : found->second);
  }
  return result;
}

// What the attributes say, ready to look up.
struct PreparedLabels {
  explicit PreparedLabels(LabelEncoderOp op) : table(LabelTable::Of(op)) {
    if (table.keys.element_type() != ElementType::kString) return;
    const auto keys = table.keys.data<std::string>();
    for (size_t i = 0; i < keys.size(); ++i) places[keys[i]] = static_cast<int64_t>(i);
  }

  LabelTable table;
  std::unordered_map<std::string, int64_t> places;  // of strings; looked up, never iterated
};

std::vector<int64_t> LookUp(const Tensor& x, const PreparedLabels& labels) {
  const Tensor& keys = labels.table.keys;
  if (x.element_type() != keys.element_type()) {
    eval::FailArgument("type/label-encoder", StrCat("the input holds ", Name(x.element_type()),
                                                    ", the keys ", Name(keys.element_type())));
  }
  if (x.element_type() == ElementType::kString) {
    std::vector<int64_t> result;
    for (const std::string& value : x.data<std::string>()) {
      const auto found = labels.places.find(value);
      result.push_back(found == labels.places.end() ? -1 : found->second);
    }
    return result;
  }
  return eval::VisitWide(x.element_type(), [&]<class C>(std::type_identity<C>) {
    const auto values = eval::LoadAll<C>(x);
    const auto wide = eval::LoadAll<C>(keys);
    return Look<C>(values, wide);
  });
}

}  // namespace

LabelTable LabelTable::Of(LabelEncoderOp op) {
  LabelTable table{Keys(op), Labels(op), Tensor()};
  if (table.keys.num_elements() != table.labels.num_elements()) {
    eval::FailArgument("type/label-encoder",
                       StrCat("there are ", table.keys.num_elements(), " keys and ",
                              table.labels.num_elements(), " values"));
  }
  table.fallback = Fallback(op, table.labels.element_type());
  return table;
}

void LabelEncoderOp::InferShape(InferShapeContext& c) {
  c.SetTensor(kY, Labels(LabelEncoderOp(c.op())).element_type(), c.shape(kX));
}

void LabelEncoderOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kX);
  const auto prepared = Prepared(c, [&] { return PreparedLabels(LabelEncoderOp(c.op())); });
  const LabelTable& table = prepared->table;
  Tensor out(table.labels.element_type(), x.shape());
  const eval::ElementMover label(table.labels, out);
  const eval::ElementMover other(table.fallback, out);
  int64_t to = 0;
  for (const int64_t place : LookUp(x, *prepared)) {
    if (place < 0) {
      other.Copy(to++, 0);
    } else {
      label.Copy(to++, place);
    }
  }
  c.SetOutput(kY, std::move(out));
}

// ---- array_feature_extractor, binarizer ----

void ArrayFeatureExtractorOp::InferShape(InferShapeContext& c) {
  SymShape out = c.shape(kX);
  if (out.ranked && out.rank() == 0) {
    c.Fail("shape/array-feature-extractor", "the input must have rank 1 or more");
  }
  if (out.ranked) {
    out.dims.back() = c.shape(kY).NumElements();
    if (out.rank() == 1) out.dims.insert(out.dims.begin(), 1);
  }
  c.SetShape(kZ, out);
}

void ArrayFeatureExtractorOp::Eval(EvalContext& c) {
  Tensor x = c.input(kX);
  if (x.rank() == 0) {
    c.Fail("shape/array-feature-extractor", "the input must have rank 1 or more");
  }
  if (x.rank() == 1) x = x.Reshaped({1, x.num_elements()});
  const auto indices = ToInt64s(c.input(kY));
  for (const int64_t index : indices) {
    if (index < 0) c.Fail("run/index", StrCat("index ", index, " is negative"));
    (void)eval::CheckIndex(index, x.dim(-1), "index");
  }
  c.SetOutput(kZ, eval::Take(x, x.shape().size() - 1, indices));
}

void BinarizerOp::Eval(EvalContext& c) {
  const double threshold = BinarizerOp(c.op()).threshold();
  auto values = ToDoubles(c.input(kX));
  for (double& value : values) value = value > threshold ? 1 : 0;
  c.SetOutput(kY, eval::FromDoubles(c.input(kX).element_type(), c.input(kX).shape(), values));
}

}  // namespace lathe::nn
