#pragma once

#include <span>
#include <string>
#include <vector>

#include "lathe/codegen/target.h"
#include "lathe/driver/machine_peak.h"
#include "lathe/ir/context.h"
#include "lathe/support/tensor.h"

namespace lathe::bench {

/// A function to lower, compile and time on one thread.
struct Job {
  std::string name;
  std::string text;            ///< a program with one function
  std::vector<Tensor> inputs;  ///< of the function
  std::vector<bool> constant;  ///< per input, whether it may be packed; empty: none
  Tensor output;
  double flops = 0;
  double bytes = 0;       ///< read and written at least
  bool assembly = false;  ///< to print the code instead
};

struct MeasureOptions {
  bool cold = false;  ///< constant inputs are not in cache, as in a model larger than the caches
  bool peer = false;  ///< oneDNN, too, by turns
};

/// Prints one line of JSON: the seconds of one run, GFLOP/s and the share of the peak, the bytes
/// per second and their share of what is read from as much memory. With a peer, whose
/// output must be the same up to rounding: its seconds, and how many times ours they are.
void Measure(IrContext& context, const codegen::Target& target, double peak,
             const MeasureOptions& options, Job job);

/// A kind of kernel: its own file; `arguments` are those behind its name.
using Kind = std::vector<Job> (*)(std::span<char* const> arguments);
std::vector<Job> MatmulJobs(std::span<char* const> arguments);
std::vector<Job> ConvJobs(std::span<char* const> arguments);
std::vector<Job> DepthwiseJobs(std::span<char* const> arguments);
std::vector<Job> PoolJobs(std::span<char* const> arguments);
std::vector<Job> RowJobs(std::span<char* const> arguments);
std::vector<Job> MovementJobs(std::span<char* const> arguments);

}  // namespace lathe::bench
