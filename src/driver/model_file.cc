#include "lathe/driver/model_file.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/size_constraints.h"
#include "lathe/frontend/onnx.h"
#include "lathe/ir/functions.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/runtime/lx_file.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/random.h"
#include "lathe/support/safetensors.h"
#include "lathe/support/text.h"

namespace lathe {

namespace {

[[noreturn]] void UnknownFormat(const std::string& path) {
  throw Error(ErrorCode::kInvalidArgument, "model/format", "this is not a known kind of model file")
      .At(path)
      .Hint("models are ONNX files (.onnx) or Lathe text (.lathe)");
}

void CheckIsFile(const std::string& path) {
  if (IsDirectory(path)) {
    throw Error(ErrorCode::kIo, "io/directory", "this is a folder, not a model")
        .At(path)
        .Hint("name the model file in it");
  }
  if (!FileExists(path)) {
    throw Error(ErrorCode::kNotFound, "io/open", "there is no such file")
        .At(path)
        .Hint("check the spelling, or give the full path");
  }
  if (!std::filesystem::is_regular_file(path)) {
    throw Error(ErrorCode::kIo, "io/not-a-file", "this is a pipe or a device, not a file")
        .At(path)
        .Hint("write the model to a file first");
  }
}

// Text is text up to the first keyword; an ONNX model starts with the field of its IR version.
ModelFormat Sniff(const std::string& path) {
  constexpr uint64_t kHead = 4096;
  const auto buffer = Buffer::MapFile(path);
  const size_t size = std::min<size_t>(buffer->size(), kHead);
  const std::string_view head(reinterpret_cast<const char*>(buffer->data()), size);
  if (head.starts_with("LATHE-LX")) return ModelFormat::kExecutable;
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) UnknownFormat(path);
  if (head.substr(first).starts_with("program") || head.substr(first).starts_with("//")) {
    return ModelFormat::kText;
  }
  constexpr std::string_view kOnnxStarts("\x08\x12\x3a\x42", 4);
  if (kOnnxStarts.find(head.front()) != std::string_view::npos) return ModelFormat::kOnnx;
  UnknownFormat(path);
}

Tensor TakeWeight(const SafeTensors& file, std::string_view name, AnyTensorType type,
                  const std::string& path) {
  const Tensor* found = file.Find(name);
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const auto& [n, tensor] : file.tensors) names.push_back(n);
    Error error(ErrorCode::kNotFound, "model/weights",
                StrCat("there is no weight ", Quote(name), " in this file"));
    error.At(path);
    if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
    throw std::move(error);
  }
  const Type have = VTensorType::Get(*type.context(), SymShape::FromConstants(found->shape()),
                                     found->element_type());
  if (!Compatible(have, type.AsValue())) {
    throw Error(ErrorCode::kType, "model/weights",
                StrCat("weight ", Quote(name), " is ", have.ToString(), ", the program reads ",
                       type.ToString()))
        .At(path);
  }
  return *found;
}

std::string_view ParameterName(const Operation& op) {
  const auto name = op.attribute("name").dyn_cast<StrAttribute>();
  return name ? name.value() : std::string_view();
}

// The parameters that the program reads and does not have yet.
std::vector<Operation*> MissingParameters(const Program& program) {
  std::vector<Operation*> missing;
  std::vector<Block*> blocks = {program.block()};
  while (!blocks.empty()) {
    Block* block = blocks.back();
    blocks.pop_back();
    for (Operation& op : *block) {
      for (Region& region : op.regions()) {
        for (Block& inner : region) blocks.push_back(&inner);
      }
      if (op.name() != builtin::kGetParameter) continue;
      if (program.parameters().Find(ParameterName(op)) == nullptr) missing.push_back(&op);
    }
  }
  return missing;
}

Program LoadText(IrContext& context, const std::string& path, WeightFile weights) {
  Program program = ParseProgramFile(context, path);
  const bool alone = weights == WeightFile::kIfThere && !FileExists(WeightsPath(path));
  if (!alone) LoadMissingWeights(program, path);
  return program;
}

void SaveText(const Program& program, const std::string& path) {
  SafeTensors weights;
  for (const auto& [name, variable] : program.parameters()) {
    weights.tensors.emplace_back(name.value(), variable.data);
  }
  FileWriter writer(path);
  PrintTo(program, {}, [&](std::string_view piece) { writer.Write(piece); });
  if (weights.tensors.empty()) return writer.Commit();
  FileWriter weight_file(WeightsPath(path));
  WriteSafeTensors(weight_file, weights);
  FileWriter::CommitTogether({&weight_file, &writer});
}

// Line `number`, counted from 1, without the blanks before it.
std::string_view LineOf(std::string_view text, uint64_t number) {
  for (; number > 1; --number) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  return text.substr(std::min(text.find_first_not_of(" \t"), text.size()));
}

// The line of `text` that an error of the file `path` is at; empty if it is at none.
std::string_view LineAt(const Error& error, std::string_view text, const std::string& path) {
  const std::string_view where = error.where();
  if (!where.starts_with(path + ":")) return {};
  const std::string_view place = where.substr(path.size() + 1);
  const auto line = ParseUint(place.substr(0, place.find(':')));
  return line ? LineOf(text, *line) : std::string_view();
}

