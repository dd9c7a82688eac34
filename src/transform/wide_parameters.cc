#include "src/transform/wide_parameters.h"

#include <set>
#include <string>
#include <string_view>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/ir/walk.h"

namespace lathe {

namespace {

using builtin::GetParameterOp;

bool IsNarrow(Value parameter) {
  const auto type = parameter.type().dyn_cast<AnyTensorType>();
  return type && IsFloat(type.element()) && BitWidth(type.element()) == 16;
}

void ReadRounded(Rewriter& rewriter, Operation* read, const std::string& name) {
  const auto narrow = read->result(0).type().cast<AnyTensorType>();
  const Type wide = narrow.With(ElementType::kF32, narrow.shape());
  rewriter.SetInsertionPoint(read);
  const auto whole = GetParameterOp::Create(rewriter, {&wide, 1}, {.name = name});
  whole->set_attributes(read->attributes());  // constant
  const auto cast = nn::CastOp::Create(rewriter, whole.value(), {.to = narrow.element()});
  rewriter.ReplaceOp(read, {cast.output()});
}

}  // namespace

std::vector<Operation*> NarrowParameterReads(const Program& program) {
  std::vector<Operation*> reads;
  std::set<std::string_view> set;
  for (OpWalker w(program.block()); Operation* op = w.Next();) {
    if (const auto write = op->dyn_cast<builtin::SetParameterOp>()) set.insert(write.name());
    if (op->isa<GetParameterOp>() && IsNarrow(op->result(0))) reads.push_back(op);
  }
  std::erase_if(reads, [&](Operation* op) { return set.contains(GetParameterOp(op).name()); });
  return reads;
}

int64_t HoldInF32(Rewriter& rewriter, const std::vector<Operation*>& reads) {
  std::set<std::string> widened;
  for (Operation* read : reads) {
    const std::string name(GetParameterOp(read).name());
    Variable* variable = rewriter.program().parameters().Find(name);  // null: it has no data yet
    const bool first = widened.insert(name).second;
    if (first && variable != nullptr) variable->data = Cast(variable->data, ElementType::kF32);
    ReadRounded(rewriter, read, name);
  }
  return static_cast<int64_t>(widened.size());
}

}  // namespace lathe
