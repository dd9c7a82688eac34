#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "lathe/driver/value_files.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/npy.h"
#include "lathe/support/safetensors.h"
#include "src/driver/csv.h"
#include "src/driver/element_reader.h"
#include "src/driver/value_text.h"

namespace lathe {
namespace {

Error NoSuchEntry(const std::string& name, const std::vector<std::string>& names,
                  const std::string& path) {
  Error error(ErrorCode::kNotFound, "run/npz-entry",
              StrCat("the file has ", names.size(), " entries and none is called '", name, "'"));
  error.At(path);
  if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
  return error;
}

class TensorArchive : public ValueFile {
 public:
  TensorArchive(std::string path, NamedTensors entries)
      : path_(std::move(path)), entries_(std::move(entries)) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : entries_) names.push_back(name);
    return names;
  }
  RtValue Get(const std::string& name, Type /*expected*/) const override {
    const auto found = std::ranges::find(entries_, name, &NamedTensors::value_type::first);
    if (found != entries_.end()) return found->second;
    if (entries_.size() == 1) return entries_[0].second;
    throw NoSuchEntry(name, names(), path_);
  }

 private:
  std::string path_;
  NamedTensors entries_;
};

class JsonFile : public ValueFile {
 public:
  explicit JsonFile(const std::string& path)
      : path_(path), document_(ParseJson(ReadFile(path), path)) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    if (!document_.is_object()) return names;
    for (const auto& [name, value] : document_.items()) names.push_back(name);
    return names;
  }
  RtValue Get(const std::string& name, Type expected) const override {
    if (document_.is_object() && !document_.contains(name)) {
      throw NoSuchEntry(name, names(), path_);
    }
    try {
      return ValueOfJson(document_.is_object() ? document_[name] : document_, expected);
    } catch (Error& error) {
      throw error.At(StrCat(path_, ", input '", name, "'"));
    }
  }

 private:
  std::string path_;
  nlohmann::json document_;
};

class CsvFile : public ValueFile {
 public:
  explicit CsvFile(const std::string& path) : path_(path), table_(ReadFile(path), path) {
    if (table_.num_rows() == 0) {
      throw Error(ErrorCode::kParse, "parse/csv", "there is no line in this table").At(path);
    }
  }

  std::vector<std::string> names() const override {
    const auto first = table_.row(0);
    const bool is_title = std::ranges::none_of(
        first, [](const std::string& cell) { return ParseDouble(cell).has_value(); });
    return is_title ? std::vector(first.begin(), first.end()) : std::vector<std::string>();
  }

  RtValue Get(const std::string& name, Type expected) const override {
    const auto type = expected.dyn_cast<AnyTensorType>();
    if (!type) {
      throw Error(ErrorCode::kInvalidArgument, "run/input-value",
                  StrCat("a table is not a value of type ", expected.ToString()))
          .At(path_);
    }
    const auto titles = table_.row(0);
    const auto titled = std::ranges::find(titles, name);
    const bool has_title =
        titled != titles.end() || (type.element() != ElementType::kString && !names().empty());
    const auto column = static_cast<size_t>(titled - titles.begin());
    const bool whole = titled == titles.end();
    return Fitted(Read(type.element(), has_title ? 1 : 0, whole ? 0 : column,
                       whole ? table_.num_columns() : column + 1),
                  type);
  }

 private:
  // Rows from `row` on, columns [begin, end).
  Tensor Read(ElementType element, size_t row, size_t begin, size_t end) const {
    ElementReader reader(element);
    const Shape shape = {static_cast<int64_t>(table_.num_rows() - row),
                         static_cast<int64_t>(end - begin)};
    for (; row < table_.num_rows(); ++row) {
      for (size_t i = begin; i < end; ++i) AddCell(reader, row, i, element);
    }
    return std::move(reader).Finish(shape);
  }

  // A number that is missing is NaN, as tables have it.
  void AddCell(ElementReader& reader, size_t row, size_t column, ElementType element) const {
    const std::string& cell = table_.row(row)[column];
    try {
      reader.Add(cell.empty() && IsFloat(element) ? "nan" : cell);
    } catch (Error& error) {
      throw error.At(StrCat(path_, ":", table_.line(row), ", column ", column + 1));
    }
  }

  std::string path_;
  CsvTable table_;
};

using Opener = std::unique_ptr<ValueFile> (*)(const std::string& path);

struct Kind {
  std::string_view extension;
  Opener open;
};

template <class File>
std::unique_ptr<ValueFile> Open(const std::string& path) {
  return std::make_unique<File>(path);
}

constexpr std::array<Kind, 5> kKinds = {
    Kind{".npz",
         [](const std::string& path) -> std::unique_ptr<ValueFile> {
           return std::make_unique<TensorArchive>(path, ReadNpz(path));
         }},
    Kind{".safetensors",
         [](const std::string& path) -> std::unique_ptr<ValueFile> {
           return std::make_unique<TensorArchive>(path, ReadSafeTensors(path).tensors);
         }},
    Kind{".json", Open<JsonFile>},
    Kind{".csv", Open<CsvFile>},
    Kind{".tsv", Open<CsvFile>},
};

}  // namespace

std::unique_ptr<ValueFile> OpenValueFile(const std::string& path) {
  const auto kind = std::ranges::find(kKinds, FileExtension(path), &Kind::extension);
  return kind == kKinds.end() ? nullptr : kind->open(path);
}

}  // namespace lathe
