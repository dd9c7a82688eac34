#include "src/dialect/nn/regex.h"

#include <re2/re2.h>

#include <algorithm>

#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe::nn {

namespace {

re2::RE2::Options Options() {
  re2::RE2::Options options;
  options.set_longest_match(true);
  options.set_log_errors(false);
  return options;
}

re2::StringPiece Piece(std::string_view text) { return {text.data(), text.size()}; }

bool BeginsCodePoint(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

}  // namespace

Regex::Regex(std::string_view pattern)
    : compiled_(std::make_unique<re2::RE2>(Piece(pattern), Options())) {
  if (compiled_->ok()) return;
  const bool is_large = compiled_->error_code() == re2::RE2::ErrorPatternTooLarge;
  throw Error(is_large ? ErrorCode::kLimit : ErrorCode::kInvalidArgument,
              is_large ? "limit/regex" : "run/regex",
              StrCat("regular expression '", pattern.substr(0, 100), "': ", compiled_->error()));
}

Regex::~Regex() = default;

bool Regex::FullMatch(std::string_view text) const {
  return compiled_->Match(Piece(text), 0, text.size(), re2::RE2::ANCHOR_BOTH, nullptr, 0);
}

std::vector<Regex::Match> Regex::FindAll(std::string_view text) const {
  std::vector<Match> found;
  re2::StringPiece match;
  for (size_t at = 0;
       compiled_->Match(Piece(text), at, text.size(), re2::RE2::UNANCHORED, &match, 1);) {
    const size_t begin = static_cast<size_t>(match.data() - text.data());
    at = begin + match.size();
    if (match.empty()) {  // goes on behind the next code point
      if (at == text.size()) break;
      ++at;
      while (at < text.size() && !BeginsCodePoint(text[at])) ++at;
      continue;
    }
    const std::string_view taken = text.substr(begin, match.size());
    found.push_back({taken, static_cast<size_t>(std::ranges::count_if(taken, BeginsCodePoint))});
  }
  return found;
}

}  // namespace lathe::nn
