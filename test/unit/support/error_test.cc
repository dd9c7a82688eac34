#include "lathe/support/error.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace lathe {
namespace {

Error ConvError() {
  return Error(ErrorCode::kShape, "shape/conv-groups",
               "Conv: 250 input channels do not divide into 4 groups")
      .At("resnet50.onnx: node 'layer3.0.conv2'")
      .Note("x : f32[1,250,14,14]   made by 'layer3.0.relu1'")
      .Note("w : f32[256,64,3,3]    group = 4")
      .Hint("`lathe opt --stop=import resnet50.onnx` shows the program as imported");
}

TEST(ErrorTest, Render) {
  EXPECT_EQ(ConvError().Render(),
            "error[shape/conv-groups]: Conv: 250 input channels do not divide into 4 groups\n"
            "  --> resnet50.onnx: node 'layer3.0.conv2'\n"
            "   |  x : f32[1,250,14,14]   made by 'layer3.0.relu1'\n"
            "   |  w : f32[256,64,3,3]    group = 4\n"
            "   = help: `lathe opt --stop=import resnet50.onnx` shows the program as imported\n");
}

TEST(ErrorTest, RenderInColorHasTheSameText) {
  const std::string colored = ConvError().Render(true);
  std::string plain;
  for (size_t i = 0; i < colored.size(); ++i) {
    if (colored[i] == '\x1b') i = colored.find('m', i) + 1;
    if (i < colored.size() && colored[i] == '\x1b')
      --i;
    else if (i < colored.size())
      plain += colored[i];
  }
  EXPECT_NE(colored, plain);
  EXPECT_EQ(plain, ConvError().Render());
}

TEST(ErrorTest, ThrownFluently) {
  try {
    throw Error(ErrorCode::kIo, "io/open", "no").At("a.onnx").Hint("look");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_EQ(error.where(), "a.onnx");
    EXPECT_STREQ(error.what(), "no");
    EXPECT_EQ(error.hints(), std::vector<std::string>{"look"});
  }
}

TEST(ErrorTest, LinesOfALongMessageAreMarked) {
  const Error error(ErrorCode::kParse, "a/b", "one\ntwo");
  EXPECT_EQ(error.Render(), "error[a/b]: one\n   |  two\n");
}

TEST(ErrorTest, OthersAreBounded) {
  Error error(ErrorCode::kVerify, "v/x", "first");
  for (int i = 0; i < 30; ++i) error.others.emplace_back(ErrorCode::kVerify, "v/x", StrCat("n", i));
  const std::string text = error.Render();
  EXPECT_NE(text.find(": n19\n"), std::string::npos);
  EXPECT_EQ(text.find(": n20\n"), std::string::npos);
  EXPECT_TRUE(text.ends_with("and 10 more errors\n"));
}

TEST(ErrorTest, CheckIsAnInternalError) {
  EXPECT_NO_THROW(LATHE_CHECK(1 + 1 == 2));
  try {
    LATHE_CHECK(1 + 1 == 3, "sum is ", 2);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_EQ(error.id(), "internal/check");
    EXPECT_EQ(error.message(), "internal error: 1 + 1 == 3 does not hold: sum is 2");
    EXPECT_TRUE(error.where().starts_with("test/unit/support/error_test.cc:")) << error.where();
    EXPECT_NE(error.Render().find("report"), std::string::npos);
  }
}

TEST(ErrorTest, Nearest) {
  const std::vector<std::string> names = {"conv2d", "conv3d", "relu", "matmul", "max_pool"};
  EXPECT_EQ(Nearest("conv2", names), (std::vector<std::string>{"conv2d", "conv3d"}));
  EXPECT_EQ(Nearest("Relu", names), (std::vector<std::string>{"relu"}));
  EXPECT_EQ(Nearest("mamtul", names), (std::vector<std::string>{"matmul"}));
  EXPECT_TRUE(Nearest("softmax_cross_entropy", names).empty());
  EXPECT_TRUE(Nearest("", names).empty());
  EXPECT_EQ(DidYouMean("conv2", names), "did you mean 'conv2d' or 'conv3d'?");
  EXPECT_EQ(DidYouMean("zzz", names), "");
  const std::array<std::string_view, 4> many = {"aaa1", "aaa2", "aaa3", "aaa4"};
  EXPECT_EQ(Nearest("aaa", many).size(), 3U);
}

TEST(ErrorTest, CodesHaveNames) {
  EXPECT_EQ(Name(ErrorCode::kInvalidArgument), "invalid-argument");
  EXPECT_EQ(Name(ErrorCode::kInternal), "internal");
}

}  // namespace
}  // namespace lathe
