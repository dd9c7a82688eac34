#include "lathe/driver/output_files.h"

#include <algorithm>
#include <filesystem>

#include "lathe/driver/model_file.h"
#include "lathe/frontend/onnx.h"
#include "lathe/runtime/artifacts.h"
#include "lathe/runtime/lx_file.h"
#include "lathe/support/buffer.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/npy.h"
#include "lathe/support/safetensors.h"

namespace lathe {
namespace {

constexpr std::string_view kDataExtension = ".data";

std::string_view TextOf(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

std::string_view WithoutSpace(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool IsParameters(const std::string& path) {
  const SafeTensors file = ReadSafeTensors(path);
  return std::ranges::any_of(file.metadata,
                             [](const auto& m) { return m.first == runtime::kLibraryKey; });
}

// Data has no mark of its own: the model beside it does.
bool IsOnnxData(const std::string& path) {
  const std::string model = path.substr(0, path.size() - kDataExtension.size());
  if (!FileExists(model)) return false;
  const OnnxModelInfo info = ReadOnnxModelInfo(model);
  const std::string name = std::filesystem::path(path).filename().string();
  return info.is_export &&
         std::ranges::find(info.external_files, name) != info.external_files.end();
}

bool IsOfKind(FileKind kind, const std::string& path, std::string_view text) {
  switch (kind) {
    case FileKind::kExecutable:
      return text.starts_with("LATHE-LX");
    case FileKind::kGraph:
      return text.starts_with("{") && Contains(text, "\"lathe_version\"");
    case FileKind::kLibrary:
      return text.starts_with(
                 "\x7f"
                 "ELF") &&
             Contains(text, ".note.lathe");
    case FileKind::kParameters:
      return IsParameters(path);
    case FileKind::kText:
      return WithoutSpace(text).starts_with("program") || WithoutSpace(text).starts_with("//");
    case FileKind::kWeights:
      return (void)ReadSafeTensors(path), true;  // throws if it is none
    case FileKind::kOnnx:
      return ReadOnnxModelInfo(path).is_export;
    case FileKind::kOnnxData:
      return IsOnnxData(path);
    case FileKind::kLlvm:
      return text.starts_with("; ModuleID");
    case FileKind::kAssembly:
      return WithoutSpace(text).starts_with(".");
    case FileKind::kObject:
      return text.starts_with(
                 "\x7f"
                 "ELF") &&
             text.size() > 16 && text[16] == 1;  // ET_REL
    case FileKind::kArray:
      return text.starts_with("\x93NUMPY") || ((void)ReadNpz(path), true);  // throws if it is none
    case FileKind::kReport:
      return Contains(text.substr(0, 4096), "<title>Lathe pass report</title>");
    case FileKind::kTrace:
      return text.starts_with("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    case FileKind::kCases:
      return text.starts_with("{\n \"passed\":") && Contains(text, "\"cases\":");
    case FileKind::kMetrics:
      return text.starts_with("{\"kind\":");
    case FileKind::kCurves:
      return Contains(text.substr(0, 4096), "<desc>Lathe training curves</desc>");
  }
  return false;
}

bool IsOurs(const OutputFile& file) {
  try {
    const auto buffer = Buffer::MapFile(file.path);
    return buffer->size() == 0 || IsOfKind(file.kind, file.path, TextOf(*buffer));
  } catch (const Error&) {
    return false;  // damaged, or no such file at all
  }
}

const char* Describe(FileKind kind) {
  switch (kind) {
    case FileKind::kExecutable:
      return "an executable (.lx)";
    case FileKind::kGraph:
      return "the graph of an executable";
    case FileKind::kLibrary:
      return "the library of an executable";
    case FileKind::kParameters:
      return "the parameters of an executable";
    case FileKind::kText:
      return "a program as text";
    case FileKind::kWeights:
      return "the weights of a program";
    case FileKind::kOnnx:
      return "an exported ONNX model";
    case FileKind::kOnnxData:
      return "the data of an exported ONNX model";
    case FileKind::kLlvm:
      return "emitted LLVM";
    case FileKind::kAssembly:
      return "emitted assembly";
    case FileKind::kObject:
      return "an object file";
    case FileKind::kArray:
      return "arrays (.npy, .npz)";
    case FileKind::kReport:
      return "a report of passes";
    case FileKind::kTrace:
      return "a trace";
    case FileKind::kCases:
      return "results of cases";
    case FileKind::kMetrics:
      return "metrics of a training";
    case FileKind::kCurves:
      return "curves of a training";
  }
  return "";
}

Error Refusal(const char* id, std::string message, const std::string& path) {
  return Error(ErrorCode::kInvalidArgument, id, std::move(message))
      .At(path)
      .Hint("give another name, or --force to replace it");
}

void CheckOutput(const OutputFile& output, std::span<const std::string> inputs) {
  for (const std::string& input : inputs) {
    if (!IsSameFile(output.path, input)) continue;
    throw Refusal("output/input", "this file is an input, which the output would replace",
                  output.path);
  }
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(output.path, ignored) || IsOurs(output)) return;
  throw Refusal("output/foreign",
                StrCat("there is a file of this name, which is not ", Describe(output.kind),
                       " that Lathe has written"),
                output.path);
}

}  // namespace

std::vector<OutputFile> ExecutableFiles(const std::string& path) {
  if (!runtime::IsGraph(path)) return {{path, FileKind::kExecutable}};
  const runtime::ArtifactFiles files = runtime::Complete({.graph = path});
  return {{files.graph, FileKind::kGraph},
          {files.library, FileKind::kLibrary},
          {files.parameters, FileKind::kParameters}};
}

std::vector<OutputFile> ModelFiles(const std::string& path) {
  CheckModelName(path);
  if (FileExtension(path) == ".onnx") {
    return {{path, FileKind::kOnnx}, {StrCat(path, kDataExtension), FileKind::kOnnxData}};
  }
  return {{path, FileKind::kText}, {WeightsPath(path), FileKind::kWeights}};
}

std::vector<std::string> FilesOfModel(const std::string& path) {
  std::vector<std::string> files = {path};
  if (runtime::IsGraph(path)) {
    for (const OutputFile& part : ExecutableFiles(path)) files.push_back(part.path);
  } else if (FileExtension(path) == ".lathe") {
    files.push_back(WeightsPath(path));
  }
  return files;
}

std::vector<std::string> DataFilesOf(const std::string& path) {
  std::vector<std::string> files;
  if (FileExtension(path) != ".onnx" || !FileExists(path) || IsDirectory(path)) return files;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const std::string& name : ReadOnnxModelInfo(path).external_files) {
    files.push_back((folder / name).string());
  }
  return files;
}

void CheckOutputs(std::span<const OutputFile> outputs, std::span<const std::string> inputs) {
  for (const OutputFile& output : outputs) CheckOutput(output, inputs);
}

}  // namespace lathe
