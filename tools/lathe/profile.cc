#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/printable.h"
#include "tools/lathe/rates.h"
#include "tools/lathe/runnable.h"

namespace lathe::command {
namespace {

struct ProfileArguments {
  MeasureOptions measure;
  int runs = 10;
  size_t top = 20;
  std::string trace;
  OutputOptions outputs;
  bool by_label = false;
};

// A step, or all steps of one label: in a run.
struct Row {
  std::string label, origin;
  size_t calls = 0;
  WorkDone work = WorkDone::None();
};

WorkDone WorkOf(const runtime::Profile::Event& e, const MachinePeak& machine, double runs) {
  WorkDone work{.ms = static_cast<double>(e.end_ns - e.begin_ns) * 1e-6,
                .gflop = e.flops * 1e-9,
                .gigabytes = e.bytes * 1e-9};
  work.bound = BoundOf(work.gflop, work.gigabytes, machine);
  for (double* part : {&work.ms, &work.gflop, &work.gigabytes, &work.bound.ms}) *part /= runs;
  return work;
}

// Longest first; all are means over runs.
std::vector<Row> RowsOf(const runtime::Plan& plan, const runtime::Profile& profile,
                        const MachinePeak& machine, const ProfileArguments& o) {
  std::vector<Row> rows;
  std::map<std::string, size_t> row_of;
  for (const runtime::Profile::Event& e : profile.events()) {
    const runtime::PlanStep& step = plan.steps[e.step];
    const std::string key = o.by_label ? step.label : StrCat(e.step);
    const auto [at, is_new] = row_of.emplace(key, rows.size());
    if (is_new) rows.push_back({.label = step.label, .origin = o.by_label ? "" : step.origin});
    Row& row = rows[at->second];
    ++row.calls;
    row.work.Add(WorkOf(e, machine, o.runs));
  }
  for (Row& row : rows) row.calls /= static_cast<size_t>(o.runs);
  std::ranges::stable_sort(rows, std::greater<>(), [](const Row& row) { return row.work.ms; });
  return rows;
}

WorkDone TotalOf(const std::vector<Row>& rows) {
  WorkDone total = WorkDone::None();
  for (const Row& row : rows) total.Add(row.work);
  return total;
}

void PrintRow(const WorkDone& work, double total_ms, const std::string& calls,
              const std::string& what) {
  Out(fmt::format("{:6.1f}% {:9.3f} {:>6}{}{}\n", 100 * work.ms / total_ms, work.ms, calls,
                  RateColumns(work), PrintableLine(what)));
}

void Print(const std::vector<Row>& rows, const MachinePeak& machine, const ProfileArguments& o) {
  const WorkDone total = TotalOf(rows);
  Out(fmt::format("{:.3f} ms a run, {} {}, mean of {} runs\n", total.ms, rows.size(),
                  o.by_label ? "kinds of steps" : "steps", o.runs));
  Out(StrCat(MachineText(machine), "\n  share        ms  calls", kRateTitles, "what\n"));
  WorkDone rest = WorkDone::None();
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    if (i >= o.top) {
      rest.Add(r.work);
      continue;
    }
    PrintRow(r.work, total.ms, StrCat(r.calls),
             StrCat(r.label, r.origin.empty() ? "" : "  ", r.origin));
  }
  if (rows.size() > o.top) PrintRow(rest, total.ms, "", StrCat(rows.size() - o.top, " more"));
  if (rows.size() > 1) PrintRow(total, total.ms, "", "all");
}

std::string RowsToJson(const std::vector<Row>& rows, const MachinePeak& machine,
                       const ProfileArguments& o) {
  const WorkDone total = TotalOf(rows);
  nlohmann::ordered_json json = {
      {"ms", total.ms}, {"runs", o.runs}, {"machine", MachineToJson(machine)}};
  AddRates(json, total);
  json["steps"] = nlohmann::ordered_json::array();
  for (const Row& r : rows) {
    nlohmann::ordered_json step = {{"label", r.label},
                                   {"origin", r.origin},
                                   {"calls", r.calls},
                                   {"ms", r.work.ms},
                                   {"share", r.work.ms / total.ms}};
    AddRates(step, r.work);
    json["steps"].push_back(std::move(step));
  }
  return JsonText(json, 2) + "\n";
}

const runtime::Executor& ExecutorOf(const Runnable& runnable, const ProfileArguments& o) {
  if (runnable.executable() == nullptr) throw UsageError("only what is compiled has steps");
  const runtime::Executor* executor = runnable.executable()->executor();
  if (executor != nullptr) return *executor;
  Error error(ErrorCode::kUnsupported, "profile/no-plan",
              "the interpreter goes through this program, so it has no steps");
  error.At(o.measure.model.path);
  for (const std::string& why : runnable.executable()->obstacles()) error.Note(why);
  throw error;
}

int RunProfile(const ProfileArguments& o) {
  if (!o.trace.empty()) {
    const OutputFile trace{o.trace, FileKind::kTrace};
    o.outputs.Check({&trace, 1}, o.measure.model.Files());
  }
  const Runnable runnable(o.measure.model, o.measure.runnable);
  const runtime::Executor& executor = ExecutorOf(runnable, o);
  runtime::NamedTensors inputs;
  for (auto& [name, value] : o.measure.inputs.Load(o.measure.model, runnable.inputs())) {
    inputs.emplace_back(name, value.tensor());
  }
  executor.Run(inputs);
  runtime::Profile profile;
  for (int i = 0; i < o.runs; ++i) executor.Run(inputs, {.cancel = nullptr, .profile = &profile});
  const MachinePeak machine = MeasureMachineFor(*runnable.executable(), o.measure.runnable.compile);
  const std::vector<Row> rows = RowsOf(executor.plan(), profile, machine, o);
  if (!o.trace.empty())
    WriteFile(o.trace, profile.ChromeTrace(executor.plan(), machine.gflops, machine.gbytes));
  if (o.measure.json) {
    Out(RowsToJson(rows, machine, o));
  } else {
    Print(rows, machine, o);
  }
  return kFine;
}

}  // namespace

Run AddProfile(CLI::App& app) {
  auto o = std::make_shared<ProfileArguments>();
  o->measure.AddTo(app);
  app.add_option("--runs", o->runs, "to take the mean of, after one to warm up")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--top", o->top, "show the longest K")
      ->check(CountBetween(0, kMostRows))
      ->type_name("K")
      ->capture_default_str();
  app.add_flag("--by-label", o->by_label, "steps that do the same are one row");
  app.add_option("--trace", o->trace, "write all steps for chrome://tracing or Perfetto")
      ->type_name("FILE");
  o->outputs.AddTo(app);
  return [o] { return RunProfile(*o); };
}

}  // namespace lathe::command
