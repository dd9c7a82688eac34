#include <algorithm>
#include <map>
#include <unordered_map>

#include "lathe/pass/instrumentation.h"

namespace lathe {

namespace {

using Lines = std::vector<std::string_view>;

Lines SplitLines(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// ---- which line of `b` a line of `a` stays as ----

constexpr size_t kGone = SIZE_MAX;

/// Lines that stand once in `a` and once in `b`: pairs in order of `a`.
std::vector<std::pair<size_t, size_t>> UniquePairs(const Lines& a, const Lines& b) {
  struct Where {
    size_t in_a = 0, in_b = 0, at = 0;
  };
  std::unordered_map<std::string_view, Where> where;  // look-up only
  for (const std::string_view line : a) ++where[line].in_a;
  for (size_t j = 0; j < b.size(); ++j) {
    const auto found = where.find(b[j]);
    if (found == where.end()) continue;
    ++found->second.in_b;
    found->second.at = j;
  }
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t i = 0; i < a.size(); ++i) {
    const Where& w = where[a[i]];
    if (w.in_a == 1 && w.in_b == 1) pairs.emplace_back(i, w.at);
  }
  return pairs;
}

/// The longest run of pairs that rises on both sides: what has moved is not among them.
std::vector<std::pair<size_t, size_t>> Rising(const std::vector<std::pair<size_t, size_t>>& pairs) {
  std::vector<size_t> tails, before(pairs.size(), kGone);
  for (size_t k = 0; k < pairs.size(); ++k) {
    const auto at = std::lower_bound(tails.begin(), tails.end(), pairs[k].second,
                                     [&](size_t tail, size_t j) { return pairs[tail].second < j; });
    if (at != tails.begin()) before[k] = *(at - 1);
    if (at == tails.end()) {
      tails.push_back(k);
    } else {
      *at = k;
    }
  }
  std::vector<std::pair<size_t, size_t>> rising;
  for (size_t k = tails.empty() ? kGone : tails.back(); k != kGone; k = before[k]) {
    rising.push_back(pairs[k]);
  }
  std::reverse(rising.begin(), rising.end());
  return rising;
}

/// Near linear: lines that are unique on both sides are anchors, and equal lines around them stay.
std::vector<size_t> MatchLines(const Lines& a, const Lines& b) {
  std::vector<size_t> match(a.size(), kGone);
  size_t i = 0, j = 0;
  const auto fill = [&](size_t end_a, size_t end_b) {  // between two anchors
    while (i < end_a && j < end_b && a[i] == b[j]) match[i++] = j++;
    size_t k = end_a, l = end_b;
    while (k > i && l > j && a[k - 1] == b[l - 1]) match[--k] = --l;
  };
  for (const auto& [at, to] : Rising(UniquePairs(a, b))) {
    fill(at, to);
    match[at] = to;
    i = at + 1;
    j = to + 1;
  }
  fill(a.size(), b.size());
  return match;
}

// ---- the picture ----

struct DiffLine {
  char mark;
  std::string_view text;
};

std::string Render(const std::vector<DiffLine>& lines, size_t context) {
  std::vector<bool> shown(lines.size(), false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].mark == ' ') continue;
    const size_t end = std::min(lines.size(), i + context + 1);
    for (size_t k = i < context ? 0 : i - context; k < end; ++k) shown[k] = true;
  }
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (shown[i]) {
      out += StrCat(std::string(1, lines[i].mark), lines[i].text, "\n");
    } else if (i == 0 || shown[i - 1]) {
      out += "  ...\n";
    }
  }
  return out;
}

