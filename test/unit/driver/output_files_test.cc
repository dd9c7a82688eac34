#include "lathe/driver/output_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lathe/dialect/all.h"
#include "lathe/driver/executable.h"
#include "lathe/driver/model_file.h"
#include "lathe/driver/value_files.h"
#include "lathe/frontend/onnx.h"
#include "lathe/ir/context.h"
#include "lathe/ir/metadata.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/npy.h"
#include "lathe/support/safetensors.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
  %c = builtin.get_parameter() {name = "w"} : () -> v_tensor<[2], f32>
  %y = nn.add(%x, %c) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
  nn.fetch(%y) {name = "y"} : (v_tensor<[2], f32>) -> ()
})";

class OutputFilesTest : public ::testing::Test {
 protected:
  OutputFilesTest() {
    LoadAllDialects(context_);
    WriteFile(At("m.lathe"), kProgram);
    WriteSafeTensors(WeightsPath(At("m.lathe")), {{{"w", Tensor::Of<float>({2}, {1, 2})}}, {}});
  }

  std::string At(const std::string& name) const { return folder_ / name; }
  Program Load() { return LoadModel(context_, At("m.lathe")); }

  static std::string IdOf(const std::vector<OutputFile>& outputs,
                          const std::vector<std::string>& inputs = {}) {
    try {
      CheckOutputs(outputs, inputs);
    } catch (const Error& error) {
      EXPECT_FALSE(error.where().empty());
      EXPECT_NE(error.hints().at(0).find("--force"), std::string::npos);
      return error.id();
    }
    return "";
  }

  TempFolder folder_;
  IrContext context_;
};

TEST_F(OutputFilesTest, AnInputIsNotReplacedByWhateverPath) {
  const std::vector<std::string> inputs = FilesOfModel(At("m.lathe"));
  EXPECT_EQ(inputs, (std::vector<std::string>{At("m.lathe"), WeightsPath(At("m.lathe"))}));
  fs::create_symlink("m.lathe", At("soft.lathe"));
  fs::create_hard_link(At("m.lathe"), At("hard.lathe"));
  fs::create_symlink(WeightsPath(At("m.lathe")), WeightsPath(At("n.lathe")));
  MakeDirectory(At("a"));
  for (const char* name : {"m.lathe", "soft.lathe", "hard.lathe", "a/../m.lathe", "n.lathe"}) {
    EXPECT_EQ(IdOf(ModelFiles(At(name)), inputs), "output/input") << name;
  }
  EXPECT_EQ(IdOf(ModelFiles(At("other.lathe")), inputs), "");
}

// What a command has written it may write again.
TEST_F(OutputFilesTest, FilesOfLatheAreReplaced) {
  const Program program = Load();
  const Executable executable(program);
  for (const char* name : {"m.lx", "m.json"}) {
    executable.Save(At(name));
    EXPECT_EQ(IdOf(ExecutableFiles(At(name))), "") << name;
  }
  ExportOnnx(program, At("m.onnx"), {.external_data_threshold = 1});
  EXPECT_TRUE(FileExists(At("m.onnx.data")));
  EXPECT_EQ(FilesOfModel(At("m.onnx")), std::vector{At("m.onnx")});
  EXPECT_EQ(DataFilesOf(At("m.onnx")), std::vector{At("m.onnx.data")});
  EXPECT_EQ(FilesOfModel(At("m.json")).size(), 4U);
  for (const char* name : {"m.onnx", "m.lathe"}) EXPECT_EQ(IdOf(ModelFiles(At(name))), "") << name;
  WriteNpy(At("m.npy"), Tensor::Of<float>({2}, {1, 2}));
  EXPECT_EQ(IdOf({{At("m.npy"), FileKind::kArray}}), "");
  WriteFile(At("empty"), "");
  EXPECT_EQ(IdOf(ExecutableFiles(At("empty"))), "");
  EXPECT_EQ(IdOf({{"/dev/null", FileKind::kExecutable}, {At("none"), FileKind::kReport}}), "");
}

