#pragma once

#include "lathe/ir/context.h"
#include "lathe/version.h"

/// What a shared library for `lathe --load` (IrContext::LoadPlugin) defines, once:
///
///     LATHE_PLUGIN(context) { context.LoadDialect<MyDialect>(); }
///
/// The body runs when the library is loaded, `context` is an IrContext&; passes that are registered
/// with REGISTER_PASS are there already. The macro also notes the version of the headers, which
/// must be that of the Lathe that loads it (major and minor; io/plugin-version otherwise).
#define LATHE_PLUGIN(context)                                                         \
  extern "C" __attribute__((visibility("default"))) const char LathePluginVersion[] = \
      LATHE_VERSION_STRING;                                                           \
  extern "C" __attribute__((visibility("default"))) void LathePlugin(                 \
      [[maybe_unused]] lathe::IrContext& context)
