#include "lathe/dialect/op_support.h"

#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"

namespace lathe {
namespace {

void SetAllShapes(InferShapeContext& c, const SymShape& shape) {
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetShape(i, shape);
}

// An in-place op writes what has the shape of its operand.
void AssumeSameShape(const InferShapeContext& c, AnyTensorType result) {
  const SymShape operand = c.shape(0);
  if (!result || !result.has_rank() || !operand.ranked) return;
  for (size_t i = 0; i < operand.rank(); ++i) {
    Assume(SizeCondition::Equal(result.dims()[i], operand.dims[i]), "shape/inplace", [&] {
      return StrCat("the result ", result.ToString(), " does not fit into the operand ",
                    operand.ToString(), " that it is written to");
    });
  }
}

}  // namespace

void InferBroadcastShape(InferShapeContext& c) {
  SymShape result{std::vector<Dim>()};
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    if (c.HasInput(i)) result = Broadcast(result, c.shape(i));
  }
  SetAllShapes(c, result);
}

void InferSameShape(InferShapeContext& c) {
  SymShape result = SymShape::Unranked();
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    if (c.HasInput(i)) result = Meet(result, c.shape(i));
  }
  SetAllShapes(c, result);
}

void InferInplace(InferShapeContext& c, void (*rule)(InferShapeContext&)) {
  rule(c);
  if (c.num_outputs() == 0 || !c.HasInput(0)) return;
  const Type result = c.result_types()[0];
  if (result && !Compatible(result, c.input_type(0))) {
    c.Fail("shape/inplace",
           StrCat("the result ", result.ToString(), " does not fit into the operand ",
                  c.input_type(0).ToString(), " that it is written to"));
  }
  if (result) AssumeSameShape(c, result.dyn_cast<AnyTensorType>());
  c.SetType(0, c.input_type(0));
}

namespace detail {
namespace {

std::vector<Value> Tail(size_t count, size_t first, auto get) {
  std::vector<Value> result;
  for (size_t i = first; i < count; ++i) result.push_back(get(i));
  return result;
}

[[noreturn]] void BadAttribute(const Operation* op, const char* name, Attribute value,
                               const char* wanted) {
  throw Error(ErrorCode::kVerify, "verify/attribute",
              StrCat(op->name(), ": attribute '", name, "' ",
                     value ? StrCat("is ", value.ToString()) : std::string("is missing"),
                     "; expected ", wanted))
      .At(op->Describe());
}

template <class A>
A AttributeAs(const Operation* op, const char* name, const char* wanted) {
  const Attribute value = op->attribute(name);
  if (!value.isa<A>()) BadAttribute(op, name, value, wanted);
  return value.cast<A>();
}

double FloatAttr(const Operation* op, const char* name) {
  const Attribute value = op->attribute(name);
  if (value.isa<IntAttribute>()) return static_cast<double>(value.cast<IntAttribute>().value());
  return AttributeAs<FloatAttribute>(op, name, "a float").value();
}

ElementType ElementAttr(const Operation* op, const char* name) {
  const auto type =
      AttributeAs<TypeAttribute>(op, name, "an element type").value().dyn_cast<ElemType>();
  if (!type) BadAttribute(op, name, op->attribute(name), "an element type");
  return type.element();
}

template <class T>
std::vector<T> Checked(const Operation* op, const char* name, std::optional<std::vector<T>> values,
                       const char* wanted) {
  if (!values) BadAttribute(op, name, op->attribute(name), wanted);
  return std::move(*values);
}

}  // namespace

std::vector<Value> OperandsFrom(Operation* op, size_t first) {
  return Tail(op->num_operands(), first, [&](size_t i) { return op->operand(i); });
}

std::vector<Value> ResultsFrom(Operation* op, size_t first) {
  return Tail(op->num_results(), first, [&](size_t i) { return op->result(i); });
}

template <>
bool AttrAs<bool>(const Operation* op, const char* name) {
  return AttributeAs<BoolAttribute>(op, name, "true or false").value();
}
template <>
int64_t AttrAs<int64_t>(const Operation* op, const char* name) {
  return AttributeAs<IntAttribute>(op, name, "an integer").value();
}
template <>
double AttrAs<double>(const Operation* op, const char* name) {
  return FloatAttr(op, name);
}
template <>
std::string_view AttrAs<std::string_view>(const Operation* op, const char* name) {
  return AttributeAs<StrAttribute>(op, name, "a string").value();
}
template <>
ElementType AttrAs<ElementType>(const Operation* op, const char* name) {
  return ElementAttr(op, name);
}
template <>
Tensor AttrAs<Tensor>(const Operation* op, const char* name) {
  return AttributeAs<TensorAttribute>(op, name, "a tensor").value();
}
template <>
std::vector<int64_t> AttrAs<std::vector<int64_t>>(const Operation* op, const char* name) {
  const char* wanted = "a list of integers";
  return Checked(op, name, AttributeAs<ArrayAttribute>(op, name, wanted).AsInts(), wanted);
}
template <>
std::vector<double> AttrAs<std::vector<double>>(const Operation* op, const char* name) {
  const char* wanted = "a list of floats";
  return Checked(op, name, AttributeAs<ArrayAttribute>(op, name, wanted).AsFloats(), wanted);
}
template <>
std::vector<std::string> AttrAs<std::vector<std::string>>(const Operation* op, const char* name) {
  const char* wanted = "a list of strings";
  return Checked(op, name, AttributeAs<ArrayAttribute>(op, name, wanted).AsStrings(), wanted);
}

void OpMaker::Add(const char* name, lathe::Attribute value) {
  if (value) attributes_.push_back(builder_.Named(name, value));
}
lathe::Attribute OpMaker::ToAttribute(bool value) { return builder_.Attr(value); }
lathe::Attribute OpMaker::ToAttribute(int64_t value) { return builder_.Attr(value); }
lathe::Attribute OpMaker::ToAttribute(double value) { return builder_.Attr(value); }
lathe::Attribute OpMaker::ToAttribute(const std::string& value) {
  return builder_.Attr(std::string_view(value));
}
lathe::Attribute OpMaker::ToAttribute(ElementType value) {
  if (value == ElementType::kUndefined) return {};
  return TypeAttribute::Get(ElemType::Get(builder_.context(), value));
}
lathe::Attribute OpMaker::ToAttribute(const Tensor& value) {
  return value.is_defined() ? builder_.Attr(value) : lathe::Attribute();
}
lathe::Attribute OpMaker::ToAttribute(const std::vector<int64_t>& values) {
  return ArrayAttribute::Get(builder_.context(), std::span<const int64_t>(values));
}
lathe::Attribute OpMaker::ToAttribute(const std::vector<double>& values) {
  return ArrayAttribute::Get(builder_.context(), std::span<const double>(values));
}
lathe::Attribute OpMaker::ToAttribute(const std::vector<std::string>& values) {
  return ArrayAttribute::Get(builder_.context(), std::span<const std::string>(values));
}

// Absent operands at the end are not stored, so that an op has one form.
void OpMaker::DropAbsentTail() {
  while (!operands_.empty() && !operands_.back()) operands_.pop_back();
}

Operation* OpMaker::Inferred(size_t num_results, size_t num_regions) {
  DropAbsentTail();
  return builder_.CreateInferred(info_, operands_, attributes_, num_results, num_regions);
}

Operation* OpMaker::Typed(std::span<const Type> result_types, size_t num_regions) {
  DropAbsentTail();
  return builder_.Create(info_, operands_, attributes_, result_types, num_regions);
}

}  // namespace detail
}  // namespace lathe
