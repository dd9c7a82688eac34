#include "lathe/lower/precision.h"

#include <algorithm>
#include <array>

#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"strict", "f32", "high", "bf16"};

}  // namespace

std::span<const std::string_view> PrecisionNames() { return kNames; }

std::string_view Name(Precision precision) { return kNames[static_cast<size_t>(precision)]; }

Precision PrecisionNamed(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found != kNames.end()) return static_cast<Precision>(found - kNames.begin());
  Error error(ErrorCode::kInvalidArgument, "compile/precision",
              StrCat("there is no precision '", name, "'"));
  if (std::string near = DidYouMean(name, kNames); !near.empty()) error.Hint(std::move(near));
  error.Hint("levels are strict, f32, high and bf16");
  throw error;
}

}  // namespace lathe
