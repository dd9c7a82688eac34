// The part of the zip format (APPNOTE.TXT 6.3) that numpy writes: stored and deflated members,
// zip64 sizes, no encryption, one disk.

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <set>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/npy.h"

namespace lathe {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint32_t kIn64 = 0xFFFFFFFF;
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;
// Deflate cannot do better than 1032 to 1.
constexpr uint64_t kMaxRatio = 1032;

Error NpzError(const std::string& name, std::string_view what) {
  return Error(ErrorCode::kParse, "parse/npy", StrCat(name, ": ", what)).At(name);
}

// Little-endian fields one after the other, with every access checked.
class Reader {
 public:
  Reader(Bytes bytes, uint64_t offset, const std::string& name)
      : bytes_(bytes), at_(offset), name_(name) {}

  uint64_t Take(size_t width) {
    const Bytes field = TakeBytes(width);
    uint64_t value = 0;
    for (size_t i = width; i-- > 0;) value = (value << 8) | static_cast<uint64_t>(field[i]);
    return value;
  }
  Bytes TakeBytes(uint64_t size) {
    if (at_ > bytes_.size() || size > bytes_.size() - at_) {
      throw NpzError(name_, StrCat("the archive ends at ", bytes_.size(), ", but ", size,
                                   " bytes at ", at_, " are needed"));
    }
    const Bytes result = bytes_.subspan(at_, size);
    at_ += size;
    return result;
  }
  void Skip(uint64_t size) { (void)TakeBytes(size); }
  [[nodiscard]] uint64_t offset() const { return at_; }

 private:
  Bytes bytes_;
  uint64_t at_;
  const std::string& name_;
};

struct Member {
  std::string name;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t crc = 0;
  uint64_t compressed = 0;
  uint64_t size = 0;
  uint64_t header_offset = 0;
};

struct Directory {
  uint64_t entries = 0;
  uint64_t offset = 0;
};

uint64_t FindEnd(Bytes bytes, const std::string& name) {
  constexpr uint64_t kEndSize = 22;
  constexpr uint64_t kMaxComment = 65535;
  if (bytes.size() >= kEndSize) {
    const uint64_t last = bytes.size() - kEndSize;
    const uint64_t first = last > kMaxComment ? last - kMaxComment : 0;
    for (uint64_t at = last + 1; at-- > first;) {
      if (Reader(bytes, at, name).Take(4) == kEndSignature) return at;
    }
  }
  throw NpzError(name, "not a .npz file: it has no end of a zip directory");
}

Directory FindDirectory(Bytes bytes, const std::string& name) {
  const uint64_t end = FindEnd(bytes, name);
  Reader reader(bytes, end + 10, name);
  Directory directory;
  directory.entries = reader.Take(2);
  reader.Skip(4);
  directory.offset = reader.Take(4);
  const bool large = directory.entries == 0xFFFF || directory.offset == kIn64;
  constexpr uint64_t kLocatorSize = 20;
  if (!large || end < kLocatorSize) return directory;
  Reader locator(bytes, end - kLocatorSize, name);
  if (locator.Take(4) != kLocator64Signature) return directory;
  locator.Skip(4);
  Reader end64(bytes, locator.Take(8), name);
  if (end64.Take(4) != kEnd64Signature) throw NpzError(name, "damaged zip64 directory");
  end64.Skip(28);
  directory.entries = end64.Take(8);
  end64.Skip(8);
  directory.offset = end64.Take(8);
  return directory;
}

// The zip64 extra field holds those of the three values that did not fit, in this order.
void ReadZip64(Bytes extra, Member& member, const std::string& name) {
  Reader reader(extra, 0, name);
  while (reader.offset() + 4 <= extra.size()) {
    const uint64_t id = reader.Take(2);
    const Bytes field = reader.TakeBytes(reader.Take(2));
    if (id != 1) continue;
    Reader values(field, 0, name);
    for (uint64_t* value : {&member.size, &member.compressed, &member.header_offset}) {
      if (*value == kIn64) *value = values.Take(8);
    }
    return;
  }
}

Member ReadMember(Reader& reader, const std::string& name) {
  if (reader.Take(4) != kCentralSignature) throw NpzError(name, "damaged zip directory");
  Member member;
  reader.Skip(4);
  member.flags = static_cast<uint16_t>(reader.Take(2));
  member.method = static_cast<uint16_t>(reader.Take(2));
  reader.Skip(4);
  member.crc = static_cast<uint32_t>(reader.Take(4));
  member.compressed = reader.Take(4);
  member.size = reader.Take(4);
  const uint64_t name_size = reader.Take(2);
  const uint64_t extra_size = reader.Take(2);
  const uint64_t comment_size = reader.Take(2);
  reader.Skip(8);
  member.header_offset = reader.Take(4);
  const Bytes text = reader.TakeBytes(name_size);
  member.name.assign(reinterpret_cast<const char*>(text.data()), text.size());
  ReadZip64(reader.TakeBytes(extra_size), member, name);
  reader.Skip(comment_size);
  return member;
}

Bytes StoredBytes(Bytes archive, const Member& member, const std::string& name) {
  Reader reader(archive, member.header_offset, name);
  if (reader.Take(4) != kLocalSignature) throw NpzError(name, "damaged member header");
  reader.Skip(22);
  const uint64_t name_size = reader.Take(2);
  const uint64_t extra_size = reader.Take(2);
  reader.Skip(name_size + extra_size);
  return reader.TakeBytes(member.compressed);
}

std::vector<std::byte> Inflate(Bytes compressed, const Member& member, const std::string& name) {
  if (member.size > compressed.size() * kMaxRatio + 64) {
    throw NpzError(name, StrCat("member ", Quote(member.name), " announces ", member.size,
                                " bytes in ", compressed.size(), " compressed ones"));
  }
  std::vector<std::byte> out(member.size);
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw NpzError(name, "zlib cannot start");
  // zlib counts in 32 bits.
  constexpr uint64_t kChunk = uint64_t{1} << 30;
  uint64_t read = 0, written = 0;
  int status = Z_OK;
  while (status == Z_OK) {
    const auto in = static_cast<uInt>(std::min<uint64_t>(kChunk, compressed.size() - read));
    const auto room = static_cast<uInt>(std::min<uint64_t>(kChunk, out.size() - written));
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(compressed.data() + read));
    stream.avail_in = in;
    Bytef nothing = 0;
    stream.next_out = room == 0 ? &nothing : reinterpret_cast<Bytef*>(out.data() + written);
    stream.avail_out = room;
    status = inflate(&stream, Z_NO_FLUSH);
    read += in - stream.avail_in;
    written += room - stream.avail_out;
  }
  inflateEnd(&stream);
  if (status != Z_STREAM_END || written != out.size()) {
    throw NpzError(name, StrCat("member ", Quote(member.name), " does not inflate to its size"));
  }
  return out;
}

