#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lathe/runtime/plan.h"

namespace lathe::runtime {

/// Records when steps ran. One recorder may serve many runs of one executor, at once, too.
class Profile {
 public:
  struct Event {
    uint32_t step;      ///< index in Plan::steps
    uint32_t thread;    ///< threads that ran programs, in the order in which they appeared
    uint64_t begin_ns;  ///< on a clock that never goes back
    uint64_t end_ns;
    double flops;  ///< PlanStep::flops of this run; negative: unknown
    double bytes;  ///< PlanStep::bytes, or those of the step's tensors together
  };

  /// Events of the calling thread, whose `thread` is filled in.
  void Add(std::span<Event> events);
  /// In the order of runs that ended.
  std::vector<Event> events() const;
  void Clear();

  /// The events as JSON in Chrome's trace format (chrome://tracing, Perfetto): per step its label,
  /// origin, index, bytes and arithmetic, both also per second; times in microseconds from the
  /// first event on. With the machine's peaks, in 1e9 per second, also the share of the roofline.
  std::string ChromeTrace(const Plan& plan, double peak_gflops = 0, double peak_gbytes = 0) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  std::vector<std::thread::id> threads_;
};

}  // namespace lathe::runtime
