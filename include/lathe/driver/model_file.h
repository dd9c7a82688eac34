#pragma once

#include <cstdint>
#include <string>

#include "lathe/frontend/onnx.h"
#include "lathe/ir/program.h"

/// Programs in files: `.onnx`, and `.lathe` text with its weights beside it in
/// `<file>.weights.safetensors`. Executables (.lx, and .json of those in
/// three parts) are told apart from them.
namespace lathe {

enum class ModelFormat : uint8_t { kOnnx, kText, kExecutable };

/// By extension; for any other one by the content. Errors: io/..., model/format.
ModelFormat DetectModelFormat(const std::string& path);

/// Loads a program; weights are mapped, not read. The dialects must be loaded into `context`.
/// Errors: io/open, model/format, those of ImportOnnx and ParseProgram, model/weights (a weight
/// file that lacks a parameter or holds it with another type), model/executable.
/// `onnx` is for models of ONNX.
Program LoadModel(IrContext& context, const std::string& path, const OnnxImportOptions& onnx = {});

/// Writes `.onnx` or `.lathe` by extension; any other one is an error (model/format).
void SaveModel(const Program& program, const std::string& path);

/// "<path>.weights.safetensors".
std::string WeightsPath(const std::string& path);

}  // namespace lathe
