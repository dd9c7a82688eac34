#include "lathe/dialect/builtin/group.h"

#include "lathe/support/error.h"
#include "src/dialect/cf/regions.h"

namespace lathe::builtin {

void GroupOp::InferShape(InferShapeContext& c) {
  const GroupOp op(c.op());
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetType(i, cf::YieldType(op.body_region(), i));
}

bool GroupOp::RegionArguments(Operation* op, RegionRound /*round*/) {
  const Region& body = GroupOp(op).body_region();
  bool changed = false;
  for (size_t i = 0; !body.empty() && i < op->num_operands(); ++i) {
    changed |= cf::SetArgument(*body.front(), i, cf::OperandType(op, i));
  }
  return changed;
}

void GroupOp::Eval(EvalContext& c) {
  std::vector<RtValue> results = c.RunRegion(GroupOp(c.op()).body_region(), c.inputs());
  LATHE_CHECK(results.size() == c.num_outputs(), "the group yields too few values");
  for (size_t i = 0; i < results.size(); ++i) c.SetOutputValue(i, std::move(results[i]));
}

void GroupOp::Verify(Operation* op) {
  const Region& body = GroupOp(op).body_region();
  cf::CheckRegion(op, body, "body", op->num_operands(), op->num_results());
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const std::string what = StrCat("operand ", i);
    if (!op->operand(i)) cf::VerifyFail(op, "verify/operands", StrCat(what, " is absent"));
    cf::CheckCovered(op, cf::OperandType(op, i), body.front()->argument(i).type(), what);
  }
  for (size_t i = 0; i < op->num_results(); ++i) {
    cf::CheckCovered(op, cf::YieldType(body, i), op->result(i).type(),
                     StrCat("value ", i, " that region 'body' yields"));
  }
  int64_t size = 0;
  for (const Operation& inner : *body.front()) size += inner.HasTrait<Terminator>() ? 0 : 1;
  if (GroupOp(op).anchor() >= size) {
    cf::VerifyFail(
        op, "verify/group-anchor",
        StrCat("anchor is ", GroupOp(op).anchor(), "; the region has ", size, " operations"));
  }
}

}  // namespace lathe::builtin
