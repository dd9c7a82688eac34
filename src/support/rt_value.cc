#include "lathe/support/rt_value.h"

#include <utility>

#include "lathe/support/error.h"

namespace lathe {
namespace {

Error WrongKind(const RtValue& value, std::string_view wanted) {
  return {ErrorCode::kType, "type/value",
          StrCat("a value that is a ", wanted, " is needed, this one is: ", value.KindName())};
}

std::string KeyText(const RtValue::Key& key) {
  if (const auto* text = std::get_if<std::string>(&key)) return Quote(*text);
  return StrCat(std::get<int64_t>(key));
}

}  // namespace

RtValue RtValue::OfList(List list) {
  RtValue result;
  result.value_ = std::make_shared<List>(std::move(list));
  return result;
}

RtValue RtValue::OfDict(Dict dict) {
  RtValue result;
  result.value_ = std::make_shared<Dict>(std::move(dict));
  return result;
}

RtValue RtValue::AbsentOptional() {
  RtValue result;
  result.value_ = Absent{};
  return result;
}

const Tensor& RtValue::tensor() const {
  if (!is_tensor()) throw WrongKind(*this, "tensor");
  return std::get<Tensor>(value_);
}
Tensor& RtValue::mutable_tensor() { return const_cast<Tensor&>(std::as_const(*this).tensor()); }

const RtValue::List& RtValue::list() const {
  if (!is_list()) throw WrongKind(*this, "list");
  return *std::get<ListPtr>(value_);
}

RtValue::List& RtValue::mutable_list() {
  if (!is_list()) throw WrongKind(*this, "list");
  auto& list = std::get<ListPtr>(value_);
  if (list.use_count() > 1) list = std::make_shared<List>(*list);
  return *list;
}

const RtValue::Dict& RtValue::dict() const {
  if (!is_dict()) throw WrongKind(*this, "dict");
  return *std::get<DictPtr>(value_);
}

RtValue::Dict& RtValue::mutable_dict() {
  if (!is_dict()) throw WrongKind(*this, "dict");
  auto& dict = std::get<DictPtr>(value_);
  if (dict.use_count() > 1) dict = std::make_shared<Dict>(*dict);
  return *dict;
}

const char* RtValue::KindName() const {
  constexpr const char* kNames[] = {"none", "tensor", "list", "absent optional", "dict"};
  return kNames[value_.index()];
}

std::string RtValue::ToString(int64_t limit) const {
  if (is_tensor()) return tensor().ToString(limit);
  std::string out;
  if (is_list()) {
    for (const RtValue& item : list()) out += StrCat(out.empty() ? "" : ", ", item.ToString(limit));
    return StrCat("(", out, ")");
  }
  if (is_dict()) {
    for (const auto& [key, item] : dict()) {
      out += StrCat(out.empty() ? "" : ", ", KeyText(key), ": ", item.ToString(limit));
    }
    return StrCat("{", out, "}");
  }
  return KindName();
}

bool operator==(const RtValue& a, const RtValue& b) {
  if (a.value_.index() != b.value_.index()) return false;
  if (a.is_tensor()) return a.tensor() == b.tensor();
  if (a.is_list()) return a.list() == b.list();
  if (a.is_dict()) return a.dict() == b.dict();
  return true;
}

}  // namespace lathe
