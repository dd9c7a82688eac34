#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lathe::nn {

/// A regular expression in RE2 syntax (https://github.com/google/re2/wiki/Syntax) for matching
/// whole texts and finding longest matches. All alternatives run side by side, so a match takes
/// time proportional to the text times the size of the program, whatever the pattern.
///
/// Known: literals, . ^ $, classes with ranges, \d \w \s and POSIX names, | () (?:) (?P<n>)
/// (?flags), repetitions (lazy ones match the same, as nothing depends on preferences), \b \B \A
/// \z, \Q..\E, \x escapes. Unicode classes (\p) and \C are refused. Works on code points; bytes
/// that are no UTF-8 match nothing.
class Regex {
 public:
  /// Throws run/regex where the pattern is malformed, limit/regex where it is too large.
  explicit Regex(std::string_view pattern);

  [[nodiscard]] bool FullMatch(std::string_view text) const;

  struct Match {
    std::string_view text;
    size_t length;  ///< in code points
  };
  /// From left to right the longest matches that do not overlap, without empty ones. Takes time
  /// proportional to the text's square where long beginnings of matches lead to none.
  [[nodiscard]] std::vector<Match> FindAll(std::string_view text) const;

  /// Code points [first, last], sorted and disjoint.
  using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;

  struct Instruction {
    enum class Kind : uint8_t { kSet, kSplit, kAssert, kMatch };
    Kind kind;
    uint32_t next = 0;   ///< where to go on
    uint32_t other = 0;  ///< kSplit: the other way; kSet: index of the ranges; kAssert: which
  };
  enum Assertion : uint32_t { kTextBegin, kTextEnd, kLineBegin, kLineEnd, kWord, kNotWord };

 private:
  [[nodiscard]] std::optional<size_t> Longest(const std::vector<uint32_t>& points,
                                              size_t from) const;

  std::vector<Instruction> program_;
  std::vector<Ranges> sets_;
  uint32_t start_ = 0;
};

}  // namespace lathe::nn
