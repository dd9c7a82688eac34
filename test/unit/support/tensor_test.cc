#include "lathe/support/tensor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <fstream>

#include "lathe/support/dispatch.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "lathe/support/rt_value.h"
#include "lathe/support/shared_chunks.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

template <class F>
std::string IdOf(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.id();
  }
  return "";
}

TEST(NumElementsTest, IsCheckedForOverflow) {
  EXPECT_EQ(NumElements(Shape{}), 1);
  EXPECT_EQ(NumElements(Shape{2, 3}), 6);
  EXPECT_EQ(NumElements(Shape{int64_t{1} << 40, int64_t{1} << 40, 0}), 0);
  EXPECT_EQ(IdOf([] { (void)NumElements(Shape{int64_t{1} << 32, int64_t{1} << 32}); }),
            "limit/size");
  EXPECT_EQ(IdOf([] { (void)NumElements(Shape{0, -1}); }), "shape/negative-dim");
  EXPECT_EQ(IdOf([] { Tensor(ElementType::kF64, {int64_t{1} << 60, 4}); }), "limit/size");
}

TEST(BufferTest, AllocationsAreAlignedZeroedAndCapped) {
  for (const size_t size : {0, 1, 63, 64, 65, 1000}) {
    const auto buffer = Buffer::Allocate(size), other = Buffer::Allocate(size);
    EXPECT_EQ(buffer->size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % Buffer::kAlignment, 0U);
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(buffer->data()[i], std::byte{0});
    std::fill_n(buffer->mutable_data(), size, std::byte{1});
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(other->data()[i], std::byte{0});
  }
  const size_t cap = Buffer::AllocationCap();
  Buffer::SetAllocationCap(100);
  EXPECT_EQ(IdOf([] { (void)Buffer::Allocate(101); }), "limit/memory");
  EXPECT_EQ(IdOf([] { Tensor(ElementType::kString, {1000}); }), "limit/memory");
  EXPECT_NO_THROW((void)Buffer::Allocate(100));
  Buffer::SetAllocationCap(cap);
  EXPECT_EQ(IdOf([] { (void)Buffer::Allocate(~size_t{0}); }), "limit/memory");
}

TEST(BufferTest, ChunksAreSharedAndLiveAsLongAsWhatIsInThem) {
  std::shared_ptr<Buffer> first, second, small, large;
  {
    const SharedChunks chunks;
    first = Buffer::Allocate(100001);
    second = Buffer::Allocate(100000);
    small = Buffer::Allocate(1000);
    large = Buffer::Allocate(5 << 20);
    EXPECT_EQ(second->data() - first->data(), 100032);  // rounded to the alignment
    std::vector<std::shared_ptr<Buffer>> many;
    for (int i = 0; i < 300; ++i) {
      many.push_back(Buffer::Allocate(70000));
      ASSERT_EQ(many.back()->size(), 70000U);
      std::memset(many.back()->mutable_data(), i + 1, 70000);
    }
    for (int i = 0; i < 300; ++i) {
      ASSERT_EQ(many[i]->data()[0], static_cast<std::byte>(i + 1));
      ASSERT_EQ(many[i]->data()[69999], static_cast<std::byte>(i + 1));
    }
  }
  for (const auto& b : {first, second, small, large}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b->data()) % Buffer::kAlignment, 0U);
    EXPECT_TRUE(b->is_writable());
    for (size_t i = 0; i < b->size(); ++i) ASSERT_EQ(b->data()[i], std::byte{0});
    b->mutable_data()[b->size() - 1] = std::byte{1};
  }
  const auto after = Buffer::Allocate(100000);
  EXPECT_NE(after->data() - second->data(), 100032);
}

TEST(BufferTest, ChunksKeepToTheLimit) {
  const SharedChunks chunks;
  const AllocationLimit limit(1 << 20);
  EXPECT_EQ(Buffer::Allocate(100000)->size(), 100000U);
  EXPECT_EQ(IdOf([] { (void)Buffer::Allocate(2 << 20); }), "limit/memory");
}

class BufferFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream file(path_, std::ios::binary);
    for (int i = 0; i < 10000; ++i) file.put(static_cast<char>(i % 251));
  }
  const TempFolder folder_;
  const std::string path_ = folder_ / "buffer.bin";
};

TEST_F(BufferFileTest, MapsWholeAndRange) {
  const auto whole = Buffer::MapFile(path_);
  EXPECT_EQ(whole->size(), 10000U);
  EXPECT_FALSE(whole->is_writable());
  EXPECT_THROW((void)whole->mutable_data(), Error);
  const auto range = Buffer::MapFile(path_, 5001, 100);
  for (size_t i = 0; i < 100; ++i) {
    ASSERT_EQ(static_cast<int>(range->data()[i]), static_cast<int>((5001 + i) % 251));
  }
  EXPECT_EQ(Buffer::MapFile(path_, 10000)->size(), 0U);
}

