#include "lathe/support/image.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string BigEndian(uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 255);
  return out;
}

// The decoder does not check sums, so they stay zero here.
std::string Chunk(const std::string& type, const std::string& data) {
  return BigEndian(static_cast<uint32_t>(data.size())) + type + data + std::string(4, '\0');
}

// An 8-bit PNG whose rows are stored as they are; `color` 0 gray, 2 RGB, 4 gray and alpha, 6 RGBA.
std::string Png(uint32_t width, uint32_t height, int color, const std::string& rows) {
  const auto size = static_cast<uint16_t>(rows.size());
  std::string block("\x78\x01\x01", 3);
  for (const int value : {size & 255, size >> 8, ~size & 255, (~size >> 8) & 255}) {
    block += static_cast<char>(value);
  }
  std::string header = BigEndian(width) + BigEndian(height) + '\x08';
  header += static_cast<char>(color);
  return std::string("\x89PNG\r\n\x1a\n", 8) + Chunk("IHDR", header + std::string(3, '\0')) +
         Chunk("IDAT", block + rows + std::string(4, '\0')) + Chunk("IEND", "");
}

// Each row starts with its filter, none.
const std::string kGray = Png(2, 2, 0, std::string("\0\1\2\0\3\4", 6));
const std::string kRgb = Png(1, 2, 2, std::string("\0\1\2\3\0\4\5\6", 8));
const std::string kRgba = Png(1, 1, 6, std::string("\0\1\2\3\4", 5));

TEST(ImageTest, KeepsTheChannelsOfTheFile) {
  EXPECT_EQ(ParseImage(Bytes(kGray), "a.png"), Tensor::Of<uint8_t>({2, 2, 1}, {1, 2, 3, 4}));
  EXPECT_EQ(ParseImage(Bytes(kRgb), "a.png"), Tensor::Of<uint8_t>({2, 1, 3}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(ParseImage(Bytes(kRgba), "a.png"), Tensor::Of<uint8_t>({1, 1, 4}, {1, 2, 3, 4}));
}

TEST(ImageTest, ConvertsChannels) {
  EXPECT_EQ(ParseImage(Bytes(kGray), "a.png", 3),
            Tensor::Of<uint8_t>({2, 2, 3}, {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}));
  EXPECT_EQ(ParseImage(Bytes(kRgba), "a.png", 3), Tensor::Of<uint8_t>({1, 1, 3}, {1, 2, 3}));
  EXPECT_EQ(ParseImage(Bytes(kRgb), "a.png", 1).shape(), (Shape{2, 1, 1}));
  EXPECT_THROW((void)ParseImage(Bytes(kRgb), "a.png", 2), Error);
}

// 8 x 8 pixels of gray 200.
TEST(ImageTest, ReadsJpeg) {
  const std::string hex =
      "ffd8ffe000104a46494600010100000100010000ffdb0043001b12141714111b1716171e1c1b2028422b28252528"
      "513a3d3042605565645f555d5b6a7899816a7190735b5d85b586909ea3abadab6780bcc9baa6c799a8aba4ffc000"
      "0b080008000801011100ffc40014000100000000000000000000000000000005ffc4001410010000000000000000"
      "0000000000000000ffda0008010100003f0055ffd9";
  std::string file;
  for (size_t i = 0; i < hex.size(); i += 2) {
    file += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  const Tensor t = ParseImage(Bytes(file), "a.jpg");
  EXPECT_EQ(t.shape(), (Shape{8, 8, 1}));
  for (const uint8_t pixel : t.data<uint8_t>()) EXPECT_NEAR(pixel, 200, 3);
}

// Rows from the bottom, blue first, padded to four bytes.
TEST(ImageTest, ReadsBmp) {
  std::string file("BM\x3e\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\1\0\0\0\2\0\0\0\1\0\x18\0", 30);
  file += std::string(24, '\0') + std::string("\6\5\4\0\3\2\1\0", 8);
  EXPECT_EQ(ParseImage(Bytes(file), "a.bmp"), Tensor::Of<uint8_t>({2, 1, 3}, {1, 2, 3, 4, 5, 6}));
  for (size_t cut = 0; cut < 54; ++cut) {
    EXPECT_THROW((void)ParseImage(Bytes(file.substr(0, cut)), "a.bmp"), Error) << cut;
  }
}

TEST(ImageTest, RefusesDamage) {
  for (size_t cut = 0; cut + 30 < kGray.size(); ++cut) {
    EXPECT_THROW((void)ParseImage(Bytes(kGray.substr(0, cut)), "a.png"), Error) << cut;
  }
  try {
    (void)ParseImage(Bytes(Png(1U << 20, 1U << 20, 0, "")), "huge.png");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "parse/image");
    EXPECT_EQ(error.where(), "huge.png");
  }
  EXPECT_THROW((void)ParseImage(Bytes("hello"), "a.txt"), Error);
}

TEST(ImageTest, ReadsFiles) {
  const TempFolder folder;
  const std::string path = folder / "image.png";
  WriteFile(path, kRgb);
  EXPECT_EQ(ReadImage(path).shape(), (Shape{2, 1, 3}));
  std::filesystem::remove(path);
  EXPECT_THROW((void)ReadImage(path), Error);
}

}  // namespace
}  // namespace lathe
