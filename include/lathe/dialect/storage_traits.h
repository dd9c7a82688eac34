#pragma once

namespace lathe {

/// Result 0 has the bytes of operand 0, under another shape or none: it may share its storage.
struct KeepsBytes {};

}  // namespace lathe
