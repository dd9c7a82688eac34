#include "lathe/driver/model_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "lathe/dialect/all.h"
#include "lathe/driver/conformance.h"
#include "lathe/frontend/onnx.h"
#include "lathe/ir/context.h"
#include "lathe/ir/metadata.h"
#include "lathe/ir/text_format.h"
#include "lathe/lathe.h"
#include "lathe/runtime/lx_file.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = R"(program {
  %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
  %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[2], f32>
  %0 = nn.add(%x, %w) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
  nn.fetch(%0) {name = "y"} : (v_tensor<[2], f32>) -> ()
}
)";

class ModelFile : public ::testing::Test {
 protected:
  void SetUp() override { LoadAllDialects(context_); }

  Program Make() {
    Program program = ParseProgram(context_, kProgram, {.file_locations = false});
    program.parameters().Insert(StrAttribute::Get(context_, "w"),
                                {Tensor::Of<float>({2}, {10.0F, 20.0F}), false});
    return program;
  }
  std::string Path(const char* name) { return (folder_ / name).string(); }
  std::string LoadError(const std::string& path) {
    try {
      LoadModel(context_, path);
    } catch (const Error& error) {
      EXPECT_FALSE(error.where().empty()) << error.id();
      return error.id();
    }
    return "none";
  }

