#include "lathe/lower/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

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

size_t FilesIn(const std::string& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                           std::filesystem::directory_iterator()));
}

std::string FileOf(const std::string& folder) {
  return std::filesystem::directory_iterator(folder)->path();
}

TEST(DiskCache, TheFolderIsPrivate) {
  const TempFolder folder;
  const DiskCache cache(folder / "a/cache/", "1");
  EXPECT_TRUE(cache.Store("a", "bytes"));
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(folder / "a/cache").permissions(), perms::owner_all);
  EXPECT_EQ(std::filesystem::status(FileOf(folder / "a/cache")).permissions(),
            perms::owner_read | perms::owner_write);
  EXPECT_FALSE(DiskCache::WhyRefused(folder / "a/cache"));
}

TEST(DiskCache, WhatOthersMayWriteIsNotUsed) {
  for (const mode_t mode : {0770, 0702, 0777}) {
    const TempFolder folder;
    const DiskCache cache(folder.path(), "1");
    EXPECT_TRUE(cache.Store("a", "bytes"));
    ASSERT_EQ(chmod(folder.path().c_str(), mode), 0);
    EXPECT_EQ(cache.Load("a"), std::nullopt);
    EXPECT_FALSE(cache.Store("b", "bytes"));
    const auto refused = DiskCache::WhyRefused(folder.path());
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->id(), "io/cache");
    EXPECT_EQ(refused->where(), folder.path());
    EXPECT_NE(refused->hints()[0].find("chmod -R go-w " + folder.path()), std::string::npos);
    ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
    EXPECT_EQ(cache.Load("a"), "bytes");
    ASSERT_EQ(chmod(FileOf(folder.path()).c_str(), 0664), 0);
    EXPECT_EQ(cache.Load("a"), std::nullopt);
  }
}

TEST(DiskCache, WhatSomebodyElseOwnsIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only the administrator gives files away";
  const TempFolder folder;
  const DiskCache cache(folder.path(), "1");
  EXPECT_TRUE(cache.Store("a", "bytes"));
  ASSERT_EQ(chown(FileOf(folder.path()).c_str(), 1, 1), 0);
  EXPECT_EQ(cache.Load("a"), std::nullopt);
  EXPECT_TRUE(cache.Store("a", "bytes"));
  EXPECT_EQ(cache.Load("a"), "bytes");
  ASSERT_EQ(chown(folder.path().c_str(), 1, 1), 0);
  EXPECT_EQ(cache.Load("a"), std::nullopt);
  EXPECT_TRUE(DiskCache::WhyRefused(folder.path()));
}

TEST(DiskCache, LinksAndPipesAreNotFollowed) {
  const TempFolder folder;
  const DiskCache cache(folder / "cache", "1");
  EXPECT_TRUE(cache.Store("a", "bytes"));
  const std::string file = FileOf(folder / "cache");
  std::filesystem::rename(file, folder / "elsewhere");
  std::filesystem::create_symlink(folder / "elsewhere", file);
  EXPECT_EQ(cache.Load("a"), std::nullopt);
  EXPECT_TRUE(cache.Store("a", "other"));  // replaces the link, not what it names
  EXPECT_EQ(cache.Load("a"), "other");
  EXPECT_FALSE(std::filesystem::is_symlink(file));
  EXPECT_NE(ReadFile(folder / "elsewhere"), ReadFile(file));
  std::filesystem::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(cache.Load("a"), std::nullopt);  // and does not wait for a writer
}

void SetAge(const std::string& path, int hours) {
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
}

TEST(DiskCache, WhatWasNotUsedForLongestGoes) {
  const TempFolder folder;
  const std::string bytes(1000, 'x');
  {
    const DiskCache cache(folder.path(), "1");
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(cache.Store(std::to_string(i), bytes));
      for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
        SetAge(file.path(), 10);
      }
    }
    EXPECT_EQ(cache.Load("3"), bytes);  // used now
  }
  const DiskCache small(folder.path(), "1", 4400);
  EXPECT_TRUE(small.Store("8", bytes));
  EXPECT_EQ(FilesIn(folder.path()), 3U);
  EXPECT_EQ(small.Load("3"), bytes);
  EXPECT_EQ(small.Load("8"), bytes);
}

TEST(DiskCache, StaysBelowItsLimit) {
  const TempFolder folder;
  const std::string bytes(1000, 'x');
  const DiskCache cache(folder.path(), "1", 20000), unlimited(folder / "all", "1", 0);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(cache.Store(std::to_string(i), bytes));
    EXPECT_TRUE(unlimited.Store(std::to_string(i), bytes));
  }
  EXPECT_LE(FilesIn(folder.path()), 21U);
  EXPECT_GE(FilesIn(folder.path()), 10U);
  EXPECT_EQ(cache.Load("99"), bytes);
  EXPECT_EQ(FilesIn(folder / "all"), 100U);
}

// What a process that was killed has left; that of one that writes now stays.
TEST(DiskCache, AbandonedFilesGo) {
  const TempFolder folder;
  for (const char* name : {".lathe-0123456789abcdef", ".lathe-fedcba9876543210", "notes"})
    WriteFile(folder / name, "");
  for (const char* name : {".lathe-0123456789abcdef", "notes"}) SetAge(folder / name, 2);
  EXPECT_TRUE(DiskCache(folder.path(), "1").Store("a", ""));
  EXPECT_FALSE(FileExists(folder / ".lathe-0123456789abcdef"));
  EXPECT_TRUE(FileExists(folder / ".lathe-fedcba9876543210"));
  EXPECT_TRUE(FileExists(folder / "notes"));
}

TEST(DiskCache, SeveralProcessesShareIt) {
  const TempFolder folder;
  std::vector<pid_t> children;
  for (int p = 0; p < 4; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const DiskCache cache(folder / "cache", "1", 30000);
      bool good = true;
      for (int i = 0; i < 300; ++i) {
        const std::string key = std::to_string(i % 60), bytes(1000 + i % 60, 'a');
        good = good && cache.Store(key, bytes);
        const auto found = cache.Load(key);
        good = good && (!found || *found == bytes);
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_LE(FilesIn(folder / "cache"), 40U);
}

}  // namespace
}  // namespace lathe
