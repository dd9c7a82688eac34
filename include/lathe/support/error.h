#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/support/text.h"

namespace lathe {

enum class ErrorCode : uint8_t {
  kInvalidArgument,
  kNotFound,
  kUnsupported,
  kParse,
  kVerify,
  kShape,
  kType,
  kIo,
  kLimit,
  kInternal,
};

// "invalid-argument", "not-found", ...
[[nodiscard]] std::string_view Name(ErrorCode code);

struct Note {
  std::string text;
};

// What a user did wrong and how to put it right; kInternal is the one code that means a bug of
// ours. `id` is stable and looks like "shape/conv-groups". Built fluently:
//
//   throw Error(ErrorCode::kNotFound, "io/open", "no such file").At(path).Hint("...");
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string id, std::string message);

  // Where: a file, a line, a node. Notes are shown one per line, in order. A hint says what to do.
  Error& At(std::string where) &;
  Error&& At(std::string where) &&;
  Error& Note(std::string text) &;
  Error&& Note(std::string text) &&;
  Error& Hint(std::string text) &;
  Error&& Hint(std::string text) &&;

  [[nodiscard]] ErrorCode code() const { return code_; }
  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const std::vector<lathe::Note>& notes() const { return notes_; }
  [[nodiscard]] const std::vector<std::string>& hints() const { return hints_; }
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

  // The text for a person, ending in a newline; at most 20 of `others` are shown.
  [[nodiscard]] std::string Render(bool color = false) const;

  // Further errors found in the same go; this one is the first.
  std::vector<Error> others;

 private:
  void RenderOne(std::string& out, bool color) const;

  ErrorCode code_;
  std::string id_;
  std::string message_;
  std::string where_;
  std::vector<lathe::Note> notes_;
  std::vector<std::string> hints_;
};

// Up to three of `candidates` that `name` may be a misspelling of, nearest first, ties in the order
// given; case does not count.
[[nodiscard]] std::vector<std::string> Nearest(std::string_view name,
                                               std::span<const std::string> candidates);
[[nodiscard]] std::vector<std::string> Nearest(std::string_view name,
                                               std::span<const std::string_view> candidates);

// "did you mean 'conv2d' or 'conv3d'?", or the empty string when nothing is near.
[[nodiscard]] std::string DidYouMean(std::string_view name,
                                     std::span<const std::string> candidates);
[[nodiscard]] std::string DidYouMean(std::string_view name,
                                     std::span<const std::string_view> candidates);

namespace internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message = {});
}  // namespace internal

}  // namespace lathe

// An invariant of our own: throws Error kInternal "internal/check" when it does not hold. The
// message is any sequence of StrCat arguments, evaluated only on failure.
#define LATHE_CHECK(condition, ...)                                                          \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::lathe::internal::CheckFailed(__FILE__, __LINE__,                                     \
                                     #condition __VA_OPT__(, ::lathe::StrCat(__VA_ARGS__))); \
  } while (false)
