#include "lathe/driver/value_files.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "lathe/frontend/onnx.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/npy.h"
#include "lathe/support/random.h"
#include "src/driver/picture.h"

namespace lathe {

namespace {

const Tensor& NpzEntry(const NamedTensors& entries, const std::string& name,
                       const std::string& path) {
  for (const auto& [entry, tensor] : entries) {
    if (entry == name) return tensor;
  }
  if (entries.size() == 1) return entries[0].second;
  std::vector<std::string> names;
  for (const auto& [entry, tensor] : entries) names.push_back(entry);
  throw Error(
      ErrorCode::kNotFound, "run/npz-entry",
      StrCat("the archive has ", entries.size(), " entries and none is called '", name, "'"))
      .At(path)
      .Hint(DidYouMean(name, names));
}

}  // namespace

LoadedValue LoadInput(const std::string& name, const std::string& path, Type expected,
                      const ImageOptions& image) {
  const std::string extension = FileExtension(path);
  if (extension == ".npy") return {ReadNpy(path), {}, {}};
  if (extension == ".npz") return {NpzEntry(ReadNpz(path), name, path), {}, {}};
  if (extension == ".pb") return {ReadOnnxValue(path, expected).value, {}, {}};
  if (extension == ".png" || extension == ".jpg" || extension == ".jpeg") {
    return LoadPicture(name, path, expected, image);
  }
  throw Error(ErrorCode::kInvalidArgument, "run/input-file",
              StrCat("cannot tell what '", path, "' holds from its name"))
      .At(StrCat("input '", name, "'"))
      .Hint("give a .npy, .npz, .pb (ONNX TensorProto), .png or .jpg file");
}

namespace {
/// 0 and 1 only: an index of the smallest table, a mask, a flag.
Tensor SmallIntegers(const Tensor& t) {
  std::vector<int64_t> values = ToInt64s(t);
  for (int64_t& v : values) v &= 1;
  return Cast(Tensor::Of<int64_t>(t.shape(), values), t.element_type());
}
}  // namespace

RtValue RandomInput(Type type, std::span<const Dim::Binding> bindings, uint64_t seed,
                    uint64_t stream) {
  const auto tensor = type.dyn_cast<AnyTensorType>();
  if (!tensor || !tensor.has_rank()) {
    throw Error(ErrorCode::kUnsupported, "run/random-input",
                StrCat("cannot make random data of type ", type.ToString()))
        .Hint("give this input a file with --input NAME=FILE");
  }
  Shape shape;
  for (const Dim& d : tensor.dims()) {
    const auto lookup = [&](std::string_view symbol) -> std::optional<int64_t> {
      for (const auto& [name, extent] : bindings) {
        if (name == symbol) return extent;
      }
      return 1;
    };
    shape.push_back(d.is_unknown() ? 1 : d.Evaluate(lookup).value_or(1));
  }
  Tensor value = RandomTensor(tensor.element(), std::move(shape), seed, stream);
  return IsInteger(tensor.element()) ? SmallIntegers(value) : std::move(value);
}

namespace {

// What any file system takes as a name, with room for a number and an extension.
std::string SafeFileName(const std::string& name) {
  constexpr size_t kLongest = 200;
  std::string safe;
  for (const char c : name.substr(0, kLongest)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '_' || (c == '.' && !safe.empty());
    safe += plain ? c : '_';
  }
  return safe.empty() ? "_" : safe;
}

std::string LowerCase(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

// A file name for each name, no two the same; who can keep the name keeps it.
std::vector<std::string> FileNamesOf(const std::vector<std::string>& names) {
  std::vector<std::string> files(names.size());
  std::set<std::string> taken;  // asked only whether it holds a name
  for (size_t i = 0; i < names.size(); ++i) {
    const bool keeps =
        SafeFileName(names[i]) == names[i] && taken.insert(LowerCase(names[i])).second;
    if (keeps) files[i] = names[i];
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string safe = SafeFileName(names[i]);
    for (size_t n = 1; files[i].empty(); ++n) {
      const std::string file = n == 1 ? safe : StrCat(safe, "-", n);
      if (taken.insert(LowerCase(file)).second) files[i] = file;
    }
  }
  return files;
}

// Lists within lists end somewhere: values are not cyclic, and no program makes deep ones.
void CollectTensors(const std::string& name, const RtValue& value, std::vector<TensorFile>& files) {
  if (value.is_tensor()) files.push_back({name, value.tensor()});
  if (!value.is_list()) return;  // an absent optional has no data
  for (size_t i = 0; i < value.list().size(); ++i) {
    CollectTensors(StrCat(name, ".", i), value.list()[i], files);
  }
}

}  // namespace

std::vector<std::vector<TensorFile>> FilesOf(const std::string& folder, const NamedValues& values) {
  std::vector<std::vector<TensorFile>> files;
  std::vector<std::string> names;
  for (const auto& [name, value] : values) {
    CollectTensors(name, value, files.emplace_back());
    for (const TensorFile& file : files.back()) names.push_back(file.path);
  }
  const std::vector<std::string> unique = FileNamesOf(names);
  size_t next = 0;
  for (std::vector<TensorFile>& of_value : files) {
    for (TensorFile& file : of_value) file.path = StrCat(folder, "/", unique[next++], ".npy");
  }
  return files;
}

std::vector<std::vector<Scored>> TopK(const Tensor& scores, int64_t k) {
  if (scores.rank() == 0) {
    throw Error(ErrorCode::kInvalidArgument, "run/top", "a scalar output has no classes to rank");
  }
  const std::vector<double> all = ToDoubles(scores);
  const int64_t classes = scores.dim(-1);
  std::vector<std::vector<Scored>> rows;
  for (int64_t begin = 0; classes != 0 && begin < scores.num_elements(); begin += classes) {
    std::vector<Scored> row;
    for (int64_t i = 0; i < classes; ++i) row.push_back({i, all[static_cast<size_t>(begin + i)]});
    const auto keep = row.begin() + std::min(k, classes);
    const auto key = [](const Scored& s) { return std::isnan(s.score) ? -INFINITY : s.score; };
    std::partial_sort(row.begin(), keep, row.end(), [&](const Scored& a, const Scored& b) {
      return key(a) != key(b) ? key(a) > key(b) : a.index < b.index;
    });
    row.erase(keep, row.end());
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace lathe
