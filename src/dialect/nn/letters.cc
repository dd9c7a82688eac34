#include "src/dialect/nn/letters.h"

#include <array>

#include "lathe/support/text.h"

namespace lathe::nn {

namespace {

// Capitals first, first + step, ... last; the small letter is `shift` further.
struct CaseRange {
  uint32_t first, last;
  uint32_t step;
  int32_t shift;
};

constexpr CaseRange kRanges[] = {
    {'A', 'Z', 1, 32},        // ASCII
    {0xC0, 0xD6, 1, 32},      // Latin-1
    {0xD8, 0xDE, 1, 32},      //
    {0x100, 0x12E, 2, 1},     // Latin Extended-A, without the dotted and dotless i
    {0x132, 0x136, 2, 1},     //
    {0x139, 0x147, 2, 1},     //
    {0x14A, 0x176, 2, 1},     //
    {0x178, 0x178, 1, -121},  // y with diaeresis
    {0x179, 0x17D, 2, 1},     //
    {0x386, 0x386, 1, 38},    // Greek
    {0x388, 0x38A, 1, 37},    //
    {0x38C, 0x38C, 1, 64},    //
    {0x38E, 0x38F, 1, 63},    //
    {0x391, 0x3A1, 1, 32},    //
    {0x3A3, 0x3AB, 1, 32},    //
    {0x400, 0x40F, 1, 80},    // Cyrillic
    {0x410, 0x42F, 1, 32},    //
    {0x460, 0x480, 2, 1},     //
    {0x48A, 0x4BE, 2, 1},     //
    {0x4D0, 0x52E, 2, 1},     //
    {0x531, 0x556, 1, 48},    // Armenian
    {0x1E00, 0x1E94, 2, 1},   // Latin Extended Additional
    {0x1EA0, 0x1EFE, 2, 1},   //
};

uint32_t Shifted(uint32_t c, int32_t by) {
  return static_cast<uint32_t>(static_cast<int32_t>(c) + by);
}

// Every letter of the ranges, and what it is in the other case.
struct CaseTable {
  static constexpr uint32_t kSize = 0x1F00;

  CaseTable() {
    for (uint32_t c = 0; c < kSize; ++c) lower[c] = upper[c] = static_cast<uint16_t>(c);
    for (const CaseRange& r : kRanges) {
      for (uint32_t c = r.first; c <= r.last; c += r.step) {
        const uint32_t small = Shifted(c, r.shift);
        lower[c] = static_cast<uint16_t>(small);
        upper[small] = static_cast<uint16_t>(c);
      }
    }
    upper[0x3C2] = 0x3A3;  // the final form of sigma
  }

  std::array<uint16_t, kSize> lower, upper;
};

const CaseTable& Cases() {
  static const CaseTable table;
  return table;
}

}  // namespace

uint32_t ToLower(uint32_t c) { return c < CaseTable::kSize ? Cases().lower[c] : c; }

uint32_t ToUpper(uint32_t c) { return c < CaseTable::kSize ? Cases().upper[c] : c; }

std::string InCase(std::string_view text, bool upper) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    if (const char c = text.front(); (c & 0x80) == 0) {
      const auto letter = static_cast<uint32_t>(c);
      result += static_cast<char>(upper ? ToUpper(letter) : ToLower(letter));
      text.remove_prefix(1);
      continue;
    }
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) {
      result += text.front();
      text.remove_prefix(1);
      continue;
    }
    const uint32_t c = DecodeUtf8(text.substr(0, length));
    AppendUtf8(result, upper ? ToUpper(c) : ToLower(c));
    text.remove_prefix(length);
  }
  return result;
}

}  // namespace lathe::nn
