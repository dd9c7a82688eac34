#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
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
std::shared_ptr<WorkerTeam> TeamOf(const lathe_thread_pool* pool);
// Empty for null.
decltype(ExecutorOptions::allocate) AllocateBy(const lathe_allocator* allocator);

lathe_error* NewError(const Error& error);
// There when there is no memory for another one.
lathe_error* OutOfMemoryError();
// Throws run/argument.
void Expect(bool condition, const char* message);

// The options of a caller that was compiled with the first `least` bytes of them or more; what it
// does not know of, and all of NULL, is zero.
template <class Options>
Options Complete(const Options* given, size_t least, const char* unset) {
  Options options{};
  if (given == nullptr) return options;
  Expect(given->size >= least, unset);
  std::memcpy(&options, given, std::min(given->size, sizeof(options)));
  return options;
}

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
