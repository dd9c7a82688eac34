// An external compiler that takes a few elementwise ops on f32 tensors of one shape.
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "lathe/ir/traits.h"
#include "lathe/lower/external.h"
#include "lathe/plugin.h"
#include "lathe/support/error.h"

namespace {

using lathe::Operation;
using lathe::StrCat;
using lathe::Value;

std::string Refuse(const Operation* op) {
  const bool known = op->name() == "nn.add" || op->name() == "nn.mul" || op->name() == "nn.relu";
  if (!known) return StrCat("it does not know ", op->name());
  const auto type = op->result(0).type().cast<lathe::AnyTensorType>();
  if (!type.is_static() || type.element() != lathe::ElementType::kF32) return "it takes f32 only";
  for (size_t i = 0; i < op->num_operands(); ++i) {
    if (op->operand(i).type() != type) return "it takes equal types only";
  }
  return "";
}

// One instruction: slots of values, those of arguments first, then of results.
struct Step {
  char kind;
  size_t a, b, to;
};

struct Code {
  size_t elements = 0, arguments = 0;
  std::vector<Step> steps;
  std::vector<std::pair<size_t, std::vector<float>>> constants;
  std::vector<size_t> results;
  size_t slots = 0;

  void Run(const lathe::KernelBuffer* buffers) const {
    std::vector<std::vector<float>> values(slots);
    for (size_t i = 0; i < arguments; ++i) {
      const auto* data = static_cast<const float*>(buffers[i].data);
      values[i].assign(data, data + elements);
    }
    for (const auto& [slot, data] : constants) values[slot] = data;
    for (const Step& s : steps) {
      std::vector<float>& to = values[s.to];
      to = values[s.a];
      for (size_t i = 0; i < elements; ++i) {
        const float b = values[s.b][i];
        to[i] = s.kind == '+' ? to[i] + b : s.kind == '*' ? to[i] * b : std::max(to[i], 0.0F);
      }
    }
    for (size_t i = 0; i < results.size(); ++i) {
      std::ranges::copy(values[results[i]], static_cast<float*>(buffers[arguments + i].data));
    }
  }
};

// The elements of a constant, which may be a parameter.
std::vector<float> Elements(const Operation& op, const lathe::Program& program) {
  const auto name = op.attribute("name").dyn_cast<lathe::StrAttribute>();
  const lathe::Tensor t = name ? program.parameters().Find(name.value())->data
                               : op.attribute("value").cast<lathe::TensorAttribute>().value();
  return {t.data<float>().begin(), t.data<float>().end()};
}

lathe::ExternalKernel Compile(const Operation* function, const lathe::Program& program) {
  const lathe::Block& body = *function->region(0).front();
  Code code;
  std::unordered_map<Value, size_t> slots;  // looked up, never iterated
  for (size_t i = 0; i < body.num_arguments(); ++i) slots[body.argument(i)] = code.slots++;
  code.arguments = code.slots;
  std::string names;
  for (const Operation& op : body) {
    if (op.HasTrait<lathe::Terminator>()) {
      for (size_t i = 0; i < op.num_operands(); ++i)
        code.results.push_back(slots.at(op.operand(i)));
      break;
    }
    const size_t to = slots[op.result(0)] = code.slots++;
    if (op.num_operands() == 0) {
      code.constants.emplace_back(to, Elements(op, program));
      continue;
    }
    names += StrCat(op.name(), "\n");
    const size_t a = slots.at(op.operand(0));
    const size_t b = op.num_operands() > 1 ? slots.at(op.operand(1)) : a;
    code.steps.push_back({op.name() == "nn.add"   ? '+'
                          : op.name() == "nn.mul" ? '*'
                                                  : 'r',
                          a, b, to});
    code.elements = 1;
    for (const lathe::Dim& d : op.result(0).type().cast<lathe::AnyTensorType>().dims()) {
      code.elements *= static_cast<size_t>(d.value());
    }
  }
  return {[code](const lathe::KernelBuffer* buffers, lathe::KernelTeam*) { code.Run(buffers); },
          {},
          names};
}

}  // namespace

LATHE_PLUGIN(context) { lathe::ExternalCompilers::Global().Register({"toy", Refuse, Compile}); }
