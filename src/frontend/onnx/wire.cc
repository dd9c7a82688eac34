#include "src/frontend/onnx/wire.h"

#include <cstring>

namespace lathe::onnx {

namespace {

constexpr int kMaxVarintBytes = 10;
constexpr uint64_t kMaxFieldNumber = (uint64_t{1} << 29) - 1;

}  // namespace

WireReader::WireReader(std::string_view bytes, std::string_view file, const char* message)
    : begin_of_file_(bytes.data()),
      at_(bytes.data()),
      end_(bytes.data() + bytes.size()),
      file_(file),
      name_(message) {}

WireReader::WireReader(WireReader& parent, const char* field, int64_t index)
    : begin_of_file_(parent.begin_of_file_),
      file_(parent.file_),
      parent_(&parent),
      name_(field),
      index_(index),
      depth_(parent.depth_ + 1) {
  const std::string_view body = parent.Bytes();
  at_ = body.data();
  end_ = body.data() + body.size();
  if (depth_ > kMaxMessageDepth) {
    throw MakeError(ErrorCode::kLimit, "onnx/nesting",
                    StrCat("messages are nested deeper than ", kMaxMessageDepth));
  }
}

bool WireReader::Next() {
  if (at_ == end_) return false;
  const uint64_t tag = RawVarint();
  const uint64_t field = tag >> 3;
  if (field == 0 || field > kMaxFieldNumber) Fail(StrCat("field number ", field, " is not valid"));
  field_ = static_cast<uint32_t>(field);
  switch (tag & 7) {
    case 0:
    case 1:
    case 2:
    case 5:
      type_ = static_cast<WireType>(tag & 7);
      return true;
    default:
      Fail(StrCat("wire type ", tag & 7, " of field ", field, " is not used by ONNX"));
  }
}

uint64_t WireReader::RawVarint() {
  uint64_t value = 0;
  for (int i = 0; i < kMaxVarintBytes; ++i) {
    if (at_ == end_) Fail("the message ends within a number");
    const auto byte = static_cast<uint8_t>(*at_++);
    value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) return value;
  }
  Fail("a number is longer than 10 bytes");
}

std::string_view WireReader::Take(uint64_t size) {
  const auto left = static_cast<uint64_t>(end_ - at_);
  if (size > left) {
    Fail(StrCat("field ", field_, " needs ", size, " bytes, but its message has ", left, " left"));
  }
  const std::string_view bytes(at_, size);
  at_ += size;
  return bytes;
}

void WireReader::Expect(WireType type) {
  if (type_ != type) {
    Fail(StrCat("field ", field_, " has wire type ", static_cast<int>(type_), ", expected ",
                static_cast<int>(type)));
  }
}

uint64_t WireReader::Varint() {
  Expect(WireType::kVarint);
  return RawVarint();
}

float WireReader::Float() {
  Expect(WireType::kFixed32);
  float value;
  std::memcpy(&value, Take(sizeof value).data(), sizeof value);
  return value;
}

double WireReader::Double() {
  Expect(WireType::kFixed64);
  double value;
  std::memcpy(&value, Take(sizeof value).data(), sizeof value);
  return value;
}

std::string_view WireReader::Bytes() {
  Expect(WireType::kBytes);
  return Take(RawVarint());
}

std::string_view WireReader::Encoded() {
  const char* begin = at_;
  switch (type_) {
    case WireType::kBytes:
      return Bytes();
    case WireType::kVarint:
      RawVarint();
      return {begin, static_cast<size_t>(at_ - begin)};
    case WireType::kFixed32:
      return Take(4);
    case WireType::kFixed64:
      return Take(8);
  }
  Fail("unknown wire type");
}

void WireReader::Skip() { Encoded(); }

void WireReader::AppendPath(std::string& out) const {
  if (parent_ != nullptr && parent_->parent_ != nullptr) {
    parent_->AppendPath(out);
    out += '.';
  }
  out += name_;
  if (index_ >= 0) out += StrCat("[", index_, "]");
}

Error WireReader::MakeError(ErrorCode code, std::string id, std::string_view what) const {
  std::string where = StrCat(file_, ", byte ", offset(), ", ");
  AppendPath(where);
  return Error(code, std::move(id), std::string(what)).At(std::move(where));
}

void WireReader::Fail(std::string_view what) const {
  throw MakeError(ErrorCode::kParse, "onnx/wire", what)
      .Hint("the file is damaged, cut off, or no ONNX model");
}

bool NextVarint(std::string_view& bytes, uint64_t& value) {
  value = 0;
  for (size_t i = 0; i < bytes.size() && i < kMaxVarintBytes; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      bytes.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

void WireWriter::RawVarint(uint64_t value) {
  while (value >= 0x80) {
    out_ += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out_ += static_cast<char>(value);
}

void WireWriter::Tag(uint32_t field, WireType type) {
  RawVarint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
}

void WireWriter::Varint(uint32_t field, uint64_t value) {
  Tag(field, WireType::kVarint);
  RawVarint(value);
}

void WireWriter::RawFloat(float value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out_.append(bytes, sizeof value);
}

void WireWriter::Float(uint32_t field, float value) {
  Tag(field, WireType::kFixed32);
  RawFloat(value);
}

void WireWriter::Bytes(uint32_t field, std::string_view value) {
  Tag(field, WireType::kBytes);
  RawVarint(value.size());
  out_.append(value);
}

}  // namespace lathe::onnx
