#include "lathe/support/picture.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe {
namespace {

constexpr int64_t kSmall = 16;  // columns below which a picture is enlarged

struct Gray {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;

  [[nodiscard]] uint8_t at(int64_t y, int64_t x) const {
    return pixels[static_cast<size_t>(y * width + x)];
  }
};

// ITU-R BT.601 luma.
uint8_t Luma(std::span<const uint8_t> pixel) {
  if (pixel.size() < 3) return pixel[0];
  return static_cast<uint8_t>((299 * pixel[0] + 587 * pixel[1] + 114 * pixel[2] + 500) / 1000);
}

Gray ToGray(const Tensor& picture) {
  const std::span<const uint8_t> values = picture.data<uint8_t>();
  if (picture.rank() != 3 || picture.num_elements() == 0 || picture.dim(2) > 4) {
    throw Error(ErrorCode::kShape, "shape/picture",
                StrCat("a picture is u8[H, W, 1 to 4], not ", picture.TypeString()));
  }
  Gray gray{picture.dim(0), picture.dim(1), {}};
  const auto channels = static_cast<size_t>(picture.dim(2));
  for (size_t i = 0; i < values.size(); i += channels) {
    gray.pixels.push_back(Luma(values.subspan(i, channels)));
  }
  return gray;
}

uint8_t BoxMean(const Gray& gray, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
  int64_t sum = 0;
  for (int64_t y = y0; y < y1; ++y) {
    for (int64_t x = x0; x < x1; ++x) sum += gray.at(y, x);
  }
  return static_cast<uint8_t>(sum / ((y1 - y0) * (x1 - x0)));
}

// To `height` x `width`: the mean of the pixels that a new one covers, or the pixel it lies in.
Gray Scaled(const Gray& gray, int64_t height, int64_t width) {
  const auto range = [](int64_t i, int64_t from, int64_t to) {
    const int64_t begin = i * from / to;
    return std::pair{begin, std::max(begin + 1, (i + 1) * from / to)};
  };
  Gray scaled{height, width, {}};
  for (int64_t y = 0; y < height; ++y) {
    const auto [y0, y1] = range(y, gray.height, height);
    for (int64_t x = 0; x < width; ++x) {
      const auto [x0, x1] = range(x, gray.width, width);
      scaled.pixels.push_back(BoxMean(gray, y0, y1, x0, x1));
    }
  }
  return scaled;
}

// To at most `columns` columns and an even number of rows.
Gray Fitted(const Gray& gray, int64_t columns) {
  const int64_t enlarged = gray.width * std::max<int64_t>(1, kSmall / gray.width);
  const int64_t width = std::clamp<int64_t>(enlarged, 1, std::max<int64_t>(1, columns));
  const int64_t rows = (gray.height * width + gray.width / 2) / gray.width;
  return Scaled(gray, std::clamp<int64_t>(rows + rows % 2, 2, 4 * width), width);
}

// Entries 232 to 255 of the palette are a ramp from almost black to almost white.
int PaletteIndex(uint8_t gray) { return 232 + gray * 23 / 255; }

void AppendHalfBlock(std::string& out, uint8_t upper, uint8_t lower) {
  out += StrCat("\x1b[38;5;", PaletteIndex(upper), ";48;5;", PaletteIndex(lower), "m▀");
}

void AppendShade(std::string& out, uint8_t upper, uint8_t lower) {
  constexpr std::array<std::string_view, 5> kShades = {" ", "░", "▒", "▓", "█"};
  out += kShades[static_cast<size_t>((upper + lower) * 5 / 511)];
}

}  // namespace

std::string PictureToText(const Tensor& picture, bool color, int columns) {
  const Gray gray = Fitted(ToGray(picture), columns);
  std::string out;
  for (int64_t y = 0; y < gray.height; y += 2) {
    for (int64_t x = 0; x < gray.width; ++x) {
      (color ? AppendHalfBlock : AppendShade)(out, gray.at(y, x), gray.at(y + 1, x));
    }
    out += color ? "\x1b[0m\n" : "\n";
  }
  return out;
}

}  // namespace lathe