TEST_F(BufferFileTest, ReleasedPagesAreReadAgain) {
  const auto range = Buffer::MapFile(path_, 1, 9000);
  const auto check = [&] {
    for (size_t i = 0; i < 9000; ++i) {
      ASSERT_EQ(static_cast<int>(range->data()[i]), static_cast<int>((1 + i) % 251));
    }
  };
  check();
  ReleaseFilePages({range->data(), 9000});
  ReleaseFilePages({range->data() + 100, 10});
  ReleaseFilePages({});
  check();
  const auto own = Buffer::Allocate(5 << 20);
  std::memset(own->mutable_data(), 7, own->size());
  ReleaseFilePages({own->data(), own->size()});
  EXPECT_EQ(own->data()[4096], std::byte{7});
}

// Of a private mapping, what was written to is nowhere else.
TEST_F(BufferFileTest, PagesThatWereWrittenAreKept) {
  const int fd = open(path_.c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  void* all = mmap(nullptr, 10000, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  close(fd);
  ASSERT_NE(all, MAP_FAILED);
  auto* bytes = static_cast<std::byte*>(all);
  bytes[5000] = std::byte{255};
  ReleaseFilePages({bytes, 10000});
  EXPECT_EQ(bytes[5000], std::byte{255});
  munmap(all, 10000);
}

TEST_F(BufferFileTest, RefusesRangesBeyondTheEnd) {
  EXPECT_EQ(IdOf([&] { (void)Buffer::MapFile(path_, 10001); }), "io/map");
  EXPECT_EQ(IdOf([&] { (void)Buffer::MapFile(path_, 9999, 2); }), "io/map");
  EXPECT_EQ(IdOf([&] { (void)Buffer::MapFile(path_, ~uint64_t{0} - 5, 10); }), "io/map");
  EXPECT_EQ(IdOf([&] { (void)Buffer::MapFile(path_, 1, ~uint64_t{0} - 1); }), "io/map");
  EXPECT_EQ(IdOf([&] { (void)Buffer::MapFile(path_ + ".not"); }), "io/open");
  EXPECT_EQ(IdOf([&] { (void)Buffer::MapFile(folder_.path()); }), "io/map");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(IdOf([&] { (void)Buffer::MapFile(folder_ / "pipe"); }), "io/map");
}

TEST_F(BufferFileTest, MisalignedMappedDataIsCopied) {
  const auto file = Buffer::MapFile(path_);
  const Tensor aligned = Tensor::FromBuffer(ElementType::kF32, {4}, file, 8);
  EXPECT_EQ(aligned.raw(), file->data() + 8);
  const Tensor copied = Tensor::FromBuffer(ElementType::kF32, {4}, file, 9);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(copied.raw()) % 4, 0U);
  EXPECT_EQ(std::memcmp(copied.raw(), file->data() + 9, 16), 0);
  EXPECT_EQ(IdOf([&] { (void)Tensor::FromBuffer(ElementType::kF32, {4}, file, 9990); }),
            "limit/bounds");
  EXPECT_EQ(IdOf([&] { (void)Tensor::FromBuffer(ElementType::kU8, {1}, file, ~size_t{0}); }),
            "limit/bounds");
}

TEST(TensorTest, UndefinedScalarAndEmptyDiffer) {
  EXPECT_FALSE(Tensor().is_defined());
  const Tensor scalar = Tensor::Scalar<float>(2);
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.num_elements(), 1);
  const Tensor empty(ElementType::kF32, {0, 3});
  EXPECT_EQ(empty.num_elements(), 0);
  EXPECT_TRUE(empty.data<float>().empty());
  EXPECT_FALSE(scalar == empty);
  EXPECT_EQ(Tensor(), Tensor());
  EXPECT_THROW(Tensor(ElementType::kUndefined, {}), Error);
}

TEST(TensorTest, DataChecksTheType) {
  const Tensor t = Tensor::Of<int32_t>({3}, {1, 2, 3});
  EXPECT_EQ(t.data<int32_t>()[2], 3);
  EXPECT_EQ(IdOf([&] { (void)t.data<float>(); }), "type/element");
  const Tensor index(ElementType::kIndex, {2});
  EXPECT_NO_THROW((void)index.data<int64_t>());
  EXPECT_EQ(IdOf([] { (void)Tensor::Of<float>({2}, {1, 2, 3}); }), "shape/elements");
}

