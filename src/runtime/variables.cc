#include "src/runtime/variables.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "lathe/support/pages.h"

namespace lathe::runtime {
namespace {

Error NoSuchParameter(const Plan& plan, std::string_view name) {
  Error error(ErrorCode::kNotFound, "parameter/missing",
              StrCat("the program has no parameter '", name, "'"));
  if (const std::string near = DidYouMean(name, plan.constant_names); !near.empty()) {
    error.Hint(near);
  }
  return error;
}

}  // namespace

void CheckParameterFits(std::string_view name, const Tensor& value, const Tensor& wanted) {
  const bool same_type = value.element_type() == wanted.element_type();
  if (same_type && value.shape() == wanted.shape()) return;
  throw Error(same_type ? ErrorCode::kShape : ErrorCode::kType,
              same_type ? "parameter/shape" : "parameter/type",
              StrCat("parameter '", name, "' is ", wanted.TypeString(), ", not ",
                     value.is_defined() ? value.TypeString() : "nothing"));
}

Error ConstantParameter(std::string_view name) {
  return Error(ErrorCode::kInvalidArgument, "parameter/constant",
               StrCat("parameter '", name, "' is a constant: the program never sets it"))
      .Hint("what follows from constants is computed when a program is compiled");
}

Variables::Variables(const Plan& plan) : plan_(plan) {
  const auto writes = [&](const PlanStep& step) { return WritesVariable(plan, step); };
  const auto first = std::ranges::find_if(plan.steps, writes);
  first_update_ = static_cast<size_t>(first - plan.steps.begin());
  for (size_t i = 0; i < plan.variables.size(); ++i) {
    const Tensor& initial = InitialOf(i);
    buffers_.push_back(Buffer::Allocate(initial.byte_size()));
    if (initial.byte_size() == 0) continue;
    std::memcpy(data(i), initial.raw(), initial.byte_size());
    GiveUpPages(initial.raw(), initial.byte_size());  // of the file: there is a copy now
  }
}

std::byte* Variables::data(size_t variable) const { return buffers_[variable]->mutable_data(); }

const Tensor& Variables::InitialOf(size_t variable) const {
  return plan_.constants[plan_.variables[variable].initial];
}

const std::string& Variables::NameOf(size_t variable) const {
  return plan_.constant_names[plan_.variables[variable].initial];
}

std::vector<std::string> Variables::Names() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < plan_.variables.size(); ++i) names.push_back(NameOf(i));
  std::ranges::sort(names);
  return names;
}

uint32_t Variables::ConstantNamed(std::string_view name) const {
  const auto found = std::ranges::find(plan_.constant_names, name);
  if (found == plan_.constant_names.end()) throw NoSuchParameter(plan_, name);
  return static_cast<uint32_t>(found - plan_.constant_names.begin());
}

const PlanVariable* Variables::VariableOf(uint32_t constant) const {
  const auto found = std::ranges::find(plan_.variables, constant, &PlanVariable::initial);
  return found == plan_.variables.end() ? nullptr : &*found;
}

Tensor Variables::CopyOf(size_t variable) const {
  const Tensor& initial = InitialOf(variable);
  Tensor copy(initial.element_type(), initial.shape());
  if (copy.byte_size() > 0) std::memcpy(copy.mutable_raw(), data(variable), copy.byte_size());
  return copy;
}

Tensor Variables::Get(std::string_view name) const {
  const uint32_t constant = ConstantNamed(name);
  const PlanVariable* variable = VariableOf(constant);
  if (variable == nullptr) return plan_.constants[constant].Clone();
  const Turn turn(*this);
  return CopyOf(static_cast<size_t>(variable - plan_.variables.data()));
}

void Variables::Set(std::string_view name, const Tensor& value) const {
  const uint32_t constant = ConstantNamed(name);
  const PlanVariable* variable = VariableOf(constant);
  if (variable == nullptr) throw ConstantParameter(name);
  CheckParameterFits(name, value, plan_.constants[constant]);
  const Turn turn(*this);
  const auto index = static_cast<size_t>(variable - plan_.variables.data());
  if (value.byte_size() > 0) std::memcpy(data(index), value.raw(), value.byte_size());
}

NamedTensors Variables::GetAll() const {
  const Turn turn(*this);
  NamedTensors all;
  for (size_t i = 0; i < plan_.variables.size(); ++i) all.emplace_back(NameOf(i), CopyOf(i));
  return all;
}

Variables::Turn::Turn(const Variables& variables)
    : variables_(variables.buffers_.empty() ? nullptr : &variables) {
  if (variables_ == nullptr) return;
  constexpr auto kLook = std::chrono::milliseconds(1);
  std::unique_lock lock(variables_->mutex_);
  const auto is_free = [&] { return !variables_->busy_; };
  if (Budget::Current() == nullptr) variables_->freed_.wait(lock, is_free);
  while (!variables_->freed_.wait_for(lock, kLook, is_free)) CheckBudget();
  variables_->busy_ = true;
}

Variables::Turn::~Turn() {
  if (variables_ == nullptr) return;
  {
    const std::lock_guard lock(variables_->mutex_);
    variables_->busy_ = false;
  }
  variables_->freed_.notify_one();
}

}  // namespace lathe::runtime