// The same error with the line of the file in place of the printed operation, in which values have
// other names.
Error WithLine(const Error& error, std::string_view text, const std::string& path) {
  const std::string_view line = LineAt(error, text, path);
  const std::string call = error.message().substr(0, error.message().find(':')) + "(";
  if (line.empty() || line.find(call) == std::string_view::npos) return error;
  Error shown(error.code(), error.id(), error.message());
  shown.At(error.where());
  for (const Note& note : error.notes()) {
    const bool printed = note.text.find(call) != std::string::npos;
    shown.Note(printed ? std::string(line) : note.text);
  }
  for (const std::string& hint : error.hints()) shown.Hint(hint);
  return shown;
}

Error WithLines(const Error& error, const std::string& path) {
  const std::string text = ReadFile(path);
  Error shown = WithLine(error, text, path);
  for (const Error& other : error.others) shown.others.push_back(WithLine(other, text, path));
  return shown;
}

// The bodies of functions go to their calls: a model of ONNX is one graph.
void SaveOnnx(const Program& program, const std::string& path) {
  if (FunctionTable(program).empty()) return ExportOnnx(program, path);
  Program whole = program.Clone();
  PassManager manager;
  manager.Add("inline{max_ops=-1}");
  manager.Run(whole);
  ExportOnnx(whole, path);
}

}  // namespace

std::string WeightsPath(const std::string& path) { return path + ".weights.safetensors"; }

ModelFormat DetectModelFormat(const std::string& path) {
  const std::string extension = FileExtension(path);
  if (extension == ".onnx") return ModelFormat::kOnnx;
  if (extension == ".lathe") return ModelFormat::kText;
  if (extension == ".lx" || runtime::IsGraph(path)) return ModelFormat::kExecutable;
  CheckIsFile(path);
  return Sniff(path);
}

Program LoadModel(IrContext& context, const std::string& path, const OnnxImportOptions& onnx,
                  WeightFile weights) {
  CheckIsFile(path);
  switch (DetectModelFormat(path)) {
    case ModelFormat::kOnnx:
      return ImportOnnx(context, path, onnx);
    case ModelFormat::kText:
      return LoadText(context, path, weights);
    case ModelFormat::kExecutable:
      break;
  }
  throw Error(ErrorCode::kInvalidArgument, "model/executable",
              "this is a compiled model: it runs, but holds no program to look at")
      .At(path)
      .Hint("`lathe run`, `bench` and `inspect` take it; give the model for anything else");
}

void LoadMissingWeights(Program& program, const std::string& path) {
  const std::vector<Operation*> missing = MissingParameters(program);
  if (missing.empty()) return;
  const std::string weights_path = WeightsPath(path);
  if (!FileExists(weights_path)) {
    throw Error(ErrorCode::kNotFound, "model/weights",
                StrCat("the program reads parameter ", Quote(ParameterName(*missing.front())),
                       ", and there is no weight file beside it"))
        .At(path)
        .Hint(StrCat("put its weights into '", weights_path, "'"))
        .Hint("`lathe opt`, `inspect` and `explain` take the structure alone");
  }
  const SafeTensors file = ReadSafeTensors(weights_path);
  for (Operation* op : missing) {
    const auto name = op->attribute("name").dyn_cast<StrAttribute>();
    const auto type = op->result(0).type().dyn_cast<AnyTensorType>();
    if (!name || !type || program.parameters().Find(name) != nullptr) continue;
    program.parameters().Insert(name, {TakeWeight(file, name.value(), type, weights_path), false});
  }
  program.RefreshMutability();
}

bool LacksWeights(const Program& program) { return !MissingParameters(program).empty(); }

void InventWeights(Program& program) {
  uint64_t seed = 0;
  for (const Operation* op : MissingParameters(program)) {
    const auto name = op->attribute("name").dyn_cast<StrAttribute>();
    const auto type = op->result(0).type().dyn_cast<AnyTensorType>();
    if (!name || !type || !type.is_static() || program.parameters().Find(name) != nullptr) continue;
    const Shape shape = *type.shape().Constants();
    program.parameters().Insert(name, {RandomTensor(type.element(), shape, ++seed), false});
  }
  program.RefreshMutability();
}

void VerifyLoaded(const Program& program, const std::string& path) {
  if (DetectModelFormat(path) != ModelFormat::kText) return VerifyOrThrow(program);
  try {
    VerifyOrThrow(program);
    // What follows from parameters and computed constants, which one operation does not show.
    Program copy = program.Clone();
    (void)FindSizeConstraints(copy);
  } catch (const Error& error) {
    throw WithLines(error, path);
  }
}

void CheckModelName(const std::string& path) {
  const std::string extension = FileExtension(path);
  if (extension == ".onnx" || extension == ".lathe") return;
  throw Error(ErrorCode::kInvalidArgument, "model/format",
              StrCat("the extension ", Quote(extension), " names no format"))
      .At(path)
      .Hint("end the name in .onnx or .lathe");
}

void SaveModel(const Program& program, const std::string& path) {
  CheckModelName(path);
  return FileExtension(path) == ".onnx" ? SaveOnnx(program, path) : SaveText(program, path);
}

}  // namespace lathe
