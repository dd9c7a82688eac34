#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/support/buffer.h"
#include "lathe/support/error.h"
#include "lathe/support/rt_value.h"

/// ONNX files (https://onnx.ai) in and out of programs.
namespace lathe {

/// The newest operator set of ai.onnx that is understood.
inline constexpr int kNewestOnnxOpset = 28;
inline constexpr int kNewestOnnxIrVersion = 14;

struct OnnxImportOptions {
  /// Constant nodes up to so many bytes become attributes, larger ones parameters.
  size_t max_constant_bytes = 1024;
  /// Subgraphs within subgraphs and functions within functions; beyond: onnx/nesting.
  int max_nesting = 100;
  /// Nodes that inlining local functions may make in all; beyond: onnx/function-size.
  int64_t max_inlined_nodes = 200'000;
  /// What a file says of intermediate values and outputs is a hint: where it contradicts what
  /// follows from the inputs it is left aside and `warn`, if set, is told, at most ten times and
  /// then once how many more there were. With `strict` it is an error.
  bool strict = false;
  std::function<void(const Error&)> warn = nullptr;
  /// Sizes that inputs give one name need not be one: each is a symbol of its own, "INPUT.AXIS".
  bool separate_dims = false;
  /// Values to take for initializers, by name; the file's own are not read. Errors:
  /// onnx/initializer (of another type or shape, or no such initializer).
  std::vector<std::pair<std::string, Tensor>> initializers = {};
  /// Graph inputs that have an initializer and are to be inputs all the same.
  std::vector<std::string> initializers_as_inputs = {};
  /// Gives the whole contents of the external data at `location`, as the file spells it, instead of
  /// the folder of the model; null: there is none. It is asked once for each location.
  std::function<std::shared_ptr<Buffer>(const std::string& location)> external = nullptr;
};

/// Imports a model: graph inputs become `nn.feed`, outputs `nn.fetch`, initializers parameters that
/// share the memory-mapped file, names of nodes and values locations, symbolic dims symbols; local
/// functions are inlined, If, Loop and Scan become ops with regions, and operators of older sets
/// are brought to the newest meaning. The dialects needed must be loaded.
///
/// External data is mapped from files inside the model's folder and nowhere else, unless
/// `options.external` gives it.
///
/// Errors: onnx/wire (not ONNX, damaged), onnx/unsupported-op (with every operator that is not
/// supported as `others`), onnx/opset, onnx/ir-version, onnx/cycle, onnx/duplicate-name,
/// onnx/undefined-input, onnx/value-info (if strict), onnx/function-cycle, onnx/attribute,
/// onnx/external-..., shape/..., type/...
Program ImportOnnx(IrContext& context, const std::string& path,
                   const OnnxImportOptions& options = {});
/// From memory. `folder` is where external data may lie; empty: nowhere. The parameters keep
/// `buffer` alive.
Program ImportOnnx(IrContext& context, std::shared_ptr<Buffer> buffer, const std::string& name,
                   const std::string& folder, const OnnxImportOptions& options = {});

/// What a model file says about itself, without importing it.
struct OnnxModelInfo {
  int64_t ir_version = 0;
  std::string producer;
  bool is_export = false;  ///< that ExportOnnx() has written, whoever the model's producer is
  std::vector<std::pair<std::string, int64_t>> opsets;  ///< domain ("" is ai.onnx) and version
  /// Of all nodes, also in subgraphs and functions; sorted; "Conv" or "com.acme.Foo".
  std::vector<std::string> operators;
  size_t num_nodes = 0;
  /// Where its initializers say that their data is, as they say it; sorted.
  std::vector<std::string> external_files;
};
OnnxModelInfo ReadOnnxModelInfo(const std::string& path);

struct OnnxExportOptions {
  /// Parameters of at least so many bytes are written to `<file>.data` beside the model; by default
  /// only when the model would otherwise come near protobuf's limit of 2 GiB.
  uint64_t external_data_threshold = UINT64_MAX;
  std::string producer = "lathe";
};

/// Writes an nn program as an ONNX model of the newest operator set. Values keep the names that
/// they have in the file that they come from (lathe/ir/value_names.h), as far as passes have kept
/// their operations; the others are v0, v1, ... in program order. Errors: onnx/export (with every
/// op that has no ONNX counterpart as `others`).
void ExportOnnx(const Program& program, const std::string& path,
                const OnnxExportOptions& options = {});
/// The bytes of the model; all data inside.
std::string SerializeOnnx(const Program& program, const OnnxExportOptions& options = {});

/// A named value of a data file (`input_0.pb`): TensorProto, SequenceProto or OptionalProto. The
/// files do not say which they are, so the expected type decides; null: a tensor.
struct NamedRtValue {
  std::string name;
  RtValue value;
};
NamedRtValue ReadOnnxValue(const std::string& path, Type expected = Type());
NamedRtValue ParseOnnxValue(std::shared_ptr<Buffer> buffer, const std::string& name,
                            Type expected = Type());
std::string SerializeOnnxTensor(const std::string& name, const Tensor& tensor);

}  // namespace lathe
