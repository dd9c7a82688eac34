#include "src/runtime/arguments.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "lathe/support/error.h"

namespace lathe::runtime {
namespace {

const PlanValue& ValueOf(const Plan& plan, const PlanPort& port) { return plan.values[port.value]; }

std::string Listing(const Plan& plan) {
  std::string text;
  for (const PlanPort& input : plan.inputs) {
    text += StrCat(text.empty() ? "the program's inputs: " : ", ", input.name, " : ",
                   TypeOf(ValueOf(plan, input)));
  }
  return text.empty() ? "the program has no inputs" : text;
}

Error UnknownInput(const Plan& plan, const std::string& name) {
  std::vector<std::string_view> names;
  for (const PlanPort& input : plan.inputs) names.emplace_back(input.name);
  Error error(ErrorCode::kNotFound, "run/input-name",
              StrCat("the program has no input '", name, "'"));
  error.Note(Listing(plan));
  if (const std::string hint = DidYouMean(name, names); !hint.empty()) error.Hint(hint);
  return error;
}

Error ShapeMismatch(const PlanPort& port, const PlanValue& value, std::span<const int64_t> shape) {
  return {ErrorCode::kShape, "run/input-shape",
          StrCat("input '", port.name, "' has shape ", ShapeToString(shape), "; expected ",
                 SymShape(value.dims).ToString())};
}

void CheckFixedDims(const Plan& plan, size_t i, const InputView& input) {
  const PlanPort& port = plan.inputs[i];
  const PlanValue& value = ValueOf(plan, port);
  if (!value.type.empty()) return;  // the function that reads it looks
  if (input.element != value.element) {
    throw Error(ErrorCode::kType, "run/input-type",
                StrCat("input '", port.name, "' is ", Name(input.element),
                       ShapeToString(input.shape), "; expected ", TypeOf(value)));
  }
  bool fits = input.shape.size() == value.dims.size();
  for (size_t a = 0; fits && a < value.dims.size(); ++a) {
    const Dim& dim = value.dims[a];
    fits = input.shape[a] >= 0 && (!dim.is_constant() || dim.value() == input.shape[a]);
  }
  if (!fits) throw ShapeMismatch(port, value, input.shape);
}

void CheckSymbolDims(const Plan& plan, std::span<const InputView> inputs,
                     std::span<const int64_t> symbols, size_t i) {
  const std::vector<Dim>& dims = ValueOf(plan, plan.inputs[i]).dims;
  for (size_t a = 0; a < dims.size(); ++a) {
    if (!dims[a].is_symbol()) continue;
    for (size_t s = 0; s < symbols.size(); ++s) {
      const PlanSymbol& symbol = plan.symbols[s];
      if (dims[a].symbol_name() != symbol.name || inputs[i].shape[a] == symbols[s]) continue;
      throw Error(ErrorCode::kShape, "run/input-shape",
                  StrCat("dim ", symbol.name, " is ", symbols[s], " by input '",
                         plan.inputs[symbol.input].name, "' and ", inputs[i].shape[a],
                         " by input '", plan.inputs[i].name, "'"));
    }
  }
}

bool IsAligned(const void* data, ElementType element) {
  return reinterpret_cast<uintptr_t>(data) % AlignmentOf(element) == 0;
}

bool Overlap(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a);
  const auto y = reinterpret_cast<uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

// What is wrong with the memory for output `i`; empty if nothing is.
std::string OutputFault(const Plan& plan, const Placement& placement,
                        std::span<const InputView> inputs, std::span<const OutputView> outputs,
                        size_t i) {
  const auto bytes_of = [&](const PlanPort& port) { return placement.value_bytes[port.value]; };
  const uint64_t bytes = bytes_of(plan.outputs[i]);
  const OutputView& output = outputs[i];
  if (bytes == 0) return "";
  if (output.data == nullptr || output.bytes < bytes) {
    return StrCat("has ", output.data == nullptr ? 0 : output.bytes, " bytes; it takes ", bytes);
  }
  if (!IsAligned(output.data, ValueOf(plan, plan.outputs[i]).element)) {
    return "is not aligned to its elements";
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (Overlap(output.data, bytes, inputs[k].data, bytes_of(plan.inputs[k]))) {
      return StrCat("overlaps input '", plan.inputs[k].name, "'");
    }
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (k != i && Overlap(output.data, bytes, outputs[k].data, bytes_of(plan.outputs[k]))) {
      return StrCat("overlaps output '", plan.outputs[k].name, "'");
    }
  }
  return "";
}

}  // namespace

std::string TypeOf(const PlanValue& value) {
  if (!value.type.empty()) return value.type;
  std::string dims;
  for (const Dim& dim : value.dims) dims += StrCat(dims.empty() ? "" : ", ", dim.ToString());
  return StrCat("v_tensor<[", dims, "], ", Name(value.element), ">");
}

namespace {

std::vector<const RtValue*> InOrder(const Plan& plan, const NamedValues& inputs) {
  std::vector<const RtValue*> ordered(plan.inputs.size());
  for (const auto& [name, value] : inputs) {
    const auto port = std::find_if(plan.inputs.begin(), plan.inputs.end(),
                                   [&](const PlanPort& p) { return p.name == name; });
    if (port == plan.inputs.end()) throw UnknownInput(plan, name);
    const RtValue*& place = ordered[static_cast<size_t>(port - plan.inputs.begin())];
    if (place != nullptr) {
      throw Error(ErrorCode::kInvalidArgument, "run/input-twice",
                  StrCat("input '", name, "' is given twice"));
    }
    place = &value;
  }
  for (size_t i = 0; i < ordered.size(); ++i) {
    if (ordered[i] != nullptr) continue;
    throw Error(ErrorCode::kInvalidArgument, "run/input-missing",
                StrCat("input '", plan.inputs[i].name, "' is missing; expected ",
                       TypeOf(ValueOf(plan, plan.inputs[i]))))
        .Note(Listing(plan));
  }
  return ordered;
}

}  // namespace

std::vector<InputView> ViewsInOrder(const Plan& plan, const NamedValues& inputs) {
  std::vector<InputView> views;
  for (const RtValue* value : InOrder(plan, inputs)) {
    const PlanPort& port = plan.inputs[views.size()];
    InputView view;
    if (ValueOf(plan, port).is_object()) view.object = value;
    if (value->is_tensor()) {
      const Tensor& t = value->tensor();
      view.element = t.element_type();
      view.data = t.raw();
      view.shape = t.shape();
    } else if (ValueOf(plan, port).type.empty()) {
      throw Error(ErrorCode::kType, "run/input-type",
                  StrCat("input '", port.name, "' is a ", value->KindName(), ", not a tensor"));
    }
    views.push_back(view);
  }
  return views;
}

void BindSymbols(const Plan& plan, std::span<const InputView> inputs, std::span<int64_t> symbols) {
  if (inputs.size() != plan.inputs.size()) {
    throw Error(ErrorCode::kInvalidArgument, "run/input-count",
                StrCat(inputs.size(), " inputs are given; the program has ", plan.inputs.size()))
        .Note(Listing(plan));
  }
  for (size_t i = 0; i < inputs.size(); ++i) CheckFixedDims(plan, i, inputs[i]);
  for (size_t s = 0; s < symbols.size(); ++s) {
    symbols[s] = inputs[plan.symbols[s].input].shape[plan.symbols[s].axis];
  }
  if (symbols.empty()) return;
  for (size_t i = 0; i < inputs.size(); ++i) CheckSymbolDims(plan, inputs, symbols, i);
}

void CheckPlaced(const Placements& placements, const Placement& placement,
                 std::span<const InputView> inputs) {
  const Plan& plan = placements.plan();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PlanPort& port = plan.inputs[i];
    const PlanValue& value = ValueOf(plan, port);
    const std::span<const int64_t> placed = placements.ShapeOf(placement, port.value);
    for (size_t a = 0; a < value.dims.size(); ++a) {
      // The dims of an object are in no placement, and may say nothing.
      const std::optional<int64_t> expected =
          value.is_object() ? placements.symbols().NumberOf(value.dims[a], placement.symbols)
                            : placed[a];
      if (!expected || inputs[i].shape[a] == *expected) continue;
      throw Error(ErrorCode::kShape, "run/input-shape",
                  StrCat("dim ", value.dims[a].ToString(), " of input '", port.name, "' is ",
                         inputs[i].shape[a], "; expected ", *expected));
    }
  }
}