/// A line that stays and yet has another text is shown as it was and as it is, runs of such
/// lines together.
std::vector<DiffLine> Arrange(const Lines& a, const Lines& b, const std::vector<size_t>& match) {
  std::vector<DiffLine> lines, added;
  const auto flush = [&] {
    lines.insert(lines.end(), added.begin(), added.end());
    added.clear();
  };
  size_t j = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (match[i] == kGone) {
      lines.push_back({'-', a[i]});
      continue;
    }
    for (; j < match[i]; ++j) added.push_back({'+', b[j]});
    if (a[i] == b[j]) {
      flush();
      lines.push_back({' ', a[i]});
    } else {
      lines.push_back({'-', a[i]});
      added.push_back({'+', b[j]});
    }
    ++j;
  }
  for (; j < b.size(); ++j) added.push_back({'+', b[j]});
  flush();
  return lines;
}

// ---- names of values ----

bool InName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Calls `name(text)` for each value name of a line and `rest(text)` for what is between; strings
/// hold no names.
template <class Name, class Rest>
void ForEachName(std::string_view line, const Name& name, const Rest& rest) {
  size_t begin = 0;
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (quoted && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == '%' && !quoted) {
      size_t end = i + 1;
      while (end < line.size() && InName(line[end])) ++end;
      rest(line.substr(begin, i - begin));
      name(line.substr(i, end - i));
      begin = end;
      i = end - 1;
    }
  }
  rest(line.substr(begin));
}

std::vector<std::string> WithoutNames(const Lines& lines) {
  std::vector<std::string> keys;
  for (const std::string_view line : lines) {
    std::string& key = keys.emplace_back();
    ForEachName(
        line, [&](std::string_view) { key += '%'; }, [&](std::string_view text) { key += text; });
  }
  return keys;
}

/// Names that the line gives: results, or arguments of a block.
std::vector<std::string_view> Defined(std::string_view line) {
  const size_t start = line.find_first_not_of(' ');
  if (start == std::string_view::npos) return {};
  std::string_view defining;
  if (line[start] == '^') defining = line;
  if (line[start] == '%') defining = line.substr(0, line.find(" = "));
  std::vector<std::string_view> names;
  ForEachName(
      defining, [&](std::string_view name) { names.push_back(name); }, [](std::string_view) {});
  return names;
}

/// The lines of `b` with the names that their values have in `a`; new values get numbers that no
/// value of `a` has.
std::vector<std::string> Renamed(const Lines& a, const Lines& b, const std::vector<size_t>& match) {
  std::unordered_map<std::string_view, std::string> names;  // look-up only
  size_t values = 0;
  for (const std::string_view line : a) values += Defined(line).size();
  for (size_t i = 0; i < a.size(); ++i) {
    if (match[i] == kGone) continue;
    const auto old = Defined(a[i]), now = Defined(b[match[i]]);
    for (size_t k = 0; k < std::min(old.size(), now.size()); ++k) names.emplace(now[k], old[k]);
  }
  for (const std::string_view line : b) {
    for (const std::string_view name : Defined(line)) {
      if (names.emplace(name, StrCat("%", values)).second) ++values;
    }
  }
  std::vector<std::string> renamed;
  for (const std::string_view line : b) {
    std::string& text = renamed.emplace_back();
    ForEachName(
        line,
        [&](std::string_view name) {
          const auto at = names.find(name);
          text += at == names.end() ? std::string(name) : at->second;
        },
        [&](std::string_view rest) { text += rest; });
  }
  return renamed;
}

}  // namespace

std::string DiffLines(std::string_view before, std::string_view after, size_t context) {
  const Lines a = SplitLines(before), b = SplitLines(after);
  return Render(Arrange(a, b, MatchLines(a, b)), context);
}

std::string DiffPrograms(const PrintedProgram& before, const PrintedProgram& after,
                         size_t context) {
  const Lines a = SplitLines(before.text), b = SplitLines(after.text);
  const auto keys_a = WithoutNames(SplitLines(before.located));
  const auto keys_b = WithoutNames(SplitLines(after.located));
  const auto match =
      MatchLines(Lines(keys_a.begin(), keys_a.end()), Lines(keys_b.begin(), keys_b.end()));
  const std::vector<std::string> renamed = Renamed(a, b, match);
  return Render(Arrange(a, Lines(renamed.begin(), renamed.end()), match), context);
}

}  // namespace lathe
