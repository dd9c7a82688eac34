#include <gtest/gtest.h>

#include <algorithm>

#include "lathe/support/file.h"
#include "lathe/support/safetensors.h"
#include "src/train/batches.h"
#include "test/unit/train/networks.h"

namespace lathe::train::testing {
namespace {

template <class F>
Error ErrorOf(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kInternal, "", "no error");
}

std::shared_ptr<const DataSet> Open(std::vector<std::string> sources) { return OpenData(sources); }

TEST(DataSet, ReadsRowsOfArraysInAnyOrder) {
  const auto data = FromTensors({{"x", Tensor::Of<float>({3, 2}, {0, 1, 10, 11, 20, 21})},
                                 {"y", Tensor::Of<int32_t>({3}, {5, 6, 7})}});
  EXPECT_EQ(data->size(), 3);
  const int64_t rows[] = {2, 0, 2};
  const NamedTensors batch = data->Read(rows);
  EXPECT_EQ(batch[0].second, Tensor::Of<float>({3, 2}, {20, 21, 0, 1, 20, 21}));
  EXPECT_EQ(batch[1].second, Tensor::Of<int32_t>({3}, {7, 5, 7}));
}

TEST(DataSet, RefusesArraysThatDoNotBelongTogether) {
  const Tensor two = Tensor::Of<float>({2}, {0, 1}), three = Tensor::Of<float>({3}, {0, 1, 2});
  const Error extents = ErrorOf([&] { FromTensors({{"x", two}, {"y", three}}, "d.npz"); });
  EXPECT_EQ(extents.id(), "train/extents");
  EXPECT_EQ(extents.message(), "array 'x' has 2 samples, 'y' has 3");
  EXPECT_EQ(extents.where(), "d.npz");
  EXPECT_EQ(ErrorOf([&] { FromTensors({}); }).id(), "train/data");
  EXPECT_EQ(ErrorOf([&] { FromTensors({{"x", Tensor::Scalar(1.0F)}}); }).id(), "train/data");
  EXPECT_EQ(ErrorOf([&] { FromTensors({{"x", Tensor(ElementType::kString, {2})}}); }).id(),
            "train/data");
}

TEST(DataSet, ChecksWhatACallbackReturns) {
  const auto of = [](Tensor result) {
    return FromCallback(4, {{"x", ElementType::kF32, {2}}},
                        [=](std::span<const int64_t>) { return NamedTensors{{"x", result}}; });
  };
  const int64_t rows[] = {0};
  EXPECT_EQ(of(Tensor(ElementType::kF32, {1, 2}))->Read(rows).size(), 1U);
  for (const Tensor& wrong : {Tensor(ElementType::kF32, {1, 3}), Tensor(ElementType::kF64, {1, 2}),
                              Tensor(ElementType::kF32, {2, 2})}) {
    EXPECT_EQ(ErrorOf([&] { (void)of(wrong)->Read(rows); }).id(), "train/data");
  }
}

class DataFiles : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return StrCat(folder_.path(), "/", name); }
  std::string Write(const std::string& name, std::string_view bytes) const {
    WriteFile(Path(name), bytes);
    return Path(name);
  }
  TemporaryFolder folder_;
};

TEST_F(DataFiles, OpensArchivesAndSingleArrays) {
  const Tensor x = Tensor::Of<float>({2, 1}, {1, 2}), y = Tensor::Of<int64_t>({2}, {0, 1});
  WriteNpz(Path("d.npz"), {{"x", x}, {"y", y}});
  WriteSafeTensors(Path("d.safetensors"), {{{"x", x}, {"y", y}}, {}});
  WriteNpy(Path("x.npy"), x);
  WriteNpy(Path("y.npy"), y);
  for (const std::vector<std::string>& sources :
       {std::vector{Path("d.npz")}, std::vector{Path("d.safetensors")},
        std::vector{"x=" + Path("x.npy"), "y=" + Path("y.npy")}}) {
    const auto data = OpenData(sources);
    EXPECT_EQ(data->size(), 2);
    EXPECT_EQ(data->columns()[0].name, "x");
    EXPECT_EQ(data->columns()[1].name, "y");
  }
  EXPECT_EQ(ErrorOf([&] { Open({Path("x.npy")}); }).id(), "train/data");
  EXPECT_EQ(ErrorOf([&] { Open({Path("none.npz")}); }).id(), "io/open");
  EXPECT_EQ(ErrorOf([&] { Open({Path("d.npz"), Path("d.npz")}); }).id(), "train/data");
}

