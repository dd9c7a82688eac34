#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/location.h"
#include "lathe/ir/value.h"

namespace lathe {

/// The name that the file of a model gives to a value, as ONNX names every value that a node makes.
/// It is part of the location of the operation, beside the name of the node: what keeps the
/// location keeps it. Empty if there is none, and for arguments of blocks.
std::string_view NameInFile(Value value);

/// Names a result of an operation whose location is a name; does nothing for other values, and for
/// names with a NUL character, which are nobody's.
void SetNameInFile(Value value, std::string_view name);

/// The location of a node, with the names of its results; an empty one, or one with a NUL
/// character, is not a name.
Location LocationOfNode(IrContext& context, std::string_view node,
                        std::span<const std::string> results);
/// Those names, empty ones included, up to the last one that there is; none for other locations.
std::vector<std::string_view> ResultNames(Location location);

}  // namespace lathe
