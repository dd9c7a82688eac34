#include <algorithm>
#include <bit>
#include <cmath>

#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/value_names.h"
#include "lathe/support/text.h"

namespace lathe {

namespace {

// Deeper types and attributes cannot be read back anyway (ParseOptions::max_type_nesting).
constexpr uint32_t kMaxDepth = 2000;
// Larger tensors are written as bytes.
constexpr int64_t kMaxListed = 256;

constexpr uint64_t kPlainNan = 0x7ff8000000000000;

void AppendHex(std::string& out, uint64_t value, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    out.push_back("0123456789abcdef"[(value >> shift) & 15]);
  }
}

void AppendExact(std::string& out, double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  if (!std::isnan(value) || bits == kPlainNan) {
    AppendDouble(out, value);
    return;
  }
  out += "nan(0x";
  AppendHex(out, bits, 16);
  out += ')';
}

template <class Range, class Fn>
void Join(std::string& out, const Range& range, Fn&& fn) {
  bool first = true;
  for (const auto& item : range) {
    if (!first) out += ", ";
    first = false;
    fn(item);
  }
}

void AppendName(std::string& out, std::string_view name) {
  if (IsBareIdentifier(name)) {
    out += name;
  } else {
    AppendQuoted(out, name);
  }
}

bool IsListedFloat(ElementType e) {
  return e == ElementType::kF32 || e == ElementType::kF64 || e == ElementType::kF16 ||
         e == ElementType::kBF16;
}

bool AllFinite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

// The elements as a list, if the tensor is small and every element has an exact text.
bool AppendListed(std::string& out, const Tensor& t) {
  const ElementType e = t.element_type();
  if (e == ElementType::kString) {
    Join(out, t.data<std::string>(), [&](const std::string& s) { AppendQuoted(out, s); });
    return true;
  }
  if (t.num_elements() > kMaxListed) return false;
  if (e == ElementType::kBool) {
    Join(out, ToInt64s(t), [&](int64_t v) { out += v != 0 ? "true" : "false"; });
  } else if (e == ElementType::kU64) {
    Join(out, t.data<uint64_t>(), [&](uint64_t v) { AppendUint(out, v); });
  } else if (IsInteger(e)) {
    Join(out, ToInt64s(t), [&](int64_t v) { AppendInt(out, v); });
  } else if (IsListedFloat(e)) {
    const std::vector<double> values = ToDoubles(t);
    if (!AllFinite(values)) return false;
    Join(out, values, [&](double v) {
      e == ElementType::kF64 ? AppendDouble(out, v) : AppendFloat(out, static_cast<float>(v));
    });
  } else {
    return false;
  }
  return true;
}

void AppendBytes(std::string& out, std::span<const std::byte> bytes) {
  out += "hex \"";
  for (const std::byte b : bytes) AppendHex(out, static_cast<uint64_t>(b), 2);
  out += '"';
}

void AppendTensor(std::string& out, const Tensor& t) {
  out += "tensor<[";
  Join(out, t.shape(), [&](int64_t extent) { AppendInt(out, extent); });
  out += "], ";
  out += Name(t.element_type());
  out += "> ";
  const size_t start = out.size();
  out += '[';
  if (AppendListed(out, t)) {
    out += ']';
    return;
  }
  out.resize(start);
  AppendBytes(out, t.bytes());
}

void AppendDims(std::string& out, AnyTensorType type) {
  if (!type.has_rank()) {
    out += '*';
    return;
  }
  out += '[';
  Join(out, type.dims(), [&](const Dim& d) { d.AppendTo(out); });
  out += ']';
}

}  // namespace

void PrinterBase::PrintInt(int64_t value) { AppendInt(out_, value); }
void PrinterBase::PrintQuoted(std::string_view text) { AppendQuoted(out_, text); }
void PrinterBase::Print(const Dim& dim) { dim.AppendTo(out_); }

void PrinterBase::Print(Type type) {
  if (!type) {
    out_ += "<null type>";
  } else if (depth_ == kMaxDepth) {
    out_ += "...";
  } else {
    ++depth_;
    const AbstractKind* kind = type.storage()->kind;
    if (kind->dialect == nullptr) {
      PrintBuiltin(type);
    } else {
      out_ += kind->name;
      if (kind->print != nullptr) kind->print(type.storage(), *this);
    }
    --depth_;
  }
}

