#include "lathe/support/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/support/buffer.h"
#include "lathe/support/error.h"
#include "lathe/support/pages.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override { MakeDirectory(At("a/b")); }

  [[nodiscard]] std::string At(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] size_t Entries() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }
  TempFolder folder_;
};

template <class F>
std::string IdOf(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_FALSE(error.where().empty());
    return error.id();
  }
  return "";
}

TEST_F(FileTest, WritesAndReads) {
  const std::string content("a\0b\n", 4);
  WriteFile(At("x"), content);
  EXPECT_EQ(ReadFile(At("x")), content);
  EXPECT_EQ(FileSize(At("x")), 4U);
  WriteFile(At("x"), "");
  EXPECT_EQ(ReadFile(At("x")), "");
  EXPECT_TRUE(FileExists(At("x")));
  EXPECT_TRUE(IsDirectory(At("a/b")));
  EXPECT_EQ(Entries(), 2U);  // no temporary file stays
}

TEST_F(FileTest, LeavesTheOldFileWhenNotCommitted) {
  WriteFile(At("x"), "old");
  {
    FileWriter writer(At("x"));
    writer.Write(std::string_view("new"));
    EXPECT_EQ(ReadFile(At("x")), "old");
  }
  EXPECT_EQ(ReadFile(At("x")), "old");
  EXPECT_EQ(Entries(), 2U);
}

TEST_F(FileTest, WritesThroughLinks) {
  WriteFile(At("target"), "old");
  fs::create_symlink("target", At("link"));
  WriteFile(At("link"), "new");
  EXPECT_TRUE(fs::is_symlink(At("link")));
  EXPECT_EQ(ReadFile(At("target")), "new");
}

// With the names of a process and its files known, a link must not lead a write elsewhere, and a
// file that stayed behind must not stop it.
TEST_F(FileTest, TemporaryNamesCanNotBeForeseen) {
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) {
    const FileWriter writer(At("x"));
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      if (entry.is_regular_file()) names.push_back(entry.path().filename());
    }
  }
  ASSERT_EQ(names.size(), 3U);
  EXPECT_NE(names[0], names[1]);
  EXPECT_NE(names[1], names[2]);
  for (const std::string& name : names) {
    EXPECT_EQ(name.find(std::to_string(getpid())), std::string::npos) << name;
  }
}

TEST_F(FileTest, NamesMayBeAsLongAsTheFileSystemAllows) {
  WriteFile(At(std::string(255, 'n')), "x");
  EXPECT_EQ(ReadFile(At(std::string(255, 'n'))), "x");
}

