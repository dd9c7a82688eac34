#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "lathe/driver/value_files.h"
#include "lathe/ir/context.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/npy.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

class InputFilesTest : public ::testing::Test {
 protected:
  Type TypeOf(ElementType element, std::vector<Dim> dims) {
    return VTensorType::Get(context_, SymShape(std::move(dims)), element);
  }
  Type FloatsOf(std::vector<Dim> dims) { return TypeOf(ElementType::kF32, std::move(dims)); }
  std::string Written(const std::string& name, const std::string& text) {
    WriteFile(folder_ / name, text);
    return folder_ / name;
  }
  Tensor Load(const std::string& path, Type type) {
    return LoadInput("x", path, type, {}).value.tensor();
  }
  static std::string ErrorOf(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      return StrCat(error.id(), " ", error.where(), " ", error.message());
    }
    return "no error";
  }

  IrContext context_;
  TempFolder folder_;
};

TEST_F(InputFilesTest, AnElementFillsTheShape) {
  const std::vector<Dim::Binding> sizes = {{"N", 2}};
  const Type type = FloatsOf({Dim::Symbol("N"), Dim::Symbol("M"), 3});
  EXPECT_EQ(ParseValue("x", "1.5", type, sizes).tensor(),
            Tensor::Of<float>({2, 1, 3}, std::vector<float>(6, 1.5F)));
  EXPECT_EQ(ParseValue("x", "7", TypeOf(ElementType::kI64, {}), {}).tensor(),
            Tensor::Scalar<int64_t>(7));
  EXPECT_EQ(ParseValue("x", "7", TypeOf(ElementType::kI8, {0}), {}).tensor().num_elements(), 0);
}

TEST_F(InputFilesTest, IntegersAreExactAndMustFit) {
  const auto parse = [&](std::string_view text, ElementType element) {
    return ParseValue("x", text, TypeOf(element, {}), {}).tensor();
  };
  EXPECT_EQ(parse("18446744073709551615", ElementType::kU64), Tensor::Scalar(UINT64_MAX));
  EXPECT_EQ(parse("-9223372036854775808", ElementType::kI64), Tensor::Scalar(INT64_MIN));
  EXPECT_EQ(parse("9007199254740993", ElementType::kI64).data<int64_t>()[0], 9007199254740993);
  EXPECT_EQ(parse("1e3", ElementType::kI16), Tensor::Scalar<int16_t>(1000));
  EXPECT_EQ(ToInt64s(parse("-8", ElementType::kI4))[0], -8);
  for (const auto& [text, element] : {std::pair{"256", ElementType::kU8},
                                      {"-1", ElementType::kU8},
                                      {"128", ElementType::kI8},
                                      {"-1", ElementType::kU64},
                                      {"8", ElementType::kI4},
                                      {"1.5", ElementType::kI32},
                                      {"9223372036854775808", ElementType::kI64},
                                      {"2", ElementType::kBool}}) {
    EXPECT_EQ(ErrorOf([&, t = text, e = element] { (void)parse(t, e); }).substr(0, 26),
              "run/input-value input 'x' ")
        << text;
  }
}

TEST_F(InputFilesTest, ListsAreTensorsOfTheShapeThatIsExpected) {
  const Type type = FloatsOf({Dim::Symbol("N"), 1, 2});
  EXPECT_EQ(ParseValue("x", "[1, 2, \"inf\", -1e-3]", type, {}).tensor(),
            Tensor::Of<float>({2, 1, 2}, {1, 2, INFINITY, -1e-3F}));
  EXPECT_EQ(ParseValue("x", "[1, 2, 3]", type, {}).tensor().shape(), Shape{3});
  EXPECT_EQ(ErrorOf([&] { (void)ParseValue("x", "[[1, 2], [3]]", type, {}); }),
            "run/input-value input 'x' the lists at depth 2 have different lengths: 1 after 2");
  EXPECT_EQ(ErrorOf([&] { (void)ParseValue("x", "[[1, 2], 3]", type, {}); }).substr(0, 15),
            "run/input-value");
  EXPECT_EQ(ErrorOf([&] { (void)ParseValue("x", "[null, 1]", type, {}); }),
            "run/input-value input 'x' null stands where an element of type f32 is expected");
  const std::string deep(100, '[');
  EXPECT_EQ(ErrorOf([&] { (void)ParseValue("x", deep, type, {}); }),
            "parse/json input 'x' it is nested too deeply");
}

