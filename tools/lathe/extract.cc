#include "lathe/driver/extract.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/driver/model_file.h"
#include "lathe/driver/summary.h"
#include "lathe/ir/verify.h"
#include "lathe/support/error.h"
#include "lathe/support/printable.h"
#include "tools/lathe/command.h"
#include "tools/lathe/structure.h"

namespace lathe::command {
namespace {

struct ExtractArguments {
  ModelOptions model;
  OutputOptions outputs;
  std::vector<std::string> from, to;
  std::string output;
  bool json = false;
};

int ExtractPart(const ExtractArguments& o) {
  if (o.from.empty() && o.to.empty())
    throw UsageError("what? --inputs NAME,... --outputs NAME,...");
  std::vector<std::string> files = o.model.Files();
  for (std::string& file : DataFilesOf(o.model.path)) files.push_back(std::move(file));
  o.outputs.Check(ModelFiles(o.output), files);
  IrContext context;
  Program program = LoadStructure(o.model, context);
  try {
    Extract(program, o.from, o.to);
  } catch (Error& error) {
    NameModel(error, o.model.path);
    throw;
  }
  VerifyOrThrow(program);
  SaveModel(program, o.output);
  if (o.json) {
    const nlohmann::ordered_json json = {
        {"output", o.output},
        {"model", nlohmann::ordered_json::parse(SummaryToJson(Summarize(program)))}};
    Out(JsonText(json, 2) + "\n");
  } else {
    Words(StrCat("wrote ", o.output, "\n"));
  }
  return kFine;
}

}  // namespace

Run AddExtract(CLI::App& app) {
  auto o = std::make_shared<ExtractArguments>();
  o->model.AddTo(app);
  app.add_option("--inputs", o->from, "values that become the inputs (default: those that are)")
      ->delimiter(',')
      ->type_name("NAME,...");
  app.add_option("--outputs", o->to, "values that become the outputs (default: those that are)")
      ->delimiter(',')
      ->type_name("NAME,...");
  app.add_option("--output,-o", o->output, "FILE.onnx or FILE.lathe")
      ->type_name("FILE")
      ->required();
  app.add_flag("--json", o->json, "what was written, as JSON");
  o->outputs.AddTo(app);
  return [o] { return ExtractPart(*o); };
}

}  // namespace lathe::command
