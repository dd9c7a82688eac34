#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "src/dialect/nn/regex.h"

namespace lathe::nn {

/// A regular expression as a tree.
struct RegexNode {
  enum class Kind : uint8_t { kEmpty, kSet, kAssert, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kEmpty;
  Regex::Ranges ranges;          ///< kSet
  uint32_t assertion = 0;        ///< kAssert
  std::vector<RegexNode> parts;  ///< kSequence, kChoice; kRepeat has one
  int min = 0, max = -1;         ///< kRepeat; max -1: without end
};

/// Throws run/regex; nesting is limited.
RegexNode ParseRegex(std::string_view pattern);

/// Largest code point, and whether one is a letter, digit or underscore of ASCII.
inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;
bool IsWordCharacter(uint32_t code_point);
/// The next code point of `text`, moved behind it; above kMaxCodePoint for a byte that is no UTF-8.
uint32_t NextCodePoint(std::string_view& text);

}  // namespace lathe::nn
