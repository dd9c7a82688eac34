#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lathe/driver/executable.h"
#include "lathe/driver/value_files.h"
#include "lathe/support/npy.h"
#include "lathe/support/tensor.h"

/// What a network is trained and evaluated on.
namespace lathe::train {

/// An array of a data set, of which each sample has a part.
struct Column {
  std::string name;
  ElementType element = ElementType::kUndefined;
  Shape sample;  ///< of one sample: the array is [size, sample...]
};

/// A list of samples. Immutable; `Read` may be called from any one thread at a time.
class DataSet {
 public:
  virtual ~DataSet() = default;
  /// Samples.
  virtual int64_t size() const = 0;
  virtual const std::vector<Column>& columns() const = 0;
  /// The samples `rows`, each in [0, size), in that order: a tensor [rows.size(), sample...] for
  /// each column. Errors: those of the source.
  virtual NamedTensors Read(std::span<const int64_t> rows) const = 0;
  /// Where it comes from, for messages.
  virtual std::string Describe() const = 0;
};

/// Arrays in memory, or mapped. Errors: train/data if there is none, or one is a scalar or of
/// strings; train/extents if their first extents differ.
std::shared_ptr<const DataSet> FromTensors(NamedTensors arrays, std::string described = "arrays");

/// Samples that a function makes: for `rows` it returns what DataSet::Read returns, always the same
/// for a row. It is called on a thread of the loader, by one thread at a time. Errors: train/data
/// if what it returns is not what `columns` says; what the function throws.
using ReadRows = std::function<NamedTensors(std::span<const int64_t> rows)>;
std::shared_ptr<const DataSet> FromCallback(int64_t size, std::vector<Column> columns,
                                            ReadRows read);

/// The names of the array of classes in IDX files and folders of pictures.
inline constexpr const char* kLabels = "labels";

struct DataOptions {
  /// Of pictures and of arrays of u8 that feed an input of floats.
  ImageOptions image = {};
  /// The input that pictures are read for, and its type: a folder has no other way to say a size.
  std::string picture = "image";
  Type picture_type = {};
};

/// Opens what `sources` name:
///
///   FILE.npz, FILE.safetensors    the arrays in the file, by their names
///   NAME=FILE.npy, NAME=FILE      one array: numpy's, or IDX, the format of the MNIST files
///   FOLDER                        a folder of pictures by class: FOLDER/<class>/<picture>.png or
///                                 .jpg; classes are numbered in the order of their names
///
/// Errors: io/..., parse/..., train/data with what is wrong, train/extents.
std::shared_ptr<const DataSet> OpenData(std::span<const std::string> sources,
                                        const DataOptions& options = {});

/// How many samples inputs take at a time, if that is fixed: the first extent of the first input
/// that has one.
std::optional<int64_t> FixedBatch(std::span<const Port> inputs);

/// Calls `use` with what the inputs of a model are for the first `samples` samples of the data (0:
/// all), in their order: FixedBatch at a time, else one by one; what does not fill a batch is left
/// out. Arrays are found and converted as in a training. Errors: train/batch if there are fewer
/// samples than a batch, train/array, train/array-type, train/array-shape, those of the data.
void ForEachBatch(const DataSet& data, std::span<const Port> inputs, int64_t samples,
                  const ImageOptions& image, const std::function<void(const NamedValues&)>& use);

/// The array of an IDX file (http://yann.lecun.com/exdb/mnist): u8, i8, i16, i32, f32 or f64, of
/// any rank. Errors: io/..., parse/idx.
Tensor ReadIdx(const std::string& path);

}  // namespace lathe::train
