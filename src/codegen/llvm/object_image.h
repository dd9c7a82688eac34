#pragma once

#include <string>

#include "lathe/codegen/code_image.h"

namespace lathe::codegen {

/// The code and constants of an x86-64 object file, put into one piece, every reference between
/// them resolved. Entries are its global functions, without workspaces. Errors: codegen/image names
/// what needs something outside, or memory to be written.
CodeImage ImageOfObject(const std::string& object);

}  // namespace lathe::codegen
