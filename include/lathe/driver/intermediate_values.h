#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lathe/ir/program.h"

/// Values between the inputs and the outputs of a program, to look at.
namespace lathe {

/// Names of values for people: inputs and parameters have their own, others the one that the file
/// gives them (lathe/ir/value_names.h), or "%N". A snapshot: the program must not change.
class ValueNames {
 public:
  explicit ValueNames(const Program& program);
  /// "none" for a null value.
  std::string Of(Value value) const;

 private:
  std::unordered_map<Value, std::string> names_;
};

/// The values that operations of the program make outside of regions, in program order, without
/// inputs, parameters, constants, and what is not data.
std::vector<std::pair<std::string, Value>> IntermediateValues(const Program& program);

/// The one of that name. Errors: run/value-name.
Value IntermediateValue(const Program& program, const std::string& name);

/// Makes the values of these names outputs, behind those that are there; "all": each of
/// IntermediateValues. What is an output already stays one. Errors: run/value-name for a name that
/// no such value has.
void FetchValues(Program& program, std::span<const std::string> names);

/// Makes a value an output of that name, behind those that are there.
void FetchValue(Program& program, const std::string& name, Value value);
/// What reads a value reads a new input of that name and of its type instead.
void FeedValue(Program& program, const std::string& name, Value value);

/// The name of an input or output: of its `nn.feed` or `nn.fetch`.
std::string PortName(const Operation* op);

}  // namespace lathe
