#include "tools/lathe/onnxruntime_run.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/npy.h"
#include "tools/lathe/shell.h"

namespace lathe::command {
namespace {

// Gets a folder with job.json, and leaves result.json and arrays there. Columns of classes, which
// onnxruntime gives as a dict per row, become a matrix, as Lathe gives them.
constexpr const char* kScript = R"(
import json, os, sys
try:
    import numpy
    import onnxruntime
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(3)

def load(path):
    array = numpy.load(path)
    return array.astype(object) if array.dtype.kind in 'US' else array

def read(value):
    return [read(v) for v in value] if isinstance(value, list) else value and load(value)

def write(value, path):
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = numpy.array([list(row.values()) for row in value], numpy.float32)
    if isinstance(value, list):
        return [write(v, f'{path}.{i}') for i, v in enumerate(value)]
    if value is None:
        return None
    array = numpy.asarray(value)
    numpy.save(path + '.npy', array.astype(str) if array.dtype == object else array)
    return path + '.npy'

os.chdir(sys.argv[1])
job = json.load(open('job.json'))
try:
    session = onnxruntime.InferenceSession(job['model'], providers=['CPUExecutionProvider'])
    outputs = session.run(None, {name: read(value) for name, value in job['inputs']})
    names = [output.name for output in session.get_outputs()]
    result = [[name, write(value, f'output_{i}')] for i, (name, value) in enumerate(zip(names, outputs))]
except Exception as error:
    print(f'{type(error).__name__}: {error}', file=sys.stderr)
    sys.exit(4)
json.dump({'version': onnxruntime.__version__, 'outputs': result}, open('result.json', 'w'))
)";

using Json = nlohmann::json;

// Lists in lists end somewhere: no program makes deep ones.
Json WriteValue(const RtValue& value, const std::string& folder, const std::string& name) {
  if (value.is_tensor()) {
    const std::string file = name + ".npy";
    WriteNpy(StrCat(folder, "/", file), value.tensor());
    return file;
  }
  if (!value.is_list()) return {};
  Json list = Json::array();
  for (const RtValue& element : value.list()) {
    list.push_back(WriteValue(element, folder, StrCat(name, ".", list.size())));
  }
  return list;
}

RtValue ReadValue(const Json& json, const std::string& folder) {
  if (json.is_null()) return RtValue::AbsentOptional();
  if (json.is_string()) return ReadNpy(StrCat(folder, "/", json.get<std::string>()));
  RtValue::List list;
  for (const Json& element : json) list.push_back(ReadValue(element, folder));
  return RtValue::OfList(std::move(list));
}

[[noreturn]] void Fail(int code, const std::string& python, const std::string& model,
                       const std::string& words) {
  if (code == 126 || code == 127) {
    throw Error(ErrorCode::kNotFound, "against/python", "this Python cannot be started")
        .At(python)
        .Hint("name one that has onnxruntime with --python FILE");
  }
  const bool ran = code == 3 || code == 4;
  Error error(ErrorCode::kUnsupported, ran ? "against/onnxruntime" : "against/python",
              code == 3 ? StrCat(python, " has no onnxruntime")
              : ran     ? "onnxruntime does not run this model on these inputs"
                        : StrCat(python, " ended with exit code ", code, " and without results"));
  error.At(model);
  AddOutput(error, words);
  if (code == 3) error.Hint(StrCat("`", python, " -m pip install onnxruntime`, or --python FILE"));
  if (!ran) error.Hint("name a Python that has onnxruntime with --python FILE");
  throw std::move(error);
}

}  // namespace

std::string PythonFor(const std::string& given) {
  if (!given.empty()) return given;
  const std::string local = ".venv/bin/python";
  return FileExists(local) ? local : "python3";
}

OnnxRuntimeResult RunOnnxRuntime(const std::string& python, const std::string& model,
                                 const NamedValues& inputs) {
  const TemporaryFolder folder;
  Json job = {{"model", std::filesystem::absolute(model).string()}, {"inputs", Json::array()}};
  for (const auto& [name, value] : inputs) {
    const std::string file = StrCat("input_", job["inputs"].size());
    job["inputs"].push_back({name, WriteValue(value, folder.path(), file)});
  }
  WriteFile(folder.path() + "/job.json", job.dump());
  WriteFile(folder.path() + "/run.py", kScript);
  const std::string errors = folder.path() + "/errors";
  const int code = RunShell(StrCat(ShellQuoted(python), " ", ShellQuoted(folder.path() + "/run.py"),
                                   " ", ShellQuoted(folder.path()), " 2>", ShellQuoted(errors)));
  const std::string results = folder.path() + "/result.json";
  if (code != 0 || !FileExists(results)) Fail(code, python, model, ReadFile(errors));
  const Json result = Json::parse(ReadFile(results));
  OnnxRuntimeResult all{result["version"].get<std::string>(), {}};
  for (const Json& output : result["outputs"]) {
    all.outputs.emplace_back(output[0].get<std::string>(), ReadValue(output[1], folder.path()));
  }
  return all;
}

}  // namespace lathe::command
