#include "lathe/support/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "lathe/support/budget.h"
#include "lathe/support/descriptor.h"
#include "lathe/support/error.h"

namespace lathe {
namespace {

std::string Reason(int error) { return std::generic_category().message(error); }

Error FileError(std::string_view verb, const std::string& path, int error) {
  const ErrorCode code = error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return Error(code, StrCat("io/", verb), StrCat("cannot ", verb, " ", path, ": ", Reason(error)))
      .At(path);
}

std::optional<struct stat> Status(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return status;
}

void WriteAll(int fd, std::string_view bytes, const std::string& path) {
  if (!WriteFully(fd, bytes)) throw FileError("write", path, errno);
}

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

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// It does not depend on the name in `path`, which may be as long as the file system allows.
std::string RandomNameBeside(const std::string& path) {
  return StrCat(FolderOf(path), "/", RandomFileName());
}

// A new file beside `path`, open for writing; `name` is where. Never one that is there, nor through
// a link.
int OpenTemporary(const std::string& path, std::string& name) {
  constexpr int kTries = 100;
  int fd = -1;
  for (int i = 0; i < kTries && fd < 0; ++i) {
    name = RandomNameBeside(path);
    fd = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) break;
  }
  return fd;
}

// Names in a folder are on the disk. Not all file systems can say so, which is no reason to fail.
void SyncFolder(const std::string& path) {
  const Descriptor folder(open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) (void)fsync(folder.get());
}

}  // namespace

bool WriteFully(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

std::string RandomFileName() {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) {
    throw Error(ErrorCode::kIo, "io/random", "the system gives no random numbers");
  }
  std::string name(kTemporaryPrefix);
  for (int i = 0; i < 16; ++i, bits >>= 4) name += "0123456789abcdef"[bits & 15];
  return name;
}

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

void AppendToFile(const std::string& path, std::string_view content) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (file.get() < 0) throw FileError("write", path, errno);
  WriteAll(file.get(), content, path);
}

bool FileExists(const std::string& path) { return Status(path).has_value(); }

bool IsDirectory(const std::string& path) {
  const auto status = Status(path);
  return status && S_ISDIR(status->st_mode);
}

bool IsSameFile(const std::string& a, const std::string& b) {
  const auto first = Status(a), second = Status(b);
  return first && second && first->st_dev == second->st_dev && first->st_ino == second->st_ino;
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

TemporaryFolder::TemporaryFolder()
    : path_((std::filesystem::temp_directory_path() / "lathe-XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr) throw FileError("create", path_, errno);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
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
  fd_ = in_place ? open(path_.c_str(), O_WRONLY | O_CLOEXEC) : OpenTemporary(path_, temporary_);
  if (fd_ < 0) {
    temporary_.clear();
    throw FileError("write", path_, errno);
  }
  if (status && !in_place) (void)fchmod(fd_, status->st_mode & 0777);  // not ours: the usual ones
}

FileWriter::~FileWriter() {
  if (fd_ > STDERR_FILENO) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
  RestoreOld();
}

void FileWriter::Write(std::string_view bytes) {
  LATHE_CHECK(fd_ >= 0, "write after commit");
  CheckBudget();
  WriteAll(fd_, bytes, path_);
}

void FileWriter::Finish() {
  LATHE_CHECK(fd_ >= 0, "two commits");
  const bool is_file = !temporary_.empty();
  if (is_file && fsync(fd_) != 0) throw FileError("write", path_, errno);
  const int fd = std::exchange(fd_, -1);
  if (fd > STDERR_FILENO && close(fd) != 0) throw FileError("write", path_, errno);
}

void FileWriter::Replace() {
  if (temporary_.empty()) return;
  if (rename(temporary_.c_str(), path_.c_str()) != 0) throw FileError("write", path_, errno);
  temporary_.clear();
}

// A second name where the file system has those, so that the first one never lacks.
void FileWriter::KeepOld() {
  const auto status = Status(path_);
  if (temporary_.empty() || !status || !S_ISREG(status->st_mode)) return;
  const std::string name = RandomNameBeside(path_);
  if (link(path_.c_str(), name.c_str()) != 0 && rename(path_.c_str(), name.c_str()) != 0) {
    throw FileError("write", path_, errno);
  }
  old_ = name;
}

void FileWriter::DropOld() {
  if (!old_.empty()) unlink(old_.c_str());
  old_.clear();
}

void FileWriter::RestoreOld() noexcept {
  // Renaming one name of a file over another one of it does nothing, and leaves both.
  if (!old_.empty() && rename(old_.c_str(), path_.c_str()) == 0) unlink(old_.c_str());
  old_.clear();
}

void FileWriter::Commit() { CommitTogether({this}); }

void FileWriter::CommitTogether(std::initializer_list<FileWriter*> writers) {
  for (FileWriter* w : writers) w->Finish();
  const bool several = writers.size() > 1;
  std::vector<FileWriter*> fresh;  // have replaced nothing
  try {
    for (FileWriter* w : writers) {
      if (several) w->KeepOld();
      const bool is_file = !w->temporary_.empty();
      w->Replace();
      if (several && is_file && w->old_.empty()) fresh.push_back(w);
    }
  } catch (const Error&) {
    for (const FileWriter* w : fresh) unlink(w->path_.c_str());
    for (FileWriter* w : writers) w->RestoreOld();
    throw;
  }
  for (FileWriter* w : writers) w->DropOld();
  for (const FileWriter* w : writers) SyncFolder(w->path_);
}

}  // namespace lathe
