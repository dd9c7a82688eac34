#pragma once

#include <cstddef>

namespace lathe {

/// Says that memory will hardly be read again. Its whole pages may leave main memory; what they
/// hold stays: pages of a mapped file are read anew when they are needed. Never fails.
void GiveUpPages(const void* data, size_t bytes);

}  // namespace lathe
