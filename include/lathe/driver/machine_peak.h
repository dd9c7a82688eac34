#pragma once

#include "lathe/codegen/target.h"
#include "lathe/ir/context.h"

/// What this machine reaches, measured by code for one thread: half a second each. Time is that of
/// the thread, so that what else runs does not count.
namespace lathe {

/// f32 multiply-adds in registers, in 1e9 operations (two each) per second.
double PeakGflops(IrContext& context, const codegen::Target& target);

/// A loop that only reads that many bytes, again and again, in 1e9 bytes per second.
double ReadGbytes(IrContext& context, const codegen::Target& target, double bytes);

}  // namespace lathe