uint32_t Crc(Bytes bytes) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

Tensor ReadTensor(Bytes archive, const Member& member, const std::string& name) {
  const std::string place = StrCat(name, ": member ", Quote(member.name));
  if ((member.flags & 1) != 0) throw NpzError(place, "is encrypted");
  const Bytes stored = StoredBytes(archive, member, name);
  std::vector<std::byte> inflated;
  Bytes content = stored;
  if (member.method == kDeflated) {
    inflated = Inflate(stored, member, name);
    content = inflated;
  } else if (member.method != kStored) {
    throw NpzError(place, StrCat("is compressed by method ", member.method,
                                 "; stored and deflated members can be read"));
  }
  if (content.size() != member.size) throw NpzError(place, "has not the size it announces");
  if (Crc(content) != member.crc) throw NpzError(place, "is damaged: its checksum is wrong");
  return ParseNpy(content, place);
}

std::string TensorName(const Member& member, const std::string& name) {
  constexpr std::string_view kSuffix = ".npy";
  if (!std::string_view(member.name).ends_with(kSuffix)) {
    throw NpzError(name, StrCat("member ", Quote(member.name), " is not a .npy file"));
  }
  return member.name.substr(0, member.name.size() - kSuffix.size());
}

}  // namespace

NamedTensors ParseNpz(Bytes bytes, const std::string& name) {
  const Directory directory = FindDirectory(bytes, name);
  Reader reader(bytes, directory.offset, name);
  NamedTensors tensors;
  std::set<std::string> seen;
  uint64_t total = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const Member member = ReadMember(reader, name);
    std::string tensor_name = TensorName(member, name);
    if (!seen.insert(tensor_name).second) {
      throw NpzError(name, StrCat("two members are called ", Quote(member.name)));
    }
    // Members that share bytes would multiply without end.
    total += member.compressed;
    if (member.compressed > bytes.size() || total > bytes.size()) {
      throw NpzError(name, "the members are larger than the archive");
    }
    tensors.emplace_back(std::move(tensor_name), ReadTensor(bytes, member, name));
  }
  return tensors;
}

NamedTensors ReadNpz(const std::string& path) {
  const std::shared_ptr<Buffer> file = Buffer::MapFile(path);
  return ParseNpz({file->data(), file->size()}, path);
}

