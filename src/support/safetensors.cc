#include "lathe/support/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "lathe/support/error.h"
#include "lathe/support/file.h"

namespace lathe {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxRank = 256;
constexpr std::string_view kMetadata = "__metadata__";

struct TypeRow {
  std::string_view name;
  ElementType type;
};
constexpr std::array<TypeRow, 26> kTypes = {{
    {"BOOL", ElementType::kBool},
    {"U8", ElementType::kU8},
    {"I8", ElementType::kI8},
    {"U16", ElementType::kU16},
    {"I16", ElementType::kI16},
    {"U32", ElementType::kU32},
    {"I32", ElementType::kI32},
    {"U64", ElementType::kU64},
    {"I64", ElementType::kI64},
    {"F16", ElementType::kF16},
    {"BF16", ElementType::kBF16},
    {"F32", ElementType::kF32},
    {"F64", ElementType::kF64},
    {"C64", ElementType::kC64},
    {"F8_E4M3", ElementType::kF8E4M3FN},
    {"F8_E5M2", ElementType::kF8E5M2},
    {"F8_E8M0", ElementType::kF8E8M0},
    {"F4", ElementType::kF4E2M1},
    {"LATHE_C128", ElementType::kC128},
    {"LATHE_F8E4M3FNUZ", ElementType::kF8E4M3FNUZ},
    {"LATHE_F8E5M2FNUZ", ElementType::kF8E5M2FNUZ},
    {"LATHE_I4", ElementType::kI4},
    {"LATHE_U4", ElementType::kU4},
    {"LATHE_I2", ElementType::kI2},
    {"LATHE_U2", ElementType::kU2},
    {"LATHE_INDEX", ElementType::kIndex},
}};

Error FormatError(const std::string& name, std::string_view what) {
  return Error(ErrorCode::kParse, "parse/safetensors", StrCat(name, ": ", what)).At(name);
}

std::optional<std::string_view> FormatName(ElementType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.name;
  }
  return std::nullopt;
}

struct Entry {
  std::string name;
  ElementType type = ElementType::kUndefined;
  Shape shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Refuses what a JSON document would silently drop: repeated keys; and deep nesting.
json ParseHeader(std::string_view text, const std::string& name) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > 8) throw FormatError(name, "the header is nested too deeply");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      const auto key = parsed.get<std::string>();
      if (!keys.back().insert(key).second) {
        throw FormatError(name, StrCat("the name ", Quote(key), " occurs twice"));
      }
    }
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::exception& error) {
    throw FormatError(name, StrCat("the header is not JSON: ", error.what()));
  }
}

class EntryReader {
 public:
  EntryReader(const std::string& tensor, const json& value, const std::string& file)
      : tensor_(tensor), value_(value), file_(file) {}

  Entry Read() const {
    if (!value_.is_object() || value_.size() != 3) Fail("is not described by three fields");
    Entry entry;
    entry.name = tensor_;
    entry.type = Type();
    for (const uint64_t extent : Numbers("shape", kMaxRank)) {
      if (extent > static_cast<uint64_t>(INT64_MAX)) Fail("has a dimension above 2^63");
      entry.shape.push_back(static_cast<int64_t>(extent));
    }
    const std::vector<uint64_t> offsets = Numbers("data_offsets", 2);
    if (offsets.size() != 2 || offsets[0] > offsets[1]) Fail("has no valid data_offsets");
    entry.begin = offsets[0];
    entry.end = offsets[1];
    return entry;
  }

 private:
  [[noreturn]] void Fail(std::string_view what) const {
    throw FormatError(file_, StrCat("tensor ", Quote(tensor_), " ", what));
  }

  ElementType Type() const {
    const auto field = value_.find("dtype");
    if (field == value_.end() || !field->is_string()) Fail("has no dtype");
    const auto& text = field->get_ref<const std::string&>();
    for (const TypeRow& row : kTypes) {
      if (row.name == text) return row.type;
    }
    Fail(StrCat("has the unknown dtype ", Quote(text)));
  }

  std::vector<uint64_t> Numbers(const char* key, size_t most) const {
    const auto field = value_.find(key);
    if (field == value_.end() || !field->is_array() || field->size() > most) {
      Fail(StrCat("has no valid ", key));
    }
    std::vector<uint64_t> numbers;
    for (const json& number : *field) {
      if (!number.is_number_unsigned()) Fail(StrCat("has a strange number in ", key));
      numbers.push_back(number.get<uint64_t>());
    }
    return numbers;
  }

  const std::string& tensor_;
  const json& value_;
  const std::string& file_;
};

void ReadMetadata(const json& value, SafeTensors& content, const std::string& name) {
  if (!value.is_object()) throw FormatError(name, "__metadata__ is not an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) throw FormatError(name, "__metadata__ holds something but text");
    content.metadata.emplace_back(key, text.get<std::string>());
  }
}

void SortByPlace(std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
}

// Sizes fit the shapes, and the entries lie side by side from the first byte to the last.
void CheckLayout(const std::vector<Entry>& entries, uint64_t data_size, const std::string& name) {
  uint64_t expected = 0;
  for (const Entry& entry : entries) {
    const std::string tensor = StrCat("tensor ", Quote(entry.name));
    if (entry.begin != expected) {
      throw FormatError(name, StrCat(tensor, " starts at ", entry.begin,
                                     ", but the one before ends at ", expected));
    }
    if (entry.end > data_size) {
      throw FormatError(name, StrCat(tensor, " ends at ", entry.end, ", but there are ", data_size,
                                     " bytes of data"));
    }
    expected = entry.end;
  }
  if (expected != data_size) {
    throw FormatError(name, StrCat("the tensors end at ", expected, ", but there are ", data_size,
                                   " bytes of data"));
  }
}

