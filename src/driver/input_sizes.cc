#include "lathe/driver/input_sizes.h"

#include "lathe/transform/keep_constraints.h"
#include "src/driver/find_constraints.h"

namespace lathe {

void CheckSizes(const Program& program, std::span<const runtime::BoundSymbol> sizes) {
  Program copy = program.Clone();
  NameUnknownExtents(copy);
  runtime::CheckConstraints(PlanConstraintsOf(FindConstraintsWithCalls(copy)), sizes);
}

}  // namespace lathe
