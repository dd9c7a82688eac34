#pragma once

#include <map>
#include <optional>
#include <string>

#include "lathe/driver/precision_report.h"

namespace lathe {

/// Compares kernels of compiled programs with what their operations give in f64.
class KernelErrors {
 public:
  /// Of what is compiled in f64; `options` has an engine.
  explicit KernelErrors(CompileOptions options) : options_(std::move(options)) {}

  /// Runs the program as `options` compile it, each kernel by itself, and gives the one with the
  /// largest relative RMS error; none if no kernel has an error.
  std::optional<KernelError> Worst(const Program& program, const CompileOptions& options,
                                   const NamedValues& inputs);
  /// Kernels that have no program in f64.
  int64_t not_compared() const;

 private:
  struct Wide {
    std::optional<Executable> executable;  // none: there is no program in f64
  };
  const Wide& WideOf(const Operation* function, const Program& program);
  /// Of what a call of the function of `program` gave; none if it gave no floats, or there is
  /// nothing to compare.
  std::optional<KernelError> Compare(const Operation* function, const Program& program,
                                     const RanOp& call);

  CompileOptions options_;
  std::map<std::string, Wide> wide_;  // by the names of functions, which say what they compute
};

}  // namespace lathe
