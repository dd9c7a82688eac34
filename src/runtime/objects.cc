#include "src/runtime/objects.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lathe/support/error.h"
#include "src/runtime/arguments.h"

namespace lathe::runtime {
namespace {

bool Takes(const PlanStep& step, size_t k) {
  return std::ranges::find(step.takes, static_cast<uint32_t>(k)) != step.takes.end();
}

Error Wrong(const RtValue& object, const std::string& expected, const PlanStep& step) {
  const std::string found =
      object.is_tensor() ? object.tensor().TypeString() : std::string(object.KindName());
  return Error(ErrorCode::kType, "run/object",
               StrCat("a value is ", found, "; expected ", expected))
      .At(step.origin);
}

bool Fits(const Tensor& t, const PlanValue& value, const SymbolTable& table,
          std::span<const int64_t> symbols) {
  if (t.element_type() != value.element || t.shape().size() != value.dims.size()) return false;
  for (size_t axis = 0; axis < value.dims.size(); ++axis) {
    if (table.NumberOf(value.dims[axis], symbols) != t.shape()[axis]) return false;
  }
  return true;
}

// The tensor of a value in memory.
Tensor CopyOf(const KernelBuffer& buffer, const PlanValue& value) {
  Tensor tensor(value.element, Shape(buffer.shape, buffer.shape + value.dims.size()));
  if (tensor.byte_size() > 0) std::memcpy(tensor.mutable_raw(), buffer.data, tensor.byte_size());
  return tensor;
}

// Strings as they lie in memory for C: a pointer to each, in order, each ending with NUL.
Tensor StringsFrom(const InputView& view) {
  Tensor strings(ElementType::kString, Shape(view.shape.begin(), view.shape.end()));
  const auto* from = static_cast<const char* const*>(view.data);
  for (std::string& s : strings.mutable_data<std::string>()) {
    if (from == nullptr || *from == nullptr) {
      throw Error(ErrorCode::kInvalidArgument, "run/input-data", "a string is a null pointer");
    }
    s = *from++;
  }
  return strings;
}

// An input that the caller has in memory.
RtValue InputOf(const Plan& plan, size_t input, const InputView& view) {
  if (view.element == ElementType::kString) return StringsFrom(view);
  const PlanPort& port = plan.inputs[input];
  if (BitWidth(view.element) == 0) {
    throw Error(ErrorCode::kUnsupported, "run/input-object",
                StrCat("input '", port.name, "' is ", TypeOf(plan.values[port.value]),
                       ", which this call cannot take"))
        .Hint("run it on values by name (Executor::RunValues)");
  }
  Tensor tensor(view.element, Shape(view.shape.begin(), view.shape.end()));
  if (tensor.byte_size() > 0 && view.data == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "run/input-data",
                StrCat("the memory of input '", port.name, "' is not given"));
  }
  if (tensor.byte_size() > 0) std::memcpy(tensor.mutable_raw(), view.data, tensor.byte_size());
  return tensor;
}

}  // namespace

void RunObjects::Begin(const Plan& plan, std::span<const InputView> inputs, FunctionRun run) {
  all.resize(plan.num_objects);
  functions = run;
  if (all.empty()) return;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const PlanValue& value = plan.values[plan.inputs[i].value];
    if (!value.is_object()) continue;
    of(value) = inputs[i].object != nullptr ? *inputs[i].object : InputOf(plan, i, inputs[i]);
  }
}

void RunObjects::Clear() {
  all.clear();
  read.clear();
}

void RunObjects::Release(const Plan& plan, const PlanStep& step) {
  for (const uint32_t k : step.takes) of(plan.values[step.values[k]]) = RtValue();
}

void RunObjects::Call(const Function& function, const Plan& plan, const PlanStep& step,
                      const KernelBuffer* buffers) {
  read.resize(step.reads);  // before any of them is pointed to
  values.assign(step.values.size(), {});
  for (size_t k = 0; k < step.values.size(); ++k) {
    const PlanValue& value = plan.values[step.values[k]];
    FunctionArgument& argument = values[k];
    argument.element = value.element;
    argument.rank = value.dims.size();
    if (!value.is_object()) {
      argument.buffer = buffers[k];
    } else if (k >= step.reads) {
      argument.object = &of(value);
    } else {
      read[k] = Takes(step, k) ? std::move(of(value)) : of(value);
      if (Takes(step, k)) of(value) = RtValue();
      argument.object = &read[k];
    }
  }
  const std::span<FunctionArgument> arguments = values;
  function(arguments.first(step.reads), arguments.subspan(step.reads), functions);
  read.clear();
}

void RunObjects::Append(const Plan& plan, const PlanStep& step, const KernelBuffer* buffers) {
  const PlanValue& row = plan.values[step.values[0]];
  of(plan.values[step.values[2]])
      .mutable_list()
      .push_back(row.is_object() ? of(row) : RtValue(CopyOf(buffers[0], row)));
}

