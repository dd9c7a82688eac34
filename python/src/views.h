#pragma once

#include <functional>
#include <memory>

#include "lathe/ir/operation.h"
#include "lathe/support/error.h"
#include "python/src/model.h"

/// What Python holds of a program: its operations and values.
namespace lathe::python {

using Holder = std::shared_ptr<ProgramHolder>;

/// An item that stays what it is while this lives, which locks its program.
template <class T>
struct Reading {
  ReadLock lock;
  T item;
};

/// A piece of a program, valid until that is erased or the program's operations are replaced.
template <class T>
struct View {
  Holder holder;
  uint64_t version;        ///< of the program when this was looked up
  const Operation* owner;  ///< `item`, or what defines it; null: nothing
  T item;

  /// Needs the interpreter's lock, and that this thread does not change the program. Errors:
  /// program/changed, program/busy.
  Reading<T> get() const {
    ReadLock lock(*holder);
    return {std::move(lock), Locked()};
  }
  /// The same for who has locked the program.
  T Locked() const {
    const auto gone = holder->erased.find(owner);
    if (version >= holder->replaced && (gone == holder->erased.end() || gone->second <= version)) {
      return item;
    }
    throw Error(ErrorCode::kInvalidArgument, "program/changed",
                "the program was changed since this was looked up")
        .Hint("iterate over the program again");
  }
  bool operator==(const View& other) const {
    return holder == other.holder && version >= holder->replaced &&
           other.version >= holder->replaced && item == other.item;
  }
};
using OpView = View<Operation*>;
using ValueView = View<Value>;

/// Of what is looked up while the program is locked.
OpView ViewOf(const Holder& holder, Operation* op);
ValueView ViewOf(const Holder& holder, Value value);

/// Says that all operations are other ones now. Needs the lock for writing.
void Replaced(ProgramHolder& holder);

/// What `change` makes of a copy becomes the program; an error changes nothing. The caller has the
/// interpreter's lock, `change` does not. Errors: program/lent, of a program that is lent.
void ChangeCopy(const Holder& holder, const std::function<void(Program&)>& change);

/// `x + 1`, `x @ w`, ...
void BindArithmetic(nanobind::class_<ValueView>& value);

}  // namespace lathe::python
