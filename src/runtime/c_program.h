#pragma once

#include <memory>
#include <new>

#include "lathe/runtime.h"
#include "lathe/runtime/executor.h"
#include "lathe/support/error.h"

// What stands behind the types of lathe/runtime.h, for the other parts of the C interface.
namespace lathe::runtime {

// A program that runs on `executor`; to be given to lathe_program_free.
lathe_program* NewProgram(std::shared_ptr<const Executor> executor);
// Null for null.
const CancelToken* TokenOf(const lathe_cancel* cancel);

lathe_error* NewError(const Error& error);
// There when there is no memory for another one.
lathe_error* OutOfMemoryError();
// Throws run/argument.
void Expect(bool condition, const char* message);

// What `f` throws, as an error; nothing is thrown into C.
template <class F>
lathe_error* Guarded(F&& f) noexcept {
  try {
    try {
      f();
      return nullptr;
    } catch (const Error& error) {
      return NewError(error);
    } catch (const std::bad_alloc&) {
      return OutOfMemoryError();
    } catch (const std::exception& error) {
      return NewError(Error(ErrorCode::kInternal, "internal/exception", error.what()));
    }
  } catch (...) {
    return OutOfMemoryError();
  }
}

}  // namespace lathe::runtime
