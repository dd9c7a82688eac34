#include "lathe/codegen/target.h"

#include <algorithm>

#include "lathe/support/error.h"

namespace lathe::codegen {

const std::vector<Target>& Target::All() {
  static const std::vector<Target> targets = {
      {.name = "x86-64", .triple = "x86_64-unknown-linux-gnu", .cpu = "x86-64", .features = ""},
      {.name = "avx2",
       .triple = "x86_64-unknown-linux-gnu",
       .cpu = "haswell",
       .features = "",
       .vector_bytes = 32,
       .vector_registers = 16,
       .has_fma = true,
       .converts_f16 = true,
       .rounds = true,
       .processor_flags = {"avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe", "popcnt"}},
      {.name = "avx512",
       .triple = "x86_64-unknown-linux-gnu",
       .cpu = "skylake-avx512",
       .features = "-prefer-256-bit",
       .vector_bytes = 64,
       .vector_registers = 32,
       .has_fma = true,
       .converts_f16 = true,
       .rounds = true,
       .processor_flags = {"avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe", "popcnt",
                           "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}},
      {.name = "aarch64",
       .triple = "aarch64-unknown-linux-gnu",
       .cpu = "cortex-a72",
       .features = "",
       .vector_bytes = 16,
       .vector_registers = 32,
       .has_fma = true,
       .converts_f16 = true,
       .rounds = true},
  };
  return targets;
}

const Target& Target::Named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Target& target : All()) {
    if (target.name == name) return target;
    names.push_back(target.name);
  }
  throw Error(ErrorCode::kInvalidArgument, "codegen/target",
              StrCat("there is no target '", name, "'"))
      .Hint(DidYouMean(name, names));
}

namespace {

#if defined(__x86_64__)
// A flag of /proc/cpuinfo. The compiler knows some by other names, and takes literals only.
bool ProcessorHas(std::string_view flag) {
  if (flag == "avx2") return __builtin_cpu_supports("avx2") != 0;
  if (flag == "fma") return __builtin_cpu_supports("fma") != 0;
  if (flag == "f16c") return __builtin_cpu_supports("f16c") != 0;
  if (flag == "bmi1") return __builtin_cpu_supports("bmi") != 0;
  if (flag == "bmi2") return __builtin_cpu_supports("bmi2") != 0;
  if (flag == "abm") return __builtin_cpu_supports("lzcnt") != 0;
  if (flag == "movbe") return __builtin_cpu_supports("movbe") != 0;
  if (flag == "popcnt") return __builtin_cpu_supports("popcnt") != 0;
  if (flag == "avx512f") return __builtin_cpu_supports("avx512f") != 0;
  if (flag == "avx512bw") return __builtin_cpu_supports("avx512bw") != 0;
  if (flag == "avx512cd") return __builtin_cpu_supports("avx512cd") != 0;
  if (flag == "avx512dq") return __builtin_cpu_supports("avx512dq") != 0;
  if (flag == "avx512vl") return __builtin_cpu_supports("avx512vl") != 0;
  return false;
}
#endif

}  // namespace

bool Target::RunsHere() const {
#if defined(__x86_64__)
  return triple.starts_with("x86_64") && std::ranges::all_of(processor_flags, ProcessorHas);
#elif defined(__aarch64__)
  return triple.starts_with("aarch64");
#else
  return false;
#endif
}

const Target& Target::Host() {
  const Target* best = nullptr;
  for (const Target& target : All()) {
    if (target.RunsHere()) best = &target;
  }
  if (best != nullptr) return *best;
  throw Error(ErrorCode::kUnsupported, "codegen/host", "no code can be made for this machine");
}

}  // namespace lathe::codegen
