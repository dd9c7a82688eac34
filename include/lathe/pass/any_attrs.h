#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/ir/type_id.h"
#include "lathe/support/error.h"

namespace lathe {

/// Named values of any C++ type, owned or borrowed: the attributes of passes and graphs. A wrong
/// type is an error that names both. Names are kept in order.
class AnyAttrs {
 public:
  explicit AnyAttrs(std::string owner) : owner_(std::move(owner)) {}

  bool Has(std::string_view name) const { return slots_.find(name) != slots_.end(); }

  /// Takes ownership of `value`. A taken name is an error, unless it holds a default.
  template <class T>
  void Set(std::string_view name, std::unique_ptr<T> value) {
    Put(name,
        Slot{std::shared_ptr<void>(std::move(value)), TypeId::Get<T>(), TypeName<T>(), false});
  }
  template <class T>
  void Set(std::string_view name, T value) {
    Set<T>(name, std::make_unique<T>(std::move(value)));
  }
  /// Borrows `value`, which must outlive this.
  template <class T>
  void SetNotOwned(std::string_view name, T* value) {
    Put(name, Slot{std::shared_ptr<void>(std::shared_ptr<void>(), value), TypeId::Get<T>(),
                   TypeName<T>(), false});
  }
  /// A value that `Set` may replace.
  template <class T>
  void SetDefault(std::string_view name, T value) {
    Put(name, Slot{std::make_shared<T>(std::move(value)), TypeId::Get<T>(), TypeName<T>(), true});
  }
  /// An absent name or another type is an error.
  template <class T>
  T& Get(std::string_view name) const {
    return *static_cast<T*>(Find(name, TypeId::Get<T>(), TypeName<T>()).value.get());
  }
  template <class T>
  T& GetOrInit(std::string_view name) {
    if (!Has(name)) Set<T>(name, T());
    return Get<T>(name);
  }
  /// An absent name is an error.
  void Erase(std::string_view name);
  /// The value, moved out when this held the only reference, else copied; always erases the name.
  template <class T>
  T MoveCopyAttr(std::string_view name) {
    std::shared_ptr<void> value = Find(name, TypeId::Get<T>(), TypeName<T>()).value;
    Erase(name);
    T& held = *static_cast<T*>(value.get());
    return value.use_count() == 1 ? T(std::move(held)) : T(held);
  }
  std::vector<std::string> Names() const;

 private:
  struct Slot {
    std::shared_ptr<void> value;  ///< a borrowed value has use_count 0
    TypeId type;
    std::string_view type_name;
    bool is_default;
  };
  /// The name of `T` as the compiler spells it.
  template <class T>
  static std::string_view TypeName() {
    const std::string_view text = __PRETTY_FUNCTION__;
    const size_t begin = text.find("T = ") + 4;
    return text.substr(begin, text.find_first_of(";]", begin) - begin);
  }
  void Put(std::string_view name, Slot slot);
  const Slot& Find(std::string_view name, TypeId type, std::string_view type_name) const;

  std::string owner_;  ///< for messages: "pass 'fuse'", "graph"
  std::map<std::string, Slot, std::less<>> slots_;
};

}  // namespace lathe
