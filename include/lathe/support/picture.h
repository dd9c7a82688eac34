#pragma once

#include <string>

#include "lathe/support/tensor.h"

namespace lathe {

// A picture u8[H, W, C] (C is 1 to 4: gray, gray + alpha, RGB, RGBA) as lines of text for a
// terminal, in shades of gray, two rows of pixels to a line. Small pictures are enlarged, larger
// ones averaged to at most `columns` columns. With color: half blocks in the gray ramp of the
// 256-color palette; without: the five shades from blank to full block, bright is full.
// Throws type/element or shape/picture.
[[nodiscard]] std::string PictureToText(const Tensor& picture, bool color, int columns = 64);

}  // namespace lathe
