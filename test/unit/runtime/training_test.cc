// The run time alone, without the compiler, trains what was saved.

#include <gtest/gtest.h>

#include <cstdlib>

#include "lathe/dialect/all.h"
#include "lathe/driver/executable.h"
#include "lathe/runtime/model.h"
#include "lathe/support/file.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/temp_folder.h"
#include "test/unit/training_step.h"

namespace lathe::runtime {
namespace {

constexpr int kSteps = 5, kRows = 8;

class SavedTrainingTest : public ::testing::Test {
 protected:
  SavedTrainingTest() { LoadAllDialects(context_); }
  void SetUp() override { codegen::NeedCodeGenerator(); }

  // The parameters, sorted by name, one after the other.
  static std::string StateOf(const Executable& executable) {
    std::string bytes;
    for (const std::string& name : executable.MutableParameters()) {
      const Tensor value = executable.GetParameter(name);
      bytes.append(reinterpret_cast<const char*>(value.raw()), value.byte_size());
    }
    return bytes;
  }

  IrContext context_;
};

TEST_F(SavedTrainingTest, FromC) {
  const TempFolder folder;
  const Executable executable(lathe::testing::TrainingStep(context_), {});
  ASSERT_TRUE(executable.CanSave());
  for (const char* file : {"step.lx", "step.json"}) executable.Save(folder / file);
  for (int step = 0; step < kSteps; ++step)
    executable.Run(lathe::testing::TrainingBatch(kRows, step));
  const std::string wanted = StateOf(executable);
  ASSERT_EQ(wanted.size(), 2 * (6 * 16 + 16 + 16 * 3) * sizeof(float));
  for (const char* file : {"step.lx", "step.json"}) {
    const std::string command =
        StrCat(LATHE_BUILD_DIR "/bin/train_check ", folder / file, " ", kSteps, " ", kRows, " ",
               folder / "state", " >", folder / "losses");
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    EXPECT_EQ(ReadFile(folder / "state"), wanted) << file;
  }
}

TEST_F(SavedTrainingTest, FromCpp) {
  const TempFolder folder;
  const Executable executable(lathe::testing::TrainingStep(context_), {});
  executable.Save(folder / "step.lx");
  const Model model(folder / "step.lx");
  EXPECT_EQ(model.MutableParameters(), executable.MutableParameters());
  const NamedValues batch = lathe::testing::TrainingBatch(kRows, 0);
  std::vector<ArrayView> inputs;
  for (const auto& [name, value] : batch) {
    const Tensor& t = value.tensor();
    inputs.push_back({static_cast<lathe_element>(t.element_type()), t.raw(), t.shape()});
  }
  executable.Run(batch);
  (void)model.Run(inputs);
  const Array b0 = model.GetParameter("b0");
  EXPECT_EQ(b0.shape(), std::vector<int64_t>{16});
  EXPECT_EQ(Tensor::Of<float>({16}, b0.as<float>()), executable.GetParameter("b0"));
  const std::vector<float> ones(16, 1);
  model.SetParameter("b0", ArrayView::Of(b0.shape(), ones.data()));
  EXPECT_EQ(model.GetParameter("b0").as<float>()[15], 1);
}

TEST_F(SavedTrainingTest, WrongNamesTypesAndShapesAreErrors) {
  const TempFolder folder;
  Executable(lathe::testing::TrainingStep(context_), {}).Save(folder / "step.lx");
  const Model model(folder / "step.lx");
  const auto error = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const ModelError& e) {
      return e.text();
    }
    return "none";
  };
  const std::vector<float> x(16);
  const std::vector<double> wide(16);
  const std::vector<int64_t> shape = {16}, other = {4, 4};
  const std::string missing = error([&] { (void)model.GetParameter("w0.momentun"); });
  EXPECT_NE(missing.find("parameter/missing"), std::string::npos) << missing;
  EXPECT_NE(missing.find("did you mean 'w0.momentum'"), std::string::npos) << missing;
  const auto set = [&](const ArrayView& view) {
    return error([&] { model.SetParameter("b0", view); });
  };
  EXPECT_NE(set(ArrayView::Of(other, x.data())).find("parameter/shape"), std::string::npos);
  EXPECT_NE(set(ArrayView::Of(shape, wide.data())).find("parameter/type"), std::string::npos);
  EXPECT_NE(set({LATHE_F32, nullptr, shape}).find("run/argument"), std::string::npos);
  EXPECT_NE(set({static_cast<lathe_element>(0), x.data(), shape}).find("run/argument"),
            std::string::npos);
  float room = 0;
  lathe_error* bytes = lathe_parameter_get(model.get(), "b0", &room, sizeof room, nullptr);
  ASSERT_NE(bytes, nullptr);
  EXPECT_STREQ(lathe_error_id(bytes), "parameter/bytes");
  lathe_error_free(bytes);
  EXPECT_EQ(lathe_parameter_name(model.get(), 6), nullptr);
}

}  // namespace
}  // namespace lathe::runtime
