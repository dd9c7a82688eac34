#include "test/unit/dialect/program_grower.h"

#include <algorithm>

#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/verify.h"
#include "lathe/support/buffer.h"
#include "lathe/support/error.h"

namespace lathe::testing {

namespace {

// Whether the error says that the data does not suit the op, which only running can tell.
bool IsAboutData(const Error& e) {
  return e.code() != ErrorCode::kInternal && e.code() != ErrorCode::kVerify &&
         e.id() != "run/result-type";
}

/// Ops of loops stand in loops that lowering makes, and those between devices where a pass puts
/// them.
bool Usable(OpInfo info) {
  if (info.name().starts_with("loop.") || info.name().starts_with("dist.")) return false;
  if (info.def() == nullptr || !info.HasTrait<HasValueSemantics>()) return false;
  const OpDef& def = *info.def();
  const auto plain = [](const ValueDef& v) {
    return v.type.kind == TypeRule::Kind::kVariable || v.type.kind == TypeRule::Kind::kElement;
  };
  return !def.operands.empty() && !def.results.empty() && def.regions.empty() &&
         info.GetInterface<EvalInterface>() != nullptr &&
         std::all_of(def.operands.begin(), def.operands.end(), plain) &&
         !info.HasTrait<lathe::Random>();
}

}  // namespace

ProgramGrower::ProgramGrower(IrContext& context, uint64_t seed, size_t constant_one_in)
    : context_(context), random_(seed), constant_one_in_(constant_one_in) {
  for (const OpInfo info : context.ops()) {
    if (Usable(info)) ops_.push_back(info);
  }
}

Program ProgramGrower::Grow(int num_ops) {
  Program program(context_);
  Builder b = Builder::AtEnd(program.block());
  values_.clear();
  data_.clear();
  for (const ElementType element :
       {ElementType::kF32, ElementType::kF32, ElementType::kI32, ElementType::kI64,
        ElementType::kBool, ElementType::kF64, ElementType::kU8}) {
    AddLeaf(b, element);
  }
  for (int made = 0, tries = 0; made < num_ops && tries < 100 * num_ops; ++tries) {
    made += TryAdd(b, ops_[Pick(ops_.size())]);
  }
  size_t outputs = 0;
  for (const Value v : values_) {
    if (v.use_empty()) {
      b.Create("nn.fetch", std::span<const Value>(&v, 1),
               std::vector<NamedAttribute>{b.Named("name", b.Attr(StrCat("y", outputs++)))});
    }
  }
  return program;
}

NamedValues ProgramGrower::Inputs(const Program& program) const {
  NamedValues inputs;
  for (Operation* feed : program.feeds()) {
    inputs.emplace_back(feed->attribute("name").cast<StrAttribute>().value(),
                        data_.at(feed->result(0)));
  }
  return inputs;
}

size_t ProgramGrower::Pick(size_t count) {
  return static_cast<size_t>(random_.Int(0, static_cast<int64_t>(count) - 1));
}

void ProgramGrower::AddLeaf(Builder& b, ElementType element) {
  static const std::vector<Shape> kShapes = {{2, 3}, {3}, {1, 3}, {2, 1}, {}, {2, 3, 4, 4}};
  const Tensor data = RandomTensor(element, kShapes[Pick(kShapes.size())], random_.NextU64());
  if (constant_one_in_ != 0 && Pick(constant_one_in_) == 0) {
    const NamedAttribute value = b.Named("value", TensorAttribute::Get(context_, data));
    Keep(b.Create("builtin.constant", {}, {&value, 1})->result(0), data);
    return;
  }
  const Type type =
      VTensorType::Get(context_, SymShape::FromConstants(data.shape()), data.element_type());
  const std::vector<NamedAttribute> name = {b.Named("name", b.Attr(StrCat("x", values_.size())))};
  Keep(b.Create("nn.feed", {}, name, std::span<const Type>(&type, 1))->result(0), data);
}

void ProgramGrower::Keep(Value value, RtValue data) {
  values_.push_back(value);
  data_[value] = std::move(data);
}

Value ProgramGrower::Choose(const OpDef& def, const ValueDef& operand,
                            std::vector<ElementType>& bound) {
  for (int tries = 0; tries < 20; ++tries) {
    const Value v = values_[Pick(values_.size())];
    const auto type = v.type().dyn_cast<AnyTensorType>();
    if (!type) continue;
    if (operand.type.kind == TypeRule::Kind::kElement) {
      if (type.element() == operand.type.element) return v;
      continue;
    }
    ElementType& variable = bound[operand.type.index];
    const auto& set = def.type_sets[operand.type.index].elements;
    const bool allowed = std::find(set.begin(), set.end(), type.element()) != set.end();
    if (!allowed || (variable != ElementType::kUndefined && variable != type.element())) continue;
    variable = type.element();
    return v;
  }
  return {};
}

bool ProgramGrower::TryAdd(Builder& b, OpInfo info) {
  const OpDef& def = *info.def();
  std::vector<ElementType> bound(def.type_sets.size(), ElementType::kUndefined);
  std::vector<Value> operands;
  for (const ValueDef& operand : def.operands) {
    const bool absent = operand.optional && Pick(2) == 0;
    operands.push_back(absent ? Value() : Choose(def, operand, bound));
    if (!absent && !operands.back()) return false;
  }
  while (!operands.empty() && !operands.back()) operands.pop_back();
  std::vector<NamedAttribute> attributes;
  for (const AttrDef& a : def.attributes) {
    if (a.optional || a.default_text != nullptr) continue;
    if (a.one_of.empty()) return false;
    attributes.push_back(b.Named(a.name, b.Attr(a.one_of[Pick(a.one_of.size())])));
  }
  return Accept(b, info, operands, attributes);
}

bool ProgramGrower::Accept(Builder& b, OpInfo info, const std::vector<Value>& operands,
                           const std::vector<NamedAttribute>& attributes) {
  Operation* op = nullptr;
  try {
    op = b.CreateInferred(info, operands, attributes, info.def()->results.size());
  } catch (const Error& e) {
    Turned(e);
    return false;
  }
  std::vector<RtValue> results = Try(op);
  if (results.empty()) {
    op->Erase();
    return false;
  }
  for (size_t i = 0; i < results.size(); ++i) Keep(op->result(i), std::move(results[i]));
  return true;
}

// Results of the op on the data at hand; none if it turns them down or they are large.
std::vector<RtValue> ProgramGrower::Try(Operation* op) {
  if (!Verify(op).empty()) return {};
  std::vector<RtValue> inputs;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value v = op->operand(i);
    inputs.push_back(v ? data_.at(v) : RtValue());
  }
  try {
    const AllocationLimit limit(1 << 20);
    std::vector<RtValue> results = EvalOp(op, inputs);
    for (const RtValue& r : results) {
      if (!r.is_tensor() || r.tensor().num_elements() > 5000) return {};
    }
    return results;
  } catch (const Error& e) {
    Turned(e);
    return {};
  }
}

void ProgramGrower::Turned(const Error& error) {
  if (!IsAboutData(error)) complaints_.push_back(error.Render());
}

}  // namespace lathe::testing
