#ifndef LATHE_SUPPORT_FILE_H_
#define LATHE_SUPPORT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lathe {

// Every function throws Error (kIo or kNotFound, id io/...) with the path and the system's reason.

// The whole file; "-" is the standard input. Throws limit/file above `max_size`.
[[nodiscard]] std::string ReadFile(const std::string& path, uint64_t max_size = uint64_t{1} << 40);

// All or nothing: writes a temporary file beside `path`, then renames it, so that readers see the
// old content or the new. "-" is the standard output.
void WriteFile(const std::string& path, std::string_view content);

[[nodiscard]] bool FileExists(const std::string& path);
[[nodiscard]] bool IsDirectory(const std::string& path);
[[nodiscard]] uint64_t FileSize(const std::string& path);
// Creates it and its parents; fine if it is there.
void MakeDirectory(const std::string& path);
// ".onnx" of "a/b.onnx", lower case; empty if there is none.
[[nodiscard]] std::string FileExtension(std::string_view path);

// A file being written piece by piece, with WriteFile's promise: Commit renames, a FileWriter
// destroyed before that removes what it wrote.
class FileWriter {
 public:
  explicit FileWriter(std::string path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  void Write(std::string_view bytes);
  void Write(std::span<const std::byte> bytes) {
    Write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  void Commit();

 private:
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

}  // namespace lathe

#endif  // LATHE_SUPPORT_FILE_H_
