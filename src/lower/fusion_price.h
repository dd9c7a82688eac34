#pragma once

#include <cstddef>

#include "lathe/ir/operation.h"

/// What a plan of kernels costs: estimates in nanoseconds of one thread of an ordinary machine.
/// Only their ratios matter, so that the plan does not depend on the target.
namespace lathe::fusion {

/// Calling one more kernel.
inline constexpr double kCallNs = 300;
/// Bytes that are read or written in a nanosecond, from caches and memory.
inline constexpr double kBytesPerNs = 60;
/// Elements that an instruction works on in a nanosecond.
inline constexpr double kElementsPerNs = 30;
/// Tensors that a loop walks side by side before addresses and cache lines get scarce.
inline constexpr size_t kStreams = 24;

/// Symbolic and unknown extents count as 64.
double ElementsOf(Value v);
double BytesOf(Value v);
inline double PassNs(double bytes) { return bytes / kBytesPerNs; }
/// The arithmetic of an operation whose elements are computed one by one.
double ArithmeticNs(const Operation* op);

/// How often each element of `op`'s operand would be computed if `op` computed it where it reads
/// it: while it packs a matrix, or copies what a convolution's windows see. 0: it cannot.
double TimesComputed(const Operation* op, size_t operand);

/// How often each element of `from` is computed to make `to`, which broadcasts or rearranges it.
double TimesRepeated(Value from, Value to);

}  // namespace lathe::fusion
