#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lathe::nn {

/// The other case of a letter by Unicode's simple mapping, for Latin, Greek, Cyrillic and Armenian;
/// other code points, and those already in that case, are returned as they are.
uint32_t ToUpper(uint32_t code_point);
uint32_t ToLower(uint32_t code_point);

/// Every letter of UTF-8 `text` in one case. Bytes that are no UTF-8 stay.
std::string InCase(std::string_view text, bool upper);

}  // namespace lathe::nn