void PrinterBase::Print(Attribute attribute) {
  if (!attribute) {
    out_ += "<null attribute>";
  } else if (depth_ == kMaxDepth) {
    out_ += "...";
  } else {
    ++depth_;
    const AbstractKind* kind = attribute.storage()->kind;
    if (kind->dialect == nullptr) {
      PrintBuiltin(attribute);
    } else {
      out_ += kind->name;
      if (kind->print != nullptr) kind->print(attribute.storage(), *this);
    }
    --depth_;
  }
}

void PrinterBase::PrintBuiltin(Type type) {
  if (auto element = type.dyn_cast<ElemType>()) {
    out_ += Name(element.element());
    return;
  }
  out_ += type.storage()->kind->name;
  if (auto tensor = type.dyn_cast<AnyTensorType>()) {
    out_ += '<';
    AppendDims(out_, tensor);
    out_ += ", ";
    out_ += Name(tensor.element());
    out_ += '>';
  } else if (auto container = type.dyn_cast<ContainerType>()) {
    out_ += '<';
    Join(out_, container.elements(), [&](Type t) { Print(t); });
    out_ += '>';
  }
}

void PrinterBase::PrintBuiltin(Attribute attribute) {
  if (auto b = attribute.dyn_cast<BoolAttribute>()) {
    out_ += b.value() ? "true" : "false";
  } else if (auto i = attribute.dyn_cast<IntAttribute>()) {
    AppendInt(out_, i.value());
  } else if (auto f = attribute.dyn_cast<FloatAttribute>()) {
    AppendExact(out_, f.value());
  } else if (auto s = attribute.dyn_cast<StrAttribute>()) {
    AppendQuoted(out_, s.value());
  } else if (auto array = attribute.dyn_cast<ArrayAttribute>()) {
    out_ += '[';
    Join(out_, array.values(), [&](Attribute a) { Print(a); });
    out_ += ']';
  } else if (auto dict = attribute.dyn_cast<DictionaryAttribute>()) {
    out_ += '{';
    Join(out_, dict.entries(), [&](const NamedAttribute& e) {
      AppendName(out_, e.name.value());
      out_ += " = ";
      Print(e.value);
    });
    out_ += '}';
  } else if (auto type = attribute.dyn_cast<TypeAttribute>()) {
    Print(type.value());
  } else if (auto dim = attribute.dyn_cast<DimAttribute>()) {
    out_ += "dim<";
    Print(dim.value());
    out_ += '>';
  } else if (auto loc = attribute.dyn_cast<LocationAttribute>()) {
    out_ += "loc(";
    Print(loc.value(), *attribute.context());
    out_ += ')';
  } else if (auto tensor = attribute.dyn_cast<TensorAttribute>()) {
    AppendTensor(out_, tensor.value());
  }
}

void PrinterBase::Print(Location location, IrContext& context) {
  if (location.is_unknown()) {
    out_ += "unknown";
  } else if (location.is_file()) {
    AppendQuoted(out_, location.file(context));
    out_ += ':';
    AppendUint(out_, location.line());
    out_ += ':';
    AppendUint(out_, location.column());
  } else if (location.is_name()) {
    AppendQuoted(out_, location.name());
    const std::vector<std::string_view> results = ResultNames(location);
    if (results.empty()) return;
    out_ += " -> (";
    Join(out_, results, [&](std::string_view name) { AppendQuoted(out_, name); });
    out_ += ')';
  } else {
    out_ += "fused[";
    Join(out_, location.parts(), [&](Location part) { Print(part, context); });
    out_ += ']';
  }
}

namespace {
struct OnePrinter : PrinterBase {
  std::string Take() { return std::move(out_); }
};
}  // namespace

std::string Type::ToString() const {
  OnePrinter printer;
  printer.Print(*this);
  return printer.Take();
}

std::string Attribute::ToString() const {
  OnePrinter printer;
  printer.Print(*this);
  return printer.Take();
}

}  // namespace lathe
