#include "src/driver/value_text.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lathe/driver/value_files.h"
#include "lathe/support/error.h"
#include "src/dialect/move.h"
#include "src/driver/element_reader.h"

namespace lathe {
namespace {

using nlohmann::json;

Error ValueError(std::string message) {
  return {ErrorCode::kInvalidArgument, "run/input-value", std::move(message)};
}

// What json::exception adds before the sentence: "[json.exception.parse_error.101] ".
std::string_view WithoutPrefix(std::string_view message) {
  const size_t end = message.find("] ");
  return end == std::string_view::npos ? message : message.substr(end + 2);
}

// The lists at each depth have one length: that of the shape. The leaves of `document` in order.
std::vector<const json*> Leaves(const json& document, Shape& shape) {
  std::vector<const json*> level = {&document};
  while (!level.empty() && level[0]->is_array()) {
    const size_t extent = level[0]->size();
    std::vector<const json*> next;
    next.reserve(level.size() * extent);
    for (const json* list : level) {
      if (!list->is_array() || list->size() != extent) {
        throw ValueError(StrCat("the lists at depth ", shape.size() + 1,
                                " have different lengths: ", list->size(), " after ", extent));
      }
      for (const json& element : *list) next.push_back(&element);
    }
    shape.push_back(static_cast<int64_t>(extent));
    level = std::move(next);
  }
  return level;
}

Tensor TensorOfJson(const json& document, AnyTensorType expected) {
  Shape shape;
  ElementReader reader(expected.element());
  for (const json* leaf : Leaves(document, shape)) {
    if (leaf->is_array() || leaf->is_object() || leaf->is_null()) {
      throw ValueError(StrCat(std::string(leaf->is_null()    ? "null"
                                          : leaf->is_array() ? "a list"
                                                             : "an object"),
                              " stands where an element of type ", Name(expected.element()),
                              " is expected"));
    }
    reader.Add(leaf->is_string() ? leaf->get_ref<const std::string&>() : leaf->dump());
  }
  return Fitted(std::move(reader).Finish(std::move(shape)), expected);
}

// An element fills the whole tensor.
Tensor FilledWith(std::string_view text, AnyTensorType expected,
                  std::span<const Dim::Binding> bindings) {
  const auto extent_of = [&](std::string_view symbol) -> std::optional<int64_t> {
    const auto known = std::ranges::find(bindings, symbol, &Dim::Binding::first);
    return known == bindings.end() ? 1 : known->second;
  };
  Shape shape;
  for (const Dim& dim : expected.dims()) {
    shape.push_back(dim.is_unknown() ? 1 : dim.Evaluate(extent_of).value_or(1));
  }
  ElementReader reader(expected.element());
  reader.Add(text);
  return eval::Filled(std::move(shape), std::move(reader).Finish({}));
}

// Where the text of a value begins as JSON does, and no number does.
bool IsJson(std::string_view text) {
  return text.starts_with('[') || text.starts_with('{') || text.starts_with('"') || text == "null";
}

}  // namespace

json ParseJson(std::string_view text, const std::string& where) {
  constexpr int kMaxDepth = 64;
  const auto check = [&](int depth, json::parse_event_t, const json&) {
    if (depth <= kMaxDepth) return true;
    throw Error(ErrorCode::kParse, "parse/json", "it is nested too deeply").At(where);
  };
  try {
    return json::parse(text, check);
  } catch (const json::parse_error& fault) {
    Error error(ErrorCode::kParse, "parse/json", std::string(WithoutPrefix(fault.what())));
    const char last = fault.byte > 0 && fault.byte <= text.size() ? text[fault.byte - 1] : ' ';
    if (last == 'N' || last == 'I') error.Hint("JSON has no NaN: write \"nan\", \"inf\", \"-inf\"");
    throw std::move(error).At(where);
  }
}

RtValue ValueOfJson(const json& document, Type expected) {
  if (const auto tensor = expected.dyn_cast<AnyTensorType>()) return TensorOfJson(document, tensor);
  if (const auto optional = expected.dyn_cast<OptionalType>()) {
    return document.is_null() ? RtValue::AbsentOptional()
                              : ValueOfJson(document, optional.elements()[0]);
  }
  const auto list = expected.dyn_cast<ListType>();
  if (!list || !document.is_array()) {
    throw ValueError(StrCat("this is not a value of type ", expected.ToString()));
  }
  RtValue::List values;
  for (const json& element : document) values.push_back(ValueOfJson(element, list.elements()[0]));
  return RtValue::OfList(std::move(values));
}

Tensor Fitted(const Tensor& tensor, AnyTensorType expected) {
  if (!expected.has_rank() || expected.rank() == static_cast<size_t>(tensor.rank())) return tensor;
  Shape shape;
  int64_t known = 1;
  std::optional<size_t> open;
  for (const Dim& dim : expected.dims()) {
    const bool constant = dim.is_constant();
    if (!constant && std::exchange(open, shape.size())) return tensor;
    shape.push_back(constant ? dim.value() : 1);
    known *= shape.back();
  }
  if (open && known > 0 && tensor.num_elements() % known == 0) {
    shape[*open] = tensor.num_elements() / known;
    known = tensor.num_elements();
  }
  return known == tensor.num_elements() ? tensor.Reshaped(std::move(shape)) : tensor;
}

RtValue ParseValue(const std::string& name, std::string_view text, Type expected,
                   std::span<const Dim::Binding> bindings) {
  const std::string where = StrCat("input '", name, "'");
  try {
    if (IsJson(text)) return ValueOfJson(ParseJson(text, where), expected);
    const auto tensor = expected.dyn_cast<AnyTensorType>();
    if (tensor && tensor.has_rank()) return FilledWith(text, tensor, bindings);
    throw std::move(
        ValueError(StrCat(Quote(text), " is not a value of type ", expected.ToString()))
            .Hint(tensor ? "nothing says which shape it has: give a list, such as [1, 2], or a file"
                         : "give a list, such as [[1, 2], [3]], or a file"));
  } catch (Error& error) {
    if (error.where().empty()) error.At(where);
    throw;
  }
}

}  // namespace lathe
