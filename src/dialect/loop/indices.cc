#include "src/dialect/loop/indices.h"

#include <algorithm>

#include "lathe/support/text.h"

namespace lathe::loop {

void CheckIndexCount(const InferShapeContext& c, size_t first) {
  const SymShape memory = c.shape(0);
  const size_t indices = c.num_inputs() - std::min(first, c.num_inputs());
  if (!memory.ranked || indices == memory.rank()) return;
  c.Fail("loop/indices",
         StrCat("there must be ", memory.rank(), " indices, one per axis, not ", indices));
}

void CheckScalars(const InferShapeContext& c, size_t first) {
  for (size_t i = first; i < c.num_inputs(); ++i) {
    if (!c.HasInput(i)) continue;
    const SymShape shape = c.shape(i);
    if (shape.ranked && shape.rank() != 0) {
      c.Fail("loop/indices", StrCat("operand ", i, " is not a scalar"));
    }
  }
}

}  // namespace lathe::loop
