#include "lathe/support/printable.h"

#include <algorithm>
#include <cstdio>

#include "lathe/support/text.h"

namespace lathe {
namespace {

bool IsPlain(char c) { return c >= 0x20 && c < 0x7F; }

// Appends `text`; `escape` writes the sequences that are controls or not UTF-8 (length 0).
template <class Keep, class Escape>
std::string EscapeControls(std::string_view text, Keep&& keep, Escape&& escape) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto plain =
        std::find_if_not(text.begin(), text.end(), [&](char c) { return IsPlain(c) || keep(c); });
    const auto count = static_cast<size_t>(plain - text.begin());
    out += text.substr(0, count);
    text.remove_prefix(count);
    if (text.empty()) break;
    const size_t length = Utf8SequenceLength(text);
    const std::string_view sequence = text.substr(0, std::max<size_t>(length, 1));
    if (length > 1 && !IsControl(DecodeUtf8(sequence))) {
      out += sequence;
    } else {
      escape(out, sequence, length != 0);
    }
    text.remove_prefix(sequence.size());
  }
  return out;
}

void AppendBytes(std::string& out, std::string_view sequence, bool) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (const char c : sequence) {
    const auto byte = static_cast<unsigned char>(c);
    out += '\\';
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
}

void AppendJsonEscape(std::string& out, std::string_view sequence, bool valid) {
  char text[8];
  const uint32_t code = valid ? DecodeUtf8(sequence) : 0xFFFD;  // all controls have four digits
  std::snprintf(text, sizeof(text), "\\u%04x", static_cast<unsigned>(code & 0xFFFF));
  out += text;
}

bool IsLineBreakOrTab(char c) { return c == '\n' || c == '\t'; }

}  // namespace

bool IsControl(uint32_t c) {
  const auto within = [c](uint32_t first, uint32_t last) { return c >= first && c <= last; };
  return c < 0x20 || within(0x7F, 0x9F) || c == 0x61C || within(0x200E, 0x200F) ||
         within(0x2028, 0x202E) || within(0x2066, 0x2069);
}

std::string Printable(std::string_view text) {
  return EscapeControls(text, IsLineBreakOrTab, AppendBytes);
}

std::string PrintableLine(std::string_view text) {
  return EscapeControls(text, [](char) { return false; }, AppendBytes);
}

std::string PrintableJson(std::string_view json) {
  return EscapeControls(json, IsLineBreakOrTab, AppendJsonEscape);
}

}  // namespace lathe
