#include "lathe/support/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "lathe/support/random.h"

namespace lathe {
namespace {

std::string D(double value) {
  std::string out;
  AppendDouble(out, value);
  return out;
}

TEST(TextTest, DoublesLookLikeFloats) {
  EXPECT_EQ(D(1), "1.0");
  EXPECT_EQ(D(-0.0), "-0.0");
  EXPECT_EQ(D(0.1), "0.1");
  EXPECT_EQ(D(1e30), "1e+30");
  EXPECT_EQ(D(INFINITY), "inf");
  EXPECT_EQ(D(-INFINITY), "-inf");
  EXPECT_EQ(D(NAN), "nan");
  EXPECT_EQ(D(-NAN), "nan");
  std::string f;
  AppendFloat(f, 0.1F);
  EXPECT_EQ(f, "0.1");
}

TEST(TextTest, DoublesRoundTrip) {
  RandomStream random(1);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<double>(random.NextU64());
    if (std::isnan(value)) continue;
    const auto back = ParseDouble(D(value));
    ASSERT_TRUE(back.has_value()) << D(value);
    ASSERT_EQ(std::bit_cast<uint64_t>(*back), std::bit_cast<uint64_t>(value)) << D(value);
  }
}

TEST(TextTest, ParseDouble) {
  EXPECT_EQ(ParseDouble("+1.5"), 1.5);
  EXPECT_EQ(ParseDouble("1e400"), INFINITY);
  EXPECT_EQ(ParseDouble("-1e400"), -INFINITY);
  EXPECT_EQ(ParseDouble("1e-400"), 0.0);
  EXPECT_EQ(ParseDouble("INF"), INFINITY);
  EXPECT_EQ(ParseDouble("+inf"), INFINITY);
  EXPECT_TRUE(std::isnan(*ParseDouble("NaN")));
  for (const char* bad : {"", "+", "-", "1.5x", " 1", "1 ", "0x10", "nan(1)", "+-1", "e5", "1e"}) {
    EXPECT_EQ(ParseDouble(bad), std::nullopt) << bad;
  }
}

TEST(TextTest, ParseInt) {
  EXPECT_EQ(ParseInt("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ParseInt("+7"), 7);
  EXPECT_EQ(ParseUint("18446744073709551615"), std::numeric_limits<uint64_t>::max());
  for (const char* bad : {"", "-", "+-1", "1.", "9223372036854775808", "0x1", " 1"}) {
    EXPECT_EQ(ParseInt(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(ParseUint("-1"), std::nullopt);
}

TEST(TextTest, QuotedStringsRoundTrip) {
  EXPECT_EQ(Quote("a\"b\\\n\x01"), R"("a\"b\\\n\01")");
  EXPECT_EQ(Quote("grün"), "\"grün\"");
  EXPECT_EQ(Quote("\xff"), R"("\FF")");
  RandomStream random(2);
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (int64_t n = random.Int(0, 12); n > 0; --n) text += static_cast<char>(random.Int(0, 255));
    const std::string quoted = Quote(text);
    EXPECT_TRUE(IsValidUtf8(quoted));
    ASSERT_EQ(Unescape(std::string_view(quoted).substr(1, quoted.size() - 2)), text) << quoted;
  }
  for (const char* bad : {"\\", "\\q", "\\0", "\\0g"})
    EXPECT_EQ(Unescape(bad), std::nullopt) << bad;
}

TEST(TextTest, Utf8) {
  for (const char* good : {"", "a", "ü", "€", "𝄞", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsValidUtf8(good)) << good;
  }
  // A lone continuation, overlong forms, a surrogate, beyond 10FFFF, cut off.
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "a\xFF"}) {
    EXPECT_FALSE(IsValidUtf8(bad));
  }
  for (uint32_t code = 0; code <= 0x10FFFF; code += 7) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    AppendUtf8(text, code);
    ASSERT_EQ(Utf8SequenceLength(text), text.size());
    ASSERT_EQ(DecodeUtf8(text), code);
  }
}

TEST(TextTest, BareIdentifiers) {
  for (const char* good : {"a", "_x9", "layer1.0-conv", "A$b"}) EXPECT_TRUE(IsBareIdentifier(good));
  for (const char* bad : {"", "1a", "a b", "-a", ".a", "ü"}) EXPECT_FALSE(IsBareIdentifier(bad));
}

TEST(TextTest, StrCat) {
  EXPECT_EQ(StrCat("a", 'b', 1, -2L, 3U, true, 1.5, std::string("c"), std::string_view("d")),
            "ab1-23true1.5cd");
  EXPECT_EQ(StrCat(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(StrCat(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(StrCat(-2.2250738585072014e-308), "-2.2250738585072014e-308");
}

TEST(TextTest, HumanBytes) {
  EXPECT_EQ(HumanBytes(512), "512 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(uint64_t{3} << 30), "3.0 GiB");
}

}  // namespace
}  // namespace lathe
