// Dimension expressions: any text is read or refused; what is read prints and reads back the same.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lathe/support/dim.h"
#include "lathe/support/error.h"

namespace {

void CheckBounds(const lathe::Dim& dim, int64_t symbol) {
  const auto value = dim.Evaluate([symbol](std::string_view) { return std::optional(symbol); });
  if (!value) return;
  const auto low = dim.LowerBound();
  const auto high = dim.UpperBound();
  LATHE_CHECK(!low || *low <= *value, dim.ToString());
  LATHE_CHECK(!high || *high >= *value, dim.ToString());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const lathe::Dim dim = lathe::Dim::Parse(text);
    const std::string printed = dim.ToString();
    const lathe::Dim back = lathe::Dim::Parse(printed);
    LATHE_CHECK(back == dim, printed, " became ", back.ToString());
    for (const int64_t symbol : {0, 1, 2, 7, 1000000}) CheckBounds(dim, symbol);
  } catch (const lathe::Error& error) {
    if (error.code() == lathe::ErrorCode::kInternal) throw;
  }
  return 0;
}
