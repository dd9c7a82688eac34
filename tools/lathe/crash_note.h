#pragma once

#include <memory>
#include <string>

#include "lathe/pass/pass_manager.h"

namespace lathe::command {

/// Has a crash of the process while a pass runs (a wrong access, an abort) say which pass it was,
/// and where its reproducer is. The crash itself stays what it is.
std::shared_ptr<PassInstrumentation> MakeCrashNote(const std::string& reproducer);

}  // namespace lathe::command
