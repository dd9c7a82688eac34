#include "lathe/support/npy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"

namespace lathe {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxRank = 64;  // numpy's own
// Elements that take no bytes in the file, such as strings of length 0.
constexpr int64_t kMaxFreeElements = 1 << 16;

Error NpyError(const std::string& name, std::string_view what) {
  return Error(ErrorCode::kParse, "parse/npy", StrCat(name, ": ", what)).At(name);
}

struct Header {
  std::string descr;  // "<f4"
  std::string field;  // name of the one field of a structured type, else empty
  bool has_descr = false;
  std::optional<bool> fortran;
  std::optional<Shape> shape;
};

// The dictionary at the start of the file: a Python literal of three keys.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Header Parse() {
    Header header;
    Expect('{');
    while (!Accept('}')) {
      ParseEntry(header);
      if (!Accept(',')) {
        Expect('}');
        break;
      }
    }
    if (Peek() != '\0') Fail("text after the header dictionary");
    if (!header.has_descr || !header.fortran || !header.shape) {
      Fail("the header lacks descr, fortran_order or shape");
    }
    return header;
  }

 private:
  [[noreturn]] void Fail(std::string_view what) const {
    throw NpyError(name_, StrCat("malformed .npy header: ", what))
        .Note(Quote(text_.substr(0, 200)));
  }

  char Peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Accept(char wanted) {
    if (Peek() != wanted || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void Expect(char wanted) {
    if (!Accept(wanted)) Fail(StrCat("'", wanted, "' is missing at offset ", at_));
  }

  std::string String() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') Fail(StrCat("a string is missing at offset ", at_));
    const size_t start = ++at_;
    while (at_ < text_.size() && text_[at_] != quote) ++at_;
    if (at_ >= text_.size()) Fail("a string does not end");
    return std::string(text_.substr(start, at_++ - start));
  }

  bool Boolean() {
    Peek();
    for (const auto& [word, value] : {std::pair("True", true), std::pair("False", false)}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += std::strlen(word);
        return value;
      }
    }
    Fail("fortran_order is neither True nor False");
  }

  Shape Tuple() {
    Shape shape;
    Expect('(');
    while (!Accept(')')) {
      shape.push_back(Extent());
      if (shape.size() > kMaxRank) Fail("more than 64 dimensions");
      if (!Accept(',')) {
        Expect(')');
        break;
      }
    }
    return shape;
  }

  int64_t Extent() {
    Peek();
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    const auto value = ParseInt(text_.substr(start, at_ - start));
    if (!value) Fail(StrCat("no dimension at offset ", start));
    Accept('L');  // written by Python 2
    return *value;
  }

  void Descr(Header& header) {
    header.has_descr = true;
    if (!Accept('[')) {
      header.descr = String();
      return;
    }
    Expect('(');
    header.field = String();
    Expect(',');
    header.descr = String();
    Expect(')');
    Accept(',');
    if (!Accept(']')) Fail("a structured type with more than one field");
  }

  void ParseEntry(Header& header) {
    const std::string key = String();
    Expect(':');
    if (key == "descr" && !header.has_descr) {
      Descr(header);
    } else if (key == "fortran_order" && !header.fortran) {
      header.fortran = Boolean();
    } else if (key == "shape" && !header.shape) {
      header.shape = Tuple();
    } else {
      Fail(StrCat("unexpected or repeated key ", Quote(key)));
    }
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

// How elements lie in the file.
struct Layout {
  ElementType type = ElementType::kUndefined;
  char kind = 0;         // of numpy: b i u f c U S
  size_t item_size = 0;  // bytes
  bool swap = false;     // big-endian
};

std::optional<ElementType> PlainType(char kind, size_t size) {
  switch (kind) {
    case 'b':
      return size == 1 ? std::optional(ElementType::kBool) : std::nullopt;
    case 'i':
    case 'u':
      if (size != 1 && size != 2 && size != 4 && size != 8) return std::nullopt;
      return ParseElementType(StrCat(kind, size * 8));
    case 'f':
      if (size != 2 && size != 4 && size != 8) return std::nullopt;
      return ParseElementType(StrCat(kind, size * 8));
    case 'c':
      if (size != 8 && size != 16) return std::nullopt;
      return ParseElementType(StrCat(kind, size * 8));
    case 'U':
    case 'S':
      return ElementType::kString;
    default:
      return std::nullopt;
  }
}

// What a type that numpy lacks is stored as: bytes per element on disk.
std::string DiskDescr(ElementType type) {
  if (type == ElementType::kBF16) return "<u2";
  return IsSigned(type) && IsInteger(type) ? "|i1" : "|u1";
}

// Those that numpy lacks.
bool IsForeign(ElementType type) {
  return type == ElementType::kBF16 || IsSubByte(type) || (IsFloat(type) && BitWidth(type) == 8);
}

Layout LayoutOf(const Header& header, const std::string& name) {
  Layout layout;
  std::string_view descr = header.descr;
  const auto refuse = [&] {
    return Error(ErrorCode::kUnsupported, "unsupported/npy",
                 StrCat(name, ": numpy type ", Quote(header.descr), " is not supported"))
        .At(name)
        .Hint("convert the array with .astype() to a plain number, bool or string type");
  };
  if (descr.size() < 3) throw refuse();
  layout.swap = descr[0] == '>';
  if (std::string_view("<>|=").find(descr[0]) == std::string_view::npos) throw refuse();
  layout.kind = descr[1];
  const auto size = ParseUint(descr.substr(2));
  if (!size || *size > (uint64_t{1} << 40)) throw refuse();
  const auto type = PlainType(layout.kind, *size);
  if (!type) throw refuse();
  layout.type = *type;
  layout.item_size = layout.kind == 'U' ? *size * 4 : *size;
  if (header.field.empty()) return layout;
  const auto foreign = ParseElementType(header.field);
  if (!foreign || !IsForeign(*foreign) || header.descr.substr(1) != DiskDescr(*foreign).substr(1)) {
    throw refuse();
  }
  layout.type = *foreign;
  return layout;
}

void SwapBytes(std::byte* data, size_t bytes, size_t width) {
  for (size_t at = 0; at + width <= bytes; at += width) std::reverse(data + at, data + at + width);
}

std::string DecodeUtf32(const std::byte* data, size_t bytes, bool swap) {
  std::string text;
  size_t length = bytes / 4;
  const auto code_at = [&](size_t i) {
    uint32_t code = 0;
    std::memcpy(&code, data + i * 4, 4);
    return swap ? __builtin_bswap32(code) : code;
  };
  while (length > 0 && code_at(length - 1) == 0) --length;
  for (size_t i = 0; i < length; ++i) AppendUtf8(text, code_at(i));
  return text;
}

std::string DecodeBytes(const std::byte* data, size_t bytes) {
  while (bytes > 0 && data[bytes - 1] == std::byte{0}) --bytes;
  return {reinterpret_cast<const char*>(data), bytes};
}

Tensor ReadStrings(const Layout& layout, const Shape& shape, std::span<const std::byte> data) {
  Tensor result(ElementType::kString, shape);
  const auto out = result.mutable_data<std::string>();
  for (size_t i = 0; i < out.size(); ++i) {
    const std::byte* item = data.data() + i * layout.item_size;
    out[i] = layout.kind == 'U' ? DecodeUtf32(item, layout.item_size, layout.swap)
                                : DecodeBytes(item, layout.item_size);
  }
  return result;
}

// One element per byte on disk, packed in memory.
Tensor ReadPacked(ElementType type, const Shape& shape, std::span<const std::byte> data) {
  Tensor result(type, shape);
  internal::PackBits(type, data.data(), result.num_elements(), result.mutable_raw());
  return result;
}

Tensor ReadPlain(const Layout& layout, const Shape& shape, std::span<const std::byte> data) {
  Tensor result = Tensor::FromBytes(layout.type, shape, data);
  std::byte* raw = result.mutable_raw();
  if (layout.type == ElementType::kBool) {
    for (size_t i = 0; i < data.size(); ++i)
      raw[i] = raw[i] == std::byte{0} ? raw[i] : std::byte{1};
  }
  const size_t width = layout.kind == 'c' ? layout.item_size / 2 : layout.item_size;
  if (layout.swap && width > 1) SwapBytes(raw, data.size(), width);
  return result;
}

// `columns` holds the elements with the first index running fastest; the result is row-major.
template <class T>
Tensor Transposed(const Tensor& columns, const Shape& shape) {
  const Elements<T> in(columns);
  const auto out = std::make_unique<T[]>(static_cast<size_t>(in.size()));
  Shape strides(shape.size(), 1);
  for (size_t i = 1; i < shape.size(); ++i) strides[i] = strides[i - 1] * shape[i - 1];
  Shape index(shape.size(), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < in.size(); ++i) {
    out[static_cast<size_t>(i)] = in[at];
    for (size_t axis = shape.size(); axis-- > 0;) {
      at += strides[axis];
      if (++index[axis] < shape[axis]) break;
      at -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return Tensor::Of<T>(shape, std::span<const T>(out.get(), static_cast<size_t>(in.size())));
}

Tensor ReadElements(const Layout& layout, const Shape& shape, std::span<const std::byte> data) {
  if (layout.type == ElementType::kString) return ReadStrings(layout, shape, data);
  return IsSubByte(layout.type) ? ReadPacked(layout.type, shape, data)
                                : ReadPlain(layout, shape, data);
}

uint64_t LittleEndian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = (value << 8) | static_cast<uint64_t>(bytes[i]);
  return value;
}

// The header's text; `bytes` moves behind it.
std::string_view TakeHeader(std::span<const std::byte>& bytes, const std::string& name) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  if (bytes.size() < 10 || std::string_view(text, 6) != kMagic) {
    throw NpyError(name, "not a .npy file: it does not start with \\x93NUMPY");
  }
  const int version = static_cast<int>(bytes[6]);
  if (version < 1 || version > 3) {
    throw NpyError(name, StrCat(".npy version ", version, " is not known"));
  }
  const size_t width = version == 1 ? 2 : 4;
  if (bytes.size() < 8 + width) throw NpyError(name, "the file ends in its header");
  const uint64_t length = LittleEndian(bytes.subspan(8, width));
  if (length > bytes.size() - 8 - width) throw NpyError(name, "the file ends in its header");
  bytes = bytes.subspan(8 + width + length);
  return {text + 8 + width, length};
}

// Bytes that `count` elements take; throws when there are not exactly that many.
void CheckSize(const Layout& layout, int64_t count, size_t available, const std::string& name) {
  size_t needed = 0;
  const bool overflow =
      __builtin_mul_overflow(static_cast<size_t>(count), layout.item_size, &needed);
  if (overflow || needed != available) {
    throw NpyError(name, StrCat("the header announces ", count, " elements of ", layout.item_size,
                                " bytes, but ", available, " bytes of data follow"));
  }
  if (layout.item_size == 0 && count > kMaxFreeElements) {
    throw NpyError(name, StrCat(count, " empty strings are too many"));
  }
}

}  // namespace

