#pragma once

#include "lathe/ir/context.h"
#include "lathe/ir/program.h"
#include "tools/lathe/command.h"

namespace lathe::command {

/// ModelOptions::Load for commands that look at a program: without the file of its weights, if it
/// is not there, and then with a warning.
Program LoadStructure(const ModelOptions& model, IrContext& context);

}  // namespace lathe::command
