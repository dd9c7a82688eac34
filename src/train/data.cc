#include "lathe/train/data.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lathe/support/error.h"

namespace lathe::train {
namespace {

[[noreturn]] void BadData(const std::string& where, std::string message, std::string hint = "") {
  Error error(ErrorCode::kInvalidArgument, "train/data", std::move(message));
  error.At(where);
  if (!hint.empty()) error.Hint(std::move(hint));
  throw error;
}

Shape WithRows(int64_t rows, const Shape& sample) {
  Shape shape = {rows};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return shape;
}

Tensor Gather(const Tensor& array, const Column& column, std::span<const int64_t> rows) {
  Tensor batch(column.element, WithRows(static_cast<int64_t>(rows.size()), column.sample));
  if (array.dim(0) == 0 || array.byte_size() == 0) return batch;
  const size_t stride = array.byte_size() / static_cast<size_t>(array.dim(0));
  std::byte* to = batch.mutable_raw();
  for (const int64_t row : rows) {
    std::memcpy(to, array.raw() + static_cast<size_t>(row) * stride, stride);
    to += stride;
  }
  return batch;
}

class Arrays : public DataSet {
 public:
  Arrays(NamedTensors arrays, std::string described)
      : arrays_(std::move(arrays)), described_(std::move(described)) {
    if (arrays_.empty()) BadData(described_, "there are no arrays");
    for (const auto& [name, tensor] : arrays_) columns_.push_back(ColumnOf(name, tensor));
    size_ = arrays_[0].second.dim(0);
    for (const auto& [name, tensor] : arrays_) CheckExtent(name, tensor);
  }

  int64_t size() const override { return size_; }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe() const override { return described_; }
  NamedTensors Read(std::span<const int64_t> rows) const override {
    NamedTensors batch;
    for (size_t i = 0; i < columns_.size(); ++i) {
      batch.emplace_back(columns_[i].name, Gather(arrays_[i].second, columns_[i], rows));
    }
    return batch;
  }

 private:
  Column ColumnOf(const std::string& name, const Tensor& tensor) const {
    if (tensor.rank() == 0) BadData(described_, StrCat("array '", name, "' is a scalar"));
    const ElementType element = tensor.element_type();
    if (element == ElementType::kString || BitWidth(element) % 8 != 0) {
      BadData(described_, StrCat("array '", name, "' is of ", Name(element)),
              "arrays of numbers of whole bytes can be trained on");
    }
    return {name, element, Shape(tensor.shape().begin() + 1, tensor.shape().end())};
  }

  void CheckExtent(const std::string& name, const Tensor& tensor) const {
    if (tensor.dim(0) == size_) return;
    throw Error(ErrorCode::kShape, "train/extents",
                StrCat("array '", arrays_[0].first, "' has ", size_, " samples, '", name, "' has ",
                       tensor.dim(0)))
        .At(described_)
        .Hint("the first extent of each array is the number of samples");
  }

  NamedTensors arrays_;
  std::string described_;
  std::vector<Column> columns_;
  int64_t size_ = 0;
};

class Callback : public DataSet {
 public:
  Callback(int64_t size, std::vector<Column> columns, ReadRows read)
      : size_(size), columns_(std::move(columns)), read_(std::move(read)) {}

  int64_t size() const override { return size_; }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe() const override { return "samples of a callback"; }
  NamedTensors Read(std::span<const int64_t> rows) const override {
    NamedTensors given = read_(rows), batch;
    for (const Column& column : columns_)
      batch.emplace_back(column.name, Take(given, column, rows));
    return batch;
  }

 private:
  Tensor Take(NamedTensors& given, const Column& column, std::span<const int64_t> rows) const {
    const auto at = std::ranges::find(given, column.name, &NamedTensors::value_type::first);
    if (at == given.end()) BadData(Describe(), StrCat("it returned no '", column.name, "'"));
    const Shape shape = WithRows(static_cast<int64_t>(rows.size()), column.sample);
    if (at->second.shape() != shape || at->second.element_type() != column.element) {
      BadData(Describe(), StrCat("it returned '", column.name, "' as ", at->second.TypeString(),
                                 ", not as ", Name(column.element), ShapeToString(shape)));
    }
    return std::move(at->second);
  }

  int64_t size_;
  std::vector<Column> columns_;
  ReadRows read_;
};

}  // namespace

std::shared_ptr<const DataSet> FromTensors(NamedTensors arrays, std::string described) {
  return std::make_shared<Arrays>(std::move(arrays), std::move(described));
}

std::shared_ptr<const DataSet> FromCallback(int64_t size, std::vector<Column> columns,
                                            ReadRows read) {
  return std::make_shared<Callback>(size, std::move(columns), std::move(read));
}

}  // namespace lathe::train