// The producer of a model stays what it was; the file is ours.
TEST_F(OutputFilesTest, ExportsOfModelsOfOthersAreReplaced) {
  Program program = Load();
  SetMetadata(program, {{"producer_name", "somebody"}});
  ExportOnnx(program, At("q.onnx"));
  EXPECT_EQ(ReadOnnxModelInfo(At("q.onnx")).producer, "somebody");
  EXPECT_EQ(IdOf(ModelFiles(At("q.onnx"))), "");
  EXPECT_EQ(MetadataOf(ImportOnnx(context_, At("q.onnx"))), MetadataOf(program));
}

TEST_F(OutputFilesTest, FilesOfOthersAreNot) {
  WriteFile(At("x.safetensors"), ReadFile(WeightsPath(At("m.lathe"))));  // of somebody's training
  EXPECT_EQ(IdOf(ExecutableFiles(At("x.json"))), "output/foreign");
  WriteFile(At("y.so"),
            "\x7f"
            "ELF of somebody");
  EXPECT_EQ(IdOf(ExecutableFiles(At("y.json"))), "output/foreign");
  WriteFile(At("z.json"), "{\"settings\": 1}");
  EXPECT_EQ(IdOf(ExecutableFiles(At("z.json"))), "output/foreign");
  ExportOnnx(Load(), At("o.onnx"), {.producer = "somebody"});
  EXPECT_EQ(IdOf(ModelFiles(At("o.onnx"))), "output/foreign");
  WriteFile(At("p.onnx.data"), "weights");
  EXPECT_EQ(IdOf(ModelFiles(At("p.onnx"))), "output/foreign");
}

// A copy of a model reads the data of the first one.
TEST_F(OutputFilesTest, DataOfAnInputIsNotReplaced) {
  ExportOnnx(Load(), At("m.onnx"), {.external_data_threshold = 1});
  fs::copy(At("m.onnx"), At("copy.onnx"));
  EXPECT_EQ(IdOf(ModelFiles(At("m.onnx")), DataFilesOf(At("copy.onnx"))), "output/input");
}

TEST_F(OutputFilesTest, EveryKindTellsOthersApart) {
  WriteFile(At("notes.txt"), "my notes\n");
  for (int kind = 0; kind <= static_cast<int>(FileKind::kCases); ++kind) {
    EXPECT_EQ(IdOf({{At("notes.txt"), static_cast<FileKind>(kind)}}), "output/foreign") << kind;
  }
}

std::vector<std::string> NamesOf(const std::vector<std::string>& outputs) {
  NamedValues values;
  for (const std::string& name : outputs) values.emplace_back(name, Tensor::Of<float>({1}, {0}));
  std::vector<std::string> names;
  for (const auto& files : FilesOf("d", values)) names.push_back(files.at(0).path);
  return names;
}

TEST(ValueFilesTest, OutputsDoNotCollide) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(NamesOf({"a/b", "a_b", "a:b"}), (Names{"d/a_b-2.npy", "d/a_b.npy", "d/a_b-3.npy"}));
  EXPECT_EQ(NamesOf({"y", "Y"}), (Names{"d/y.npy", "d/Y-2.npy"}));
  EXPECT_EQ(NamesOf({"a/b", "a_b", "a_b-2"}), (Names{"d/a_b-3.npy", "d/a_b.npy", "d/a_b-2.npy"}));
  EXPECT_EQ(NamesOf({"", ".", "..", "../../etc/x", "/abs"}),
            (Names{"d/_.npy", "d/_-2.npy", "d/_..npy", "d/_._.._etc_x.npy", "d/_abs.npy"}));
}

TEST(ValueFilesTest, LongNamesFit) {
  const std::string name(300, 'n');
  const TempFolder folder;
  for (const std::string& file : NamesOf({name, name + "x", std::string(3000, '\x1b')})) {
    const std::string path = folder.path() + file.substr(1);
    EXPECT_NO_THROW(WriteFile(path, "x"));
    EXPECT_EQ(ReadFile(path), "x");
  }
}

TEST(ValueFilesTest, ListsAndTensorsDoNotCollide) {
  const RtValue one = Tensor::Of<float>({1}, {0});
  const auto files = FilesOf("d", {{"y", RtValue::OfList({one, one})}, {"y.0", one}});
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0][0].path, "d/y.0.npy");
  EXPECT_EQ(files[0][1].path, "d/y.1.npy");
  EXPECT_EQ(files[1][0].path, "d/y.0-2.npy");
}

}  // namespace
}  // namespace lathe
