#pragma once

#include <memory>
#include <string_view>
#include <vector>

namespace re2 {
class RE2;
}

namespace lathe::nn {

/// A regular expression of RE2 (https://github.com/google/re2/wiki/Syntax) that matches whole texts
/// and finds longest matches, in time linear in the text. Works on code points; bytes that are not
/// UTF-8 match nothing.
class Regex {
 public:
  /// Throws run/regex where the pattern is malformed, limit/regex where it is too large.
  explicit Regex(std::string_view pattern);
  ~Regex();

  [[nodiscard]] bool FullMatch(std::string_view text) const;

  struct Match {
    std::string_view text;
    size_t length;  ///< in code points
  };
  /// From left to right the longest matches that do not overlap, without empty ones.
  [[nodiscard]] std::vector<Match> FindAll(std::string_view text) const;

 private:
  std::unique_ptr<const re2::RE2> compiled_;
};

}  // namespace lathe::nn
