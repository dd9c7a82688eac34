#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace lathe {

// Every function throws Error (kIo or kNotFound, id io/...) with the path and the system's reason.

// The whole file; "-" is the standard input. Throws limit/file above `max_size`.
[[nodiscard]] std::string ReadFile(const std::string& path, uint64_t max_size = uint64_t{1} << 40);

// All or nothing: writes a temporary file beside `path`, whose name nobody can foresee, brings it
// to the disk and renames it, so that readers, and the next start after a loss of power, see the
// old content or the new. An old file passes its permissions on. "-" is the standard output.
void WriteFile(const std::string& path, std::string_view content);

// Adds to the end of a file, which is made if there is none: with one write, so that what several
// processes add does not mix.
void AppendToFile(const std::string& path, std::string_view content);

[[nodiscard]] bool FileExists(const std::string& path);
[[nodiscard]] bool IsDirectory(const std::string& path);
// Whether both lead to one file that is there, by whatever links and relative paths.
[[nodiscard]] bool IsSameFile(const std::string& a, const std::string& b);
[[nodiscard]] uint64_t FileSize(const std::string& path);
// Creates it and its parents; fine if it is there.
void MakeDirectory(const std::string& path);
// ".onnx" of "a/b.onnx", lower case; empty if there is none.
[[nodiscard]] std::string FileExtension(std::string_view path);

// A folder of this object's own below that for temporary files ($TMPDIR or /tmp), which nobody else
// may enter. Gone, with all that is in it, with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

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
  // The same for files that belong together: on an error each of them is as it was. Only a process
  // that ends in between leaves some of them new.
  static void CommitTogether(std::initializer_list<FileWriter*> writers);

 private:
  void Finish();   // all is written, on the disk, under the temporary name
  void Replace();  // the temporary file takes the name
  void KeepOld();  // under another name, until ...
  void DropOld();
  void RestoreOld() noexcept;

  std::string path_;
  std::string temporary_;
  std::string old_;  // what was at path_, or empty
  int fd_ = -1;
};

}  // namespace lathe
