#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// What a command is going to write, looked at before it works: a file that somebody else made is
/// not lost to a slip of the keyboard.
namespace lathe {

enum class FileKind : uint8_t {
  kExecutable,  ///< .lx
  kGraph,       ///< the parts of a program in three files
  kLibrary,
  kParameters,
  kText,     ///< a program as text
  kWeights,  ///< of such a program
  kOnnx,
  kOnnxData,  ///< data beside a model
  kLlvm,
  kAssembly,
  kObject,
  kArray,    ///< .npy
  kReport,   ///< of passes, HTML
  kTrace,    ///< of a profile, JSON
  kCases,    ///< results of conformance cases, JSON
  kMetrics,  ///< of a training, lines of JSON
  kCurves,   ///< of a training, SVG
};

struct OutputFile {
  std::string path;
  FileKind kind;
};

/// The files of an executable that is saved at `path`: one, or three for .json.
std::vector<OutputFile> ExecutableFiles(const std::string& path);
/// The files that SaveModel may write. Errors: CheckModelName.
std::vector<OutputFile> ModelFiles(const std::string& path);
/// The model at `path`, whatever its format, and the files that belong to it by their names.
/// Nothing is read.
std::vector<std::string> FilesOfModel(const std::string& path);
/// The files that an ONNX model says its data is in, none for other formats; reads the model.
/// Errors as ReadOnnxModelInfo.
std::vector<std::string> DataFilesOf(const std::string& path);

/// A file that is there may be replaced if it is empty, a pipe or a device, or of the kind and made
/// by Lathe. Errors: output/input if it is one of `inputs`, by whatever path; output/foreign.
void CheckOutputs(std::span<const OutputFile> outputs, std::span<const std::string> inputs);

}  // namespace lathe
