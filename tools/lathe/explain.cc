#include "lathe/driver/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lathe/support/text.h"
#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"
#include "tools/lathe/runnable.h"

namespace lathe::command {
namespace {

struct Options {
  ModelOptions model;
  InputOptions inputs;
  CompileOptions compile;
  int runs = 0;
  size_t top = 40;
  bool all = false;
  bool json = false;
};

// The lines on strategies; those that only say that their operation is not there are left out.
std::string CandidateLines(const ExplainedFunction& f, bool all) {
  std::string text;
  std::istringstream lines(f.info.candidates);
  for (std::string line; std::getline(lines, line);) {
    const bool says_little = line.find("refused: there is no ") != std::string::npos ||
                             line.ends_with(" is not elementwise");
    if (all || !says_little) text += StrCat("          ", line, "\n");
  }
  if (f.info.strategy.empty()) text += StrCat("          ", f.info.why_not, "\n");
  return text;
}

std::string Cell(double value, const char* format) {
  return value < 0 ? fmt::format("{:>9}", "-") : fmt::format(fmt::runtime(format), value);
}

void PrintFunction(const ExplainedFunction& f, const Options& o) {
  const bool is_code = !f.info.strategy.empty();
  Out(fmt::format("{:4}x {} {} {} {}  {:6}  {} [{}]\n", f.info.calls, Cell(f.gflop, "{:9.3f}"),
                  Cell(f.gigabytes * 1e3, "{:9.3f}"), Cell(f.bound_ms, "{:9.3f}"),
                  Cell(f.ms, "{:9.3f}"),
                  f.share() < 0 ? "-" : fmt::format("{:.0f}%", 100 * f.share()), f.info.operations,
                  is_code ? f.info.strategy : "interpreted"));
  Out(CandidateLines(f, o.all));
}

void PrintTotal(const Explanation& e) {
  double ms = 0, bound = 0;
  size_t unknown = 0;
  for (const ExplainedFunction& f : e.functions) {
    ms += std::max(f.ms, 0.0);
    bound += std::max(f.bound_ms, 0.0);
    unknown += f.bound_ms < 0 ? 1 : 0;
  }
  const std::string share = unknown > 0 ? "" : fmt::format(": {:.0f}%", 100 * bound / ms);
  Out(fmt::format(
      "all: at least {:.3f} ms{}{}\n", bound,
      unknown > 0 ? fmt::format(" and what {} functions of unknown bound take", unknown) : "",
      ms > 0 ? fmt::format(", measured {:.3f} ms{}", ms, share) : ", --runs N measures"));
}

void Print(const Explanation& e, const Options& o) {
  Out(fmt::format("this machine: {:.0f} GFLOP/s f32, {:.1f} GB/s\n\n", e.peak_gflops,
                  e.read_gbytes));
  Out("calls     GFLOP        MB     bound        ms  share   operations [strategy]\n");
  for (size_t i = 0; i < e.functions.size() && (i < o.top || o.all); ++i) {
    PrintFunction(e.functions[i], o);
  }
  if (!o.all && e.functions.size() > o.top) {
    Out(fmt::format("      {} more functions: --top, --all\n", e.functions.size() - o.top));
  }
  PrintTotal(e);
  if (!e.refusals.empty()) Out("\nwhy groups are not larger\n");
  for (const auto& [why, count] : e.refusals) Out(fmt::format("{:4}x {}\n", count, why));
  if (!e.interpreted.empty()) Out("\nrun by the interpreter\n");
  for (const auto& [name, count] : e.interpreted) Out(fmt::format("{:4}x {}\n", count, name));
  if (!e.obstacles.empty()) Out("\nwhy there is no plan\n");
  for (const std::string& why : e.obstacles) Out(StrCat("      ", why, "\n"));
}

std::string ToJson(const Explanation& e) {
  using Json = nlohmann::ordered_json;
  const auto number = [](double v) { return v < 0 ? Json() : Json(v); };
  Json json = {{"peak_gflops", e.peak_gflops}, {"read_gb_per_s", e.read_gbytes}};
  json["functions"] = Json::array();
  for (const ExplainedFunction& f : e.functions) {
    json["functions"].push_back({{"name", f.info.name},
                                 {"operations", f.info.operations},
                                 {"calls", f.info.calls},
                                 {"strategy", f.info.strategy},
                                 {"interpreted", f.info.strategy.empty()},
                                 {"candidates", f.info.candidates},
                                 {"why_not", f.info.why_not},
                                 {"gflop", number(f.gflop)},
                                 {"gigabytes", number(f.gigabytes)},
                                 {"bound_ms", number(f.bound_ms)},
                                 {"bound_by", f.by_memory ? "memory" : "compute"},
                                 {"ms", number(f.ms)},
                                 {"share", number(f.share())}});
  }
  json["refusals"] = Json::array();
  for (const auto& [why, count] : e.refusals) {
    json["refusals"].push_back({{"why", why}, {"count", count}});
  }
  json["interpreted"] = Json::object();
  for (const auto& [name, count] : e.interpreted) json["interpreted"][name] = count;
  json["obstacles"] = e.obstacles;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int RunExplain(const Options& o) {
  IrContext context;
  const Program program = o.model.Load(context);
  ExplainOptions options{.compile = o.compile, .runs = o.runs, .inputs = {}};
  if (o.runs > 0) options.inputs = o.inputs.Load(o.model.path, InputsOf(program));
  const Explanation e = Explain(program, options);
  if (o.json) {
    Out(ToJson(e));
  } else {
    Print(e, o);
  }
  return kFine;
}

}  // namespace

Run AddExplain(CLI::App& app) {
  auto o = std::make_shared<Options>();
  o->model.AddTo(app);
  AddCompileOptions(app, o->compile);
  o->inputs.AddTo(app, /*random_by_default=*/true);
  app.add_option("--runs", o->runs, "to measure, after one to warm up; 0: nothing is run")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_option("--top", o->top, "functions to show, the most expensive first")
      ->type_name("K")
      ->capture_default_str();
  app.add_flag("--all", o->all, "all functions, and every strategy that was asked");
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] { return RunExplain(*o); };
}

}  // namespace lathe::command
