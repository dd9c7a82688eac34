#include "lathe/support/printable.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe {
namespace {

constexpr const char* kTitle = "\x1b]0;pwned\x07";

bool IsHarmless(std::string_view text) {
  for (std::string_view rest = text; !rest.empty();) {
    const size_t length = Utf8SequenceLength(rest);
    const uint32_t code = DecodeUtf8(rest);
    if (length == 0 || (IsControl(code) && code != '\n' && code != '\t')) return false;
    rest.remove_prefix(length);
  }
  return true;
}

// Every byte, every code point up to U+3000, and every truncation of a sequence.
std::string Everything() {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  for (uint32_t c = 0; c < 0x3000; ++c) AppendUtf8(all, c);
  return all + "\xF0\x9F\x98\xF0\x9F\xE2\x80";
}

TEST(PrintableTest, EscapesControls) {
  EXPECT_EQ(Printable(kTitle), "\\1B]0;pwned\\07");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\00b");
  EXPECT_EQ(Printable("\x7f\xC2\x9B"), "\\7F\\C2\\9B");  // DEL, and CSI of C1
  EXPECT_EQ(Printable("\xE2\x80\xAE"
                      "exe"),
            "\\E2\\80\\AE"
            "exe");
  EXPECT_EQ(Printable("\xFF\xE2\x80"), "\\FF\\E2\\80");
}

TEST(PrintableTest, KeepsText) {
  const std::string text = "lines\nand\ttabs, C:\\1B, äöü, \xE2\x82\xAC, \xF0\x9F\x98\x80";
  EXPECT_EQ(Printable(text), text);
  EXPECT_EQ(PrintableLine("a\nb\tc"), "a\\0Ab\\09c");
}

TEST(PrintableTest, NothingGetsThrough) {
  const std::string all = Everything();
  EXPECT_FALSE(IsHarmless(all));
  EXPECT_TRUE(IsHarmless(Printable(all)));
  EXPECT_TRUE(IsHarmless(Quote(all)));
  EXPECT_EQ(Printable(Printable(all)), Printable(all));
  const std::string line = PrintableLine(all);
  EXPECT_EQ(line.find_first_of("\n\t"), std::string::npos);
}

TEST(PrintableTest, QuotedTextReadsBack) {
  const std::string all = Everything();
  const std::string quoted = Quote(all);
  EXPECT_EQ(Unescape(std::string_view(quoted).substr(1, quoted.size() - 2)), all);
}

TEST(PrintableTest, JsonStaysJson) {
  std::string valid;
  for (uint32_t c = 0; c < 0x3000; ++c) AppendUtf8(valid, c);
  const nlohmann::json document = {{"name", valid}, {kTitle, {1, 2}}};
  for (const int indent : {-1, 2}) {
    const std::string text = JsonText(document, indent);
    EXPECT_TRUE(IsHarmless(text));
    EXPECT_EQ(nlohmann::json::parse(text), document);
  }
  EXPECT_NO_THROW(EXPECT_TRUE(IsHarmless(JsonText(nlohmann::json("\xFF\x1b")))));
}

TEST(PrintableTest, ErrorsAreHarmless) {
  const Error error = Error(ErrorCode::kParse, "a/b", kTitle).At(kTitle).Note(kTitle).Hint(kTitle);
  EXPECT_STREQ(error.what(), "\\1B]0;pwned\\07");
  EXPECT_TRUE(IsHarmless(error.Render()));
  EXPECT_EQ(error.where() + error.notes()[0].text + error.hints()[0],
            StrCat(error.what(), error.what(), error.what()));
}

}  // namespace
}  // namespace lathe
