#include "lathe/driver/input_sizes.h"

#include "src/driver/find_constraints.h"

namespace lathe {

void CheckSizes(const Program& program, std::span<const runtime::BoundSymbol> sizes) {
  Program copy = program.Clone();
  std::vector<runtime::PlanConstraint> constraints;
  NameUnknownExtents(copy);
  AddConstraints(copy, constraints);
  runtime::CheckConstraints(constraints, sizes);
}

}  // namespace lathe
