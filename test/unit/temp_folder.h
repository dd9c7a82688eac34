#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace lathe {

/// An empty folder of this object's own, gone with it: tests run at once in several processes.
class TempFolder {
 public:
  TempFolder() : path_((std::filesystem::temp_directory_path() / "lathe-test-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "cannot make " << path_;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace lathe
