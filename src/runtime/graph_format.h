#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/runtime/plan.h"
#include "src/runtime/shared_library.h"

/// The graph of a compiled program as JSON, as lathe/runtime/artifacts.h tells.
namespace lathe::runtime::graph {

inline constexpr int64_t kVersion = 5;
inline constexpr std::string_view kCopy = "__copy";  ///< a step without kernel
inline constexpr std::string_view kNop = "__nop";    ///< no step: another name for memory

/// "float32", as array libraries call it; empty for what has no such name.
std::string_view DataTypeName(ElementType type);
std::optional<ElementType> ParseDataType(std::string_view name);

/// By PlanValue::Place.
inline constexpr std::array<std::string_view, 5> kPlaceNames = {"input", "output", "parameter",
                                                                "arena", "variable"};

/// By SizeCondition::Kind.
inline constexpr std::array<std::string_view, 4> kConditionNames = {"equal", "at_least",
                                                                    "broadcast", "broadcast_to"};

/// The plan's kernels that steps call, in the order of the first calls, with names made of the
/// labels there: "fused_conv_relu_1". `by_kernel` gets them by PlanStep::kernel.
KernelNames NameKernels(const Plan& plan, std::vector<std::string>& by_kernel);

/// `parameters`: the names of the plan's constants; `library`: the checksum of its kernels. Errors:
/// artifact/name.
std::string Write(const Plan& plan, const std::vector<std::string>& parameters,
                  const std::vector<std::string>& kernels, uint64_t library);

/// A plan without code; its constants are empty tensors.
struct Content {
  Plan plan;
  std::vector<PlanValue> parameters;  ///< what the constants are to be
  std::vector<std::string> kernels;   ///< by PlanStep::kernel
  std::string target;
  std::string library;  ///< checksum
};
/// Errors: artifact/graph.
Content Read(const std::string& text);

}  // namespace lathe::runtime::graph
