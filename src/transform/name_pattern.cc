#include "src/transform/name_pattern.h"

#include <algorithm>

#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe {

namespace {

/// The first few.
std::string Listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string text = "there is";
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    text += StrCat(i == 0 ? " '" : ", '", names[i], "'");
  }
  if (names.size() > kMost) text += ", ...";
  return names.empty() ? "there is none" : text;
}

}  // namespace

bool MatchesPattern(std::string_view name, std::string_view pattern) {
  size_t n = 0, p = 0;
  size_t star = std::string_view::npos, resume = 0;  // the last star, and where it ends next
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool MatchesAny(std::string_view name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& p) { return MatchesPattern(name, p); });
}

void CheckPatterns(const std::vector<std::string>& patterns, const std::vector<std::string>& names,
                   const char* id, std::string_view what) {
  for (const std::string& pattern : patterns) {
    if (std::any_of(names.begin(), names.end(),
                    [&](const std::string& n) { return MatchesPattern(n, pattern); })) {
      continue;
    }
    const std::string near = DidYouMean(pattern, names);
    throw Error(ErrorCode::kNotFound, id, StrCat("there is no ", what, " '", pattern, "'"))
        .Hint(near.empty() ? Listed(names) : near);
  }
}

}  // namespace lathe
