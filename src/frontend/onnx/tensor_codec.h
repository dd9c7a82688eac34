#pragma once

#include <memory>
#include <string>

#include "lathe/support/rt_value.h"
#include "lathe/support/tensor.h"
#include "src/frontend/onnx/external_data.h"
#include "src/frontend/onnx/messages.h"

namespace lathe::onnx {

/// What the views of the messages point into.
struct Source {
  std::shared_ptr<Buffer> buffer;
  ExternalFiles* external = nullptr;  ///< null: external data is an error
};

/// The tensor that a message describes; data that lies in the file as it is needed in memory is
/// shared, not copied. Sizes are checked against the dims before anything is allocated.
/// Errors: onnx/tensor-type, onnx/tensor-size, onnx/tensor-data, onnx/external-...
Tensor DecodeTensor(const TensorMsg& message, const Source& source);
/// The dense form. Errors also: onnx/sparse.
Tensor DecodeSparse(const SparseTensorMsg& message, const Source& source);
RtValue DecodeData(const DataMsg& message, const Source& source);

/// A message whose views point into `tensor`, which must outlive it.
TensorMsg EncodeTensor(const Tensor& tensor, Text name);
TensorMsg EncodeTensor(Tensor&& tensor, Text name) = delete;

/// "tensor 'conv1.weight'".
std::string Describe(const TensorMsg& message);

}  // namespace lathe::onnx
