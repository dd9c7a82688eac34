#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/driver/program_difference.h"
#include "lathe/driver/value_difference.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/printable.h"
#include "tools/lathe/command.h"
#include "tools/lathe/structure.h"
#include "tools/lathe/value_report.h"

namespace lathe::command {
namespace {

struct DiffArguments {
  ModelOptions model;
  std::string other;
  double rtol = 1e-5, atol = 1e-5;
  bool json = false;
};

bool IsResult(const std::string& path) {
  constexpr std::array<std::string_view, 3> kExtensions = {".npy", ".npz", ".safetensors"};
  return IsDirectory(path) ||
         std::ranges::find(kExtensions, FileExtension(path)) != kExtensions.end();
}

void CheckExists(const std::string& path) {
  if (FileExists(path) || IsDirectory(path)) return;
  throw Error(ErrorCode::kNotFound, "io/open", "there is no such file or folder")
      .At(path)
      .Hint("check the spelling, or give the full path");
}

int DiffResults(const DiffArguments& o) {
  NamedValues a = ReadResults(o.model.path), b = ReadResults(o.other);
  if (IsDirectory(o.model.path) && !IsDirectory(o.other)) RestoreNames(a, b);
  if (IsDirectory(o.other) && !IsDirectory(o.model.path)) RestoreNames(b, a);
  const auto differences = CompareValues(a, b, o.rtol, o.atol);
  if (o.json) {
    Out(JsonText(DifferenceJson(differences), 2) + "\n");
  } else {
    Out(DifferenceText(differences));
  }
  return AllAgree(differences) ? kFine : kCheckFailed;
}

std::string TextOf(const ProgramDifference& d) {
  std::string text = d.what + "\n";
  if (!d.a.empty()) text += StrCat("  - ", PrintableLine(d.a), "\n");
  if (!d.b.empty()) text += StrCat("  + ", PrintableLine(d.b), "\n");
  return text;
}

int DiffPrograms(const DiffArguments& o) {
  IrContext context;
  ModelOptions other = o.model;
  other.path = o.other;
  const Program a = LoadStructure(o.model, context), b = LoadStructure(other, context);
  const auto differences = ComparePrograms(a, b);
  auto json = nlohmann::ordered_json::array();
  for (const ProgramDifference& d : differences) {
    if (!o.json) Out(TextOf(d));
    json.push_back({{"what", d.what}, {"a", d.a}, {"b", d.b}});
  }
  if (o.json) {
    Out(JsonText(json, 2) + "\n");
  } else if (differences.empty()) {
    Out("the programs are the same\n");
  }
  return differences.empty() ? kFine : kCheckFailed;
}

int Diff(const DiffArguments& o) {
  for (const std::string& path : {o.model.path, o.other}) CheckExists(path);
  if (IsResult(o.model.path) != IsResult(o.other)) {
    const bool first = IsResult(o.other);
    throw UsageError(StrCat(first ? o.model.path : o.other, " is a model, ",
                            first ? o.other : o.model.path, " a result"),
                     "results are .npy, .npz, .safetensors, or a folder of .npy");
  }
  return IsResult(o.other) ? DiffResults(o) : DiffPrograms(o);
}

}  // namespace

Run AddDiff(CLI::App& app) {
  auto o = std::make_shared<DiffArguments>();
  o->model.AddTo(app, "a model (.onnx, .lathe); or results (.npy, .npz, .safetensors, a folder)");
  app.add_option("other", o->other, "what it is compared with")->required();
  app.add_option("--rtol", o->rtol, "results agree where |a - b| <= atol + rtol * |b|")
      ->check(NumberBetween(0, HUGE_VAL))
      ->capture_default_str();
  app.add_option("--atol", o->atol)->check(NumberBetween(0, HUGE_VAL))->capture_default_str();
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] { return Diff(*o); };
}

}  // namespace lathe::command