  IrContext context_;
  const TempFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(ModelFile, TextWithWeightsBeside) {
  SaveModel(Make(), Path("m.lathe"));
  EXPECT_TRUE(FileExists(WeightsPath(Path("m.lathe"))));
  const Program back = LoadModel(context_, Path("m.lathe"));
  EXPECT_EQ(back.parameters().Find("w")->data, Tensor::Of<float>({2}, {10.0F, 20.0F}));
  EXPECT_TRUE(StructurallyEqual(back.module(), Make().module(), false));
}

TEST_F(ModelFile, Onnx) {
  SaveModel(Make(), Path("m.onnx"));
  const Program back = LoadModel(context_, Path("m.onnx"));
  EXPECT_EQ(back.feeds().size(), 1U);
  EXPECT_EQ(back.parameters().size(), 1U);
}

TEST_F(ModelFile, TheContentDecidesWithoutAKnownExtension) {
  SaveModel(Make(), Path("m.onnx"));
  SaveModel(Make(), Path("m.lathe"));
  fs::rename(Path("m.onnx"), Path("a.bin"));
  EXPECT_EQ(DetectModelFormat(Path("a.bin")), ModelFormat::kOnnx);
  fs::rename(Path("m.lathe"), Path("b.bin"));
  EXPECT_EQ(DetectModelFormat(Path("b.bin")), ModelFormat::kText);
  WriteFile(Path("c.bin"), "hello");
  EXPECT_EQ(LoadError(Path("c.bin")), "model/format");
  WriteFile(Path("d.bin"), "");
  EXPECT_EQ(LoadError(Path("d.bin")), "model/format");
}

TEST_F(ModelFile, WhatIsNotThere) {
  EXPECT_EQ(LoadError(Path("none.onnx")), "io/open");
  EXPECT_EQ(LoadError(folder_.string()), "io/directory");
  SaveModel(Make(), Path("m.lathe"));
  fs::remove(WeightsPath(Path("m.lathe")));
  EXPECT_EQ(LoadError(Path("m.lathe")), "model/weights");
}

TEST_F(ModelFile, WeightsOfAnotherTypeOrName) {
  SaveModel(Make(), Path("m.lathe"));
  std::string text = ReadFile(Path("m.lathe"));
  const size_t at = text.find("\"w\"");
  text.replace(at, 3, "\"v\"");
  WriteFile(Path("m.lathe"), text);
  EXPECT_EQ(LoadError(Path("m.lathe")), "model/weights");
}

TEST_F(ModelFile, UnknownExtensionWhenSaving) {
  EXPECT_THROW(SaveModel(Make(), Path("m.txt")), Error);
}

class Conformance : public ModelFile {
 protected:
  // A case whose recorded output is `y`.
  void MakeCase(const char* name, std::vector<float> y) {
    const fs::path folder = folder_ / "group" / name;
    fs::create_directories(folder / "test_data_set_0");
    SaveModel(Make(), (folder / "model.onnx").string());
    const auto write = [&](const char* file, const char* value, const Tensor& tensor) {
      WriteFile((folder / "test_data_set_0" / file).string(), SerializeOnnxTensor(value, tensor));
    };
    write("input_0.pb", "x", Tensor::Of<float>({2}, {1.0F, 2.0F}));
    write("output_0.pb", "y", Tensor::Of<float>({static_cast<int64_t>(y.size())}, y));
  }
};

TEST_F(Conformance, PassesFailuresAndRefusals) {
  MakeCase("good", {11, 22});
  MakeCase("bad", {11, 23});
  MakeCase("shape", {11, 22, 33});
  MakeCase("damaged", {11, 22});
  WriteFile((folder_ / "group" / "damaged" / "model.onnx").string(), "\x08");
  const ConformanceReport report = RunConformance({folder_.string()}, {.jobs = 2});
  ASSERT_EQ(report.cases.size(), 4U);
  EXPECT_EQ(report.passed, 1U);
  EXPECT_EQ(report.failed, 3U);
  EXPECT_EQ(report.cases[0].name, "bad");
  EXPECT_EQ(report.cases[0].id, "conformance/mismatch");
  EXPECT_EQ(report.cases[1].id, "onnx/wire");
  EXPECT_EQ(report.cases[2].outcome, CaseOutcome::kPassed);
  EXPECT_EQ(report.cases[2].group, "group");
  EXPECT_EQ(report.cases[2].operators, std::vector<std::string>{"Add"});
  EXPECT_NE(report.cases[3].reason.find("f32[2]"), std::string::npos);
  const std::string text = report.ToText();
  EXPECT_TRUE(text.ends_with("1 passed, 3 failed, 0 refused\n")) << text;
  EXPECT_NE(report.ToJson().find("\"passed\": 1"), std::string::npos);
}

TEST_F(Conformance, ThroughTextAndOnnx) {
  MakeCase("good", {11, 22});
  const ConformanceReport report = RunConformance({folder_.string()}, {.round_trip = true});
  EXPECT_EQ(report.passed, 1U) << report.ToText();
}

TEST_F(Conformance, TheFilterPicksCases) {
  MakeCase("good", {11, 22});
  MakeCase("bad", {11, 23});
  EXPECT_EQ(RunConformance({folder_.string()}, {.filter = "group/go+d"}).cases.size(), 1U);
  EXPECT_THROW(RunConformance({folder_.string()}, {.filter = "nothing"}), Error);
  EXPECT_THROW(RunConformance({folder_.string()}, {.filter = "("}), Error);
  EXPECT_THROW(RunConformance({Path("nowhere")}), Error);
}

TEST_F(Conformance, ACaseThatTakesTooLongFailsAlone) {
  MakeCase("good", {11, 22});
  const ConformanceReport report = RunConformance({folder_.string()}, {.time_limit = 0});
  EXPECT_EQ(report.cases[0].id, "conformance/timeout");
}

// A model in memory, and what it says about itself in every file that it becomes.
TEST_F(ModelFile, MetadataStaysWithTheModel) {
  Program program = Make();
  const Metadata metadata = {{"metadata_props.names", "cat\ndog"}, {"producer_name", "pytorch"}};
  SetMetadata(program, metadata);
  const std::string onnx = SerializeOnnx(program);
  auto kept = std::make_shared<std::string>(onnx);
  const Model model = Load(Buffer::Wrap(kept->data(), kept->size(), kept));
  EXPECT_EQ(MetadataOf(model.program()), metadata);
  const Executable executable = Compile(model, {.threads = 1});
  for (const char* name : {"m.lx", "m.json"}) {
    executable.Save(Path(name));
    const auto plan = runtime::LoadPlan(Path(name));
    Metadata read;
    for (const runtime::PlanText& entry : plan->metadata) {
      read.emplace_back(entry.name, entry.text);
    }
    EXPECT_EQ(read, metadata) << name;
  }
}

}  // namespace
}  // namespace lathe
