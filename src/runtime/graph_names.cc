#include <set>

#include "lathe/support/text.h"
#include "src/runtime/graph_format.h"

namespace lathe::runtime::graph {
namespace {

struct TypeRow {
  ElementType type;
  std::string_view name;
};
constexpr std::array<TypeRow, 26> kTypes = {{
    {ElementType::kF32, "float32"},
    {ElementType::kU8, "uint8"},
    {ElementType::kI8, "int8"},
    {ElementType::kU16, "uint16"},
    {ElementType::kI16, "int16"},
    {ElementType::kI32, "int32"},
    {ElementType::kI64, "int64"},
    {ElementType::kBool, "bool"},
    {ElementType::kF16, "float16"},
    {ElementType::kF64, "float64"},
    {ElementType::kU32, "uint32"},
    {ElementType::kU64, "uint64"},
    {ElementType::kC64, "complex64"},
    {ElementType::kC128, "complex128"},
    {ElementType::kBF16, "bfloat16"},
    {ElementType::kF8E4M3FN, "float8_e4m3fn"},
    {ElementType::kF8E4M3FNUZ, "float8_e4m3fnuz"},
    {ElementType::kF8E5M2, "float8_e5m2"},
    {ElementType::kF8E5M2FNUZ, "float8_e5m2fnuz"},
    {ElementType::kU4, "uint4"},
    {ElementType::kI4, "int4"},
    {ElementType::kF4E2M1, "float4_e2m1fn"},
    {ElementType::kF8E8M0, "float8_e8m0fnu"},
    {ElementType::kU2, "uint2"},
    {ElementType::kI2, "int2"},
    {ElementType::kIndex, "index"},
}};

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// "fused_conv_relu" of "conv relu".
std::string KernelName(std::string_view label) {
  constexpr size_t kLongest = 64;
  std::string name = "fused_";
  for (const char c : label.substr(0, kLongest)) name += IsLetterOrDigit(c) ? c : '_';
  return name;
}

}  // namespace

std::string_view DataTypeName(ElementType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.name;
  }
  return {};
}

std::optional<ElementType> ParseDataType(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

KernelNames NameKernels(const Plan& plan, std::vector<std::string>& by_kernel) {
  KernelNames kernels{{plan.code.target, plan.code.features, plan.code.bytes, {}}, {}};
  by_kernel.assign(plan.code.entries.size(), "");
  std::set<std::string, std::less<>> taken;
  for (const PlanStep& step : plan.steps) {
    if (step.kernel == kNone || !by_kernel[step.kernel].empty()) continue;
    const std::string base = KernelName(step.label);
    std::string name = base;
    for (size_t i = 1; !taken.insert(name).second; ++i) name = StrCat(base, "_", i);
    kernels.code.entries.push_back(plan.code.entries[step.kernel]);
    kernels.names.push_back(name);
    by_kernel[step.kernel] = std::move(name);
  }
  return kernels;
}

}  // namespace lathe::runtime::graph