TEST(TensorTest, WritingCopiesWhenShared) {
  Tensor a = Tensor::Of<float>({2}, {1, 2});
  Tensor b = a;
  EXPECT_TRUE(a.SharesStorageWith(b));
  b.mutable_data<float>()[0] = 5;
  EXPECT_FALSE(a.SharesStorageWith(b));
  EXPECT_EQ(a.data<float>()[0], 1);
  const float* where = b.data<float>().data();
  b.mutable_data<float>()[1] = 6;
  EXPECT_EQ(b.data<float>().data(), where);  // alone: in place
  const float outside[2] = {1, 2};
  Tensor c = Tensor::FromBuffer(ElementType::kF32, {2}, Buffer::Wrap(outside, 8, nullptr));
  EXPECT_EQ(c.data<float>().data(), outside);
  c.mutable_data<float>()[0] = 9;
  EXPECT_EQ(outside[0], 1);
}

TEST(TensorTest, StringsShareAndCopyToo) {
  Tensor a = Tensor::Of<std::string>({2}, {"x", "y"});
  Tensor b = a;
  b.mutable_data<std::string>()[0] = "z";
  EXPECT_EQ(a.data<std::string>()[0], "x");
  EXPECT_EQ(b.data<std::string>()[0], "z");
  EXPECT_EQ(a.byte_size(), 0U);
  EXPECT_EQ(a, a.Clone());
}

