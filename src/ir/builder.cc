#include "lathe/ir/builder.h"

#include "lathe/ir/context.h"
#include "lathe/support/error.h"

namespace lathe {

Builder Builder::AtEnd(Block* block) {
  LATHE_CHECK(block->parent_op() != nullptr, "the block is in no operation");
  Builder b(*block->parent_op()->context());
  b.SetInsertionPointToEnd(block);
  return b;
}

Builder Builder::Before(Operation* op) {
  Builder b(*op->context());
  b.SetInsertionPoint(op);
  b.set_location(op->location());
  return b;
}

Builder Builder::After(Operation* op) {
  Builder b(*op->context());
  b.block_ = op->block();
  b.before_ = op->next();
  b.set_location(op->location());
  return b;
}

void Builder::SetInsertionPointToEnd(Block* block) {
  block_ = block;
  before_ = nullptr;
}

void Builder::SetInsertionPoint(Operation* before) {
  block_ = before->block();
  before_ = before;
}

Operation* Builder::Insert(Operation* op) {
  if (block_ != nullptr) block_->InsertBefore(before_, op);
  return op;
}

Operation* Builder::Create(OpInfo info, std::span<const Value> operands,
                           std::span<const NamedAttribute> attributes,
                           std::span<const Type> result_types, size_t num_regions) {
  return Insert(
      Operation::Create({info, operands, result_types,
                         DictionaryAttribute::Get(context_, attributes), num_regions, location_}));
}

Operation* Builder::CreateInferred(OpInfo info, std::span<const Value> operands,
                                   std::span<const NamedAttribute> attributes, size_t num_results,
                                   size_t num_regions) {
  const std::vector<Type> none(num_results, NoneType::Get(context_));
  OwningOp op(
      Operation::Create({info, operands, none, DictionaryAttribute::Get(context_, attributes),
                         num_regions, location_}));
  ValueFacts nothing;
  if (num_regions == 0) InferAndSetTypes(op.get(), facts_ != nullptr ? *facts_ : nothing);
  return Insert(op.release());
}

Operation* Builder::Create(std::string_view name, std::span<const Value> operands,
                           std::span<const NamedAttribute> attributes,
                           std::span<const Type> result_types, size_t num_regions) {
  const OpInfo info = context_.GetOrMakeOp(name);
  if (!result_types.empty() || info.def() == nullptr) {
    return Create(info, operands, attributes, result_types, num_regions);
  }
  return CreateInferred(info, operands, attributes, info.def()->results.size(), num_regions);
}

NamedAttribute Builder::Named(std::string_view name, Attribute value) {
  return {StrAttribute::Get(context_, name), value};
}
Attribute Builder::Attr(bool value) { return BoolAttribute::Get(context_, value); }
Attribute Builder::Attr(int64_t value) { return IntAttribute::Get(context_, value); }
Attribute Builder::Attr(double value) { return FloatAttribute::Get(context_, value); }
Attribute Builder::Attr(std::string_view value) { return StrAttribute::Get(context_, value); }
Attribute Builder::Attr(std::span<const int64_t> values) {
  return ArrayAttribute::Get(context_, values);
}
Attribute Builder::Attr(const Tensor& value) { return TensorAttribute::Get(context_, value); }

}  // namespace lathe
