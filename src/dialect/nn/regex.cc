#include "src/dialect/nn/regex.h"

#include <re2/re2.h>

#include <algorithm>

#include "lathe/support/error.h"

namespace lathe::nn {
namespace {

using re2::RE2;
using re2::StringPiece;

RE2::Options Options() {
  RE2::Options options;
  options.set_longest_match(true);
  options.set_log_errors(false);
  return options;
}

// In UTF-8 a code point begins with any other byte.
bool Continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

Regex::Regex(std::string_view pattern)
    : compiled_(std::make_unique<RE2>(StringPiece(pattern.data(), pattern.size()), Options())) {
  if (compiled_->ok()) return;
  if (compiled_->error_code() == RE2::ErrorPatternTooLarge) {
    throw Error(ErrorCode::kLimit, "limit/regex", "the pattern is too large")
        .Hint("use smaller repetition counts");
  }
  throw Error(ErrorCode::kInvalidArgument, "run/regex",
              StrCat("pattern ", Quote(pattern), ": ", compiled_->error()))
      .Hint("patterns follow https://github.com/google/re2/wiki/Syntax");
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

bool Regex::FullMatch(std::string_view text) const {
  return RE2::FullMatch(StringPiece(text.data(), text.size()), *compiled_);
}

std::vector<Regex::Match> Regex::FindAll(std::string_view text) const {
  const StringPiece all(text.data(), text.size());
  std::vector<Match> found;
  StringPiece match;
  for (size_t at = 0; at < text.size();) {
    if (!compiled_->Match(all, at, text.size(), RE2::UNANCHORED, &match, 1)) break;
    at = static_cast<size_t>(match.data() - text.data()) + match.size();
    if (!match.empty()) {
      const auto length =
          match.size() - static_cast<size_t>(std::ranges::count_if(match, Continues));
      found.push_back({{match.data(), match.size()}, length});
      continue;
    }
    do {  // none begins with this code point
      ++at;
    } while (at < text.size() && Continues(text[at]));
  }
  return found;
}

}  // namespace lathe::nn