Tensor ParseNpy(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view text = TakeHeader(bytes, name);
  const Header header = HeaderParser(text, name).Parse();
  const Layout layout = LayoutOf(header, name);
  const Shape& shape = *header.shape;
  CheckSize(layout, NumElements(shape), bytes.size(), name);
  const Tensor tensor = ReadElements(layout, shape, bytes);
  if (!*header.fortran || shape.size() < 2) return tensor;
  return VisitElementType(
      layout.type, [&]<class T>(std::type_identity<T>) { return Transposed<T>(tensor, shape); });
}

Tensor ReadNpy(const std::string& path) {
  const std::shared_ptr<Buffer> file = Buffer::MapFile(path);
  return ParseNpy({file->data(), file->size()}, path);
}

namespace {

std::string ShapeTuple(const Shape& shape) {
  std::string out = "(";
  for (const int64_t dim : shape) out += StrCat(dim, ", ");
  if (!shape.empty()) out.resize(out.size() - (shape.size() == 1 ? 1 : 2));
  return out + ")";
}

std::string NpyHeader(std::string_view descr, const Shape& shape) {
  std::string text =
      StrCat("{'descr': ", descr, ", 'fortran_order': False, 'shape': ", ShapeTuple(shape), ", }");
  const bool large = text.size() > 65000;
  const size_t prefix = large ? 12 : 10;
  text.append((64 - (prefix + text.size() + 1) % 64) % 64, ' ');
  text += '\n';
  std::string out(kMagic);
  out += large ? '\2' : '\1';
  out += '\0';
  for (size_t i = 0; i < prefix - 8; ++i) out += static_cast<char>((text.size() >> (8 * i)) & 255);
  return out + text;
}

size_t CodePoints(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

void AppendUtf32(std::string& out, std::string_view text, size_t length) {
  for (size_t i = 0; i < length; ++i) {
    uint32_t code = 0;
    if (!text.empty()) {
      code = DecodeUtf8(text);
      text.remove_prefix(Utf8SequenceLength(text));
    }
    out.append(reinterpret_cast<const char*>(&code), 4);
  }
}

// '<U' with the longest length; bytes ('|S') when a string is not UTF-8.
std::string SerializeStrings(const Tensor& tensor) {
  const auto strings = tensor.data<std::string>();
  const bool unicode = std::all_of(strings.begin(), strings.end(),
                                   [](const std::string& s) { return IsValidUtf8(s); });
  size_t longest = 1;
  for (const std::string& s : strings) {
    longest = std::max(longest, unicode ? CodePoints(s) : s.size());
  }
  std::string out = NpyHeader(StrCat("'", unicode ? "<U" : "|S", longest, "'"), tensor.shape());
  for (const std::string& s : strings) {
    if (unicode) {
      AppendUtf32(out, s, longest);
    } else {
      out += s;
      out.append(longest - s.size(), '\0');
    }
  }
  return out;
}

std::string DescrOf(ElementType type) {
  if (IsForeign(type)) return StrCat("[('", Name(type), "', '", DiskDescr(type), "')]");
  if (type == ElementType::kBool) return "'|b1'";
  const char kind = IsComplex(type) ? 'c' : IsFloat(type) ? 'f' : IsSigned(type) ? 'i' : 'u';
  const int size = BitWidth(type) / 8;
  return StrCat("'", size == 1 ? "|" : "<", kind, size, "'");
}

}  // namespace

std::string SerializeNpy(const Tensor& tensor) {
  if (!tensor.is_defined()) {
    throw Error(ErrorCode::kInvalidArgument, "npy/undefined", "an undefined tensor has no values");
  }
  const ElementType type = tensor.element_type();
  if (type == ElementType::kString) return SerializeStrings(tensor);
  std::string out = NpyHeader(DescrOf(type), tensor.shape());
  if (!IsSubByte(type)) {
    return out.append(reinterpret_cast<const char*>(tensor.raw()), tensor.byte_size());
  }
  const auto count = static_cast<size_t>(tensor.num_elements());
  const size_t start = out.size();
  out.resize(start + count);
  internal::UnpackBits(type, tensor.raw(), tensor.num_elements(), out.data() + start);
  return out;
}

void WriteNpy(const std::string& path, const Tensor& tensor) {
  WriteFile(path, SerializeNpy(tensor));
}

}  // namespace lathe
