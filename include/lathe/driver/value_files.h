#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/ir/type.h"
#include "lathe/support/rt_value.h"

/// Values of a program's inputs and outputs as files.
namespace lathe {

/// How a picture becomes a tensor. Pixels are 0..255 per channel; each value v of channel c is
/// stored as (v / 255 - mean[c]) / deviation[c], or as v itself with `raw`.
struct ImageOptions {
  bool raw = false;
  std::array<double, 3> mean{0, 0, 0};
  std::array<double, 3> deviation{1, 1, 1};
  bool bgr = false;  ///< blue first

  /// "unit" (v / 255), "imagenet" (mean 0.485 0.456 0.406, deviation 0.229 0.224 0.225), "signed"
  /// (v / 127.5 - 1) or "raw". Errors: usage/normalize.
  static ImageOptions Named(const std::string& name);
};

struct LoadedValue {
  RtValue value;
  std::string
      remark;  ///< what was done to a picture ("640x480 scaled to 299x224, cropped"), or empty
  std::optional<Tensor> picture;  ///< the u8[H, W, C] that was fed, for showing
};

/// Reads an input of type `expected` by the file's extension:
///   .npy          a tensor;   .npz  the entry called `name`, or the only one
///   .pb           an ONNX TensorProto, SequenceProto or OptionalProto
///   .png .jpg     a picture for an input of shape [C, H, W], [N, C, H, W] or [N, H, W, C] with C =
///   1
///                 or 3, scaled so that it covers H x W and cropped in the middle
/// Errors: io/..., run/input-file. Types and shapes are not checked here.
LoadedValue LoadInput(const std::string& name, const std::string& path, Type expected,
                      const ImageOptions& image);

/// Seeded random data of type `type`; symbols take what `bindings` say, else 1. Integers are 0 and
/// 1, so that they index any table.
RtValue RandomInput(Type type, std::span<const Dim::Binding> bindings, uint64_t seed,
                    uint64_t stream);

/// A tensor, and the file that is to hold it.
struct TensorFile {
  std::string path;
  Tensor tensor;
};
/// The files in `folder` that hold `values`, a list for each: `<name>.npy`, of a list
/// `<name>.0.npy`,
/// .... Characters that a file name cannot hold become '_', long names are cut, and of names that
/// are the same then, upper and lower case not told apart, those that had to be changed end in
/// "-2",
/// "-3", .... An absent optional has no file.
std::vector<std::vector<TensorFile>> FilesOf(const std::string& folder, const NamedValues& values);

struct Scored {
  int64_t index;
  double score;
};
/// The `k` largest elements of each row of a tensor of rank >= 1, largest first, ties by index;
/// rows run over the last axis.
std::vector<std::vector<Scored>> TopK(const Tensor& scores, int64_t k);

}  // namespace lathe
