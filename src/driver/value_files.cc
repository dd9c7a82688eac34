#include "lathe/driver/value_files.h"

#include <algorithm>
#include <cmath>

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
              StrCat("can not tell what '", path, "' holds from its name"))
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
                StrCat("can not make random data of type ", type.ToString()))
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

std::string SafeFileName(const std::string& name) {
  std::string safe;
  for (const char c : name) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '_' || (c == '.' && !safe.empty());
    safe += plain ? c : '_';
  }
  return safe.empty() ? "_" : safe;
}

void SaveUnder(const std::string& stem, const RtValue& value, std::vector<std::string>& paths) {
  if (value.is_list()) {
    for (size_t i = 0; i < value.list().size(); ++i) {
      SaveUnder(StrCat(stem, ".", i), value.list()[i], paths);
    }
    return;
  }
  if (!value.is_tensor()) return;  // an absent optional has no data
  paths.push_back(stem + ".npy");
  WriteNpy(paths.back(), value.tensor());
}

}  // namespace

std::vector<std::string> SaveOutput(const std::string& folder, const std::string& name,
                                    const RtValue& value) {
  MakeDirectory(folder);
  std::vector<std::string> paths;
  SaveUnder(StrCat(folder, "/", SafeFileName(name)), value, paths);
  return paths;
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
