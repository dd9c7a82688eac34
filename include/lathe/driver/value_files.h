#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
  /// What was done to a picture ("640x480 scaled to 299x224, cropped"), or of how many files it is.
  std::string remark;
  std::optional<Tensor> picture;  ///< the u8[H, W, C] that was fed, for showing
};

/// A file of values that may have names.
class ValueFile {
 public:
  virtual ~ValueFile() = default;
  /// Of its values; empty: it is one value without a name.
  virtual std::vector<std::string> names() const = 0;
  /// The value called `name`, or the only one, as a value of type `expected` as far as the file
  /// does not tell. Errors: run/npz-entry, run/input-value.
  virtual RtValue Get(const std::string& name, Type expected) const = 0;
};

/// By the file's extension; null for others:
///   .npz .safetensors   tensors by name
///   .json               an object of values by name, or a value: lists in lists are a tensor, a
///                       list of values a list, null an optional that is absent
///   .csv .tsv           rows and columns of a tensor; with a line of titles that has the name, its
///                       column. An empty cell is NaN
/// What text gives takes the shape that is expected, if that follows from the number of elements.
/// Errors: io/..., parse/....
std::unique_ptr<ValueFile> OpenValueFile(const std::string& path);

/// True for the extensions .png, .jpg, .jpeg and .bmp.
bool IsPicture(const std::string& path);
/// True if LoadInput knows the file's extension.
bool IsValueFile(const std::string& path);

/// The files that `path` is: itself; those of a folder that IsValueFile holds of; or what a pattern
/// with * ? [ ] finds. Sorted by name. Errors: io/empty, if there is none.
std::vector<std::string> FilesAt(const std::string& path);

/// Reads an input of type `expected`: what OpenValueFile takes, or
///   .npy                       a tensor
///   .pb                        an ONNX TensorProto, SequenceProto or OptionalProto
///   .png .jpg .bmp             a picture for an input of shape [C, H, W], [N, C, H, W] or
///                              [N, H, W, C] with C = 1 or 3, scaled so that it covers H x W and
///                              cropped in the middle
///   a folder, or a pattern     the files of FilesAt, joined along the first axis
/// Errors: io/..., run/input-file, run/batch. Types and shapes are not checked here.
LoadedValue LoadInput(const std::string& name, const std::string& path, Type expected,
                      const ImageOptions& image);

/// The value of an input that is written as text: JSON, as in OpenValueFile, or an element, which
/// fills the shape; symbols take what `bindings` say, else 1. Errors: parse/json, run/input-value.
RtValue ParseValue(const std::string& name, std::string_view text, Type expected,
                   std::span<const Dim::Binding> bindings);

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

/// The names of these files, for values of these names: without ".npy".
std::vector<std::string> FileNamesOf(const std::vector<std::string>& names);

/// The tensors of `values` under the names that one file holds them by: the value's, of a list
/// `<name>.0`, .... An absent optional has none.
std::vector<std::pair<std::string, Tensor>> TensorsOf(const NamedValues& values);

/// True for the extensions of files that hold tensors by name: .npz and .safetensors.
bool IsTensorArchive(const std::string& path);
/// Writes such a file. Errors: io/..., invalid-argument/... for two tensors of one name.
void WriteTensorArchive(const std::string& path,
                        const std::vector<std::pair<std::string, Tensor>>& tensors);

struct Scored {
  int64_t index;
  double score;
};
/// The `k` largest elements of each row of a tensor of rank >= 1, largest first, ties by index;
/// rows run over the last axis.
std::vector<std::vector<Scored>> TopK(const Tensor& scores, int64_t k);

}  // namespace lathe
