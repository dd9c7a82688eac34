#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lathe {

/// What kernels of f32 may do to take less time: docs/precision.md says what each level promises.
/// A level allows what those before it allow.
enum class Precision : uint8_t {
  kStrict,  ///< the operations as the model has them, in f32
  kF32,     ///< fewer operations where the error, measured, is at most twice that of kStrict
  kHigh,    ///< fewer operations at an error of about 1e-5
  kBf16,    ///< products of numbers rounded to bf16, summed in f32
};

/// "strict", "f32", "high", "bf16"; in the order of the levels.
std::span<const std::string_view> PrecisionNames();
std::string_view Name(Precision precision);
/// Errors: compile/precision, with the nearest names.
Precision PrecisionNamed(std::string_view name);

}  // namespace lathe
