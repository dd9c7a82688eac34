#include "src/frontend/onnx/tensor_codec.h"

#include <gtest/gtest.h>

#include <cstring>

#include "model_util.h"
#include "src/frontend/onnx/wire.h"

namespace lathe::onnx {
namespace {

Tensor RoundTrip(const Tensor& tensor) {
  const std::string bytes = SerializeOnnxTensor("t", tensor);
  const NamedRtValue back = ParseOnnxValue(BufferOf(bytes), "t.pb");
  EXPECT_EQ(back.name, "t");
  return back.value.tensor();
}

TEST(TensorCodec, EveryElementTypeSurvives) {
  for (const ElementType type : AllElementTypes()) {
    if (type == ElementType::kIndex) continue;
    const Tensor numbers = I64({5}, {0, 1, 1, 0, 1});
    const Tensor tensor = Cast(numbers, type);
    EXPECT_EQ(RoundTrip(tensor), tensor) << Name(type);
  }
}

TEST(TensorCodec, ScalarsAndEmptyTensors) {
  EXPECT_EQ(RoundTrip(Tensor::Scalar<float>(2)), Tensor::Scalar<float>(2));
  EXPECT_EQ(RoundTrip(F32({2, 0}, {})), F32({2, 0}, {}));
  EXPECT_EQ(RoundTrip(Tensor::Scalar<std::string>("")), Tensor::Scalar<std::string>(""));
}

TensorMsg Typed(ElementType type, std::vector<int64_t> dims, TensorMsg::Field field,
                std::string_view run) {
  TensorMsg t;
  t.name = "t";
  t.data_type = static_cast<int32_t>(type);
  t.dims = std::move(dims);
  t.typed[field].push_back(run);
  return t;
}

TEST(TensorCodec, NumbersInTypedFields) {
  WireWriter w;
  for (const int64_t v : {int64_t{3}, int64_t{-1}}) w.RawVarint(static_cast<uint64_t>(v));
  const std::string& run = w.out();
  EXPECT_EQ(DecodeTensor(Typed(ElementType::kI64, {2}, TensorMsg::kInt64, run), {}),
            I64({2}, {3, -1}));
  EXPECT_EQ(DecodeTensor(Typed(ElementType::kI8, {2}, TensorMsg::kInt32, run), {}),
            Tensor::Of<int8_t>({2}, {3, -1}));
  EXPECT_EQ(DecodeTensor(Typed(ElementType::kU16, {2}, TensorMsg::kInt32, run), {}),
            Tensor::Of<uint16_t>({2}, {3, 65535}));
  EXPECT_EQ(DecodeTensor(Typed(ElementType::kBool, {2}, TensorMsg::kInt32, run), {}),
            Tensor::Of<bool>({2}, {true, true}));
  // float16 is stored as its bits: 0x3c00 is 1.
  WireWriter half;
  half.RawVarint(0x3c00);
  EXPECT_EQ(
      ToDoubles(DecodeTensor(Typed(ElementType::kF16, {1}, TensorMsg::kInt32, half.out()), {})),
      std::vector<double>{1});
}

TEST(TensorCodec, PackedTypesHoldTwoOrFourElementsPerNumber) {
  WireWriter w;
  w.RawVarint(0x21);
  w.RawVarint(0xf3);
  const Tensor t = DecodeTensor(Typed(ElementType::kU4, {3}, TensorMsg::kInt32, w.out()), {});
  EXPECT_EQ(ToInt64s(t), (std::vector<int64_t>{1, 2, 3}));
}

TEST(TensorCodec, SharesTheFileWhereItIsAligned) {
  const Tensor w = F32({4}, {1, 2, 3, 4});
  auto buffer = Buffer::Allocate(64);
  std::memcpy(buffer->mutable_data(), w.raw(), w.byte_size());
  TensorMsg t;
  t.data_type = 1;
  t.dims = {4};
  t.has_raw = true;
  t.raw_data = {reinterpret_cast<const char*>(buffer->data()), w.byte_size()};
  const Tensor shared = DecodeTensor(t, {buffer, nullptr});
  EXPECT_EQ(shared.raw(), buffer->data());
  EXPECT_EQ(shared, w);
}

TEST(TensorCodec, BoolsBecomeZeroOrOne) {
  TensorMsg t;
  t.data_type = static_cast<int32_t>(ElementType::kBool);
  t.dims = {2};
  t.has_raw = true;
  t.raw_data = Text("\x00\xff", 2);
  EXPECT_EQ(DecodeTensor(t, {}), Tensor::Of<bool>({2}, {false, true}));
}

struct BadTensor {
  const char* id;
  TensorMsg message;
};

TEST(TensorCodec, SaysWhatIsWrong) {
  const auto make = [](int32_t type, std::vector<int64_t> dims, Text raw) {
    TensorMsg t;
    t.name = "w";
    t.data_type = type;
    t.dims = std::move(dims);
    t.has_raw = true;
    t.raw_data = raw;
    return t;
  };
  TensorMsg both = make(1, {1}, "1234");
  both.typed[TensorMsg::kFloat].push_back("1234");
  TensorMsg segment = make(1, {1}, "1234");
  segment.has_segment = true;
  TensorMsg strings = make(8, {2}, "");
  strings.has_raw = false;
  strings.strings = {"one"};
  const BadTensor cases[] = {
      {"onnx/tensor-type", make(0, {1}, "1234")},
      {"onnx/tensor-type", make(77, {1}, "1234")},
      {"onnx/tensor-size", make(1, {2}, "1234")},
      {"onnx/tensor-size", make(1, {-1}, "1234")},
      {"onnx/tensor-size", make(1, {int64_t{1} << 32, int64_t{1} << 32}, "1234")},
      {"onnx/tensor-size", make(1, {INT64_MAX, INT64_MAX, 4}, "1234")},
      {"onnx/tensor-data", both},
      {"onnx/tensor-data", segment},
      {"onnx/tensor-size", strings},
      {"onnx/tensor-data", make(8, {1}, "abc")},
      {"onnx/tensor-size", Typed(ElementType::kI64, {3}, TensorMsg::kInt64, "\x01")},
      {"onnx/tensor-data", Typed(ElementType::kI64, {1}, TensorMsg::kInt64, "\x80")},
  };
  for (const BadTensor& c : cases) {
    const Error error = Caught([&] { DecodeTensor(c.message, {}); });
    EXPECT_EQ(error.id(), c.id) << error.message();
  }
}

TEST(TensorCodec, AHugeShapeWithoutElementsIsFine) {
  TensorMsg t;
  t.data_type = 1;
  t.dims = {int64_t{1} << 40, 0, int64_t{1} << 40};
  EXPECT_EQ(DecodeTensor(t, {}).num_elements(), 0);
}

TEST(TensorCodec, SparseBecomesDense) {
  const Tensor values = F32({2}, {5, 6});
  const Tensor linear = I64({2}, {1, 5});
  const Tensor pairs = I64({2, 2}, {0, 1, 1, 2});
  const Tensor expected = F32({2, 3}, {0, 5, 0, 0, 0, 6});
  for (const Tensor& indices : {linear, pairs}) {
    const SparseTensorMsg s{EncodeTensor(values, "s"), EncodeTensor(indices, ""), {2, 3}};
    EXPECT_EQ(DecodeSparse(s, {}), expected);
  }
  const Tensor outside = I64({2}, {1, 6});
  const SparseTensorMsg bad{EncodeTensor(values, "s"), EncodeTensor(outside, ""), {2, 3}};
  EXPECT_EQ(Caught([&] { DecodeSparse(bad, {}); }).id(), "onnx/sparse");
}

TEST(TensorCodec, SequencesOptionalsAndMaps) {
  const Tensor a = F32({1}, {1}), b = I64({2}, {2, 3});
  const auto tensor = [](const Tensor& t) {
    DataMsg d;
    d.tensor = EncodeTensor(t, "");
    return d;
  };
  DataMsg list;
  list.kind = DataMsg::kSequence;
  list.name = "s";
  list.elem_type = 1;
  list.items = {tensor(a), tensor(b)};
  Loaded loaded;
  const Type f32 = VTensorType::Get(loaded.context, SymShape::Unranked(), ElementType::kF32);
  const Type list_type = ListType::Get(loaded.context, {&f32, 1});
  const NamedRtValue read = ParseOnnxValue(BufferOf(Serialize(list)), "s.pb", list_type);
  EXPECT_EQ(read.name, "s");
  EXPECT_EQ(read.value, RtValue::OfList({a, b}));

  DataMsg nothing;
  nothing.kind = DataMsg::kOptional;
  nothing.elem_type = 1;
  const Type optional = OptionalType::Get(loaded.context, {&f32, 1});
  EXPECT_TRUE(
      ParseOnnxValue(BufferOf(Serialize(nothing)), "o.pb", optional).value.is_absent_optional());
  nothing.items = {tensor(a)};
  EXPECT_EQ(ParseOnnxValue(BufferOf(Serialize(nothing)), "o.pb", optional).value, RtValue(a));

  DataMsg map;
  map.kind = DataMsg::kMap;
  map.string_keys = {"k"};
  map.items = {tensor(a)};
  const Type types[] = {ElemType::Get(loaded.context, ElementType::kString), f32};
  const RtValue dict =
      ParseOnnxValue(BufferOf(Serialize(map)), "m.pb", DictType::Get(loaded.context, types)).value;
  EXPECT_EQ(dict.dict().at("k"), RtValue(a));
}

}  // namespace
}  // namespace lathe::onnx
