#pragma once

#include <string>

#include "lathe/driver/value_files.h"

namespace lathe {

/// Reads a picture for an input of type `expected`; see LoadInput.
LoadedValue LoadPicture(const std::string& name, const std::string& path, Type expected,
                        const ImageOptions& options);

}  // namespace lathe
