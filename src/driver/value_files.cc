#include "lathe/driver/value_files.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>

#include "lathe/frontend/onnx.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/npy.h"
#include "lathe/support/random.h"
#include "lathe/support/safetensors.h"
#include "src/dialect/move.h"
#include "src/driver/picture.h"

namespace lathe {

namespace {

namespace fs = std::filesystem;

bool HasExtension(const std::string& path, std::span<const std::string_view> extensions) {
  return std::ranges::find(extensions, FileExtension(path)) != extensions.end();
}

bool IsPattern(const std::string& path) {
  return path.find_first_of("*?[") != std::string::npos && !FileExists(path);
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string path = (fs::path(folder) / entry.path().filename()).string();
    if (IsValueFile(path) && !IsDirectory(path)) files.push_back(path);
  }
  return files;
}

std::vector<std::string> Matches(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> files;
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return files;
}

LoadedValue LoadFile(const std::string& name, const std::string& path, Type expected,
                     const ImageOptions& image) {
  if (const auto file = OpenValueFile(path)) return {file->Get(name, expected), {}, {}};
  const std::string extension = FileExtension(path);
  if (extension == ".npy") return {ReadNpy(path), {}, {}};
  if (extension == ".pb") return {ReadOnnxValue(path, expected).value, {}, {}};
  if (IsPicture(path)) return LoadPicture(name, path, expected, image);
  throw Error(ErrorCode::kInvalidArgument, "run/input-file",
              StrCat("cannot tell what '", path, "' holds from its name"))
      .At(StrCat("input '", name, "'"))
      .Hint(
          "give a .npy, .npz, .safetensors, .pb (ONNX TensorProto), .csv, .json, .png, .jpg or "
          ".bmp file, a folder of them, a number, or a list such as [1, 2]");
}

// A part of a batch, with the axis that the parts are joined along.
Tensor PartOfBatch(const RtValue& value, Type expected, const std::string& path) {
  const auto type = expected.dyn_cast<AnyTensorType>();
  if (!type || !value.is_tensor()) {
    throw Error(ErrorCode::kInvalidArgument, "run/batch",
                StrCat("several files are a batch, which ", expected.ToString(), " is not"))
        .At(path)
        .Hint("give one file");
  }
  Tensor part = value.tensor();
  Shape shape = part.shape();
  if (shape.empty() || (type.has_rank() && type.rank() == shape.size() + 1)) {
    shape.insert(shape.begin(), 1);
  }
  return part.Reshaped(std::move(shape));
}

void CheckAlike(const Tensor& part, const Tensor& first, const std::string& path) {
  const auto samples = [](const Tensor& t) { return std::span(t.shape()).subspan(1); };
  if (part.element_type() == first.element_type() &&
      std::ranges::equal(samples(part), samples(first))) {
    return;
  }
  throw Error(
      ErrorCode::kShape, "run/batch",
      StrCat("this is ", part.TypeString(), ", the first of the batch is ", first.TypeString()))
      .At(path)
      .Hint("for pictures, give the input a fixed size: --shape or --dim");
}

void CheckFits(const Tensor& batch, size_t num_files, const std::string& name, Type expected) {
  const auto type = expected.cast<AnyTensorType>();
  if (!type.has_rank() || type.rank() == 0 || !type.dims()[0].is_constant()) return;
  const int64_t wanted = type.dims()[0].value();
  if (wanted == batch.dim(0)) return;
  throw Error(ErrorCode::kShape, "run/batch",
              StrCat(num_files, " files make a batch of ", batch.dim(0), "; the input is ",
                     type.ToString()))
      .At(StrCat("input '", name, "'"))
      .Hint("give other files, or a model that leaves its first axis open");
}

LoadedValue LoadBatch(const std::string& name, const std::vector<std::string>& files, Type expected,
                      const ImageOptions& image) {
  std::vector<Tensor> parts;
  for (const std::string& file : files) {
    const LoadedValue loaded = LoadFile(name, file, expected, image);
    parts.push_back(PartOfBatch(loaded.value, expected, file));
    CheckAlike(parts.back(), parts[0], file);
  }
  Tensor batch = eval::Concatenate(parts, 0);
  CheckFits(batch, files.size(), name, expected);
  return {std::move(batch),
          StrCat("input '", name, "': a batch of ", files.size(), " files, ", files.front(), " to ",
                 files.back()),
          {}};
}

}  // namespace

bool IsPicture(const std::string& path) {
  static constexpr std::array<std::string_view, 4> kExtensions = {".png", ".jpg", ".jpeg", ".bmp"};
  return HasExtension(path, kExtensions);
}

bool IsValueFile(const std::string& path) {
  static constexpr std::array<std::string_view, 7> kExtensions = {
      ".npy", ".npz", ".safetensors", ".pb", ".csv", ".tsv", ".json"};
  return IsPicture(path) || HasExtension(path, kExtensions);
}

std::vector<std::string> FilesAt(const std::string& path) {
  const bool folder = IsDirectory(path);
  if (!folder && !IsPattern(path)) return {path};
  std::vector<std::string> files = folder ? FilesIn(path) : Matches(path);
  if (files.empty()) {
    throw Error(ErrorCode::kNotFound, "io/empty",
                folder ? "there is no file of values or picture in this folder"
                       : "no file has a name of this pattern")
        .At(path);
  }
  std::ranges::sort(files);
  return files;
}

LoadedValue LoadInput(const std::string& name, const std::string& path, Type expected,
                      const ImageOptions& image) {
  const std::vector<std::string> files = FilesAt(path);
  return files.size() == 1 ? LoadFile(name, files[0], expected, image)
                           : LoadBatch(name, files, expected, image);
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

}  // namespace

// Who can keep the name keeps it.
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

namespace {

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

NamedTensors TensorsOf(const NamedValues& values) {
  std::vector<TensorFile> files;
  for (const auto& [name, value] : values) CollectTensors(name, value, files);
  NamedTensors tensors;
  for (TensorFile& file : files) tensors.emplace_back(std::move(file.path), std::move(file.tensor));
  return tensors;
}

bool IsTensorArchive(const std::string& path) {
  return HasExtension(path, std::array<std::string_view, 2>{".npz", ".safetensors"});
}

void WriteTensorArchive(const std::string& path, const NamedTensors& tensors) {
  if (FileExtension(path) == ".npz") return WriteNpz(path, tensors);
  WriteSafeTensors(path, {.tensors = tensors, .metadata = {}});
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
