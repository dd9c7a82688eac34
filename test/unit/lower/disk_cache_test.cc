#include "lathe/lower/disk_cache.h"

#include <gtest/gtest.h>

#include "lathe/support/file.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

TEST(DiskCache, FindsWhatWasStoredForThatKeyAndVersion) {
  const TempFolder folder;
  const DiskCache cache(folder / "cache", "1"), other(folder / "cache", "2");
  EXPECT_EQ(cache.Load("a"), std::nullopt);
  EXPECT_TRUE(cache.Store("a", "bytes of a"));
  EXPECT_TRUE(cache.Store("b", ""));
  EXPECT_EQ(cache.Load("a"), "bytes of a");
  EXPECT_EQ(cache.Load("b"), "");
  EXPECT_EQ(other.Load("a"), std::nullopt);
  EXPECT_TRUE(other.Store("a", "newer"));
  EXPECT_EQ(other.Load("a"), "newer");
  EXPECT_EQ(cache.Load("a"), "bytes of a");
}

// As when the hashes of two keys are equal: the file is of the other key.
TEST(DiskCache, FilesOfOtherKeysAreNotTaken) {
  const TempFolder folder;
  const DiskCache cache(folder.path(), "1");
  cache.Store("a", "bytes of a");
  const std::string a = ReadFile(std::filesystem::directory_iterator(folder.path())->path());
  cache.Store("b", "bytes of b");
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    WriteFile(file.path(), a);
  }
  EXPECT_EQ(cache.Load("b"), std::nullopt);
  EXPECT_EQ(cache.Load("a"), "bytes of a");
}

TEST(DiskCache, WhatIsLongerThanWrittenIsDamaged) {
  const TempFolder folder;
  const DiskCache cache(folder.path(), "1");
  cache.Store("a", "bytes");
  const std::string path = std::filesystem::directory_iterator(folder.path())->path();
  WriteFile(path, ReadFile(path) + "x");
  EXPECT_EQ(cache.Load("a"), std::nullopt);
}

TEST(DiskCache, FolderThatCanNotBeWritten) {
  const TempFolder folder;
  WriteFile(folder / "file", "");
  const DiskCache cache(folder / "file/below", "1");
  EXPECT_FALSE(cache.Store("key", "bytes"));
  EXPECT_EQ(cache.Load("key"), std::nullopt);
}

}  // namespace
}  // namespace lathe
