#include "lathe/support/error.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lathe/support/printable.h"

namespace lathe {
namespace {

constexpr size_t kMaxOthers = 20;

struct Colors {
  std::string_view red, bold, blue, green, reset;
};
constexpr Colors kPlain = {};
constexpr Colors kAnsi = {"\x1b[1;31m", "\x1b[1m", "\x1b[1;34m", "\x1b[1;32m", "\x1b[0m"};

// A line of a message ends on a screen; a name in it may be megabytes of someone's making.
constexpr size_t kMaxLine = 4000;
constexpr size_t kTail = 500;

void AppendClipped(std::string& out, std::string_view line) {
  if (line.size() <= kMaxLine) {
    out += line;
    return;
  }
  const auto whole = [&](size_t at) {  // not within a UTF-8 sequence
    while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80) ++at;
    return at;
  };
  out += line.substr(0, whole(kMaxLine - kTail));
  out += " ... ";
  out += line.substr(whole(line.size() - kTail));
}

// `text` line by line: `first` before the first line, `rest` before the others.
void AppendLines(std::string& out, std::string_view text, std::string_view first,
                 std::string_view rest) {
  std::string_view prefix = first;
  while (true) {
    const size_t end = text.find('\n');
    out += prefix;
    AppendClipped(out, text.substr(0, end));
    out += '\n';
    if (end == std::string_view::npos || end + 1 == text.size()) return;
    text.remove_prefix(end + 1);
    prefix = rest;
  }
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = Lower(c);
  return out;
}

// Insertions, deletions, substitutions and swaps of neighbors ("optimal string alignment").
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitute});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

constexpr size_t kFar = ~size_t{0};

// How far `candidate` is from `name`, both lower case; kFar when nobody would mean it.
size_t Distance(const std::string& name, const std::string& candidate) {
  constexpr size_t kMaxLength = 200;
  if (name.size() > kMaxLength || candidate.size() > kMaxLength) return kFar;
  const size_t limit = std::max<size_t>(1, std::max(name.size(), candidate.size()) / 3);
  const size_t shorter = std::min(name.size(), candidate.size());
  const size_t difference = std::max(name.size(), candidate.size()) - shorter;
  const bool prefix = shorter >= 3 && name.compare(0, shorter, candidate, 0, shorter) == 0;
  if (difference <= limit) {
    const size_t distance = EditDistance(name, candidate);
    if (distance <= limit && distance < candidate.size()) return distance;
  }
  return prefix ? limit + difference : kFar;
}

template <class String>
std::vector<std::string> NearestOf(std::string_view name, std::span<const String> candidates) {
  std::vector<std::pair<size_t, size_t>> ranked;
  const std::string wanted = Lower(name);
  for (size_t i = 0; i < candidates.size(); ++i) {
    const size_t distance = Distance(wanted, Lower(candidates[i]));
    if (distance != kFar) ranked.emplace_back(distance, i);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> result;
  for (const auto& [distance, index] : ranked) {
    std::string text(candidates[index]);
    if (std::find(result.begin(), result.end(), text) == result.end()) {
      result.push_back(std::move(text));
    }
    if (result.size() == 3) break;
  }
  return result;
}

std::string Question(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string out = "did you mean ";
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += i + 1 == names.size() ? " or " : ", ";
    out += StrCat("'", names[i], "'");
  }
  return out + "?";
}

// Without the folders of the machine that compiled us.
std::string_view ShortPath(std::string_view file) {
  for (const std::string_view folder : {"/include/lathe/", "/src/", "/tools/", "/test/"}) {
    const size_t at = file.rfind(folder);
    if (at != std::string_view::npos) return file.substr(at + 1);
  }
  return file;
}

}  // namespace

std::string_view Name(ErrorCode code) {
  constexpr std::array<std::string_view, 10> kNames = {"invalid-argument",
                                                       "not-found",
                                                       "unsupported",
                                                       "parse",
                                                       "verify",
                                                       "shape",
                                                       "type",
                                                       "io",
                                                       "limit",
                                                       "internal"};
  const auto index = static_cast<size_t>(code);
  return index < kNames.size() ? kNames[index] : "unknown";
}

// What a message quotes is somebody else's; from here on it is harmless on a terminal.
Error::Error(ErrorCode code, std::string id, std::string message)
    : code_(code), id_(std::move(id)), message_(Printable(message)) {}

Error& Error::At(std::string where) & {
  where_ = Printable(where);
  return *this;
}
Error&& Error::At(std::string where) && { return std::move(At(std::move(where))); }

Error& Error::Note(std::string text) & {
  notes_.push_back({Printable(text)});
  return *this;
}
Error&& Error::Note(std::string text) && { return std::move(Note(std::move(text))); }

Error& Error::Hint(std::string text) & {
  if (!text.empty()) hints_.push_back(Printable(text));  // nothing was near
  return *this;
}
Error&& Error::Hint(std::string text) && { return std::move(Hint(std::move(text))); }

void Error::RenderOne(std::string& out, bool color) const {
  const Colors& c = color ? kAnsi : kPlain;
  const std::string bar = StrCat(c.blue, "   |", c.reset, "  ");
  AppendLines(out, StrCat(c.red, "error[", id_, "]", c.reset, c.bold, ": ", message_, c.reset), "",
              bar);
  if (!where_.empty()) AppendLines(out, where_, StrCat(c.blue, "  -->", c.reset, " "), bar);
  for (const auto& note : notes_) AppendLines(out, note.text, bar, bar);
  for (const auto& hint : hints_) {
    AppendLines(out, hint, StrCat(c.green, "   = help:", c.reset, " "), "           ");
  }
}

std::string Error::Render(bool color) const {
  std::string out;
  RenderOne(out, color);
  const size_t shown = std::min(others.size(), kMaxOthers);
  for (size_t i = 0; i < shown; ++i) others[i].RenderOne(out, color);
  if (others.size() > shown) {
    out += StrCat("and ", others.size() - shown, " more errors\n");
  }
  return out;
}

std::vector<std::string> Nearest(std::string_view name, std::span<const std::string> candidates) {
  return NearestOf(name, candidates);
}
std::vector<std::string> Nearest(std::string_view name,
                                 std::span<const std::string_view> candidates) {
  return NearestOf(name, candidates);
}
std::string DidYouMean(std::string_view name, std::span<const std::string> candidates) {
  return Question(NearestOf(name, candidates));
}
std::string DidYouMean(std::string_view name, std::span<const std::string_view> candidates) {
  return Question(NearestOf(name, candidates));
}

namespace internal {

void CheckFailed(const char* file, int line, const char* condition, std::string_view message) {
  std::string text = StrCat("internal error: ", condition, " does not hold");
  if (!message.empty()) text += StrCat(": ", message);
  throw Error(ErrorCode::kInternal, "internal/check", std::move(text))
      .At(StrCat(ShortPath(file), ":", line))
      .Hint("this is a bug in Lathe: please report it with the command and the model");
}

}  // namespace internal
}  // namespace lathe