TEST_F(FileTest, KeepsPermissions) {
  WriteFile(At("x"), "old");
  ASSERT_EQ(chmod(At("x").c_str(), 0600), 0);
  WriteFile(At("x"), "new");
  EXPECT_EQ(fs::status(At("x")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(FileTest, FilesThatBelongTogetherAreReplacedTogether) {
  WriteFile(At("x"), "old x");
  WriteFile(At("z"), "old z");
  FileWriter x(At("x")), y(At("y")), z(At("z"));
  for (FileWriter* w : {&x, &y, &z}) w->Write(std::string_view("new"));
  FileWriter::CommitTogether({&x, &y, &z});
  for (const char* name : {"x", "y", "z"}) EXPECT_EQ(ReadFile(At(name)), "new");
  EXPECT_EQ(Entries(), 4U);
}

// A folder that takes the name after the writer looked: the last rename fails.
TEST_F(FileTest, OrNotAtAll) {
  WriteFile(At("x"), "old");
  {
    FileWriter x(At("x")), y(At("y")), z(At("z"));
    for (FileWriter* w : {&x, &y, &z}) w->Write(std::string_view("new"));
    MakeDirectory(At("z/full"));
    EXPECT_THROW(FileWriter::CommitTogether({&x, &y, &z}), Error);
  }
  EXPECT_EQ(ReadFile(At("x")), "old");
  EXPECT_FALSE(FileExists(At("y")));
  EXPECT_TRUE(IsDirectory(At("z/full")));
  EXPECT_EQ(Entries(), 3U);
}

TEST_F(FileTest, SameFileByAnyPath) {
  WriteFile(At("x"), "");
  WriteFile(At("y"), "");
  fs::create_symlink("x", At("soft"));
  fs::create_hard_link(At("x"), At("hard"));
  EXPECT_TRUE(IsSameFile(At("x"), At("a/../x")));
  EXPECT_TRUE(IsSameFile(At("soft"), At("hard")));
  EXPECT_FALSE(IsSameFile(At("x"), At("y")));
  EXPECT_FALSE(IsSameFile(At("none"), At("none")));
}

TEST_F(FileTest, TemporaryFoldersArePrivateAndGo) {
  std::string path;
  {
    const TemporaryFolder own, other;
    path = own.path();
    EXPECT_NE(path, other.path());
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    WriteFile(path + "/x", "");
  }
  EXPECT_FALSE(FileExists(path));
}

TEST_F(FileTest, AppendsToTheEnd) {
  AppendToFile(At("x"), "one\n");
  AppendToFile(At("x"), "two\n");
  EXPECT_EQ(ReadFile(At("x")), "one\ntwo\n");
  EXPECT_EQ(IdOf([&] { AppendToFile(At("none/x"), ""); }), "io/write");
}

// A pipe stands for every device: what /dev holds differs from machine to machine.
TEST_F(FileTest, WritesIntoPipesAndDevices) {
  ASSERT_EQ(mkfifo(At("pipe").c_str(), 0600), 0);
  const int reader = open(At("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  WriteFile(At("pipe"), "through");
  EXPECT_TRUE(fs::is_fifo(At("pipe")));
  std::array<char, 16> bytes{};
  EXPECT_EQ(read(reader, bytes.data(), bytes.size()), 7);
  EXPECT_EQ(std::string_view(bytes.data()), "through");
  close(reader);
}

TEST_F(FileTest, ErrorsNameThePath) {
  EXPECT_EQ(IdOf([&] { (void)ReadFile(At("none")); }), "io/open");
  EXPECT_EQ(IdOf([&] { (void)ReadFile(folder_.path()); }), "io/read");
  EXPECT_EQ(IdOf([&] { WriteFile(At("none/x"), ""); }), "io/write");
  EXPECT_EQ(IdOf([&] { WriteFile(folder_.path(), ""); }), "io/write");
  EXPECT_EQ(IdOf([&] { (void)FileSize(At("none")); }), "io/read");
  WriteFile(At("x"), "1234");
  EXPECT_EQ(IdOf([&] { MakeDirectory(At("x")); }), "io/create");
  EXPECT_EQ(IdOf([&] { (void)ReadFile(At("x"), 3); }), "limit/file");
  EXPECT_EQ(ReadFile(At("x"), 4), "1234");
}

TEST(FileNameTest, Extension) {
  EXPECT_EQ(FileExtension("a/b.ONNX"), ".onnx");
  EXPECT_EQ(FileExtension("a.b/c"), "");
  EXPECT_EQ(FileExtension(".hidden"), "");
  EXPECT_EQ(FileExtension("x.tar.gz"), ".gz");
}

TEST_F(FileTest, GivenUpPagesKeepTheirContents) {
  std::string text(5 * 4096 + 123, 'x');
  for (size_t i = 0; i < text.size(); i += 97) text[i] = static_cast<char>('a' + i % 26);
  WriteFile(At("big"), text);
  const auto buffer = Buffer::MapFile(At("big"), 5);
  const auto bytes = [&] {
    return std::string_view(reinterpret_cast<const char*>(buffer->data()), buffer->size());
  };
  ASSERT_EQ(bytes(), std::string_view(text).substr(5));
  GiveUpPages(buffer->data(), buffer->size());
  EXPECT_EQ(bytes(), std::string_view(text).substr(5));
  const std::string copy = text;
  GiveUpPages(copy.data(), copy.size());
  EXPECT_EQ(copy, text);
  GiveUpPages(copy.data() + 1, 7);
  GiveUpPages(nullptr, 0);
}

}  // namespace
}  // namespace lathe