TEST(TensorTest, ExternalMemoryLivesAsLongAsTheTensor) {
  auto owner = std::make_shared<std::vector<float>>(4, 1.0F);
  const std::weak_ptr<std::vector<float>> watch = owner;
  const float* data = owner->data();
  Tensor t = Tensor::FromBuffer(ElementType::kF32, {4}, Buffer::Wrap(data, 16, std::move(owner)));
  EXPECT_FALSE(watch.expired());
  t = Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST(TensorTest, SubByteTypesArePackedLowFirst) {
  const Tensor t = Tensor::Of<Int4>({3}, {Int4(-1), Int4(2), Int4(-8)});
  ASSERT_EQ(t.byte_size(), 2U);
  EXPECT_EQ(static_cast<int>(t.raw()[0]), 0x2F);
  EXPECT_EQ(static_cast<int>(t.raw()[1]), 0x08);
  EXPECT_EQ(Unpack<Int4>(t), (std::vector<Int4>{Int4(-1), Int4(2), Int4(-8)}));
  const Tensor u = Tensor::Of<UInt2>({5}, {UInt2(3), UInt2(0), UInt2(1), UInt2(2), UInt2(3)});
  EXPECT_EQ(static_cast<int>(u.raw()[0]), 0x93);
  EXPECT_EQ(static_cast<int>(u.raw()[1]), 0x03);
  EXPECT_EQ(ToInt64s(u), (std::vector<int64_t>{3, 0, 1, 2, 3}));
  EXPECT_THROW((void)t.data<Int4>(), Error);
}

TEST(TensorTest, UnusedBitsDoNotCount) {
  const std::byte a[1] = {std::byte{0x05}};
  const std::byte b[1] = {std::byte{0xF5}};
  EXPECT_EQ(Tensor::FromBytes(ElementType::kI4, {1}, a),
            Tensor::FromBytes(ElementType::kI4, {1}, b));
  EXPECT_FALSE(Tensor::FromBytes(ElementType::kI4, {2}, a) ==
               Tensor::FromBytes(ElementType::kI4, {2}, b));
}

TEST(TensorTest, EqualityIsBitwise) {
  EXPECT_EQ(Tensor::Scalar<float>(NAN), Tensor::Scalar<float>(NAN));
  EXPECT_FALSE(Tensor::Scalar<float>(0.0F) == Tensor::Scalar<float>(-0.0F));
  EXPECT_FALSE(Tensor::Scalar<int32_t>(0) == Tensor::Scalar<float>(0));
}

TEST(TensorTest, ReshapeSharesAndChecks) {
  const Tensor t = Tensor::Of<int8_t>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(t.Reshaped({3, 2}).SharesStorageWith(t));
  EXPECT_EQ(IdOf([&] { (void)t.Reshaped({4}); }), "shape/reshape");
  EXPECT_EQ(t.dim(-1), 3);
  EXPECT_EQ(IdOf([&] { (void)t.dim(2); }), "shape/axis");
  EXPECT_EQ(t.Reinterpreted(ElementType::kU8).element_type(), ElementType::kU8);
  EXPECT_THROW((void)t.Reinterpreted(ElementType::kF32), Error);
}

TEST(TensorTest, ToString) {
  EXPECT_EQ(Tensor::Of<int32_t>({2, 2}, {1, 2, 3, 4}).ToString(), "[[1, 2], [3, 4]]");
  EXPECT_EQ(Tensor::Scalar<float>(1.5F).ToString(), "1.5");
  EXPECT_EQ(Tensor::Of<std::string>({1}, {"a\"b"}).ToString(), "[\"a\\\"b\"]");
  EXPECT_EQ(Tensor(ElementType::kF32, {0}).ToString(), "f32[0]");
  EXPECT_EQ(Tensor(ElementType::kI8, {1000}).ToString(3), "[0, 0, 0, ...");
  EXPECT_EQ(Tensor::Of<bool>({2}, {true, false}).TypeString(), "bool[2]");
}

TEST(TensorTest, EveryTypeBuildsClonesAndCompares) {
  for (const ElementType type : AllElementTypes()) {
    const Tensor t = RandomTensor(type, {3, 5}, 7);
    EXPECT_EQ(t.element_type(), type);
    EXPECT_EQ(t, t.Clone()) << Name(type);
    EXPECT_EQ(t, RandomTensor(type, {3, 5}, 7)) << Name(type);
    EXPECT_TRUE(AllClose(t, t)) << Name(type);
    EXPECT_EQ(ZeroLike(t).shape(), t.shape());
    EXPECT_FALSE(t == RandomTensor(type, {3, 5}, 8)) << Name(type);
  }
}

TEST(AllCloseTest, DescribesTheWorst) {
  const Tensor a = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  const Tensor b = Tensor::Of<float>({2, 2}, {1, 2.5, 3, 5});
  const Closeness result = AllClose(a, b);
  EXPECT_FALSE(result);
  EXPECT_EQ(result.mismatches, 2);
  EXPECT_DOUBLE_EQ(result.max_abs_error, 1);
  EXPECT_NE(result.description.find("2 of 4 differ; worst at [1,1]: 4.0 and 5.0"),
            std::string::npos)
      << result.description;
  EXPECT_TRUE(AllClose(a, b, 0.5));
}

TEST(AllCloseTest, SpecialValues) {
  const auto one = [](double x) { return Tensor::Scalar<double>(x); };
  EXPECT_TRUE(AllClose(one(NAN), one(-NAN)));
  EXPECT_TRUE(AllClose(one(INFINITY), one(INFINITY)));
  EXPECT_FALSE(AllClose(one(INFINITY), one(-INFINITY), 10, 10));
  EXPECT_FALSE(AllClose(one(1), one(INFINITY), 10, 10));
  EXPECT_FALSE(AllClose(one(1), one(NAN), 10, 10));
  EXPECT_TRUE(AllClose(one(0.0), one(-0.0)));
  EXPECT_FALSE(AllClose(Tensor::Scalar<int64_t>(1), Tensor::Scalar<int32_t>(1)));
  // Neighbors that are the same double.
  const int64_t big = int64_t{1} << 60;
  EXPECT_FALSE(AllClose(Tensor::Scalar<int64_t>(big), Tensor::Scalar<int64_t>(big + 1), 0, 0));
  EXPECT_FALSE(AllClose(Tensor::Of<std::string>({1}, {"a"}), Tensor::Of<std::string>({1}, {"b"})));
}

TEST(RtValueTest, KindsAndSharing) {
  EXPECT_TRUE(RtValue().is_none());
  RtValue list = RtValue::OfList({Tensor::Scalar<float>(1), RtValue::AbsentOptional()});
  const RtValue copy = list;
  list.mutable_list().push_back(RtValue());
  EXPECT_EQ(copy.list().size(), 2U);
  EXPECT_EQ(list.list().size(), 3U);
  EXPECT_TRUE(copy.list()[1].is_absent_optional());
  EXPECT_EQ(IdOf([&] { (void)list.tensor(); }), "type/value");
  EXPECT_EQ(RtValue::OfDict({{"a", Tensor::Scalar<float>(1)}}).ToString(), "{\"a\": 1.0}");
  EXPECT_EQ(copy, RtValue::OfList({Tensor::Scalar<float>(1), RtValue::AbsentOptional()}));
  EXPECT_FALSE(copy == list);
}

TEST(RtValueTest, AllCloseNamesTheElement) {
  const RtValue a = RtValue::OfList({Tensor::Scalar<float>(1), Tensor::Scalar<float>(2)});
  const RtValue b = RtValue::OfList({Tensor::Scalar<float>(1), Tensor::Scalar<float>(3)});
  EXPECT_TRUE(AllClose(a, a));
  EXPECT_TRUE(AllClose(a, b).description.starts_with("element 1: "));
  EXPECT_FALSE(AllClose(a, RtValue()));
}

}  // namespace
}  // namespace lathe
