#include "lathe/frontend/onnx.h"
#include "src/frontend/onnx/tensor_codec.h"

namespace lathe {

namespace {

onnx::DataMsg::Kind KindOf(Type type) {
  if (type.isa<ListType>()) return onnx::DataMsg::kSequence;
  if (type.isa<OptionalType>()) return onnx::DataMsg::kOptional;
  if (type.isa<DictType>()) return onnx::DataMsg::kMap;
  return onnx::DataMsg::kTensor;
}

}  // namespace

NamedRtValue ParseOnnxValue(std::shared_ptr<Buffer> buffer, const std::string& name,
                            Type expected) {
  const std::string_view bytes(reinterpret_cast<const char*>(buffer->data()), buffer->size());
  const onnx::DataMsg message = onnx::ParseData(bytes, name, KindOf(expected));
  return {std::string(message.name), onnx::DecodeData(message, {std::move(buffer), nullptr})};
}

NamedRtValue ReadOnnxValue(const std::string& path, Type expected) {
  return ParseOnnxValue(Buffer::MapFile(path), path, expected);
}

std::string SerializeOnnxTensor(const std::string& name, const Tensor& tensor) {
  return onnx::Serialize(onnx::EncodeTensor(tensor, name));
}

}  // namespace lathe