void CheckInputMemory(const Plan& plan, const Placement& placement,
                      std::span<const InputView> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (placement.value_bytes[plan.inputs[i].value] == 0) continue;
    const bool aligned = IsAligned(inputs[i].data, inputs[i].element);
    if (inputs[i].data != nullptr && aligned) continue;
    throw Error(ErrorCode::kInvalidArgument, "run/input-data",
                StrCat("the memory of input '", plan.inputs[i].name,
                       aligned ? "' is not given" : "' is not aligned to its elements"));
  }
}

void CheckOutputCount(const Plan& plan, std::span<const OutputView> outputs) {
  if (outputs.size() == plan.outputs.size()) return;
  throw Error(ErrorCode::kInvalidArgument, "run/output-count",
              StrCat("memory for ", outputs.size(), " outputs is given; the program has ",
                     plan.outputs.size()));
}

void CheckOutput(const Plan& plan, const Placement& placement, std::span<const InputView> inputs,
                 std::span<const OutputView> outputs, size_t i) {
  const std::string fault = OutputFault(plan, placement, inputs, outputs, i);
  if (fault.empty()) return;
  throw Error(ErrorCode::kInvalidArgument, "run/output-data",
              StrCat("the memory for output '", plan.outputs[i].name, "' ", fault));
}

}  // namespace lathe::runtime
