#pragma once

namespace lathe::runtime {

/// While it lives, this thread computes as IEEE 754 says: rounds to nearest, keeps denormals, traps
/// nothing. Else a caller's setting would hold for its own thread alone, and results would depend
/// on which thread computed them. Exceptions that were raised stay raised, as after any arithmetic.
class FloatMode {
 public:
#if defined(__x86_64__)
  FloatMode() : before_(__builtin_ia32_stmxcsr()) { Set(kDefault); }
  ~FloatMode() { Set(before_ | (__builtin_ia32_stmxcsr() & kExceptions)); }
#else
  FloatMode() = default;
#endif
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kDefault = 0x1f80, kExceptions = 0x3f;
  static void Set(unsigned mode) { __builtin_ia32_ldmxcsr(mode); }
  const unsigned before_;
#endif
};

}  // namespace lathe::runtime
