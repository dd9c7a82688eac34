#pragma once

#include <string>

#include "lathe/dialect/interpreter.h"

namespace lathe::command {

/// What onnxruntime gives, which a Python of somebody else runs.
struct OnnxRuntimeResult {
  std::string version;  ///< of onnxruntime
  NamedValues outputs;
};

/// The Python to use: `given`, if it is not empty; else the one in .venv; else python3 of PATH.
std::string PythonFor(const std::string& given);

/// Runs an ONNX model by onnxruntime on its processor provider, in a process of its own. Errors:
/// against/python (there is no such Python), against/onnxruntime (it has no onnxruntime, or that
/// refuses the model or the inputs; its words are notes).
OnnxRuntimeResult RunOnnxRuntime(const std::string& python, const std::string& model,
                                 const NamedValues& inputs);

}  // namespace lathe::command
