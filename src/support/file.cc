#include "lathe/support/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "lathe/support/budget.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

std::string Reason(int error) { return std::generic_category().message(error); }

Error FileError(std::string_view verb, const std::string& path, int error) {
  const ErrorCode code = error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return Error(code, StrCat("io/", verb), StrCat("can not ", verb, " ", path, ": ", Reason(error)))
      .At(path);
}

std::optional<struct stat> Status(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return status;
}

void WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw FileError("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ > STDERR_FILENO) close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

std::string ReadAll(int fd, const std::string& path, uint64_t max_size, size_t expected) {
  std::string content;
  content.reserve(expected);
  std::array<char, 1 << 16> chunk;
  while (true) {
    const ssize_t count = read(fd, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw FileError("read", path, errno);
    if (count == 0) return content;
    if (content.size() + static_cast<size_t>(count) > max_size) {
      throw Error(ErrorCode::kLimit, "limit/file",
                  StrCat(path, " is larger than ", HumanBytes(max_size)))
          .At(path);
    }
    content.append(chunk.data(), static_cast<size_t>(count));
  }
}

// The file that `path` leads to through symbolic links; itself if there is none yet.
std::string LinkTarget(const std::string& path) {
  char* resolved = realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return path;
  std::string result(resolved);
  free(resolved);
  return result;
}

std::string TemporaryName(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return StrCat(path, ".tmp-", static_cast<int64_t>(getpid()), "-", counter.fetch_add(1));
}

}  // namespace

std::string ReadFile(const std::string& path, uint64_t max_size) {
  if (path == "-") return ReadAll(STDIN_FILENO, "the standard input", max_size, 0);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw FileError("open", path, errno);
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) throw FileError("read", path, errno);
  if (S_ISDIR(status.st_mode)) throw FileError("read", path, EISDIR);
  const auto size = static_cast<uint64_t>(std::max<off_t>(status.st_size, 0));
  return ReadAll(file.get(), path, max_size, static_cast<size_t>(std::min(size, max_size)));
}

void WriteFile(const std::string& path, std::string_view content) {
  FileWriter writer(path);
  writer.Write(content);
  writer.Commit();
}

bool FileExists(const std::string& path) { return Status(path).has_value(); }

bool IsDirectory(const std::string& path) {
  const auto status = Status(path);
  return status && S_ISDIR(status->st_mode);
}

uint64_t FileSize(const std::string& path) {
  const auto status = Status(path);
  if (!status) throw FileError("read", path, errno);
  return static_cast<uint64_t>(status->st_size);
}

void MakeDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw FileError("create", path, error.value());
  if (!IsDirectory(path)) throw FileError("create", path, ENOTDIR);
}

std::string FileExtension(std::string_view path) {
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return "";
  std::string extension(name.substr(dot));
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension;
}

FileWriter::FileWriter(std::string path) : path_(std::move(path)) {
  if (path_ == "-") {
    fd_ = STDOUT_FILENO;
    return;
  }
  path_ = LinkTarget(path_);
  const auto status = Status(path_);
  if (status && S_ISDIR(status->st_mode)) throw FileError("write", path_, EISDIR);
  // A device or a pipe is written to; renaming over it would destroy it.
  const bool in_place = status && !S_ISREG(status->st_mode);
  if (!in_place) temporary_ = TemporaryName(path_);
  fd_ = in_place ? open(path_.c_str(), O_WRONLY | O_CLOEXEC)
                 : open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ >= 0) return;
  temporary_.clear();
  throw FileError("write", path_, errno);
}

FileWriter::~FileWriter() {
  if (fd_ > STDERR_FILENO) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void FileWriter::Write(std::string_view bytes) {
  LATHE_CHECK(fd_ >= 0, "write after commit");
  CheckBudget();
  WriteAll(fd_, bytes, path_);
}

void FileWriter::Commit() {
  LATHE_CHECK(fd_ >= 0, "two commits");
  const int fd = std::exchange(fd_, -1);
  if (fd > STDERR_FILENO && close(fd) != 0) throw FileError("write", path_, errno);
  if (temporary_.empty()) return;
  if (rename(temporary_.c_str(), path_.c_str()) != 0) throw FileError("write", path_, errno);
  temporary_.clear();
}

}  // namespace lathe
