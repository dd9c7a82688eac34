#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "lathe/support/tensor.h"

namespace lathe {

// What a value of a running program is: nothing, a tensor, a list, an absent optional, or a dict. A
// present optional is the value itself. Copies are cheap and share; mutable_list and mutable_dict
// copy first when shared.
class RtValue {
 public:
  using List = std::vector<RtValue>;
  // Keys are i64 or string; one dict has one kind.
  using Key = std::variant<int64_t, std::string>;
  using Dict = std::map<Key, RtValue>;

  RtValue() = default;
  RtValue(Tensor tensor) : value_(std::move(tensor)) {}  // NOLINT: implicit
  [[nodiscard]] static RtValue OfList(List list);
  [[nodiscard]] static RtValue OfDict(Dict dict);
  [[nodiscard]] static RtValue AbsentOptional();

  // An input that is not there, or a value not yet computed.
  [[nodiscard]] bool is_none() const { return std::holds_alternative<std::monostate>(value_); }
  [[nodiscard]] bool is_tensor() const { return std::holds_alternative<Tensor>(value_); }
  [[nodiscard]] bool is_list() const { return std::holds_alternative<ListPtr>(value_); }
  [[nodiscard]] bool is_dict() const { return std::holds_alternative<DictPtr>(value_); }
  [[nodiscard]] bool is_absent_optional() const { return std::holds_alternative<Absent>(value_); }

  // Each throws Error type/value when the value is of another kind.
  [[nodiscard]] const Tensor& tensor() const;
  [[nodiscard]] Tensor& mutable_tensor();
  [[nodiscard]] const List& list() const;
  [[nodiscard]] List& mutable_list();
  [[nodiscard]] const Dict& dict() const;
  [[nodiscard]] Dict& mutable_dict();

  // "none", "tensor", "list", "absent optional" or "dict".
  [[nodiscard]] const char* KindName() const;
  [[nodiscard]] std::string ToString(int64_t limit = 100) const;

  // Same kind and equal contents, tensors bitwise.
  friend bool operator==(const RtValue& a, const RtValue& b);

 private:
  struct Absent {};
  using ListPtr = std::shared_ptr<List>;
  using DictPtr = std::shared_ptr<Dict>;

  std::variant<std::monostate, Tensor, ListPtr, Absent, DictPtr> value_;
};

// Like AllClose for tensors, element by element; the description says which.
[[nodiscard]] Closeness AllClose(const RtValue& a, const RtValue& b, double rtol = 1e-5,
                                 double atol = 1e-8);

}  // namespace lathe
