#include "src/driver/picture.h"

#include <algorithm>
#include <cmath>

#include "lathe/support/error.h"
#include "lathe/support/image.h"

namespace lathe {

ImageOptions ImageOptions::Named(const std::string& name) {
  if (name == "unit") return {};
  if (name == "raw") return {.raw = true};
  if (name == "signed") return {.mean = {0.5, 0.5, 0.5}, .deviation = {0.5, 0.5, 0.5}};
  if (name == "imagenet") {
    return {.mean = {0.485, 0.456, 0.406}, .deviation = {0.229, 0.224, 0.225}};
  }
  throw Error(ErrorCode::kInvalidArgument, "usage/normalize",
              StrCat("unknown normalization '", name, "'"))
      .Hint("one of unit, imagenet, signed, raw");
}

namespace {

/// Where channels, rows and columns stand in the input, and their wanted extents (0: as the file).
struct Layout {
  bool channels_last = false;
  size_t rank = 0;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
};

int64_t Extent(const Dim& d) { return d.is_constant() ? d.value() : 0; }
bool IsChannels(const Dim& d) { return d.IsConstant(1) || d.IsConstant(3); }

Layout LayoutOf(const std::string& name, const std::string& path, Type type) {
  const auto tensor = type.dyn_cast<AnyTensorType>();
  const auto dims = tensor ? tensor.dims() : std::span<const Dim>();
  if (dims.size() == 3 || dims.size() == 4) {
    const auto image = dims.last(3);
    if (IsChannels(image[0])) {
      return {false, dims.size(), image[0].value(), Extent(image[1]), Extent(image[2])};
    }
    if (IsChannels(image[2])) {
      return {true, dims.size(), image[2].value(), Extent(image[0]), Extent(image[1])};
    }
  }
  throw Error(
      ErrorCode::kShape, "run/picture-shape",
      StrCat("input '", name, "' of type ", type.ToString(), " does not look like a picture"))
      .At(path)
      .Hint(
          "a picture fits [C,H,W], [N,C,H,W] or [N,H,W,C] with 1 or 3 channels; give a .npy file "
          "instead");
}

/// Bilinear sample of channel `c` at (y, x) in pixels.
double Sample(const Tensor& picture, double y, double x, int64_t c) {
  const auto pixels = picture.data<uint8_t>();
  const int64_t h = picture.dim(0), w = picture.dim(1), n = picture.dim(2);
  const auto at = [&](int64_t r, int64_t s) {
    r = std::clamp<int64_t>(r, 0, h - 1);
    s = std::clamp<int64_t>(s, 0, w - 1);
    return static_cast<double>(pixels[static_cast<size_t>((r * w + s) * n + c)]);
  };
  const double fy = std::floor(y), fx = std::floor(x);
  const auto r = static_cast<int64_t>(fy), s = static_cast<int64_t>(fx);
  const double dy = y - fy, dx = x - fx;
  return (1 - dy) * ((1 - dx) * at(r, s) + dx * at(r, s + 1)) +
         dy * ((1 - dx) * at(r + 1, s) + dx * at(r + 1, s + 1));
}

/// Scaled to cover height x width and cropped in the middle. When it shrinks, each pixel is the
/// mean of a grid of samples over the area it covers, so that fine detail does not alias.
Tensor ScaleAndCrop(const Tensor& picture, int64_t height, int64_t width) {
  const auto h = static_cast<double>(picture.dim(0)), w = static_cast<double>(picture.dim(1));
  const double step = std::min(h / static_cast<double>(height), w / static_cast<double>(width));
  const double top = (h - step * static_cast<double>(height)) / 2;
  const double left = (w - step * static_cast<double>(width)) / 2;
  const int grid = std::clamp(static_cast<int>(std::ceil(step)), 1, 16);
  Tensor out(ElementType::kU8, {height, width, picture.dim(2)});
  auto pixels = out.mutable_data<uint8_t>();
  size_t next = 0;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < picture.dim(2); ++c) {
        double sum = 0;
        for (int i = 0; i < grid * grid; ++i) {
          const double u = (i / grid + 0.5) / grid, v = (i % grid + 0.5) / grid;
          sum += Sample(picture, top + (static_cast<double>(y) + u) * step - 0.5,
                        left + (static_cast<double>(x) + v) * step - 0.5, c);
        }
        pixels[next++] = static_cast<uint8_t>(std::lround(sum / (grid * grid)));
      }
    }
  }
  return out;
}

Tensor Normalized(const Tensor& picture, const Layout& layout, const ImageOptions& options) {
  const int64_t h = picture.dim(0), w = picture.dim(1), n = picture.dim(2);
  Shape shape = layout.channels_last ? Shape{h, w, n} : Shape{n, h, w};
  if (layout.rank == 4) shape.insert(shape.begin(), 1);
  Tensor out(ElementType::kF32, shape);
  auto values = out.mutable_data<float>();
  const auto pixels = picture.data<uint8_t>();
  for (int64_t i = 0; i < h * w; ++i) {
    for (int64_t c = 0; c < n; ++c) {
      const int64_t source = options.bgr ? n - 1 - c : c;
      const double v = pixels[static_cast<size_t>(i * n + source)];
      const auto channel = static_cast<size_t>(c);
      const double scaled = (v / 255 - options.mean[channel]) / options.deviation[channel];
      const int64_t at = layout.channels_last ? i * n + c : c * h * w + i;
      values[static_cast<size_t>(at)] = static_cast<float>(options.raw ? v : scaled);
    }
  }
  return out;
}

}  // namespace

LoadedValue LoadPicture(const std::string& name, const std::string& path, Type expected,
                        const ImageOptions& options) {
  const Layout layout = LayoutOf(name, path, expected);
  Tensor picture = ReadImage(path, static_cast<int>(layout.channels));
  const int64_t h = picture.dim(0), w = picture.dim(1);
  const int64_t height = layout.height != 0 ? layout.height : h;
  const int64_t width = layout.width != 0 ? layout.width : w;
  LoadedValue loaded;
  if (h != height || w != width) {
    picture = ScaleAndCrop(picture, height, width);
    loaded.remark = StrCat(path, ": ", w, "x", h, " scaled and cropped to ", width, "x", height);
  }
  const ElementType element = expected.cast<AnyTensorType>().element();
  loaded.value = Cast(Normalized(picture, layout, options), element);
  loaded.picture = std::move(picture);
  return loaded;
}

}  // namespace lathe