TEST_F(InputFilesTest, ListsAndOptionals) {
  const Type tensor = FloatsOf({Dim()});
  const Type list = ListType::Get(context_, std::span(&tensor, 1));
  const Type optional = OptionalType::Get(context_, std::span(&list, 1));
  const RtValue value = ParseValue("x", "[[1], [2, 3]]", optional, {});
  ASSERT_EQ(value.list().size(), 2U);
  EXPECT_EQ(value.list()[1].tensor(), Tensor::Of<float>({2}, {2, 3}));
  EXPECT_TRUE(ParseValue("x", "null", optional, {}).is_absent_optional());
}

TEST_F(InputFilesTest, TablesHaveTitlesQuotesAndMissingNumbers) {
  const std::string path =
      Written("a.csv", "\xef\xbb\xbfx,\"other, one\"\r\n1,\"2\"\r\n\r\n,4\r\n");
  EXPECT_EQ(OpenValueFile(path)->names(), (std::vector<std::string>{"x", "other, one"}));
  const Tensor column = Load(path, FloatsOf({Dim::Symbol("N"), 1}));
  EXPECT_EQ(column.shape(), (Shape{2, 1}));
  EXPECT_TRUE(std::isnan(column.data<float>()[1]));
  EXPECT_EQ(LoadInput("y", path, FloatsOf({Dim(), Dim()}), {}).value.tensor().shape(),
            (Shape{2, 2}));
  EXPECT_EQ(
      Load(Written("t.tsv", "a b\tc\n\"d\"\"\n\"\te\n"), TypeOf(ElementType::kString, {Dim(), 2})),
      Tensor::Of<std::string>({2, 2}, {"a b", "c", "d\"\n", "e"}));
}

TEST_F(InputFilesTest, TablesThatAreNone) {
  const Type type = FloatsOf({Dim(), Dim()});
  for (const auto& [text, id] : {std::pair{"", "parse/csv"},
                                 {"\n\n", "parse/csv"},
                                 {"1,\"2", "parse/csv"},
                                 {"\"1\"2,3", "parse/csv"},
                                 {"1,2\n3", "parse/csv"},
                                 {"1,2\n3,x", "run/input-value"},
                                 {"1;2\n3,4;5", "run/input-value"}}) {
    const std::string path = Written("bad.csv", text);
    EXPECT_TRUE(ErrorOf([&] { (void)Load(path, type); }).starts_with(id)) << text;
  }
}

TEST_F(InputFilesTest, FoldersAndPatternsAreBatches) {
  for (const auto& [name, value] : {std::pair{"b.npy", 2.0F}, {"a.npy", 1.0F}, {"c.npy", 3.0F}}) {
    WriteNpy(folder_ / name, Tensor::Of<float>({2}, {value, -value}));
  }
  Written("notes.txt", "not a value");
  const Type type = FloatsOf({Dim::Symbol("N"), 2});
  EXPECT_EQ(Load(folder_.path(), type), Tensor::Of<float>({3, 2}, {1, -1, 2, -2, 3, -3}));
  EXPECT_EQ(Load(folder_ / "[bc].npy", type), Tensor::Of<float>({2, 2}, {2, -2, 3, -3}));
  EXPECT_EQ(ErrorOf([&] { (void)Load(folder_ / "*.png", type); }).substr(0, 8), "io/empty");
  WriteNpy(folder_ / "d.npy", Tensor::Of<float>({3}, {1, 2, 3}));
  EXPECT_EQ(ErrorOf([&] { (void)Load(folder_.path(), type); }).substr(0, 9), "run/batch");
}

TEST_F(InputFilesTest, JsonFilesHaveValuesByName) {
  const std::string path = Written("a.json", R"({"x": [1, 2], "y": 3})");
  EXPECT_EQ(Load(path, FloatsOf({1, 2})), Tensor::Of<float>({1, 2}, {1, 2}));
  EXPECT_EQ(ErrorOf([&] { (void)LoadInput("z", path, FloatsOf({}), {}); }).substr(0, 13),
            "run/npz-entry");
  EXPECT_EQ(ErrorOf([&] { (void)Load(Written("b.json", "[1, 2"), FloatsOf({2})); }).substr(0, 10),
            "parse/json");
}

}  // namespace
}  // namespace lathe
