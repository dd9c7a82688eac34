#pragma once

#include <cstdint>

#include "lathe/pass/pass.h"

namespace lathe {

enum class FunctionalizeScope : uint8_t {
  kWritten,  ///< tensors that something writes; types stay as they are
  kAll,      ///< every mutable tensor; it becomes a `v_tensor`
};

/// Replaces writes to mutable tensors by new values: each tensor has one current value, a view is
/// computed from it where it is read, a write through a view makes a new one; regions take and give
/// the tensors that they write. A program input that is written becomes an additional output with
/// its name. Families of which not everything is known stay, with a remark. Counts "writes",
/// "views", "tensors" and "kept".
void Functionalize(Graph& graph, Pass* pass, FunctionalizeScope scope);

}  // namespace lathe
