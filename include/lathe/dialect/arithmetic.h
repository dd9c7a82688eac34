#pragma once

#include "lathe/ir/operation.h"
#include "lathe/support/dim.h"

namespace lathe {

/// Arithmetic of one run of the operation on floating point, as a number or an expression over the
/// symbols of its types; unknown where a shape is. A multiply-add is two. Of an op without a count
/// of its own one for each element that an elementwise op gives or a reduction reads; those that
/// nothing is known of count as none.
Dim ArithmeticOf(Operation* op);

/// Of a tensor; unknown if its rank or an extent is, or if it is none.
Dim ElementsOf(Type type);

}  // namespace lathe
