#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/dialect/region_interface.h"
#include "lathe/ir/interfaces.h"

/// What generated op classes are made of, and shape rules that many ops share.
namespace lathe {

/// Every result has the shape of all tensor operands broadcast together (numpy's rule).
void InferBroadcastShape(InferShapeContext& c);
/// Every result has the shape that all tensor operands share; a contradiction is an error.
void InferSameShape(InferShapeContext& c);
/// Shape rule of an in-place op: that of the op with value semantics, whose first result must fit
/// into the operand that is written.
void InferInplace(InferShapeContext& c, void (*rule)(InferShapeContext&));

namespace detail {

/// Operand (result) `i`, or null if the op has no such one.
inline Value OperandOrNull(Operation* op, size_t i) {
  return i < op->num_operands() ? op->operand(i) : Value();
}
inline Value ResultOrNull(Operation* op, size_t i) {
  return i < op->num_results() ? op->result(i) : Value();
}
std::vector<Value> OperandsFrom(Operation* op, size_t first);
std::vector<Value> ResultsFrom(Operation* op, size_t first);

/// Attribute `name` as a `T`: bool, int64_t, double, std::string_view, ElementType, Tensor, or a
/// vector of int64_t, double or std::string. Throws verify/attribute if it is absent or of another
/// kind; the second form gives nothing if it is absent.
template <class T>
T AttrAs(const Operation* op, const char* name);
template <>
bool AttrAs<bool>(const Operation* op, const char* name);
template <>
int64_t AttrAs<int64_t>(const Operation* op, const char* name);
template <>
double AttrAs<double>(const Operation* op, const char* name);
template <>
std::string_view AttrAs<std::string_view>(const Operation* op, const char* name);
template <>
ElementType AttrAs<ElementType>(const Operation* op, const char* name);
template <>
Tensor AttrAs<Tensor>(const Operation* op, const char* name);
template <>
std::vector<int64_t> AttrAs<std::vector<int64_t>>(const Operation* op, const char* name);
template <>
std::vector<double> AttrAs<std::vector<double>>(const Operation* op, const char* name);
template <>
std::vector<std::string> AttrAs<std::vector<std::string>>(const Operation* op, const char* name);
template <class T>
std::optional<T> OptionalAttrAs(const Operation* op, const char* name) {
  if (!op->attribute(name)) return std::nullopt;
  return AttrAs<T>(op, name);
}

/// Gathers what a generated `Create` hands to the builder.
class OpMaker {
 public:
  OpMaker(Builder& builder, OpInfo info) : builder_(builder), info_(info) {}
  void Operands(std::initializer_list<Value> values) {
    Operands(std::span<const Value>(values.begin(), values.size()));
  }
  void Operands(std::span<const Value> values) {
    operands_.insert(operands_.end(), values.begin(), values.end());
  }
  /// Null and absent ones are left out. T as in AttrAs, or Attribute.
  template <class T>
  void Attribute(const char* name, const T& value) {
    Add(name, ToAttribute(value));
  }
  template <class T>
  void Attribute(const char* name, const std::optional<T>& value) {
    if (value.has_value()) Add(name, ToAttribute(*value));
  }
  Operation* Inferred(size_t num_results, size_t num_regions);
  Operation* Typed(std::span<const Type> result_types, size_t num_regions);

 private:
  void Add(const char* name, lathe::Attribute value);
  lathe::Attribute ToAttribute(lathe::Attribute value) { return value; }
  lathe::Attribute ToAttribute(bool value);
  lathe::Attribute ToAttribute(int64_t value);
  lathe::Attribute ToAttribute(double value);
  lathe::Attribute ToAttribute(const std::string& value);
  lathe::Attribute ToAttribute(ElementType value);
  lathe::Attribute ToAttribute(const Tensor& value);
  lathe::Attribute ToAttribute(const std::vector<int64_t>& values);
  lathe::Attribute ToAttribute(const std::vector<double>& values);
  lathe::Attribute ToAttribute(const std::vector<std::string>& values);
  void DropAbsentTail();

  Builder& builder_;
  OpInfo info_;
  std::vector<Value> operands_;
  std::vector<NamedAttribute> attributes_;
};

}  // namespace detail
}  // namespace lathe
