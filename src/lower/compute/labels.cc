#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/support/error.h"
#include "src/dialect/nn/features_labels.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/scalars.h"

// Tables of labels for keys: a few are compared one by one, among more a binary search finds the
// only one that may be it.
namespace lathe::lower {
namespace {

using nn::LabelTable;

constexpr size_t kFewKeys = 8;

std::optional<LabelTable> TableOf(const Operation& op) {
  try {
    return LabelTable::Of(nn::LabelEncoderOp(&op));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// `places` of a tensor, as a vector.
Tensor Picked(const Tensor& tensor, const std::vector<int64_t>& places) {
  Tensor picked(tensor.element_type(), {std::ssize(places)});
  const auto width = static_cast<size_t>(BitWidth(tensor.element_type()) / 8);
  for (size_t i = 0; i < places.size(); ++i) {
    std::copy_n(tensor.raw() + static_cast<size_t>(places[i]) * width, width,
                picked.mutable_raw() + i * width);
  }
  return picked;
}

Tensor ElementAt(const Tensor& tensor, int64_t i) { return Picked(tensor, {i}).Reshaped({}); }

// Places of keys without repetitions, in ascending order; of the one that is NaN apart.
struct Sorted {
  explicit Sorted(const Tensor& keys) {
    if (IsFloat(keys.element_type())) {
      Add(ToDoubles(keys));
    } else {
      Add(ToInt64s(keys));
    }
  }

  std::vector<int64_t> places;
  std::optional<int64_t> nan;

 private:
  template <class T>
  void Add(const std::vector<T>& keys) {
    std::map<T, int64_t> by_key;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] != keys[i]) {
        nan = static_cast<int64_t>(i);
      } else {
        by_key[keys[i]] = static_cast<int64_t>(i);
      }
    }
    for (const auto& [key, place] : by_key) places.push_back(place);
  }
};

bool IsComparedHere(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF64 || type == ElementType::kI64 ||
         type == ElementType::kI32;
}

std::string Refuse(const Operation& op) {
  const auto table = TableOf(op);
  if (!table) return "its table contradicts itself";
  const ElementType key = table->keys.element_type(), label = table->labels.element_type();
  if (key != TensorOf(op.operand(0)).element()) return "its keys are of another type";
  if (!IsComparedHere(key)) return StrCat("keys of ", Name(key), " have no code");
  if (!IsComparedHere(label)) return StrCat("labels of ", Name(label), " have no code");
  return "";
}

bool HasManyKeys(const Operation& op) {
  const auto table = TableOf(op);
  return table && Refuse(op).empty() && Sorted(table->keys).places.size() > kFewKeys;
}

Value NanLabel(Elements& e, const LabelTable& table, const Sorted& sorted, Value x, Value y) {
  if (!sorted.nan) return y;
  const Scalars s(e);
  return s.Select(s.Equal(x, x), y, e.lb().Constant(ElementAt(table.labels, *sorted.nan)));
}

Value LabelOf(const ElementOf& c) {
  const LabelTable table = *TableOf(*c.op);
  const Sorted sorted(table.keys);
  const Scalars s(c.e);
  const Value x = c.Operand(0, c.at);
  Value y = c.e.lb().Constant(ElementAt(table.fallback, 0));
  for (const int64_t place : sorted.places) {
    const Value key = c.e.lb().Constant(ElementAt(table.keys, place));
    y = s.Select(s.Equal(x, key), c.e.lb().Constant(ElementAt(table.labels, place)), y);
  }
  return NanLabel(c.e, table, sorted, x, y);
}

void WriteLabels(const WholeTensorEmitter& w) {
  const LabelTable table = *TableOf(*w.op);
  const Sorted sorted(table.keys);
  // A power of two, so that no half goes beyond the end.
  std::vector<int64_t> places = sorted.places;
  places.resize(std::bit_ceil(places.size()), places.back());
  const auto size = std::ssize(places);
  const Value keys = w.e.lb().Constant(Picked(table.keys, places));
  const Value labels = w.e.lb().Constant(Picked(table.labels, places));
  const Value fallback = w.e.lb().Constant(ElementAt(table.fallback, 0));
  w.Fill(0, [&](Elements& e, const Place& at) {
    const Scalars s(e);
    const Value x = e.At(w.op->operand(0), at);
    Value found = e.lb().Int(0);
    for (int64_t half = size / 2; half > 0; half /= 2) {
      const Value beyond = s.Add(found, e.lb().Int(half));
      const Value is_below = s.AtMost(e.LoadFrom(keys, e.Loaded(beyond, size)), x);
      found = s.Select(is_below, beyond, found);
    }
    const Dim place = e.Loaded(found, size);
    const Value is_key = s.Equal(e.LoadFrom(keys, place), x);
    const Value y = s.Select(is_key, e.LoadFrom(labels, place), fallback);
    return NanLabel(e, table, sorted, x, y);
  });
}

constexpr Compute kLabelComputes[] = {
    {nn::kLabelEncoder, LabelOf, Refuse, nullptr, WriteLabels, false, HasManyKeys},
};

}  // namespace

std::span<const Compute> LabelComputes() { return kLabelComputes; }

}  // namespace lathe::lower
