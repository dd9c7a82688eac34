#include "lathe/driver/conformance.h"

#include <memory>

#include "lathe/support/file.h"
#include "tools/lathe/command.h"

namespace lathe::command {

namespace {

struct ConformanceArguments {
  std::vector<std::string> directories;
  ConformanceOptions run;
  std::string json;
  OutputOptions outputs;
  bool list = false;
};

int RunCases(const ConformanceArguments& o) {
  if (!o.json.empty()) {
    const OutputFile results{o.json, FileKind::kCases};
    o.outputs.Check({&results, 1}, {});
  }
  ConformanceReport report;
  {
    Progress progress("conformance");
    ConformanceOptions options = o.run;
    options.progress = [&](const CaseResult&, size_t done, size_t total) {
      progress.Update(done, total);
    };
    report = RunConformance(o.directories, options);
  }
  if (!o.json.empty()) WriteFile(o.json, report.ToJson());
  if (o.json != "-") Out(report.ToText(o.list));
  return report.failed == 0 ? kFine : kCheckFailed;
}

}  // namespace

Run AddConformance(CLI::App& app) {
  auto o = std::make_shared<ConformanceArguments>();
  o->run.compile.threads = 1;
  app.add_option("dirs", o->directories,
                 "folders with cases: model.onnx and test_data_set_*/input_*.pb, output_*.pb")
      ->required();
  app.add_option("--filter", o->run.filter, "only cases whose group/name has a match")
      ->type_name("REGEX");
  app.add_option("--json", o->json, "write the results as JSON; - for stdout instead of the tables")
      ->type_name("FILE");
  o->outputs.AddTo(app);
  app.add_option("--jobs,-j", o->run.jobs, "cases at a time; 0: one per processor")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--time-limit", o->run.time_limit, "seconds per case")
      ->check(NumberBetween(0.001, 86400))
      ->capture_default_str();
  app.add_flag("--round-trip", o->run.round_trip,
               "print, parse, export and import each program before it runs");
  app.add_flag("--interpret", o->run.interpret, "run by the interpreter instead of compiled");
  app.add_flag("--every-way", o->run.every_way,
               "also with the kernels of a cache, and from a file: the bits must be the same");
  AddCompileOptions(app, o->run.compile);
  o->run.compile.cache.clear();  // what is tested is made now
  app.add_flag("--list", o->list, "list every case with its result");
  return [o] { return RunCases(*o); };
}

}  // namespace lathe::command
