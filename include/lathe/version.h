#pragma once

/* The version of these headers, for the preprocessor of C and C++; the build reads it from here.
 * lathe_runtime_version() (lathe/runtime.h) and lathe::Version() (lathe/support/version.h) give the
 * version of the library that is loaded. docs/packages.md says what may change between versions. */

#define LATHE_VERSION_MAJOR 0
#define LATHE_VERSION_MINOR 1
#define LATHE_VERSION_PATCH 0

/* 1002003 is version 1.2.3. */
#define LATHE_VERSION_NUMBER \
  (LATHE_VERSION_MAJOR * 1000000 + LATHE_VERSION_MINOR * 1000 + LATHE_VERSION_PATCH)

#define LATHE_STRING_OF_(x) #x
#define LATHE_STRING_OF(x) LATHE_STRING_OF_(x)
/* "MAJOR.MINOR.PATCH" */
#define LATHE_VERSION_STRING           \
  LATHE_STRING_OF(LATHE_VERSION_MAJOR) \
  "." LATHE_STRING_OF(LATHE_VERSION_MINOR) "." LATHE_STRING_OF(LATHE_VERSION_PATCH)
