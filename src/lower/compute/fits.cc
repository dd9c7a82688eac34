#include "src/lower/compute/fits.h"

#include "lathe/ir/builder.h"
#include "lathe/ir/interfaces.h"
#include "lathe/support/error.h"

namespace lathe::lower {
namespace {

// What inference assumes of the extents of the operands, whatever these hold.
std::vector<SizeAssumption> AssumptionsOf(const Operation& op) {
  std::vector<SizeAssumption> assumptions;
  const AssumptionScope scope(assumptions);
  ValueFacts none;
  try {
    (void)InferResultTypes(const_cast<Operation*>(&op), none);
  } catch (const Error&) {
    assumptions.clear();  // it is wrong whatever the sizes are, of which its run tells
  }
  return assumptions;
}

bool IsLonger(const Dim& dim) { return dim.is_constant() && dim.value() != 1; }

// Where one extent is a number but 1, broadcasting leaves no choice to the other.
bool MakesEqual(const SizeCondition& c) {
  switch (c.kind) {
    case SizeCondition::Kind::kEqual:
      return true;
    case SizeCondition::Kind::kBroadcastTo:
      return IsLonger(c.a);
    default:
      return false;
  }
}

}  // namespace

const std::vector<SizeAssumption>& Fits::Assumed() {
  if (!assumed_) assumed_ = AssumptionsOf(op_);
  return *assumed_;
}

bool Fits::IsAssumedAtMost(const Dim& a, const Dim& b) {
  const SizeCondition wanted = SizeCondition::AtLeast(b, a);
  return IsAssumed(a, b) || std::ranges::any_of(Assumed(), [&](const SizeAssumption& assumption) {
           return assumption.condition == wanted;
         });
}

bool Fits::IsAssumed(const Dim& a, const Dim& b) {
  return std::ranges::any_of(Assumed(), [&](const SizeAssumption& assumption) {
    const SizeCondition& c = assumption.condition;
    return MakesEqual(c) && ((c.a == a && c.b == b) || (c.a == b && c.b == a));
  });
}

}  // namespace lathe::lower
