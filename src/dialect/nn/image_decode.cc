#include <algorithm>

#include "lathe/dialect/nn/image.h"
#include "lathe/support/error.h"
#include "lathe/support/image.h"
#include "src/dialect/infer_util.h"

namespace lathe::nn {
namespace {

bool Readable(std::span<const std::byte> bytes) {
  const auto starts = [bytes](std::initializer_list<int> magic) {
    return bytes.size() >= magic.size() &&
           std::equal(magic.begin(), magic.end(), bytes.begin(),
                      [](int a, std::byte b) { return a == std::to_integer<int>(b); });
  };
  return starts({0x89, 'P', 'N', 'G'}) || starts({0xff, 0xd8}) || starts({'B', 'M'});
}

// In place of red, green, blue: in fixed point, as ITU-R 601 weighs them.
Tensor ToGray(const Tensor& image) {
  Tensor gray(ElementType::kU8, {image.dim(0), image.dim(1), 1});
  const auto from = image.data<uint8_t>();
  const auto to = gray.mutable_data<uint8_t>();
  for (size_t i = 0; i < to.size(); ++i) {
    const uint32_t sum = from[3 * i] * 19595u + from[3 * i + 1] * 38470u + from[3 * i + 2] * 7471u;
    to[i] = static_cast<uint8_t>((sum + 0x8000u) >> 16);
  }
  return gray;
}

Tensor Reversed(Tensor image) {
  const auto pixels = image.mutable_data<uint8_t>();
  for (size_t i = 0; i + 2 < pixels.size(); i += 3) std::swap(pixels[i], pixels[i + 2]);
  return image;
}

}  // namespace

void ImageDecoderOp::InferShape(InferShapeContext& c) {
  static_cast<void>(ExpectRank(c, kEncodedStream, 1, "the stream"));
  const bool gray = ImageDecoderOp(c.op()).pixel_format() == "Grayscale";
  c.SetShape(kImage, {Dim(), Dim(), gray ? 1 : 3});
}

void ImageDecoderOp::Eval(EvalContext& c) {
  const std::string_view format = ImageDecoderOp(c.op()).pixel_format();
  const std::span<const std::byte> bytes = c.input(kEncodedStream).bytes();
  if (!Readable(bytes)) {
    throw Error(ErrorCode::kUnsupported, "image/format", "the picture is not PNG, JPEG or BMP");
  }
  Tensor image;
  try {
    image = ParseImage(bytes, "the encoded stream", 3);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kParse) throw;
    image = Tensor(ElementType::kU8, {0, 0, 3});
  }
  if (format == "Grayscale") image = ToGray(image);
  if (format == "BGR") image = Reversed(std::move(image));
  c.SetOutput(kImage, std::move(image));
}

}  // namespace lathe::nn
