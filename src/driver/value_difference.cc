#include "lathe/driver/value_difference.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "lathe/driver/value_files.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/npy.h"
#include "lathe/support/safetensors.h"

namespace lathe {
namespace {

std::string IndexText(int64_t element, const Shape& shape) {
  Shape index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    index[i] = element % shape[i];
    element /= shape[i];
  }
  return ShapeToString(index);
}

// Walks over the elements of two tensors of one shape.
class TensorComparison {
 public:
  TensorComparison(ValueDifference& d, const Shape& shape, std::string prefix, double rtol,
                   double atol)
      : d_(d), shape_(shape), prefix_(std::move(prefix)), rtol_(rtol), atol_(atol) {}

  void Numbers(const std::vector<double>& a, const std::vector<double>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
      const double error = std::fabs(a[i] - b[i]);
      if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
        Disagree(i, StrCat(a[i]), StrCat(b[i]));
        continue;
      }
      d_.max_abs = std::max(d_.max_abs, error);
      if (b[i] != 0) d_.max_rel = std::max(d_.max_rel, error / std::fabs(b[i]));
      if (error > atol_ + rtol_ * std::fabs(b[i])) Disagree(i, StrCat(a[i]), StrCat(b[i]));
    }
  }

  void Texts(std::span<const std::string> a, std::span<const std::string> b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i]) Disagree(i, Quote(a[i]), Quote(b[i]));
    }
  }

 private:
  void Disagree(size_t element, std::string a, std::string b) {
    if (d_.beyond++ > 0) return;
    d_.first_place = prefix_ + IndexText(static_cast<int64_t>(element), shape_);
    d_.first_a = std::move(a);
    d_.first_b = std::move(b);
  }

  ValueDifference& d_;
  const Shape& shape_;
  std::string prefix_;
  double rtol_, atol_;
};

// Real parts, or imaginary ones.
template <class C>
std::vector<double> Part(const Tensor& tensor, bool real) {
  std::vector<double> part;
  for (const C& c : tensor.data<C>()) part.push_back(real ? c.real() : c.imag());
  return part;
}

template <class C>
void CompareComplex(TensorComparison& comparison, const Tensor& a, const Tensor& b) {
  for (const bool real : {true, false}) comparison.Numbers(Part<C>(a, real), Part<C>(b, real));
}

void CompareTensors(const Tensor& a, const Tensor& b, const std::string& prefix, double rtol,
                    double atol, ValueDifference& d) {
  if (a.element_type() != b.element_type() || a.shape() != b.shape()) {
    d.mismatch = StrCat(a.TypeString(), " and ", b.TypeString());
    return;
  }
  d.elements += a.num_elements();
  TensorComparison comparison(d, a.shape(), prefix, rtol, atol);
  if (a.element_type() == ElementType::kString) {
    comparison.Texts(a.data<std::string>(), b.data<std::string>());
  } else if (a.element_type() == ElementType::kC64) {
    CompareComplex<std::complex<float>>(comparison, a, b);
  } else if (a.element_type() == ElementType::kC128) {
    CompareComplex<std::complex<double>>(comparison, a, b);
  } else {
    comparison.Numbers(ToDoubles(a), ToDoubles(b));
  }
}

// Lists in lists end somewhere: no program makes deep ones.
void Compare(const RtValue& a, const RtValue& b, const std::string& prefix, double rtol,
             double atol, ValueDifference& d) {
  if (!d.mismatch.empty()) return;
  if (std::string_view(a.KindName()) != b.KindName()) {
    d.mismatch = StrCat(a.KindName(), " and ", b.KindName());
  } else if (a.is_tensor()) {
    CompareTensors(a.tensor(), b.tensor(), prefix, rtol, atol, d);
  } else if (a.is_list() && a.list().size() != b.list().size()) {
    d.mismatch = StrCat("lists of ", a.list().size(), " and ", b.list().size());
  } else if (a.is_list()) {
    for (size_t i = 0; i < a.list().size(); ++i) {
      Compare(a.list()[i], b.list()[i], StrCat(prefix, i, "."), rtol, atol, d);
    }
  } else if (a != b) {
    d.mismatch = StrCat(a.ToString(16), " and ", b.ToString(16));
  }
}

std::string TypeTextOf(const RtValue& value) {
  return value.is_tensor() ? value.tensor().TypeString() : value.KindName();
}

ValueDifference CompareNamed(const std::string& name, const RtValue* a, const RtValue* b,
                             double rtol, double atol) {
  ValueDifference d;
  d.name = name;
  d.type = TypeTextOf(a != nullptr ? *a : *b);
  if (a == nullptr || b == nullptr) {
    d.mismatch = StrCat("only the ", a != nullptr ? "first" : "second", " has it");
  } else {
    Compare(*a, *b, "", rtol, atol, d);
  }
  return d;
}

}  // namespace

std::vector<ValueDifference> CompareValues(const NamedValues& a, const NamedValues& b, double rtol,
                                           double atol) {
  if (a.size() == 1 && b.size() == 1) {
    return {CompareNamed(a[0].first, &a[0].second, &b[0].second, rtol, atol)};
  }
  std::vector<ValueDifference> all;
  for (const auto& [name, value] : a) {
    all.push_back(CompareNamed(name, &value, Find(b, name), rtol, atol));
  }
  for (const auto& [name, value] : b) {
    if (Find(a, name) == nullptr) all.push_back(CompareNamed(name, nullptr, &value, rtol, atol));
  }
  return all;
}

void RestoreNames(NamedValues& of_folder, const NamedValues& others) {
  std::vector<std::string> names;
  for (const auto& [name, value] : others) names.push_back(name);
  const std::vector<std::string> files = FileNamesOf(names);
  for (auto& [name, value] : of_folder) {
    const auto file = std::ranges::find(files, name);
    if (file != files.end()) name = names[static_cast<size_t>(file - files.begin())];
  }
}

NamedValues ReadResults(const std::string& path) {
  NamedValues values;
  if (IsDirectory(path)) {
    for (const std::string& file : FilesAt(path)) {
      if (FileExtension(file) != ".npy") continue;
      values.emplace_back(std::filesystem::path(file).stem().string(), ReadNpy(file));
    }
    return values;
  }
  const std::string extension = FileExtension(path);
  if (extension == ".npy") {
    values.emplace_back(std::filesystem::path(path).stem().string(), ReadNpy(path));
  } else if (extension == ".npz") {
    for (auto& [name, tensor] : ReadNpz(path)) values.emplace_back(name, tensor);
  } else if (extension == ".safetensors") {
    for (auto& [name, tensor] : ReadSafeTensors(path).tensors) values.emplace_back(name, tensor);
  } else {
    throw Error(ErrorCode::kInvalidArgument, "run/input-file",
                StrCat("cannot tell what '", path, "' holds from its name"))
        .Hint("results are .npy, .npz or .safetensors files, or a folder of .npy files");
  }
  return values;
}

}  // namespace lathe