namespace {

void Put(std::string& out, uint64_t value, size_t width) {
  for (size_t i = 0; i < width; ++i) out += static_cast<char>((value >> (8 * i)) & 255);
}

uint64_t Field32(uint64_t value) { return std::min<uint64_t>(value, kIn64); }

std::string Deflate(std::string_view content) {
  z_stream stream = {};
  constexpr int kMemoryLevel = 8;
  LATHE_CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, kMemoryLevel,
                           Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out;
  std::string chunk(1 << 16, '\0');
  int status = Z_OK;
  while (status == Z_OK) {
    const auto in = static_cast<uInt>(std::min<uint64_t>(content.size(), uint64_t{1} << 30));
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(content.data()));
    stream.avail_in = in;
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    status = deflate(&stream, in == content.size() ? Z_FINISH : Z_NO_FLUSH);
    content.remove_prefix(in - stream.avail_in);
    out.append(chunk.data(), chunk.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  LATHE_CHECK(status == Z_STREAM_END);
  return out;
}

// Version, flags (UTF-8 names), method, a fixed date (1 January 1980), checksum and sizes: what
// the member's own header and the directory have in common.
void PutCommon(std::string& out, const Member& member) {
  Put(out, 45, 2);
  Put(out, member.flags, 2);
  Put(out, member.method, 2);
  Put(out, 0, 2);
  Put(out, 0x21, 2);
  Put(out, member.crc, 4);
  Put(out, Field32(member.compressed), 4);
  Put(out, Field32(member.size), 4);
  Put(out, member.name.size(), 2);
}

std::string Zip64Field(const Member& member, bool with_offset) {
  std::string values;
  if (member.size >= kIn64) Put(values, member.size, 8);
  if (member.compressed >= kIn64) Put(values, member.compressed, 8);
  if (with_offset && member.header_offset >= kIn64) Put(values, member.header_offset, 8);
  if (values.empty()) return "";
  std::string out;
  Put(out, 1, 2);
  Put(out, values.size(), 2);
  return out + values;
}

void PutMember(std::string& out, const Member& member, std::string_view content) {
  // The own header has both sizes in zip64 or none.
  Member local = member;
  const bool large = member.size >= kIn64 || member.compressed >= kIn64;
  std::string extra;
  if (large) {
    Put(extra, 1, 2);
    Put(extra, 16, 2);
    Put(extra, member.size, 8);
    Put(extra, member.compressed, 8);
    local.size = local.compressed = kIn64;
  }
  Put(out, kLocalSignature, 4);
  PutCommon(out, local);
  Put(out, extra.size(), 2);
  out += member.name;
  out += extra;
  out += content;
}

void PutEntry(std::string& out, const Member& member) {
  const std::string extra = Zip64Field(member, true);
  Put(out, kCentralSignature, 4);
  Put(out, 45, 2);
  PutCommon(out, member);
  Put(out, extra.size(), 2);
  Put(out, 0, 2);  // comment
  Put(out, 0, 2);  // disk
  Put(out, 0, 2);  // internal attributes
  Put(out, 0, 4);  // external attributes
  Put(out, Field32(member.header_offset), 4);
  out += member.name;
  out += extra;
}

void PutEnd64(std::string& out, uint64_t entries, uint64_t size, uint64_t offset) {
  const uint64_t at = out.size();
  Put(out, kEnd64Signature, 4);
  Put(out, 44, 8);
  Put(out, 45, 2);
  Put(out, 45, 2);
  Put(out, 0, 8);
  Put(out, entries, 8);
  Put(out, entries, 8);
  Put(out, size, 8);
  Put(out, offset, 8);
  Put(out, kLocator64Signature, 4);
  Put(out, 0, 4);
  Put(out, at, 8);
  Put(out, 1, 4);
}

void PutDirectory(std::string& out, const std::vector<Member>& members) {
  const uint64_t offset = out.size();
  for (const Member& member : members) PutEntry(out, member);
  const uint64_t size = out.size() - offset;
  const uint64_t count = members.size();
  if (count >= 0xFFFF || offset >= kIn64 || size >= kIn64) PutEnd64(out, count, size, offset);
  Put(out, kEndSignature, 4);
  Put(out, 0, 4);
  Put(out, std::min<uint64_t>(count, 0xFFFF), 2);
  Put(out, std::min<uint64_t>(count, 0xFFFF), 2);
  Put(out, Field32(size), 4);
  Put(out, Field32(offset), 4);
  Put(out, 0, 2);
}

}  // namespace

std::string SerializeNpz(const NamedTensors& tensors, const NpzOptions& options) {
  constexpr uint16_t kUtf8Names = 1 << 11;
  std::string out;
  std::vector<Member> members;
  std::set<std::string_view> seen;
  for (const auto& [name, tensor] : tensors) {
    if (!seen.insert(name).second || name.size() > 60000) {
      throw Error(ErrorCode::kInvalidArgument, "npz/name",
                  StrCat("the name ", Quote(name.substr(0, 80)), " is repeated or too long"));
    }
    const std::string content = SerializeNpy(tensor);
    const std::string stored = options.compress ? Deflate(content) : content;
    Member member;
    member.name = StrCat(name, ".npy");
    member.flags = kUtf8Names;
    member.method = options.compress ? kDeflated : kStored;
    member.crc = Crc(std::as_bytes(std::span(content.data(), content.size())));
    member.compressed = stored.size();
    member.size = content.size();
    member.header_offset = out.size();
    PutMember(out, member, stored);
    members.push_back(std::move(member));
  }
  PutDirectory(out, members);
  return out;
}

void WriteNpz(const std::string& path, const NamedTensors& tensors, const NpzOptions& options) {
  WriteFile(path, SerializeNpz(tensors, options));
}

}  // namespace lathe