TEST_F(DataFiles, ReadsIdx) {
  const std::string bytes(
      "\0\0\x08\x02\0\0\0\x02\0\0\0\x03"
      "abcdef",
      18);
  EXPECT_EQ(ReadIdx(Write("u8", bytes)),
            Tensor::Of<uint8_t>({2, 3}, {'a', 'b', 'c', 'd', 'e', 'f'}));
  const std::string words("\0\0\x0c\x01\0\0\0\x02\0\0\x01\x02\xff\xff\xff\xff", 16);
  EXPECT_EQ(ReadIdx(Write("i32", words)), Tensor::Of<int32_t>({2}, {258, -1}));
}

TEST_F(DataFiles, RefusesDamagedIdx) {
  const std::string good(
      "\0\0\x08\x01\0\0\0\x02"
      "ab",
      10);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(ErrorOf([&] { ReadIdx(Write("cut", good.substr(0, size))); }).id(), "parse/idx");
  }
  EXPECT_EQ(ErrorOf([&] { ReadIdx(Write("long", good + "c")); }).id(), "parse/idx");
  EXPECT_EQ(ErrorOf([&] { ReadIdx(Write("type", std::string("\0\0\x07\0", 4) + "a")); }).id(),
            "parse/idx");
  const Error zipped = ErrorOf([&] { ReadIdx(Write("z", "\x1f\x8b\x08 more")); });
  EXPECT_NE(zipped.message().find("gunzip"), std::string::npos);
  const std::string huge("\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16);
  EXPECT_TRUE(ErrorOf([&] { ReadIdx(Write("huge", huge)); }).id() != "");
}

TEST_F(DataFiles, ReadsFoldersOfPicturesByClass) {
  const std::string digits = StrCat(LATHE_SOURCE_DIR, "/examples/digits/digit_");
  for (const char* name : {"nine", "one"}) MakeDirectory(Path(StrCat("p/", name)));
  Write("p/nine/a.png", ReadFile(digits + "9.png"));
  Write("p/one/b.png", ReadFile(digits + "1.png"));
  Write("p/one/a.png", ReadFile(digits + "7.png"));
  Write("p/one/notes.txt", "no picture");
  IrContext context;
  const Type type = VTensorType::Get(context, SymShape({Dim::Symbol("N"), Dim(1), Dim(8), Dim(8)}),
                                     ElementType::kF32);
  const std::string folder[] = {Path("p")};
  const auto data = OpenData(folder, {.picture = "image", .picture_type = type});
  EXPECT_EQ(data->size(), 3);
  const int64_t rows[] = {2, 0};
  const NamedTensors batch = data->Read(rows);
  EXPECT_EQ(batch[0].first, "image");
  EXPECT_EQ(batch[0].second.shape(), (Shape{2, 1, 8, 8}));
  EXPECT_EQ(batch[1].second, Tensor::Of<int64_t>({2}, {1, 0}));
  const Tensor one = LoadInput("image", digits + "1.png", type, {}).value.tensor();
  EXPECT_EQ(Tensor::FromBytes(ElementType::kF32, {1, 1, 8, 8},
                              batch[0].second.bytes().first(one.byte_size())),
            one);
  const std::string none[] = {folder_.path()};
  EXPECT_EQ(ErrorOf([&] { (void)OpenData(none, {.picture_type = type}); }).id(), "train/data");
}

// ---- from arrays to inputs ----

const std::vector<Port> kPorts = {{"image", ElementType::kF32, {Dim::Symbol("N"), 1, 2, 2}},
                                  {"labels", ElementType::kI64, {Dim::Symbol("N")}}};

NamedValues Feed(const NamedTensors& arrays, FeedOptions options = {}) {
  options.target = "labels";
  options.is_classes = true;
  options.num_classes = 3;
  const auto data = FromTensors(arrays);
  const std::vector<int64_t> rows = {0};
  return Feeder(*data, kPorts, options).Read(rows);
}

const Tensor kLabel = Tensor::Of<uint8_t>({1, 1}, {2});

TEST(Feeder, ConvertsTypesAndShapes) {
  const Tensor pixels = Tensor::Of<uint8_t>({1, 2, 2}, {0, 51, 102, 255});
  NamedValues values = Feed({{"image", pixels}, {"labels", kLabel}});
  EXPECT_EQ(values[0].second.tensor(), Tensor::Of<float>({1, 1, 2, 2}, {0, .2F, .4F, 1}));
  EXPECT_EQ(values[1].second.tensor(), Tensor::Of<int64_t>({1}, {2}));
  values = Feed({{"image", pixels}, {"labels", kLabel}}, {.image = ImageOptions::Named("raw")});
  EXPECT_EQ(values[0].second.tensor(), Tensor::Of<float>({1, 1, 2, 2}, {0, 51, 102, 255}));
  values = Feed({{"image", Tensor::Of<double>({1, 2, 2, 1}, {0, 1, 2, 3})}, {"labels", kLabel}});
  EXPECT_EQ(values[0].second.tensor(), Tensor::Of<float>({1, 1, 2, 2}, {0, 1, 2, 3}));
}

