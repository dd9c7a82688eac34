#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/driver/program_difference.h"
#include "lathe/driver/value_difference.h"
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

int DiffResults(const DiffArguments& o) {
  const auto differences =
      CompareValues(ReadResults(o.model.path), ReadResults(o.other), o.rtol, o.atol);
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
  if (IsResult(o.model.path) != IsResult(o.other)) {
    throw UsageError("one of these is a model, the other a result");
  }
  return IsResult(o.other) ? DiffResults(o) : DiffPrograms(o);
}

}  // namespace

Run AddDiff(CLI::App& app) {
  auto o = std::make_shared<DiffArguments>();
  o->model.AddTo(app, "a model (.onnx, .lathe); or results (.npy, .npz, .safetensors, a folder)");
  app.add_option("other", o->other, "what it is compared with")->required();
  app.add_option("--rtol", o->rtol, "results agree where |a - b| <= atol + rtol * |b|")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--atol", o->atol)->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] { return Diff(*o); };
}

}  // namespace lathe::command
