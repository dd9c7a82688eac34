#pragma once

#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

namespace lathe {

// An open file that closes with the object; -1: none. Standard streams stay open.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ > STDERR_FILENO) close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// All bytes, however often it is interrupted. False with errno set if that fails.
[[nodiscard]] bool WriteFully(int fd, std::string_view bytes);

// ".lathe-" and 16 hexadecimal digits: for a temporary file, as good as never taken, and nobody can
// foresee it. Such files are left by processes that were killed; they may go.
inline constexpr std::string_view kTemporaryPrefix = ".lathe-";
[[nodiscard]] std::string RandomFileName();

}  // namespace lathe
