#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lathe {

/// Whether `name` matches: `*` stands for any characters, `?` for one, all others for themselves.
bool MatchesPattern(std::string_view name, std::string_view pattern);

/// Whether any pattern matches.
bool MatchesAny(std::string_view name, const std::vector<std::string>& patterns);

/// Throws `id` unless each pattern matches one of `names`, which are `what` ("parameter with a
/// gradient"); the nearest names are suggested.
void CheckPatterns(const std::vector<std::string>& patterns, const std::vector<std::string>& names,
                   const char* id, std::string_view what);

}  // namespace lathe
