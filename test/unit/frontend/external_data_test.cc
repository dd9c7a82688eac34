#include "src/frontend/onnx/external_data.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "lathe/support/file.h"
#include "model_util.h"
#include "test/unit/temp_folder.h"

namespace lathe::onnx {
namespace {

namespace fs = std::filesystem;

// A folder with a model's folder `m` in it, and a secret beside that.
class ExternalData : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ / "m" / "sub");
    WriteFile((root_ / "secret").string(), "secret");
    WriteFile((root_ / "m" / "data").string(), "abcdefgh");
    WriteFile((root_ / "m" / "sub" / "data").string(), "12345678");
  }

  std::string Refusal(const std::string& location) {
    ExternalFiles files((root_ / "m").string());
    return Caught([&] { files.Map(location); }).id();
  }

  const TempFolder temporary_;
  const fs::path root_ = temporary_.path();
};

TEST_F(ExternalData, FilesInTheFolder) {
  ExternalFiles files((root_ / "m").string());
  const auto buffer = files.Map("data");
  EXPECT_EQ(buffer->size(), 8U);
  EXPECT_EQ(files.Map("data"), buffer);
  EXPECT_EQ(files.Map("sub/data")->size(), 8U);
  EXPECT_EQ(files.Map("./sub/./data")->size(), 8U);
}

TEST_F(ExternalData, NothingOutsideTheFolder) {
  for (const std::string& location :
       {std::string("../secret"), std::string("sub/../../secret"), std::string("sub/../data"),
        (root_ / "secret").string(), std::string("/dev/zero"), std::string(""), std::string("."),
        std::string("sub/"), std::string("sub"), std::string("a\\b"), std::string("C:data"),
        std::string("data\0x", 6), std::string("\xff\xfe"), std::string(5000, 'x'),
        std::string("*/_ORT_MEM_ADDR_/*")}) {
    EXPECT_EQ(Refusal(location), "onnx/external-path") << location;
  }
  EXPECT_EQ(Refusal("nowhere"), "onnx/external-file");
}

TEST_F(ExternalData, NoLinks) {
  fs::create_symlink(root_ / "secret", root_ / "m" / "link");
  fs::create_directory_symlink(root_, root_ / "m" / "up");
  fs::create_symlink("data", root_ / "m" / "inside");
  fs::create_hard_link(root_ / "secret", root_ / "m" / "hard");
  for (const char* location : {"link", "up/secret", "inside", "hard"}) {
    EXPECT_EQ(Refusal(location), "onnx/external-path") << location;
  }
}

TEST_F(ExternalData, NoPipes) {
  ASSERT_EQ(mkfifo((root_ / "m" / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(Refusal("pipe"), "onnx/external-path");
}

TEST_F(ExternalData, NoFolderNoFiles) {
  ExternalFiles files("");
  EXPECT_EQ(Caught([&] { files.Map("data"); }).id(), "onnx/external-path");
}

TensorMsg External(std::vector<TextPair> entries) {
  TensorMsg t;
  t.name = "w";
  t.data_type = static_cast<int32_t>(ElementType::kU8);
  t.dims = {4};
  t.external = true;
  t.external_data = std::move(entries);
  return t;
}

TEST_F(ExternalData, RangesAreChecked) {
  ExternalFiles files((root_ / "m").string());
  const Source source{nullptr, &files};
  const auto decode = [&](std::vector<TextPair> entries) {
    return DecodeTensor(External(std::move(entries)), source);
  };
  EXPECT_EQ(decode({{"location", "data"}, {"offset", "4"}, {"length", "4"}}),
            Tensor::Of<uint8_t>({4}, {'e', 'f', 'g', 'h'}));
  EXPECT_EQ(decode({{"location", "data"}}), Tensor::Of<uint8_t>({4}, {'a', 'b', 'c', 'd'}));
  const std::vector<std::vector<TextPair>> bad = {
      {{"location", "data"}, {"offset", "5"}},
      {{"location", "data"}, {"offset", "9"}},
      {{"location", "data"}, {"offset", "4"}, {"length", "5"}},
      {{"location", "data"}, {"offset", "0"}, {"length", "3"}},
      {{"location", "data"}, {"offset", "18446744073709551615"}, {"length", "4"}},
      {{"location", "data"}, {"offset", "18446744073709551616"}},
      {{"location", "data"}, {"offset", "-4"}},
      {{"location", "data"}, {"offset", "four"}},
      {{"location", "data"}, {"length", "1e3"}},
  };
  for (const auto& entries : bad) {
    EXPECT_EQ(Caught([&] { decode(entries); }).id(), "onnx/external-data")
        << entries[1].first << " " << entries[1].second;
  }
}

TEST_F(ExternalData, ASavedModelWithDataBesideIsReadBack) {
  Loaded loaded;
  ModelMsg model =
      Model(13, {Info("x", ElementType::kF32, {2})}, {Node("Add", {"x", "w"}, {"y"})}, {"y"});
  const Tensor w = F32({2}, {10, 20});
  model.graph.initializers.push_back(EncodeTensor(w, "w"));
  const Program program = Import(loaded.context, model);
  const std::string path = (root_ / "m" / "out.onnx").string();
  ExportOnnx(program, path, {.external_data_threshold = 1});
  EXPECT_EQ(fs::file_size(path + ".data"), 8U);
  Program back = ImportOnnx(loaded.context, path);
  EXPECT_EQ(back.parameters().Find("w")->data, w);
  EXPECT_EQ(RunProgram(back, {{"x", F32({2}, {1, 2})}})[0].second, RtValue(F32({2}, {11, 22})));

  // The same from memory: no file is opened, each location is asked for once.
  const auto data = Buffer::MapFile(path + ".data");
  std::vector<std::string> asked;
  OnnxImportOptions options;
  options.external = [&](const std::string& location) {
    asked.push_back(location);
    return data;
  };
  back = ImportOnnx(loaded.context, Buffer::MapFile(path), "m", "", options);
  EXPECT_EQ(back.parameters().Find("w")->data, w);
  EXPECT_EQ(asked, std::vector<std::string>{"out.onnx.data"});
  options.external = [](const std::string&) { return nullptr; };
  EXPECT_EQ(
      Caught([&] { ImportOnnx(loaded.context, Buffer::MapFile(path), "m", "", options); }).id(),
      "onnx/external-file");
}

}  // namespace
}  // namespace lathe::onnx
