#include <array>

#include "lathe/support/buffer.h"
#include "lathe/support/random.h"
#include "test/unit/dialect/run_op.h"

/// Every op on absurd operands and attributes: it may succeed or refuse with an error, never more.
/// Worth the most under the sanitizers.
#ifndef LATHE_ABSURD_RUNS
#define LATHE_ABSURD_RUNS 40
#endif

namespace lathe::test {
namespace {

constexpr std::array<int64_t, 16> kNumbers = {
    0,  1,  2,         3,         -1,          -2, 4, 7, INT64_MAX, INT64_MIN, INT64_MAX - 1,
    -7, 64, 1LL << 31, 1LL << 40, -(1LL << 33)};

class Absurd {
 public:
  explicit Absurd(uint64_t seed) : random_(seed) {}

  int64_t Number() { return kNumbers[static_cast<size_t>(random_.Int(0, kNumbers.size() - 1))]; }
  bool Chance(int64_t percent) { return random_.Int(0, 99) < percent; }

  Shape SmallShape() {
    Shape shape;
    for (int64_t rank = random_.Int(0, 4); rank > 0; --rank) shape.push_back(random_.Int(0, 3));
    if (!shape.empty() && Chance(5)) shape = {0, 1LL << 31, 1LL << 30};
    return shape;
  }
  Tensor Any(ElementType type) {
    if (type == ElementType::kI64 || type == ElementType::kI32) {
      Tensor t(ElementType::kI64, Chance(60) ? Shape{random_.Int(0, 4)} : SmallShape());
      for (int64_t& v : t.mutable_data<int64_t>()) v = Chance(70) ? random_.Int(-3, 4) : Number();
      return Cast(t, type);
    }
    return RandomTensor(type, SmallShape(), static_cast<uint64_t>(random_.Int(0, 1000)));
  }
  ElementType Element(const OpDef& def, const TypeRule& rule) {
    if (rule.kind == TypeRule::Kind::kElement) return rule.element;
    if (rule.kind != TypeRule::Kind::kVariable) return ElementType::kF32;
    return chosen_[rule.index % chosen_.size()] != ElementType::kUndefined
               ? chosen_[rule.index]
               : chosen_[rule.index] = Pick(def.type_sets[rule.index].elements);
  }
  void Forget() { chosen_.fill(ElementType::kUndefined); }

  RtValue Operand(const OpDef& def, const ValueDef& value) {
    if (value.optional && Chance(40)) return {};
    if (value.type.kind == TypeRule::Kind::kList) {
      RtValue::List list;
      for (int64_t n = random_.Int(0, 3); n > 0; --n) list.emplace_back(Any(ElementType::kF32));
      return RtValue::OfList(std::move(list));
    }
    return Any(Element(def, value.type));
  }

  void Attribute(RunOp& op, const AttrDef& attr) {
    const bool required = !attr.optional && attr.default_text == nullptr;
    if (!required && Chance(50)) return;
    const auto number = [&] { return Chance(70) ? random_.Int(-2, 3) : Number(); };
    switch (attr.kind) {
      case AttrKind::kBool:
        return (void)op.Attr(attr.name, Chance(50));
      case AttrKind::kInt:
        return (void)op.Attr(attr.name, attr.has_min ? std::max(attr.min, number()) : number());
      case AttrKind::kInts: {
        std::vector<int64_t> values(static_cast<size_t>(random_.Int(0, 4)));
        for (int64_t& v : values) v = attr.has_min ? std::max(attr.min, number()) : number();
        return (void)op.Attr(attr.name, values);
      }
      case AttrKind::kStr:
        if (!attr.one_of.empty()) op.Attr(attr.name, Pick(attr.one_of));
        return;
      case AttrKind::kType:
        return (void)op.Attr(attr.name, Pick(AllElementTypes().first(26)));
      default:
        return;
    }
  }

 private:
  template <class T>
  T Pick(std::span<const T> from) {
    return from[static_cast<size_t>(random_.Int(0, static_cast<int64_t>(from.size()) - 1))];
  }

  RandomStream random_;
  std::array<ElementType, 8> chosen_{};
};

void RunOnce(OpInfo info, Absurd& absurd) {
  const OpDef& def = *info.def();
  absurd.Forget();
  RunOp op{std::string(info.name())};
  for (const ValueDef& value : def.operands) {
    op.InValue(absurd.Operand(def, value));
    if (value.variadic && absurd.Chance(70)) op.InValue(absurd.Operand(def, value));
  }
  for (const AttrDef& attr : def.attributes) absurd.Attribute(op, attr);
  op.Outputs(def.results.size());
  try {
    op.Values();
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::kInternal) << info.name() << ": " << error.Render();
  } catch (const std::bad_alloc&) {  // the interpreter turns these into limit/memory
  } catch (const std::length_error&) {
  }
}

TEST(AbsurdOperands, NothingWorseThanAnError) {
  const size_t cap = Buffer::AllocationCap();
  Buffer::SetAllocationCap(size_t{1} << 20);
  IrContext context;
  LoadAllDialects(context);
  for (const OpInfo info : context.ops()) {
    const OpDef* def = info.def();
    const bool runs = def != nullptr && def->regions.empty() && info.name().starts_with("nn.") &&
                      info.GetInterface<EvalInterface>() != nullptr && !info.HasTrait<Inplace>() &&
                      !def->operands.empty();
    if (!runs) continue;
    SCOPED_TRACE(info.name());
    Absurd absurd(7);
    for (int i = 0; i < LATHE_ABSURD_RUNS; ++i) RunOnce(info, absurd);
  }
  Buffer::SetAllocationCap(cap);
}

}  // namespace
}  // namespace lathe::test
