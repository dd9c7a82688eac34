#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/runtime/executor.h"
#include "lathe/runtime/plan.h"
#include "lathe/support/buffer.h"
#include "lathe/support/error.h"

namespace lathe::runtime {

/// Throws parameter/type or parameter/shape unless a parameter like `wanted` may become `value`.
void CheckParameterFits(std::string_view name, const Tensor& value, const Tensor& wanted);
/// Of whoever sets a parameter that the program does not set.
Error ConstantParameter(std::string_view name);

/// The mutable parameters of an executor, and whose turn it is to use them. Thread-safe but for
/// data(), which is whoever's turn it is.
class Variables {
 public:
  /// `plan` is checked, and outlives this. Each begins as its constant says.
  explicit Variables(const Plan& plan);

  std::byte* data(size_t variable) const;
  /// The first step that writes one; the number of steps if none does.
  size_t first_update() const { return first_update_; }

  /// As Executor has them.
  std::vector<std::string> Names() const;
  Tensor Get(std::string_view name) const;
  void Set(std::string_view name, const Tensor& value) const;
  /// Of all of them at once.
  NamedTensors GetAll() const;

  /// Waits until nobody else has its turn, and has it while it lives. Without variables it does
  /// nothing. Throws run/cancelled and limit/time of the thread's budget.
  class Turn {
   public:
    explicit Turn(const Variables& variables);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();

   private:
    const Variables* const variables_;  // null without any
  };

 private:
  const std::string& NameOf(size_t variable) const;
  const Tensor& InitialOf(size_t variable) const;
  /// Index of a constant. Throws parameter/missing.
  uint32_t ConstantNamed(std::string_view name) const;
  /// Null if it is a constant for good.
  const PlanVariable* VariableOf(uint32_t constant) const;
  Tensor CopyOf(size_t variable) const;

  const Plan& plan_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  size_t first_update_;
  mutable std::mutex mutex_;
  mutable std::condition_variable freed_;
  mutable bool busy_ = false;
};

}  // namespace lathe::runtime
