#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "lathe/support/tensor.h"

namespace lathe {

// A PNG, JPEG or BMP picture as u8[H, W, C], rows from the top. `channels` 0 keeps what the file
// has (1 gray, 2 gray + alpha, 3 RGB, 4 RGBA); 1, 3 and 4 convert. Sixteen-bit files are reduced to
// eight. Throws io/... or parse/image. At most 2^28 pixels.
[[nodiscard]] Tensor ReadImage(const std::string& path, int channels = 0);
[[nodiscard]] Tensor ParseImage(std::span<const std::byte> bytes, const std::string& name,
                                int channels = 0);

}  // namespace lathe
