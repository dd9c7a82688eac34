#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "tools/lathe/runnable.h"

namespace lathe::command {
namespace {

struct Options {
  ModelOptions model;
  RunnableOptions runnable;
  InputOptions inputs;
  int runs = 10;
  size_t top = 20;
  std::string trace;
  bool by_label = false;
  bool json = false;
};

// Steps, or all steps of one label, over all runs.
struct Row {
  std::string label, origin;
  size_t calls = 0;
  double ms = 0, gigabytes = 0;

  double bandwidth() const { return ms > 0 ? gigabytes / ms * 1e3 : 0; }
};

// Longest first; times are means over runs.
std::vector<Row> RowsOf(const runtime::Plan& plan, const runtime::Profile& profile,
                        const Options& o) {
  std::vector<Row> rows;
  std::map<std::string, size_t> row_of;
  for (const runtime::Profile::Event& e : profile.events()) {
    const runtime::PlanStep& step = plan.steps[e.step];
    const std::string key = o.by_label ? step.label : StrCat(e.step);
    const auto [at, is_new] = row_of.emplace(key, rows.size());
    if (is_new) rows.push_back({step.label, o.by_label ? "" : step.origin});
    Row& row = rows[at->second];
    ++row.calls;
    row.ms += static_cast<double>(e.end_ns - e.begin_ns) / 1e6;
    row.gigabytes += static_cast<double>(e.bytes) / 1e9;
  }
  for (Row& row : rows) {
    row.ms /= o.runs;
    row.gigabytes /= o.runs;
    row.calls /= static_cast<size_t>(o.runs);
  }
  std::ranges::stable_sort(rows, std::greater<>(), &Row::ms);
  return rows;
}

void Print(const std::vector<Row>& rows, double total, const Options& o) {
  Out(fmt::format("{:.3f} ms a run, {} {}, mean of {} runs\n", total, rows.size(),
                  o.by_label ? "kinds of steps" : "steps", o.runs));
  Out("  share        ms  calls    GB/s  what\n");
  double shown = 0;
  for (size_t i = 0; i < std::min(rows.size(), o.top); ++i) {
    const Row& r = rows[i];
    shown += r.ms;
    Out(fmt::format("{:6.1f}% {:9.3f} {:6} {:7.1f}  {}{}{}\n", 100 * r.ms / total, r.ms, r.calls,
                    r.bandwidth(), r.label, r.origin.empty() ? "" : "  ", r.origin));
  }
  if (rows.size() > o.top) {
    Out(fmt::format("{:6.1f}% {:9.3f}                 {} more\n", 100 * (total - shown) / total,
                    total - shown, rows.size() - o.top));
  }
}

std::string ToJson(const std::vector<Row>& rows, double total, const Options& o) {
  nlohmann::ordered_json json = {{"ms", total}, {"runs", o.runs}};
  json["steps"] = nlohmann::ordered_json::array();
  for (const Row& r : rows) {
    json["steps"].push_back({{"label", r.label},
                             {"origin", r.origin},
                             {"calls", r.calls},
                             {"ms", r.ms},
                             {"share", r.ms / total},
                             {"gb_per_s", r.bandwidth()}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

const runtime::Executor& ExecutorOf(const Runnable& runnable, const Options& o) {
  if (runnable.executable() == nullptr) throw UsageError("only what is compiled has steps");
  const runtime::Executor* executor = runnable.executable()->executor();
  if (executor != nullptr) return *executor;
  Error error(ErrorCode::kUnsupported, "profile/no-plan",
              "the interpreter goes through this program, so it has no steps");
  error.At(o.model.path);
  for (const std::string& why : runnable.executable()->obstacles()) error.Note(why);
  throw error;
}

int RunProfile(const Options& o) {
  const Runnable runnable(o.model, o.runnable);
  const runtime::Executor& executor = ExecutorOf(runnable, o);
  runtime::NamedTensors inputs;
  for (auto& [name, value] : o.inputs.Load(o.model.path, runnable.inputs())) {
    inputs.emplace_back(name, value.tensor());
  }
  executor.Run(inputs);
  runtime::Profile profile;
  for (int i = 0; i < o.runs; ++i) executor.Run(inputs, {.cancel = nullptr, .profile = &profile});
  const std::vector<Row> rows = RowsOf(executor.plan(), profile, o);
  double total = 0;
  for (const Row& row : rows) total += row.ms;
  if (!o.trace.empty()) WriteFile(o.trace, profile.ChromeTrace(executor.plan()));
  if (o.json) {
    Out(ToJson(rows, total, o));
  } else {
    Print(rows, total, o);
  }
  return kFine;
}

}  // namespace

Run AddProfile(CLI::App& app) {
  auto o = std::make_shared<Options>();
  o->model.AddTo(app, "a model (.onnx, .lathe) or an executable (.lx)");
  o->runnable.AddTo(app);
  o->inputs.AddTo(app, /*random_by_default=*/true);
  app.add_option("--runs", o->runs, "to take the mean of, after one to warm up")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--top", o->top, "show the longest K")->type_name("K")->capture_default_str();
  app.add_flag("--by-label", o->by_label, "steps that do the same are one row");
  app.add_option("--trace", o->trace, "write all steps for chrome://tracing or Perfetto")
      ->type_name("FILE");
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] { return RunProfile(*o); };
}

}  // namespace lathe::command
