#include "lathe/support/picture.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

Tensor Picture(Shape shape, const std::vector<uint8_t>& pixels) {
  return Tensor::Of<uint8_t>(std::move(shape), pixels);
}

TEST(PictureToTextTest, EnlargesSmallPicturesAndShadesThem) {
  const Tensor picture = Picture({2, 2, 1}, {0, 255, 128, 60});
  const std::string top = "        ████████\n";
  const std::string bottom = "▒▒▒▒▒▒▒▒░░░░░░░░\n";
  EXPECT_EQ(PictureToText(picture, false),
            top + top + top + top + bottom + bottom + bottom + bottom);
}

TEST(PictureToTextTest, PutsTwoRowsIntoAHalfBlockWithColor) {
  std::vector<uint8_t> pixels(32, 0);
  std::fill(pixels.begin() + 16, pixels.end(), 255);
  std::string expected;
  for (int x = 0; x < 16; ++x) expected += "\x1b[38;5;232;48;5;255m▀";
  EXPECT_EQ(PictureToText(Picture({2, 16, 1}, pixels), true), expected + "\x1b[0m\n");
}

TEST(PictureToTextTest, AveragesLargePicturesDownToTheColumns) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 400 * 200; ++i) pixels.push_back(i % 2 == 0 ? 255 : 0);
  const std::string text = PictureToText(Picture({200, 400, 1}, pixels), false, 4);
  EXPECT_EQ(text, "▒▒▒▒\n");
}

TEST(PictureToTextTest, WeighsColorsByBrightness) {
  EXPECT_EQ(PictureToText(Picture({1, 1, 3}, {0, 255, 0}), false, 1), "▒\n");
  EXPECT_EQ(PictureToText(Picture({1, 1, 4}, {0, 0, 255, 255}), false, 1), " \n");
}

TEST(PictureToTextTest, RefusesWhatIsNoPicture) {
  EXPECT_THROW((void)PictureToText(Picture({2, 2}, {1, 2, 3, 4}), false), Error);
  EXPECT_THROW((void)PictureToText(Picture({0, 2, 1}, {}), false), Error);
  EXPECT_THROW((void)PictureToText(Tensor(ElementType::kF32, {2, 2, 1}), false), Error);
}

}  // namespace
}  // namespace lathe
