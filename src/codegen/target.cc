#include "lathe/codegen/target.h"

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
       .rounds = true},
      {.name = "avx512",
       .triple = "x86_64-unknown-linux-gnu",
       .cpu = "skylake-avx512",
       .features = "-prefer-256-bit",
       .vector_bytes = 64,
       .vector_registers = 32,
       .has_fma = true,
       .converts_f16 = true,
       .rounds = true},
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

bool Target::RunsHere() const {
#if defined(__x86_64__)
  if (name == "x86-64") return true;
  if (name == "avx2")
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (name == "avx512") {
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  }
  return false;
#elif defined(__aarch64__)
  return name == "aarch64";
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
