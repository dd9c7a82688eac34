#include "lathe/support/image.h"

#include <limits>

#include "lathe/support/error.h"
#include "lathe/support/file.h"

#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wimplicit-fallthrough"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wundef"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

namespace lathe {
namespace {

constexpr int64_t kMaxPixels = int64_t{1} << 28;

Error ImageError(const std::string& name, std::string_view what) {
  return Error(ErrorCode::kParse, "parse/image", StrCat(name, ": ", what))
      .At(name)
      .Hint("PNG, JPEG and BMP pictures can be read");
}

}  // namespace

Tensor ParseImage(std::span<const std::byte> bytes, const std::string& name, int channels) {
  if (channels != 0 && channels != 1 && channels != 3 && channels != 4) {
    throw Error(ErrorCode::kInvalidArgument, "image/channels",
                StrCat("a picture can be read with 0, 1, 3 or 4 channels, not ", channels));
  }
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    throw ImageError(name, "the file is larger than 2 GiB");
  }
  const auto* data = reinterpret_cast<const stbi_uc*>(bytes.data());
  const auto size = static_cast<int>(bytes.size());
  int width = 0, height = 0, stored = 0;
  if (stbi_info_from_memory(data, size, &width, &height, &stored) == 0) {
    throw ImageError(name, "not a PNG, JPEG or BMP picture, or a damaged one");
  }
  if (int64_t{width} * height > kMaxPixels) {
    throw ImageError(name, StrCat(width, " x ", height, " pixels are too many"));
  }
  stbi_uc* pixels = stbi_load_from_memory(data, size, &width, &height, &stored, channels);
  if (pixels == nullptr) {
    throw ImageError(name, StrCat("the picture cannot be decoded: ", stbi_failure_reason()));
  }
  const std::shared_ptr<const void> owner(pixels, stbi_image_free);
  const int depth = channels == 0 ? stored : channels;
  const size_t total =
      static_cast<size_t>(width) * static_cast<size_t>(height) * static_cast<size_t>(depth);
  return Tensor::FromBuffer(ElementType::kU8, {height, width, depth},
                            Buffer::Wrap(pixels, total, owner));
}

Tensor ReadImage(const std::string& path, int channels) {
  const std::string content = ReadFile(path, uint64_t{1} << 31);
  return ParseImage(std::as_bytes(std::span(content.data(), content.size())), path, channels);
}

}  // namespace lathe
