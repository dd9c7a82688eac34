#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <optional>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/image.h"
#include "lathe/support/safetensors.h"
#include "lathe/train/data.h"

namespace lathe::train {
namespace {

Error DataError(const std::string& where, std::string message) {
  return Error(ErrorCode::kInvalidArgument, "train/data", std::move(message)).At(where);
}

// ---- IDX ----

[[noreturn]] void BadIdx(const std::string& path, std::string_view what) {
  throw Error(ErrorCode::kParse, "parse/idx", StrCat("not an IDX file: ", what)).At(path);
}

std::optional<ElementType> IdxElement(uint8_t code) {
  switch (code) {
    case 0x08:
      return ElementType::kU8;
    case 0x09:
      return ElementType::kI8;
    case 0x0b:
      return ElementType::kI16;
    case 0x0c:
      return ElementType::kI32;
    case 0x0d:
      return ElementType::kF32;
    case 0x0e:
      return ElementType::kF64;
    default:
      return std::nullopt;
  }
}

uint32_t BigEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (const char c : bytes.substr(0, 4)) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

// Elements of a file have their most significant byte first.
void SwapElements(std::byte* data, size_t bytes, size_t width) {
  static_assert(std::endian::native == std::endian::little);
  for (size_t at = 0; at < bytes; at += width) std::reverse(data + at, data + at + width);
}

// ---- a folder of pictures by class ----

// Names in a folder, sorted, so that no file system decides an order.
std::vector<std::string> SortedEntries(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

class Pictures : public DataSet {
 public:
  Pictures(const std::string& folder, const DataOptions& options)
      : folder_(folder), options_(options) {
    int64_t label = 0;
    for (const std::string& name : SortedEntries(folder)) {
      const std::string of_class = StrCat(folder, "/", name);
      if (!IsDirectory(of_class)) continue;
      for (const std::string& file : SortedEntries(of_class)) {
        if (IsPicture(file)) pictures_.push_back({StrCat(of_class, "/", file), label});
      }
      ++label;
    }
    if (pictures_.empty()) {
      throw DataError(folder, "there are no pictures in this folder")
          .Hint(
              "pictures (.png, .jpg, .bmp) are expected in a folder for each class: "
              "FOLDER/cat/1.png");
    }
    const Tensor first = ReadOne(0);
    columns_ = {{options_.picture, first.element_type(), first.shape()},
                {kLabels, ElementType::kI64, {}}};
  }

  int64_t size() const override { return static_cast<int64_t>(pictures_.size()); }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe() const override { return folder_; }
  NamedTensors Read(std::span<const int64_t> rows) const override {
    const auto count = static_cast<int64_t>(rows.size());
    Shape shape = columns_[0].sample;
    shape.insert(shape.begin(), count);
    Tensor images(columns_[0].element, shape), labels(ElementType::kI64, {count});
    std::byte* to = images.mutable_raw();
    for (size_t i = 0; i < rows.size(); ++i) {
      const Tensor image = ReadOne(rows[i]);
      if (image.shape() != columns_[0].sample) {
        throw DataError(pictures_[static_cast<size_t>(rows[i])].path,
                        StrCat("this picture is ", ShapeToString(image.shape()), ", the first is ",
                               ShapeToString(columns_[0].sample)))
            .Hint("give the model a fixed picture size: --shape or --dim");
      }
      std::memcpy(to, image.raw(), image.byte_size());
      to += image.byte_size();
      labels.mutable_data<int64_t>()[i] = pictures_[static_cast<size_t>(rows[i])].label;
    }
    return {{columns_[0].name, std::move(images)}, {kLabels, std::move(labels)}};
  }

 private:
  struct Picture {
    std::string path;
    int64_t label;
  };

  // Without the axis of samples.
  Tensor ReadOne(int64_t row) const {
    const std::string& path = pictures_[static_cast<size_t>(row)].path;
    const LoadedValue loaded =
        LoadInput(options_.picture, path, options_.picture_type, options_.image);
    const Tensor& image = loaded.value.tensor();
    if (image.rank() != 4) return image;
    return image.Reshaped(Shape(image.shape().begin() + 1, image.shape().end()));
  }

  std::string folder_;
  DataOptions options_;
  std::vector<Picture> pictures_;
  std::vector<Column> columns_;
};

// ---- what sources name ----

bool IsArchive(const std::string& path) {
  const std::string extension = FileExtension(path);
  return extension == ".npz" || extension == ".safetensors";
}

NamedTensors ReadArchive(const std::string& path) {
  if (FileExtension(path) == ".npz") return ReadNpz(path);
  return ReadSafeTensors(path).tensors;
}

std::pair<std::string, std::string> SplitName(const std::string& source) {
  const size_t equals = source.find('=');
  if (equals != std::string::npos && equals > 0) {
    return {source.substr(0, equals), source.substr(equals + 1)};
  }
  if (!FileExists(source)) {
    throw Error(ErrorCode::kNotFound, "io/open", "there is no such file").At(source);
  }
  throw DataError(source, "one array needs a name")
      .Hint(StrCat("write NAME=", source, ", with the name of the input that it feeds, or '",
                   kLabels, "'"));
}

void Add(NamedTensors& arrays, std::string name, Tensor tensor, const std::string& where) {
  if (std::ranges::find(arrays, name, &NamedTensors::value_type::first) != arrays.end()) {
    throw DataError(where, StrCat("there are two arrays '", name, "'"));
  }
  arrays.emplace_back(std::move(name), std::move(tensor));
}

void AddSource(NamedTensors& arrays, const std::string& source) {
  if (IsArchive(source) && source.find('=') == std::string::npos) {
    for (auto& [name, tensor] : ReadArchive(source)) {
      Add(arrays, name, std::move(tensor), source);
    }
    return;
  }
  auto [name, file] = SplitName(source);
  Add(arrays, name, FileExtension(file) == ".npy" ? ReadNpy(file) : ReadIdx(file), file);
}

}  // namespace

Tensor ReadIdx(const std::string& path) {
  const std::string file = ReadFile(path);
  if (file.size() < 4 || file[0] != 0 || file[1] != 0) {
    const bool zipped = file.starts_with("\x1f\x8b");
    BadIdx(path, zipped ? "it is compressed; gunzip it first" : "it does not begin with two zeros");
  }
  const auto element = IdxElement(static_cast<uint8_t>(file[2]));
  if (!element) BadIdx(path, StrCat("there is no element type ", static_cast<uint8_t>(file[2])));
  const auto rank = static_cast<size_t>(static_cast<uint8_t>(file[3]));
  const size_t header = 4 + 4 * rank;
  if (file.size() < header) BadIdx(path, "it ends within its header");
  Shape shape;
  for (size_t i = 0; i < rank; ++i) {
    shape.push_back(BigEndian(std::string_view(file).substr(4 + 4 * i)));
  }
  const size_t width = BitWidth(*element) / 8, bytes = file.size() - header;
  if (bytes % width != 0 || static_cast<size_t>(NumElements(shape)) != bytes / width) {
    BadIdx(path, StrCat("it has ", bytes, " bytes of data, not those of ", Name(*element),
                        ShapeToString(shape)));
  }
  Tensor array = Tensor::FromBytes(*element, shape, std::as_bytes(std::span(file)).subspan(header));
  SwapElements(array.mutable_raw(), bytes, width);
  return array;
}

std::shared_ptr<const DataSet> OpenData(std::span<const std::string> sources,
                                        const DataOptions& options) {
  if (sources.size() == 1 && IsDirectory(sources[0])) {
    return std::make_shared<Pictures>(sources[0], options);
  }
  NamedTensors arrays;
  std::string described;
  for (const std::string& source : sources) {
    AddSource(arrays, source);
    described += StrCat(described.empty() ? "" : ", ", source);
  }
  return FromTensors(std::move(arrays), std::move(described));
}

}  // namespace lathe::train
