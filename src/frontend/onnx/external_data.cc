#include "src/frontend/onnx/external_data.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lathe/support/descriptor.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe::onnx {

namespace {

constexpr size_t kMaxLocation = 4096;
constexpr std::string_view kMemoryTag = "_ORT_MEM_ADDR_";

[[noreturn]] void BadPath(std::string_view location, std::string_view why) {
  throw Error(ErrorCode::kInvalidArgument, "onnx/external-path",
              StrCat("external data ", Quote(location), ": ", why))
      .Hint("external data must be a plain file inside the folder of the model");
}

[[noreturn]] void BadFile(std::string_view location, std::string_view why) {
  throw Error(ErrorCode::kIo, "onnx/external-file",
              StrCat("external data ", Quote(location), ": ", why))
      .Hint("keep the data file beside the model, as it was saved");
}

void CheckText(std::string_view location) {
  if (location.empty()) BadPath(location, "the location is empty");
  if (location.size() > kMaxLocation) BadPath(location.substr(0, 60), "the location is too long");
  if (location.find('\0') != std::string_view::npos) BadPath(location, "the name has a NUL byte");
  if (!IsValidUtf8(location)) BadPath(location, "the name is not valid UTF-8");
  if (location.find(kMemoryTag) != std::string_view::npos) {
    BadPath(location, "addresses in memory are not accepted from a file");
  }
  if (location.front() == '/') BadPath(location, "the path is absolute");
  if (location.find('\\') != std::string_view::npos) BadPath(location, "the path has a backslash");
  if (location.size() > 1 && location[1] == ':') BadPath(location, "the path names a drive");
}

// Components without "."; "..", and what the file system would read as none, are refused.
std::vector<std::string> Components(std::string_view location) {
  CheckText(location);
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= location.size()) {
    const size_t end = std::min(location.find('/', begin), location.size());
    const std::string_view part = location.substr(begin, end - begin);
    begin = end + 1;
    if (part == "..") BadPath(location, "the path leaves the folder of the model");
    if (part != "." && !part.empty()) parts.emplace_back(part);
  }
  if (parts.empty() || location.back() == '/') BadPath(location, "the path names no file");
  return parts;
}

[[noreturn]] void FailOpen(std::string_view location, int error) {
  if (error == ELOOP || error == ENOTDIR) BadPath(location, "symbolic links are not followed");
  BadFile(location, std::strerror(error));
}

// Opens `parts` below `folder`, each without following links.
Descriptor OpenBelow(const std::string& folder, const std::vector<std::string>& parts,
                     std::string_view location) {
  Descriptor at(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (at.get() < 0) BadFile(location, StrCat("folder '", folder, "': ", std::strerror(errno)));
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    const int flags = last ? O_RDONLY | O_NONBLOCK | O_NOCTTY : O_PATH | O_DIRECTORY;
    Descriptor next(openat(at.get(), parts[i].c_str(), flags | O_NOFOLLOW | O_CLOEXEC));
    if (next.get() < 0) FailOpen(location, errno);
    at = std::move(next);
  }
  return at;
}

void CheckOpened(const Descriptor& file, std::string_view location) {
  struct stat info{};
  if (fstat(file.get(), &info) != 0) BadFile(location, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) BadPath(location, "it is not a regular file");
  if (info.st_nlink != 1) {
    BadPath(location, "the file has several names (hard links), so it may be someone else's");
  }
}

uint64_t ReadNumber(const TextPair& entry) {
  if (const auto value = ParseUint(entry.second)) return *value;
  throw Error(ErrorCode::kParse, "onnx/external-data",
              StrCat("external data ", entry.first, " is ", Quote(entry.second),
                     ", expected a number of bytes"));
}

}  // namespace

ExternalRange ReadExternalRange(const std::vector<TextPair>& entries) {
  ExternalRange range;
  for (const TextPair& entry : entries) {
    if (entry.first == "location") range.location = entry.second;
    if (entry.first == "offset") range.offset = ReadNumber(entry);
    if (entry.first == "length") range.length = ReadNumber(entry);
  }
  return range;
}

std::shared_ptr<Buffer> ExternalFiles::Given(const std::string& location) const {
  std::shared_ptr<Buffer> buffer = source_(location);
  if (buffer != nullptr) return buffer;
  throw Error(ErrorCode::kNotFound, "onnx/external-file",
              StrCat("external data ", Quote(location), ": the caller gives none"));
}

std::shared_ptr<Buffer> ExternalFiles::Map(const std::string& location) {
  if (source_) {
    std::shared_ptr<Buffer>& known = mapped_[location];
    if (known == nullptr) known = Given(location);
    return known;
  }
  const std::vector<std::string> parts = Components(location);
  if (folder_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "onnx/external-path",
                StrCat("external data ", Quote(location), ": a model given as bytes has no folder"))
        .Hint("load the model from its file, or give the data (OnnxImportOptions::external)");
  }
  if (const auto found = mapped_.find(location); found != mapped_.end()) return found->second;
  const Descriptor file = OpenBelow(folder_, parts, location);
  CheckOpened(file, location);
  auto buffer = Buffer::MapDescriptor(file.get(), location);
  mapped_.emplace(location, buffer);
  return buffer;
}

}  // namespace lathe::onnx
