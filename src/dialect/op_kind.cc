#include "lathe/dialect/op_kind.h"

#include <algorithm>
#include <array>

#include "lathe/support/error.h"

namespace lathe {

namespace {
constexpr std::array<std::string_view, 6> kNames = {
    "elementwise", "broadcast", "injective", "reduction", "out_elementwise_fusable", "opaque"};
}  // namespace

std::string_view Name(OpKind kind) { return kNames[static_cast<size_t>(kind)]; }

OpKind ParseOpKind(std::string_view name) {
  const auto* at = std::find(kNames.begin(), kNames.end(), name);
  if (at == kNames.end()) {
    Error error(ErrorCode::kInvalidArgument, "op/kind", StrCat("there is no op kind '", name, "'"));
    if (const std::string hint = DidYouMean(name, kNames); !hint.empty()) error.Hint(hint);
    throw std::move(error);
  }
  return static_cast<OpKind>(at - kNames.begin());
}

OpKind KindOf(const Operation* op) {
  const auto* table = op->info().GetInterface<OpKindInterface>();
  return table == nullptr ? OpKind::kOpaque : table->kind(op);
}

bool NeedsWhole(const Operation* op, size_t i) {
  const auto* table = op->info().GetInterface<OpKindInterface>();
  return table != nullptr && i < 64 && (table->whole >> i & 1) != 0;
}

}  // namespace lathe
