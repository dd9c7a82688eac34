#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "lathe/ir/interfaces.h"
#include "lathe/ir/type.h"

namespace lathe {

/// What else an `EvalContext` is that runs an op among others: their values tell the sizes of
/// symbols, also where no operand of the op does.
class SizeScope {
 public:
  virtual ~SizeScope() = default;
  /// The size that the symbol has in this run; nothing if no value at hand has it in its type.
  virtual std::optional<int64_t> SizeOf(std::string_view symbol) const = 0;
};

/// The extent of a tensor where its type has that symbol; nothing if it has it nowhere.
std::optional<int64_t> SizeIn(Type type, const RtValue& value, std::string_view symbol);

/// By the operands of the op, else by the scope that the context is.
std::optional<int64_t> SizeOf(const EvalContext& c, std::string_view symbol);

}  // namespace lathe
