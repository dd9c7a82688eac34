#pragma once

#include "lathe/codegen/target.h"
#include "lathe/ir/context.h"

/// What this machine reaches, measured by code of ours on some threads at once, each in its own
/// processor time, so that what else runs does not count.
namespace lathe {

/// f32 multiply-adds in registers, in 1e9 operations (two each) per second.
double PeakGflops(IrContext& context, const codegen::Target& target, int threads = 1,
                  double seconds = 0.5);

/// A loop that only reads that many bytes, again and again, in 1e9 bytes per second.
double ReadGbytes(IrContext& context, const codegen::Target& target, double bytes, int threads = 1,
                  double seconds = 0.5);

/// The two lines that make a roofline. Per second.
struct MachinePeak {
  int threads = 1;
  double gflops = 0;
  double gbytes = 0;  ///< from memory: of more than caches hold
};

/// Takes a third of a second. Errors: codegen/missing, codegen/target.
MachinePeak MeasureMachine(const codegen::Target& target, int threads);

/// The least that some work takes: its arithmetic at the peak, or its memory at the speed of
/// memory.
struct Bound {
  double ms = -1;  ///< negative: unknown
  bool by_memory = false;
};
/// Of work in 1e9 operations and bytes; negative ones are unknown, as is a machine of 0.
Bound BoundOf(double gflop, double gigabytes, const MachinePeak& machine);

}  // namespace lathe
