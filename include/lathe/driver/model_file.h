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

/// Whether text may be loaded without the file of its weights.
enum class WeightFile : uint8_t {
  kNeeded,
  kIfThere,  ///< without it the structure alone is loaded: no parameter has data
};

/// Loads a program; weights are mapped, not read. The dialects must be loaded into `context`.
/// Errors: io/open, model/format, those of ImportOnnx and ParseProgram, model/weights (no weight
/// file, or one that lacks a parameter or holds it with another type), model/executable.
/// `onnx` is for models of ONNX.
Program LoadModel(IrContext& context, const std::string& path, const OnnxImportOptions& onnx = {},
                  WeightFile weights = WeightFile::kNeeded);

/// The error of VerifyOrThrow, if there is one, for a program that was loaded from `path`: where it
/// is text, messages show its lines instead of the operations as Lathe would print them.
void VerifyLoaded(const Program& program, const std::string& path);

/// Reads the parameters that a program of text has no data for from the file of its weights; `path`
/// is that of the text. Errors: model/weights.
void LoadMissingWeights(Program& program, const std::string& path);

/// Whether the program reads parameters that it has no data for.
bool LacksWeights(const Program& program);
/// Gives each parameter of a static type that has no data random numbers, the same in each run:
/// for what needs some, and not these.
void InventWeights(Program& program);

/// Errors: model/format for an extension that SaveModel does not know.
void CheckModelName(const std::string& path);
/// Writes `.onnx` or `.lathe` by extension. Errors: io/..., CheckModelName.
void SaveModel(const Program& program, const std::string& path);

/// "<path>.weights.safetensors".
std::string WeightsPath(const std::string& path);

}  // namespace lathe
