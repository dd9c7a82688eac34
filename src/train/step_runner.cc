#include "src/train/step_runner.h"

#include <algorithm>

#include "lathe/support/error.h"

namespace lathe::train {

StepState StepRunner::State() const {
  StepState state;
  for (const std::string& name : executable_.MutableParameters()) {
    state.emplace_back(name, Parameter(name));
  }
  return state;
}

void StepRunner::SetState(const StepState& state) {
  const auto fail = [](std::string message, const std::string& name) {
    return Error(ErrorCode::kInvalidArgument, "train/checkpoint-parameter", std::move(message))
        .At(StrCat("parameter '", name, "'"))
        .Hint("a training goes on with the optimizer that it was started with");
  };
  const std::vector<std::string> names = executable_.MutableParameters();
  for (const auto& [name, tensor] : state) {
    if (!std::ranges::binary_search(names, name)) {
      throw fail("the checkpoint has a parameter that the training does not set", name);
    }
  }
  std::vector<const Tensor*> found;
  for (const std::string& name : names) {
    const auto at = std::ranges::find(state, name, &NamedTensors::value_type::first);
    if (at == state.end()) {
      throw fail("the checkpoint lacks a parameter of the training", name);
    }
    const Tensor& have = at->second;
    const Tensor wanted = Parameter(name);
    if (have.element_type() != wanted.element_type() || have.shape() != wanted.shape()) {
      throw fail(
          StrCat("the checkpoint has ", have.TypeString(), ", the training ", wanted.TypeString()),
          name);
    }
    found.push_back(&have);
  }
  for (size_t i = 0; i < names.size(); ++i) executable_.SetParameter(names[i], *found[i]);
}

TrainingMemory MemoryOf(const Program& model, const Program& step, const Executable& executable) {
  TrainingMemory memory;
  for (const auto& [name, variable] : step.parameters()) {
    const bool is_given = model.parameters().Find(name.value()) != nullptr;
    (is_given ? memory.parameters : memory.states) += variable.data.byte_size();
  }
  if (executable.executor() != nullptr) memory.step = executable.executor()->arena_bytes();
  return memory;
}

}  // namespace lathe::train
