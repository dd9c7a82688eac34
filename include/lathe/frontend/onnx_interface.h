#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lathe/support/buffer.h"

namespace lathe {

/// A size as a file gives it: a number, a name, or neither.
struct OnnxDim {
  std::optional<int64_t> size;
  std::string name;
  std::string denotation;  ///< what the axis is, "DATA_BATCH"; mostly empty
};

/// An input or an output as a file declares it. Nothing is inferred.
struct OnnxPort {
  std::string name;
  /// In ONNX's notation with Lathe's element types: "tensor(f32)", "seq(map(i64,tensor(f32)))",
  /// "optional(tensor(bool))"; empty if the file gives none.
  std::string type;
  /// Of a tensor or the tensor in an optional; nothing: the file does not say.
  std::optional<std::vector<OnnxDim>> dims;
  bool has_initializer = false;  ///< an input that need not be given
};

/// What a model file says of its inputs and outputs, in its order.
struct OnnxInterface {
  int64_t ir_version = 0;  ///< before 4, inputs with initializers are weights, not inputs
  std::string graph_name;
  std::vector<OnnxPort> inputs, outputs;
};

/// Errors: onnx/wire, onnx/nesting. `name` is for messages.
OnnxInterface ReadOnnxInterface(const Buffer& file, const std::string& name);

}  // namespace lathe
