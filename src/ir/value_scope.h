#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lathe/ir/value.h"

namespace lathe {

/// The name of a value in the text: `%12` by number, others by their characters.
struct ValueName {
  static constexpr uint32_t kNamed = UINT32_MAX;
  std::string_view text;  ///< without the `%`
  uint32_t number = kNamed;
};

/// Which value a name means while a program is read. Names given inside a region end with it.
class ValueScope {
 public:
  /// Stands for a value whose definition was in error; using it is no further error.
  static Value Poison() { return Value(reinterpret_cast<detail::ValueImpl*>(uintptr_t{8})); }

  /// Null for a name that means nothing here.
  Value Find(const ValueName& name) const {
    if (name.number != ValueName::kNamed) {
      return name.number < numbered_.size() ? numbered_[name.number] : Value();
    }
    const auto at = named_.find(name.text);
    return at == named_.end() ? Value() : at->second;
  }

  /// The name must mean nothing yet.
  void Define(const ValueName& name, Value value) {
    if (name.number == ValueName::kNamed) {
      named_[name.text] = value;
    } else {
      if (name.number >= numbered_.size()) numbered_.resize(name.number + 1);
      numbered_[name.number] = value;
    }
    if (!marks_.empty()) log_.push_back(name);
  }

  void Open() { marks_.push_back(log_.size()); }
  void Close() {
    for (size_t i = marks_.back(); i < log_.size(); ++i) Forget(log_[i]);
    log_.resize(marks_.back());
    marks_.pop_back();
  }

  /// The named (not numbered) values that can be used here, for suggestions.
  std::vector<std::string_view> Names() const {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : named_) names.push_back(name);
    return names;
  }

 private:
  void Forget(const ValueName& name) {
    if (name.number == ValueName::kNamed) {
      named_.erase(name.text);
    } else {
      numbered_[name.number] = Value();
    }
  }

  std::vector<Value> numbered_;
  std::unordered_map<std::string_view, Value> named_;
  std::vector<ValueName> log_;  // what open regions define
  std::vector<size_t> marks_;
};

}  // namespace lathe
