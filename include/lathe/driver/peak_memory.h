#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "lathe/runtime/plan.h"

namespace lathe {

/// Bytes that are alive at the worst step of a plan.
struct PeakStorage {
  int64_t bytes = 0;
  std::string type;                   ///< of the largest tensor in them: "f32[16,64,112,112]"
  uint32_t first_step, last_step;     ///< numbers of steps, from 0
  std::string written_by, needed_by;  ///< labels of these steps
};

/// What `lathe inspect --memory` shows: why a run takes the memory that it takes.
struct PeakMemory {
  uint32_t step = 0;  ///< the first at which most is alive
  std::string label;  ///< of that step
  int64_t bytes = 0;  ///< alive there, each storage rounded up as the arena does
  uint32_t num_steps = 0;
  std::vector<PeakStorage> storages;  ///< alive there, the largest first
};

/// Symbols that are not given take no memory.
PeakMemory PeakOf(const runtime::Plan& plan, std::span<const Dim::Binding> symbols);
/// A table of the largest ones.
std::string RenderPeak(const PeakMemory& peak);
nlohmann::ordered_json PeakToJson(const PeakMemory& peak);

}  // namespace lathe
