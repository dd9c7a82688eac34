#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lathe {

// Names, strings and documentation of a model are somebody else's: written to a terminal as they
// are, an escape sequence in them sets its title, hides text or types commands. Everything that is
// written for a person goes through one of these.

// True for what changes how the text around it is shown: control characters (C0, DEL, C1), line and
// paragraph separators, and controls of the writing direction (UAX #9).
[[nodiscard]] bool IsControl(uint32_t code_point);

// `text` with controls other than '\n' and '\t', and bytes that are not UTF-8, as \XX for each byte
// (two hex digits, as in the text form). Twice gives the same as once.
[[nodiscard]] std::string Printable(std::string_view text);
// The same for a name that stands in a line: '\n' and '\t' are escaped, too.
[[nodiscard]] std::string PrintableLine(std::string_view text);

// JSON with the controls inside of its strings as \uXXXX. For what is valid UTF-8.
[[nodiscard]] std::string PrintableJson(std::string_view json);

// A document of nlohmann::json as text, so escaped; bytes that are not UTF-8 become U+FFFD. Lines
// are indented by `indent`; -1: one line.
template <class Json>
[[nodiscard]] std::string JsonText(const Json& document, int indent = -1) {
  return PrintableJson(document.dump(indent, ' ', false, Json::error_handler_t::replace));
}

}  // namespace lathe
