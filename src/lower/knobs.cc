#include <algorithm>

#include "lathe/lower/lowering.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe::lower {

Knobs Knobs::Parse(std::string_view text) {
  Knobs knobs;
  const auto fail = [&]() -> Error {
    return Error(ErrorCode::kParse, "tune/knobs",
                 StrCat("knobs look like {rows=6,vectors=2}, not '", text, "'"));
  };
  if (text.empty()) return knobs;
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') throw fail();
  std::string_view rest = text.substr(1, text.size() - 2);
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) throw fail();
    const auto value = ParseInt(entry.substr(equals + 1));
    if (!value) throw fail();
    knobs.Set(entry.substr(0, equals), *value);
  }
  return knobs;
}

int64_t Knobs::Choose(std::string_view name, std::vector<int64_t> values) {
  LATHE_CHECK(!values.empty(), "knob ", name, " has no values");
  const auto at = set_.find(name);
  const bool is_set = at != set_.end() && std::ranges::count(values, at->second) > 0;
  const int64_t taken = is_set ? at->second : values.front();
  choices_.push_back({std::string(name), taken, std::move(values)});
  return taken;
}

int64_t Knobs::Choose(std::string_view name, int64_t preferred, std::span<const int64_t> others) {
  std::vector<int64_t> values{preferred};
  for (const int64_t v : others) {
    if (std::ranges::count(values, v) == 0) values.push_back(v);
  }
  return Choose(name, std::move(values));
}

std::vector<std::string> Knobs::Unused() const {
  std::vector<std::string> unused;
  for (const auto& [name, value] : set_) {
    const bool taken = std::ranges::any_of(
        choices_, [&](const KnobChoice& c) { return c.name == name && c.taken == value; });
    if (!taken) unused.push_back(StrCat(name, "=", value));
  }
  return unused;
}

std::string Knobs::Text(const std::function<bool(const std::string&, int64_t)>& shown) const {
  std::string text;
  for (const auto& [name, value] : set_) {
    if (shown(name, value)) text += StrCat(text.empty() ? "{" : ",", name, "=", value);
  }
  return text.empty() ? text : text + "}";
}

std::string Knobs::ToString() const {
  return Text([](const std::string&, int64_t) { return true; });
}

std::string Knobs::TakenText() const {
  return Text([&](const std::string& name, int64_t value) {
    return std::ranges::any_of(
        choices_, [&](const KnobChoice& c) { return c.name == name && c.taken == value; });
  });
}

}  // namespace lathe::lower
