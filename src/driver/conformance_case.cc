// One case: import, run, compare as the official runner does.

#include <re2/re2.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/driver/conformance.h"
#include "lathe/driver/every_way.h"
#include "lathe/frontend/onnx.h"
#include "lathe/ir/context.h"
#include "lathe/ir/program.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/file.h"
#include "src/driver/conformance_json.h"

namespace lathe {

namespace {

struct Tolerance {
  double rtol = 1e-3;
  double atol = 1e-7;
  bool for_integers = false;  // else those must be equal
};

// Outputs that two right implementations need not share; only types and shapes are compared.
struct RandomCases {
  const char* pattern;
  const char* reason;
};
constexpr RandomCases kRandomCases[] = {
    {"test_bernoulli.*", "drawn at random; the standard fixes no generator"},
    {"test_training_dropout(_default|_mask|_default_mask)?",
     "the mask is drawn at random; the standard fixes no generator"},
};

bool IsRandom(const std::string& name) {
  return std::any_of(std::begin(kRandomCases), std::end(kRandomCases),
                     [&](const RandomCases& c) { return re2::RE2::FullMatch(name, c.pattern); });
}

// Recorded outputs that are not exact themselves.
struct InexactCases {
  const char* pattern;
  double atol;
  const char* reason;
};
constexpr InexactCases kInexactCases[] = {
    {"test_dft_inverse(_opset19)?", 1e-5,
     "recorded in single precision: zeros beside values of 45 stand as 2e-6"},
    {"test_image_decoder_decode_jpeg_(rgb|bgr|grayscale)", 2,
     "the JPEG standard leaves the last steps of decoded pixels open"},
};

const InexactCases* FindInexact(const std::string& name) {
  const auto found =
      std::find_if(std::begin(kInexactCases), std::end(kInexactCases),
                   [&](const InexactCases& c) { return re2::RE2::FullMatch(name, c.pattern); });
  return found == std::end(kInexactCases) ? nullptr : found;
}

Tolerance ReadTolerance(const std::string& directory) {
  const std::string path = directory + "/data.json";
  Tolerance tolerance;
  if (!FileExists(path)) return tolerance;
  const auto json = nlohmann::json::parse(ReadFile(path), nullptr, false);
  if (!json.is_object()) return tolerance;
  tolerance.rtol = json.value("rtol", tolerance.rtol);
  tolerance.atol = json.value("atol", tolerance.atol);
  return tolerance;
}

std::string Mismatch(const Tensor& ours, const Tensor& wanted, Tolerance tolerance, bool random) {
  if (ours.element_type() != wanted.element_type() || ours.shape() != wanted.shape()) {
    return StrCat("is ", ours.TypeString(), ", expected ", wanted.TypeString());
  }
  if (random) return "";
  const ElementType type = ours.element_type();
  const bool exact = !IsFloat(type) && !IsComplex(type) && !tolerance.for_integers;
  if (exact) tolerance = {.rtol = 0, .atol = 0};
  // bfloat16 has 8 bits; the official runner allows for that.
  if (type == ElementType::kBF16) tolerance.rtol = std::max(tolerance.rtol, 0x1p-6);
  return AllClose(wanted, ours, tolerance.rtol, tolerance.atol).description;
}

// What differs, or nothing.
std::string Mismatch(const RtValue& ours, const RtValue& wanted, Tolerance tolerance, bool random) {
  if (ours.is_tensor() && wanted.is_tensor()) {
    return Mismatch(ours.tensor(), wanted.tensor(), tolerance, random);
  }
  if (!ours.is_list() || !wanted.is_list()) {
    if (ours == wanted) return "";
    return StrCat("is a ", ours.KindName(), ", expected a ", wanted.KindName());
  }
  if (ours.list().size() != wanted.list().size()) {
    return StrCat("has ", ours.list().size(), " entries, expected ", wanted.list().size());
  }
  for (size_t i = 0; i < ours.list().size(); ++i) {
    const std::string what = Mismatch(ours.list()[i], wanted.list()[i], tolerance, random);
    if (!what.empty()) return StrCat("entry ", i, " ", what);
  }
  return "";
}

std::string FeedName(const Operation* op) {
  const auto name = op->attribute("name").dyn_cast<StrAttribute>();
  return name ? std::string(name.value()) : std::string();
}

NamedValues ReadInputs(const Program& program, const std::string& folder) {
  const std::vector<Operation*> feeds = program.feeds();
  NamedValues inputs;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const std::string path = StrCat(folder, "/input_", i, ".pb");
    if (!FileExists(path)) break;
    NamedRtValue given = ReadOnnxValue(path, feeds[i]->result(0).type());
    inputs.emplace_back(FeedName(feeds[i]), std::move(given.value));
  }
  return inputs;
}

std::string CompareOutputs(const Program& program, const NamedValues& outputs,
                           const std::string& folder, Tolerance tolerance, bool random) {
  const std::vector<Operation*> fetches = program.fetches();
  for (size_t i = 0;; ++i) {
    const std::string path = StrCat(folder, "/output_", i, ".pb");
    if (!FileExists(path)) return i == 0 ? "there are no recorded outputs" : "";
    if (i >= outputs.size() || i >= fetches.size()) {
      return StrCat("output ", i, " is recorded, the model has ", outputs.size());
    }
    const RtValue wanted = ReadOnnxValue(path, fetches[i]->operand(0).type()).value;
    const std::string what = Mismatch(outputs[i].second, wanted, tolerance, random);
    if (!what.empty()) return StrCat("output '", outputs[i].first, "' ", what);
  }
}

void Describe(const std::string& path, CaseResult& result) {
  const OnnxModelInfo info = ReadOnnxModelInfo(path);
  result.operators = info.operators;
  for (const auto& [domain, version] : info.opsets) {
    if (domain.empty() || result.opset == 0) result.opset = static_cast<int>(version);
  }
}

// Through the text form and through ONNX; both must give the same program back.
Program RoundTrip(Program program) {
  IrContext& context = program.context();
  const std::string text = Print(program);
  Program parsed = ParseProgram(context, text, {.file_locations = false});
  std::string why;
  if (Print(parsed) != text || !StructurallyEqual(program.module(), parsed.module(), true, &why)) {
    throw Error(ErrorCode::kInternal, "conformance/text", StrCat("the text differs: ", why));
  }
  parsed.parameters() = std::move(program.parameters());
  auto bytes = std::make_shared<std::string>(SerializeOnnx(parsed));
  return ImportOnnx(context, Buffer::Wrap(bytes->data(), bytes->size(), bytes), "exported.onnx",
                    "");
}

using Runner = std::function<NamedValues(const NamedValues&)>;

Runner RunnerOf(Program& program, const ConformanceOptions& options) {
  if (options.interpret) {
    auto interpreter = std::make_shared<Interpreter>(program);
    return [interpreter](const NamedValues& inputs) { return interpreter->Run(inputs); };
  }
  if (options.every_way) {
    auto ways = std::make_shared<EveryWay>(program, options.compile);
    return [ways](const NamedValues& inputs) { return ways->Run(inputs); };
  }
  auto executable = std::make_shared<Executable>(program, options.compile);
  return [executable](const NamedValues& inputs) { return executable->Run(inputs); };
}

void Run(const std::string& directory, const ConformanceOptions& options, CaseResult& result) {
  Tolerance tolerance = ReadTolerance(directory);
  if (const InexactCases* inexact = FindInexact(result.name)) {
    tolerance = {.atol = inexact->atol, .for_integers = true};
  }
  IrContext context;
  LoadAllDialects(context);
  Program program = ImportOnnx(context, directory + "/model.onnx");
  if (options.round_trip) program = RoundTrip(std::move(program));
  const Runner run = RunnerOf(program, options);
  for (int set = 0;; ++set) {
    const std::string folder = StrCat(directory, "/test_data_set_", set);
    if (!IsDirectory(folder)) {
      if (set == 0) result.reason = "there are no data sets";
      break;
    }
    const NamedValues outputs = run(ReadInputs(program, folder));
    result.reason = CompareOutputs(program, outputs, folder, tolerance, IsRandom(result.name));
    if (!result.reason.empty()) break;
  }
  result.id = result.reason.empty() ? "" : "conformance/mismatch";
  result.outcome = result.reason.empty() ? CaseOutcome::kPassed : CaseOutcome::kFailed;
}

void SplitName(const std::string& directory, CaseResult& result) {
  result.path = directory;
  const size_t end = directory.find_last_not_of('/') + 1;
  const size_t slash = directory.rfind('/', end - 1);
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  result.name = directory.substr(begin, end - begin);
  if (slash == std::string::npos || slash == 0) return;
  const size_t before = directory.rfind('/', slash - 1);
  const size_t first = before == std::string::npos ? 0 : before + 1;
  result.group = directory.substr(first, slash - first);
}

}  // namespace

std::string_view Name(CaseOutcome outcome) {
  constexpr std::string_view kNames[] = {"passed", "failed", "refused"};
  return kNames[static_cast<size_t>(outcome)];
}

CaseResult DescribeCase(const std::string& directory) {
  CaseResult result;
  SplitName(directory, result);
  try {
    Describe(directory + "/model.onnx", result);
  } catch (const Error&) {  // RunCase reports what is wrong with the file
  }
  return result;
}

CaseResult RunCase(const std::string& directory, const ConformanceOptions& options) {
  CaseResult result;
  SplitName(directory, result);
  const auto start = std::chrono::steady_clock::now();
  try {
    Describe(directory + "/model.onnx", result);
    Run(directory, options, result);
  } catch (const Error& error) {
    const bool refused = error.code() == ErrorCode::kUnsupported;
    result.outcome = refused ? CaseOutcome::kRefused : CaseOutcome::kFailed;
    result.id = error.id();
    result.reason = error.message();
  } catch (const std::exception& error) {
    result.id = "internal/exception";
    result.reason = error.what();
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  result.seconds = spent.count();
  return result;
}

}  // namespace lathe