Tensor MakeTensor(const Entry& entry, const std::shared_ptr<Buffer>& buffer, uint64_t data_start,
                  const std::string& name) {
  uint64_t count = 0;
  try {
    count = static_cast<uint64_t>(NumElements(entry.shape));
  } catch (const Error& error) {
    throw FormatError(name, StrCat("tensor ", Quote(entry.name), ": ", error.message()));
  }
  const auto bits = static_cast<unsigned __int128>(BitWidth(entry.type)) * count;
  if ((bits + 7) / 8 != entry.end - entry.begin) {
    throw FormatError(name, StrCat("tensor ", Quote(entry.name), " ", Name(entry.type),
                                   ShapeToString(entry.shape), " does not take ",
                                   entry.end - entry.begin, " bytes"));
  }
  return Tensor::FromBuffer(entry.type, entry.shape, buffer, data_start + entry.begin);
}

}  // namespace

const Tensor* SafeTensors::Find(std::string_view name) const {
  for (const auto& [key, tensor] : tensors) {
    if (key == name) return &tensor;
  }
  return nullptr;
}

SafeTensors ParseSafeTensors(const std::shared_ptr<Buffer>& buffer, const std::string& name) {
  constexpr size_t kLengthSize = 8;
  if (buffer->size() < kLengthSize) throw FormatError(name, "the file ends before its header");
  uint64_t length = 0;
  for (size_t i = kLengthSize; i-- > 0;) {
    length = (length << 8) | static_cast<uint64_t>(buffer->data()[i]);
  }
  if (length > kMaxHeader || length > buffer->size() - kLengthSize) {
    throw FormatError(name, StrCat("a header of ", length, " bytes does not fit"))
        .Hint("is this a .safetensors file?");
  }
  const auto* text = reinterpret_cast<const char*>(buffer->data()) + kLengthSize;
  const json header = ParseHeader({text, length}, name);
  if (!header.is_object()) throw FormatError(name, "the header is not a JSON object");
  SafeTensors content;
  std::vector<Entry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key == kMetadata) {
      ReadMetadata(value, content, name);
    } else {
      entries.push_back(EntryReader(key, value, name).Read());
    }
  }
  SortByPlace(entries);
  const uint64_t start = kLengthSize + length;
  CheckLayout(entries, buffer->size() - start, name);
  for (const Entry& entry : entries) {
    content.tensors.emplace_back(entry.name, MakeTensor(entry, buffer, start, name));
  }
  return content;
}

SafeTensors ReadSafeTensors(const std::string& path) {
  return ParseSafeTensors(Buffer::MapFile(path), path);
}

namespace {

void CheckNames(const SafeTensors& content) {
  std::set<std::string_view> seen = {kMetadata};
  for (const auto& [name, tensor] : content.tensors) {
    if (!IsValidUtf8(name) || !seen.insert(name).second) {
      throw Error(ErrorCode::kInvalidArgument, "invalid-argument/safetensors",
                  StrCat("the tensor name ", Quote(name), " is reserved, repeated or not UTF-8"));
    }
  }
}

json MetadataOf(const SafeTensors& content) {
  json metadata = json::object();  // sorts its keys
  for (const auto& [key, text] : content.metadata) {
    if (!IsValidUtf8(key) || !IsValidUtf8(text) || metadata.contains(key)) {
      throw Error(ErrorCode::kInvalidArgument, "invalid-argument/safetensors",
                  StrCat("the metadata ", Quote(key), " is repeated or not UTF-8"));
    }
    metadata[key] = text;
  }
  return metadata;
}

std::string HeaderOf(const SafeTensors& content) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!content.metadata.empty()) header[std::string(kMetadata)] = MetadataOf(content);
  uint64_t at = 0;
  for (const auto& [name, tensor] : content.tensors) {
    const auto type = FormatName(tensor.element_type());
    if (!type) {
      throw Error(ErrorCode::kUnsupported, "unsupported/safetensors",
                  StrCat("tensor ", Quote(name), ": type ", Name(tensor.element_type()),
                         " cannot be stored in a .safetensors file"));
    }
    header[name] = {{"dtype", *type},
                    {"shape", tensor.shape()},
                    {"data_offsets", {at, at + tensor.byte_size()}}};
    at += tensor.byte_size();
  }
  std::string text = header.dump();
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');
  return text;
}

std::string Prefix(const SafeTensors& content) {
  CheckNames(content);
  const std::string header = HeaderOf(content);
  std::string out;
  for (size_t i = 0; i < 8; ++i) out += static_cast<char>((header.size() >> (8 * i)) & 255);
  return out + header;
}

std::string_view Text(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.raw()), tensor.byte_size()};
}

}  // namespace

std::string SerializeSafeTensors(const SafeTensors& content) {
  std::string out = Prefix(content);
  for (const auto& [name, tensor] : content.tensors) out += Text(tensor);
  return out;
}

void WriteSafeTensors(const std::string& path, const SafeTensors& content) {
  FileWriter writer(path);
  WriteSafeTensors(writer, content);
  writer.Commit();
}

void WriteSafeTensors(FileWriter& writer, const SafeTensors& content) {
  writer.Write(Prefix(content));
  for (const auto& [name, tensor] : content.tensors) writer.Write(Text(tensor));
}

}  // namespace lathe
