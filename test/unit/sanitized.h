// Whether a sanitizer is in this build (cmake/toolchain.cmake): it brings memory, symbols and
// system calls of its own.
#pragma once

namespace lathe {

#if defined(LATHE_SANITIZED)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace lathe