namespace {

// Of no rows: what is known of the dims, else nothing in them.
Tensor NoRows(const PlanValue& value, const SymbolTable& table, std::span<const int64_t> symbols) {
  Shape shape;
  for (const Dim& dim : value.dims) shape.push_back(table.NumberOf(dim, symbols).value_or(0));
  if (shape.empty()) shape.push_back(0);
  shape[0] = 0;
  return Tensor(value.element, std::move(shape));
}

Tensor StackOf(const RtValue::List& rows) {
  const Tensor& first = rows[0].tensor();
  Shape shape = first.shape();
  shape.insert(shape.begin(), static_cast<int64_t>(rows.size()));
  Tensor all(first.element_type(), std::move(shape));
  for (size_t i = 0; i < rows.size(); ++i) {
    const Tensor& row = rows[i].tensor();
    if (row.element_type() != first.element_type() || row.shape() != first.shape()) {
      throw Error(ErrorCode::kShape, "shape/pieces",
                  StrCat("iterations give ", first.TypeString(), " and ", row.TypeString(),
                         ", which do not stack"));
    }
    if (row.element_type() == ElementType::kString) {
      std::ranges::copy(row.data<std::string>(), all.mutable_data<std::string>().begin() +
                                                     static_cast<int64_t>(i) * row.num_elements());
    } else if (row.byte_size() > 0) {
      std::memcpy(all.mutable_raw() + i * row.byte_size(), row.raw(), row.byte_size());
    }
  }
  return all;
}

}  // namespace

void RunObjects::Stack(const Placements& placements, const PlanStep& step,
                       const Placement& placement) {
  const PlanValue& value = placements.plan().values[step.values[0]];
  const RtValue rows = std::exchange(of(value), RtValue());
  of(value) = rows.list().empty() ? NoRows(value, placements.symbols(), placement.symbols)
                                  : StackOf(rows.list());
}

void RunObjects::Copy(const Placements& placements, const PlanStep& step,
                      const KernelBuffer* buffers, const Placement& placement) {
  const PlanValue& from = placements.plan().values[step.values[0]];
  const PlanValue& into = placements.plan().values[step.values[1]];
  if (!from.is_object()) {
    of(into) = CopyOf(buffers[0], from);
  } else if (into.is_object()) {
    RtValue moved = Takes(step, 0) ? std::exchange(of(from), RtValue()) : of(from);
    of(into) = std::move(moved);
  } else {
    const KernelBuffer object =
        BufferOf(of(from), into, placements.symbols(), placement.symbols, step);
    const size_t bytes = of(from).tensor().byte_size();
    if (bytes > 0) std::memcpy(buffers[1].data, object.data, bytes);
  }
}

const void* OneElement(const RtValue& object, const PlanValue& value, const PlanStep& step) {
  const bool is_one = object.is_tensor() && object.tensor().element_type() == value.element &&
                      object.tensor().num_elements() == 1;
  if (!is_one) throw Wrong(object, StrCat("one ", Name(value.element)), step);
  return object.tensor().raw();
}

KernelBuffer BufferOf(const RtValue& object, const PlanValue& value, const SymbolTable& table,
                      std::span<const int64_t> symbols, const PlanStep& step) {
  const bool fits = object.is_tensor() && Fits(object.tensor(), value, table, symbols);
  if (!fits) {
    throw Wrong(object, StrCat(Name(value.element), SymShape(value.dims).ToString()), step);
  }
  const Tensor& tensor = object.tensor();
  return {const_cast<std::byte*>(tensor.raw()), tensor.shape().data()};
}

int64_t ExtentOf(const RtValue& object, const PlanStep& step) {
  const auto a = static_cast<size_t>(step.size.value());
  if (!object.is_tensor() || a >= object.tensor().shape().size()) {
    throw Wrong(object, StrCat("a tensor with axis ", a), step);
  }
  return object.tensor().shape()[a];
}

namespace {

uint64_t BytesOf(const Tensor& tensor) {
  if (tensor.element_type() != ElementType::kString) return tensor.byte_size();
  uint64_t bytes = 0;
  for (const std::string& s : tensor.data<std::string>()) bytes += sizeof(char*) + s.size() + 1;
  return bytes;
}

// The pointers, then the characters.
void PutStrings(std::span<const std::string> strings, void* data) {
  auto** pointers = static_cast<char**>(data);
  auto* text = reinterpret_cast<char*>(pointers + strings.size());
  for (const std::string& s : strings) {
    *pointers++ = text;
    std::memcpy(text, s.c_str(), s.size() + 1);
    text += s.size() + 1;
  }
}

}  // namespace

void PutOutput(const Plan& plan, size_t output, const RtValue& value, const OutputMemory& memory) {
  const std::string& name = plan.outputs[output].name;
  if (!value.is_tensor()) {
    throw Error(
        ErrorCode::kUnsupported, "run/output-object",
        StrCat("output '", name, "' is a ", value.KindName(), ", which this call cannot give"))
        .Hint("run it on values by name (Executor::RunValues)");
  }
  const Tensor& tensor = value.tensor();
  const uint64_t bytes = BytesOf(tensor);
  const OutputView view = memory(output, tensor.shape(), bytes);
  if (bytes == 0) return;
  if (view.data == nullptr || view.bytes < bytes) {
    throw Error(ErrorCode::kInvalidArgument, "run/output-data",
                StrCat("the memory for output '", name, "' has ",
                       view.data == nullptr ? 0 : view.bytes, " bytes; it takes ", bytes));
  }
  if (tensor.element_type() == ElementType::kString) {
    PutStrings(tensor.data<std::string>(), view.data);
  } else {
    std::memcpy(view.data, tensor.raw(), bytes);
  }
}

}  // namespace lathe::runtime
