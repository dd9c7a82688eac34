#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lathe/pass/instrumentation.h"
#include "lathe/pass/pass_manager.h"

namespace lathe::command {

/// What `lathe opt --json` says of a run: its passes with times, what they counted, remarks.
nlohmann::ordered_json RunJson(const PassManager& manager, const OpCountInstrumentation& counts);

/// What `lathe opt --list-passes --json` says: passes with their options, pipelines with their
/// steps.
nlohmann::ordered_json PassListJson();

}  // namespace lathe::command
