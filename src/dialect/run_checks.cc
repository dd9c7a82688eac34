#include "src/dialect/run_checks.h"

#include <algorithm>

#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

bool FitsTensor(const Tensor& tensor, AnyTensorType type) {
  if (tensor.element_type() != type.element()) return false;
  if (!type.has_rank()) return true;
  if (tensor.shape().size() != type.rank()) return false;
  for (size_t i = 0; i < type.rank(); ++i) {
    const Dim& d = type.dims()[i];
    if (d.is_constant() && d.value() != tensor.shape()[i]) return false;
  }
  return true;
}

bool AllFit(const RtValue::List& list, Type element) {
  return std::all_of(list.begin(), list.end(), [&](const RtValue& v) { return Fits(v, element); });
}

}  // namespace

bool Fits(const RtValue& value, Type type) {
  if (const auto optional = type.dyn_cast<OptionalType>()) {
    return value.is_absent_optional() || Fits(value, optional.elements()[0]);
  }
  if (const auto tensor = type.dyn_cast<AnyTensorType>()) {
    return value.is_tensor() && FitsTensor(value.tensor(), tensor);
  }
  if (const auto list = type.dyn_cast<ListType>()) {
    return value.is_list() && AllFit(value.list(), list.elements()[0]);
  }
  if (type.isa<DictType>()) return value.is_dict();
  if (type.isa<StackType>()) return value.is_list();
  return true;
}

std::string Describe(const RtValue& value) {
  return value.is_tensor() ? value.tensor().TypeString() : value.KindName();
}

namespace {

std::string_view NameOf(Operation* feed) { return nn::FeedOp(feed).name(); }

std::vector<std::string> Names(const std::vector<Operation*>& feeds) {
  std::vector<std::string> names;
  for (Operation* feed : feeds) names.emplace_back(NameOf(feed));
  return names;
}

std::string Listing(const std::vector<Operation*>& feeds) {
  std::string text;
  for (Operation* feed : feeds) {
    text += StrCat(text.empty() ? "the program's inputs: " : ", ", NameOf(feed), " : ",
                   feed->result(0).type().ToString());
  }
  return text.empty() ? "the program has no inputs" : text;
}

void CheckNames(const std::vector<Operation*>& feeds, const NamedValues& inputs) {
  const std::vector<std::string> names = Names(feeds);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = inputs[i].first;
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      Error error(ErrorCode::kNotFound, "run/input-name",
                  StrCat("the program has no input '", name, "'"));
      error.Note(Listing(feeds));
      if (const std::string hint = DidYouMean(name, names); !hint.empty()) error.Hint(hint);
      throw error;
    }
    if (Find(inputs, name) != &inputs[i].second) {
      throw Error(ErrorCode::kInvalidArgument, "run/input-twice",
                  StrCat("input '", name, "' is given twice"));
    }
  }
}

void CheckType(Operation* feed, const RtValue& value, SymbolBinder& symbols) {
  const Type type = feed->result(0).type();
  const std::string what = StrCat("input '", NameOf(feed), "'");
  const auto tensor = type.dyn_cast<AnyTensorType>();
  if (tensor && value.is_tensor() && value.tensor().element_type() == tensor.element()) {
    symbols.Match(tensor.shape(), value.tensor().shape(), what, "run/input-shape");
    return;
  }
  if (Fits(value, type)) return;
  throw Error(ErrorCode::kType, "run/input-type",
              StrCat(what, " is ", Describe(value), "; expected ", type.ToString()));
}

}  // namespace

void CheckInputs(const std::vector<Operation*>& feeds, const NamedValues& inputs) {
  CheckNames(feeds, inputs);
  SymbolBinder symbols;
  for (Operation* feed : feeds) {
    const RtValue* value = Find(inputs, NameOf(feed));
    if (value == nullptr) {
      throw Error(ErrorCode::kInvalidArgument, "run/input-missing",
                  StrCat("input '", NameOf(feed), "' is missing; expected ",
                         feed->result(0).type().ToString()))
          .Note(Listing(feeds));
    }
    CheckType(feed, *value, symbols);
  }
  symbols.Finish("run/input-shape");
}

}  // namespace lathe
