#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lathe/support/error.h"

/// The protobuf wire format (https://protobuf.dev/programming-guides/encoding), as far as ONNX
/// files need it. Reading yields views into the given bytes; nothing is copied.
namespace lathe::onnx {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// Messages within messages, counted from the file; beyond: onnx/nesting.
inline constexpr int kMaxMessageDepth = 512;

/// Reads the fields of one message in order. Each reader knows where its message lies in the file,
/// so that every error names the byte offset and the path ("graph.node[3].attribute[0].t").
///
///   while (r.Next()) switch (r.field()) { case 1: name = r.Bytes(); break; default: r.Skip(); }
///
/// A value must be taken (or skipped) before the next call of Next.
class WireReader {
 public:
  /// The whole file. `file` is for messages and must outlive the reader, as must `bytes`.
  WireReader(std::string_view bytes, std::string_view file, const char* message);
  /// The message held by the field that `parent` stands at; `parent` must outlive it.
  WireReader(WireReader& parent, const char* field, int64_t index = -1);

  /// Moves to the next field; false at the end of the message.
  bool Next();
  uint32_t field() const { return field_; }
  WireType type() const { return type_; }

  uint64_t Varint();
  int64_t Int64() { return static_cast<int64_t>(Varint()); }
  /// Keeps the low 32 bits, as protobuf does.
  int32_t Int32() { return static_cast<int32_t>(Varint()); }
  float Float();
  double Double();
  std::string_view Bytes();
  /// The encoded value as it stands: the content of a packed run, or one element of an unpacked
  /// field. Both decode alike.
  std::string_view Encoded();
  void Skip();

  /// Throws Error onnx/wire at the current offset.
  [[noreturn]] void Fail(std::string_view what) const;
  /// An Error with this message's place: "model.onnx, byte 17, graph.node[3]".
  [[nodiscard]] Error MakeError(ErrorCode code, std::string id, std::string_view what) const;
  std::string_view file() const { return file_; }
  size_t offset() const { return static_cast<size_t>(at_ - begin_of_file_); }

 private:
  void Expect(WireType type);
  std::string_view Take(uint64_t size);
  uint64_t RawVarint();
  void AppendPath(std::string& out) const;

  const char* begin_of_file_;
  const char* at_;
  const char* end_;
  std::string_view file_;
  const WireReader* parent_ = nullptr;
  const char* name_;
  int64_t index_ = -1;
  int depth_ = 0;
  uint32_t field_ = 0;
  WireType type_ = WireType::kVarint;
};

/// Decodes a run of varints; false when it is malformed or cut off.
bool NextVarint(std::string_view& bytes, uint64_t& value);

/// Appends fields to a buffer.
class WireWriter {
 public:
  void Varint(uint32_t field, uint64_t value);
  void Int(uint32_t field, int64_t value) { Varint(field, static_cast<uint64_t>(value)); }
  void Float(uint32_t field, float value);
  void Bytes(uint32_t field, std::string_view value);
  /// As Bytes, but nothing when empty.
  void Optional(uint32_t field, std::string_view value) {
    if (!value.empty()) Bytes(field, value);
  }
  const std::string& out() const { return out_; }
  std::string Take() { return std::move(out_); }
  void RawVarint(uint64_t value);
  void RawFloat(float value);

 private:
  void Tag(uint32_t field, WireType type);
  std::string out_;
};

}  // namespace lathe::onnx
