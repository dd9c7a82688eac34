#include "lathe/codegen/target.h"

#include <algorithm>

#include "lathe/support/error.h"
#include "lathe/support/tile_permission.h"

namespace lathe::codegen {

namespace {

// Names of /proc/cpuinfo; each tier has those of the one before.
std::vector<std::string> With(std::vector<std::string> flags, std::vector<std::string> more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

const std::vector<std::string>& Avx2Flags() {
  static const std::vector<std::string> flags = {"avx2", "fma", "f16c",  "bmi1",
                                                 "bmi2", "abm", "movbe", "popcnt"};
  return flags;
}

const std::vector<std::string>& Avx512Flags() {
  static const std::vector<std::string> flags =
      With(Avx2Flags(), {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"});
  return flags;
}

Target X86(std::string name, std::string cpu, std::string features, int vector_bytes,
           int vector_registers, std::vector<std::string> flags) {
  const bool plain = flags.empty();
  return {.name = std::move(name),
          .triple = "x86_64-unknown-linux-gnu",
          .cpu = std::move(cpu),
          .features = std::move(features),
          .vector_bytes = vector_bytes,
          .vector_registers = vector_registers,
          .has_fma = !plain,
          .converts_f16 = !plain,
          .rounds = !plain,
          .processor_flags = std::move(flags)};
}

}  // namespace

const std::vector<Target>& Target::All() {
  static const std::vector<Target> targets = {
      X86("x86-64", "x86-64", "", 16, 16, {}),
      X86("avx2", "haswell", "", 32, 16, Avx2Flags()),
      X86("avx2_vnni", "haswell", "+avxvnni", 32, 16, With(Avx2Flags(), {"avx_vnni"})),
      X86("avx512", "skylake-avx512", "-prefer-256-bit", 64, 32, Avx512Flags()),
      X86("avx512_vnni", "skylake-avx512", "-prefer-256-bit,+avx512vnni", 64, 32,
          With(Avx512Flags(), {"avx512_vnni"})),
      X86("avx512_bf16", "skylake-avx512", "-prefer-256-bit,+avx512vnni,+avx512vbmi,+avx512bf16",
          64, 32, With(Avx512Flags(), {"avx512_vnni", "avx512vbmi", "avx512_bf16"})),
      X86("amx", "skylake-avx512",
          "-prefer-256-bit,+avx512vnni,+avx512vbmi,+avx512bf16,+amx-tile,+amx-bf16,+amx-int8", 64,
          32,
          With(Avx512Flags(),
               {"avx512_vnni", "avx512vbmi", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"})),
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
  std::string names;
  for (const Target& target : All()) {
    if (target.name == name) return target;
    names += StrCat(names.empty() ? "" : ", ", target.name);
  }
  throw Error(ErrorCode::kInvalidArgument, "codegen/target",
              StrCat("there is no target '", name, "'"))
      .Hint(StrCat("targets are ", names));
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
  if (flag == "avx512_vnni") return __builtin_cpu_supports("avx512vnni") != 0;
  if (flag == "avx512vbmi") return __builtin_cpu_supports("avx512vbmi") != 0;
  if (flag == "avx512_bf16") return __builtin_cpu_supports("avx512bf16") != 0;
  if (flag == "avx_vnni") return __builtin_cpu_supports("avxvnni") != 0;
  if (flag == "amx_tile") return MayUseTiles();
  if (flag == "amx_bf16") return __builtin_cpu_supports("amx-bf16") != 0;
  if (flag == "amx_int8") return __builtin_cpu_supports("amx-int8") != 0;
  return false;
}
#endif

}  // namespace

bool Target::has_tiles() const { return std::ranges::count(processor_flags, "amx_tile") > 0; }

bool Target::has_dots() const {
  return std::ranges::count(processor_flags, "avx512_vnni") > 0 ||
         std::ranges::count(processor_flags, "avx_vnni") > 0;
}

bool Target::permutes_words() const { return std::ranges::count(processor_flags, "avx512bw") > 0; }

bool Target::permutes_bytes() const {
  return std::ranges::count(processor_flags, "avx512vbmi") > 0;
}

bool Target::has_bf16() const { return std::ranges::count(processor_flags, "avx512_bf16") > 0; }

bool Target::RunsHere() const {
#if defined(__x86_64__)
  return triple.starts_with("x86_64") && std::ranges::all_of(processor_flags, ProcessorHas);
#elif defined(__aarch64__)
  return triple.starts_with("aarch64");
#else
  return false;
#endif
}

namespace {

// Where there is no AMX, or Linux does not give it: Intel's processors multiply pairs of bf16 more
// slowly than f32.
bool PaysHere(const Target& target) {
#if defined(__x86_64__)
  return !target.has_bf16() || target.has_tiles() || __builtin_cpu_is("amd") != 0;
#else
  return !target.name.empty();
#endif
}

}  // namespace

const Target& Target::Host() {
  const Target* best = nullptr;
  for (const Target& target : All()) {
    if (target.RunsHere() && PaysHere(target)) best = &target;
  }
  if (best != nullptr) return *best;
  throw Error(ErrorCode::kUnsupported, "codegen/host", "no code can be made for this machine");
}

}  // namespace lathe::codegen