TEST(Feeder, FindsArraysByNameOrAsTheOnlyOneLeft) {
  const Tensor pixels(ElementType::kF32, {1, 1, 2, 2});
  EXPECT_EQ(Feed({{"x", pixels}, {"labels", kLabel}}).size(), 2U);
  EXPECT_EQ(Feed({{"x", pixels}, {"y", kLabel}}, {.labels = "y"}).size(), 2U);
  const Error missing = ErrorOf([&] { Feed({{"image", pixels}, {"label", kLabel}}); });
  EXPECT_EQ(missing.id(), "train/array");
  EXPECT_EQ(missing.hints()[0], "did you mean 'label'?");
  EXPECT_EQ(ErrorOf([&] { Feed({{"a", pixels}, {"b", pixels}, {"labels", kLabel}}); }).id(),
            "train/array");
}

TEST(Feeder, RefusesWhatDoesNotFit) {
  const Tensor pixels(ElementType::kF32, {1, 1, 2, 2});
  const auto error = [&](const Tensor& image, const Tensor& labels) {
    return ErrorOf([&] { Feed({{"image", image}, {"labels", labels}}); });
  };
  EXPECT_EQ(error(Tensor(ElementType::kF32, {1, 4}), kLabel).id(), "train/array-shape");
  EXPECT_EQ(error(Tensor(ElementType::kF32, {1, 2, 3}), kLabel).message(),
            "array 'image' is f32[1,2,3], input 'image' is f32[N,1,2,2]");
  EXPECT_EQ(error(Tensor(ElementType::kC64, {1, 2, 2}), kLabel).id(), "train/array-type");
  EXPECT_EQ(error(pixels, Tensor(ElementType::kF32, {1})).id(), "train/array-type");
  const Error label = error(pixels, Tensor::Of<int8_t>({1}, {3}));
  EXPECT_EQ(label.id(), "train/label");
  EXPECT_EQ(label.message(), "the label 3 of sample 0 is not one of the 3 classes, 0 to 2");
  EXPECT_EQ(error(pixels, Tensor::Of<int8_t>({1}, {-1})).id(), "train/label");
}

// ---- order and batches ----

TEST(SampleOrder, IsAPermutationThatSeedAndEpochDecide) {
  std::vector<int64_t> order = SampleOrder(100, true, 7, 3);
  EXPECT_EQ(order, SampleOrder(100, true, 7, 3));
  EXPECT_NE(order, SampleOrder(100, true, 7, 4));
  EXPECT_NE(order, SampleOrder(100, true, 8, 3));
  std::ranges::sort(order);
  EXPECT_EQ(order, SampleOrder(100, false, 7, 3));
}

TEST(Loader, GivesBatchesInOrderFromAnyPlace) {
  const auto data = FromTensors({{"x", NumbersOf({10, 8}, 1)}, {"labels", Labels(10, 3)}});
  const std::vector<Port> ports = {{"x", ElementType::kF32, {Dim::Symbol("N"), 8}}};
  const Feeder feeder(*data, ports, {});
  const auto read = [&](bool drop_last, int64_t first) {
    Loader loader(feeder, SampleOrder(10, false, 0, 0), 4, drop_last, first);
    std::vector<std::vector<int64_t>> all;
    while (auto batch = loader.Next()) all.push_back(batch->rows);
    return all;
  };
  using Rows = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(read(false, 0), (Rows{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}));
  EXPECT_EQ(read(true, 1), (Rows{{4, 5, 6, 7}}));
  EXPECT_EQ(read(false, 3), Rows{});
  const Loader unread(feeder, SampleOrder(10, false, 0, 0), 1, false);  // ends without a reader
}

TEST(Loader, HandsOnErrors) {
  const auto data =
      FromCallback(8, {{"x", ElementType::kF32, {8}}}, [](std::span<const int64_t> rows) {
        if (rows[0] >= 4) throw Error(ErrorCode::kIo, "io/read", "gone");
        return NamedTensors{
            {"x", Tensor(ElementType::kF32, {static_cast<int64_t>(rows.size()), 8})}};
      });
  const std::vector<Port> ports = {{"x", ElementType::kF32, {Dim::Symbol("N"), 8}}};
  const Feeder feeder(*data, ports, {});
  Loader loader(feeder, SampleOrder(8, false, 0, 0), 4, false);
  EXPECT_TRUE(loader.Next().has_value());
  EXPECT_EQ(ErrorOf([&] { (void)loader.Next(); }).id(), "io/read");
  EXPECT_FALSE(loader.Next().has_value());
}

}  // namespace
}  // namespace lathe::train::testing
