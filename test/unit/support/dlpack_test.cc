#include "lathe/support/dlpack.h"

#include <dlpack/dlpack.h>
#include <gtest/gtest.h>

#include <vector>

#include "lathe/support/error.h"
#include "lathe/support/random.h"

namespace lathe {
namespace {

TEST(DlpackTest, EveryTypeMakesTheRoundTripWithoutACopy) {
  for (const ElementType type : AllElementTypes()) {
    const Tensor t = RandomTensor(type, {3, 5}, 1);
    if (type == ElementType::kString) {
      EXPECT_THROW((void)ToDlpack(t), Error);
      continue;
    }
    const Tensor back = FromDlpack(ToDlpack(t));
    EXPECT_EQ(back.raw(), t.raw()) << Name(type);
    EXPECT_EQ(back, type == ElementType::kIndex ? t.Reinterpreted(ElementType::kI64) : t);
  }
}

// A tensor of a stranger that counts how often it is deleted.
struct Foreign {
  DLManagedTensor managed = {};
  std::vector<float> data = {0, 1, 2, 3, 4, 5};
  std::vector<int64_t> shape = {2, 3};
  std::vector<int64_t> strides = {1, 2};
  int deleted = 0;

  Foreign() {
    managed.dl_tensor.data = data.data();
    managed.dl_tensor.device = {kDLCPU, 0};
    managed.dl_tensor.ndim = 2;
    managed.dl_tensor.dtype = {kDLFloat, 32, 1};
    managed.dl_tensor.shape = shape.data();
    managed.dl_tensor.strides = strides.data();
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->deleted;
    };
  }
};

TEST(DlpackTest, StridesAreCopied) {
  Foreign foreign;
  const Tensor t = FromDlpack(&foreign.managed);
  EXPECT_EQ(t, Tensor::Of<float>({2, 3}, {0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(DlpackTest, RowMajorIsSharedUntilWritten) {
  Foreign foreign;
  foreign.managed.dl_tensor.strides = nullptr;
  Tensor t = FromDlpack(&foreign.managed);
  EXPECT_EQ(t.data<float>().data(), foreign.data.data());
  EXPECT_EQ(foreign.deleted, 0);
  t.mutable_data<float>()[0] = 9;
  EXPECT_EQ(foreign.data[0], 0);
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(DlpackTest, ByteOffsetCounts) {
  Foreign foreign;
  foreign.managed.dl_tensor.ndim = 1;
  foreign.managed.dl_tensor.byte_offset = 8;
  EXPECT_EQ(FromDlpack(&foreign.managed), Tensor::Of<float>({2}, {2, 3}));
}

TEST(DlpackTest, RefusalsDeleteToo) {
  const auto refuse = [](auto change) {
    Foreign foreign;
    change(foreign.managed.dl_tensor);
    EXPECT_THROW((void)FromDlpack(&foreign.managed), Error);
    EXPECT_EQ(foreign.deleted, 1);
  };
  refuse([](DLTensor& t) { t.device.device_type = kDLCUDA; });
  refuse([](DLTensor& t) { t.dtype.lanes = 4; });
  refuse([](DLTensor& t) { t.dtype.code = 99; });
  refuse([](DLTensor& t) { t.ndim = -1; });
  refuse([](DLTensor& t) { t.shape = nullptr; });
  refuse([](DLTensor& t) { t.data = nullptr; });
  refuse([](DLTensor& t) { t.shape[0] = -1; });
}

}  // namespace
}  // namespace lathe
