#include "lathe/driver/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lathe/driver/model_file.h"
#include "lathe/support/printable.h"
#include "lathe/support/text.h"
#include "tools/lathe/explain_ranks.h"
#include "tools/lathe/rates.h"
#include "tools/lathe/runnable.h"
#include "tools/lathe/structure.h"

namespace lathe::command {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kIndent = 10;
constexpr int kRunsOfRanks = 5;

struct ExplainArguments {
  ModelOptions model;
  InputOptions inputs;
  CompileOptions compile;
  RankOptions ranks;
  int runs = 0;
  size_t top = 40;
  bool all = false;
  bool json = false;
};

WorkDone WorkOf(const ExplainedFunction& f) {
  return {.ms = f.ms, .gflop = f.gflop, .gigabytes = f.gigabytes, .bound = f.bound};
}

// What only names memory takes no time, so it has none.
bool TakesTime(const ExplainedFunction& f) {
  return f.info.strategy != kMemoryStrategy || f.info.name.empty();
}

std::string StrategyOf(const ExplainedFunction& f) {
  return f.interpreted() ? "interpreted" : f.info.strategy;
}

// Lines of at most kWidth columns; all but the first begin in column `indent`.
std::string Wrapped(std::string_view text, size_t column, size_t indent) {
  std::string out;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!out.empty()) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

std::string Indented(std::string_view text) {
  return std::string(kIndent, ' ') + Wrapped(text, kIndent, kIndent + 2);
}

// A reason that says no more than that its operation is not there.
bool SaysLittle(std::string_view why) {
  return why.starts_with("there is no ") || why.ends_with(" is not elementwise");
}

// "not conv_depthwise: there is one group; rows: nothing is reduced"; all lines as they are.
std::string CandidateLines(const ExplainedFunction& f, bool all) {
  constexpr std::string_view kRefused = "refused: ";
  std::string text, refused;
  std::istringstream lines(f.info.candidates);
  for (std::string line; std::getline(lines, line);) {
    if (all) text += Indented(line);
    const size_t at = line.find(kRefused);
    if (all || at == std::string::npos) continue;
    const std::string why = line.substr(at + kRefused.size());
    if (SaysLittle(why)) continue;
    const std::string name = line.substr(0, line.find(' '));
    refused += StrCat(refused.empty() ? "not " : "; ", name, ": ", why);
  }
  if (!refused.empty()) text += Indented(refused);
  if (f.interpreted()) text += Indented(f.info.why_not);
  for (const lower::Remark& r : f.info.remarks) text += Indented("remark: " + r.ToString());
  return text;
}

std::string NameOf(std::string_view op) { return std::string(op.substr(op.find('.') + 1)); }

// "relu ends it before conv (5x): why"
std::string BoundaryLines(const std::vector<FusionBoundary>& boundaries, bool ends) {
  std::string text;
  for (const FusionBoundary& b : boundaries) {
    const std::string times = b.count == 1 ? "" : StrCat(" (", b.count, "x)");
    if (b.into.empty()) {
      text += Indented(StrCat("ends after ", NameOf(b.op), times, ": ", b.why));
    } else {
      text += Indented(ends ? StrCat("ends before ", NameOf(b.into), times, ": ", b.why)
                            : StrCat("begins after ", NameOf(b.op), times, ": ", b.why));
    }
  }
  return text;
}

// With measured times, or with bounds where there are none.
class Table {
 public:
  explicit Table(bool measured) : measured_(measured) {}

  std::string Title(const char* what) const {
    return measured_ ? StrCat(" share        ms  calls", kRateTitles, what, "\n")
                     : StrCat(" share  bound ms  calls     GFLOP        MB  by       ", what, "\n");
  }
  double Time(const WorkDone& work) const { return measured_ ? work.ms : work.bound.ms; }

  std::string Row(const WorkDone& work, double all, size_t calls, std::string_view what) const {
    const double ms = Time(work);
    std::string row = ms < 0 || all <= 0
                          ? fmt::format("{:>6} {:>9} {:6}", "-", "-", calls)
                          : fmt::format("{:5.1f}% {:9.3f} {:6}", 100 * ms / all, ms, calls);
    if (measured_) {
      row += RateColumns(work);
    } else {
      row += fmt::format(" {} {}  {:<7}  ", Number(work.gflop), Number(work.gigabytes * 1e3),
                         work.bound.ms < 0      ? "-"
                         : work.bound.by_memory ? "memory"
                                                : "compute");
    }
    return row + Wrapped(what, row.size(), row.size());
  }

 private:
  static std::string Number(double value) {
    return value < 0 ? fmt::format("{:>9}", "-") : fmt::format("{:9.3f}", value);
  }
  bool measured_;
};

struct Total {
  WorkDone work = WorkDone::None();
  size_t calls = 0;

  void Add(const ExplainedFunction& f) {
    work.Add(WorkOf(f));
    calls += f.info.calls;
  }
};

Total TotalOf(const Explanation& e) {
  Total total;
  for (const ExplainedFunction& f : e.functions) {
    if (TakesTime(f)) total.Add(f);
  }
  return total;
}

const char* WhyNotMeasured(const Explanation& e, const ExplainArguments& o) {
  if (!e.runs_here) return "this machine cannot run it";
  return o.runs > 0 && !e.plan ? "there is no plan" : "--runs N";
}

void PrintHead(const Explanation& e, const Total& total, const ExplainArguments& o) {
  const std::string symbols = SymbolsText(e.symbols);
  Out(fmt::format("{} for {}{}{}\n", o.model.path, e.target, symbols.empty() ? "" : ", ", symbols));
  if (e.runs_here) Out(MachineText(e.machine) + "\n");
  Out(e.plan ? PlanText(*e.plan) : fmt::format("precision {}\n", Name(e.precision)));
  const WorkDone& w = total.work;
  const std::string kernels =
      fmt::format("{} kernels in {} calls", e.functions.size(), total.calls);
  if (w.bound.ms >= 0) {
    Out(fmt::format("{}: {:.3f} GFLOP and {} a run, at least {:.3f} ms\n", kernels, w.gflop,
                    Megabytes(w.gigabytes * 1e9), w.bound.ms));
  } else if (!e.runs_here && w.gflop >= 0 && w.gigabytes >= 0) {
    Out(fmt::format("{}: {:.3f} GFLOP and {} a run\n", kernels, w.gflop,
                    Megabytes(w.gigabytes * 1e9)));
  } else {
    Out(kernels + ", some of unknown arithmetic\n");
  }
  if (w.ms > 0) {
    Out(fmt::format("measured {:.3f} ms, median of {} runs", e.run_ms, o.runs));
    if (w.gflop >= 0 && w.gigabytes >= 0) {
      Out(fmt::format(": {:.1f} GFLOP/s, {:.1f} GB/s, {}", w.GflopPerSecond(), w.GbPerSecond(),
                      RooflineText(w)));
    }
    Out("\n");
  } else {
    Out(StrCat("not measured: ", WhyNotMeasured(e, o), "\n"));
  }
  size_t calls = 0;
  for (const auto& [what, count] : e.interpreted) calls += count;
  if (calls > 0) Out(fmt::format("{} calls have no machine code, listed below\n", calls));
}

void PrintStrategies(const Explanation& e, const Table& table, const Total& total) {
  std::map<std::string, Total> by_strategy;
  for (const ExplainedFunction& f : e.functions) {
    if (TakesTime(f)) by_strategy[StrategyOf(f)].Add(f);
  }
  std::vector<std::pair<std::string, Total>> rows(by_strategy.begin(), by_strategy.end());
  std::ranges::stable_sort(rows, std::greater<>(),
                           [&](const auto& row) { return table.Time(row.second.work); });
  Out("\nwhere the time goes\n" + table.Title("strategy"));
  const double all = table.Time(total.work);
  for (const auto& [name, t] : rows) Out(table.Row(t.work, all, t.calls, name));
  Out(table.Row(total.work, all, total.calls, "all"));
}

void PrintFunctions(const Explanation& e, const Table& table, const Total& total,
                    const ExplainArguments& o) {
  Out("\ngroups\n" + table.Title("operations"));
  size_t shown = 0, hidden = 0;
  for (const ExplainedFunction& f : e.functions) {
    if (!o.all && (shown == o.top || !TakesTime(f))) {
      ++hidden;
      continue;
    }
    ++shown;
    Out(table.Row(WorkOf(f), table.Time(total.work), f.info.calls, f.info.operations));
    Out(Indented(StrCat("by ", StrategyOf(f), f.results.empty() ? "" : ": ", f.results)));
    Out(CandidateLines(f, o.all));
    Out(BoundaryLines(f.ends, /*ends=*/true));
    if (o.all) Out(BoundaryLines(f.begins, /*ends=*/false));
  }
  if (hidden > 0) Out(fmt::format("{:>23} more that take less or nothing: --top, --all\n", hidden));
}

void Print(const Explanation& e, const ExplainArguments& o) {
  const Total total = TotalOf(e);
  const Table table(total.work.ms > 0);
  PrintHead(e, total, o);
  PrintStrategies(e, table, total);
  PrintFunctions(e, table, total, o);
  if (!e.boundaries.empty()) Out("\nwhy groups are not larger\n");
  for (const FusionBoundary& b : e.boundaries) {
    const std::string with = b.into.empty() ? "" : StrCat(" with ", NameOf(b.into));
    Out(fmt::format("{:5}x  {}", b.count,
                    Wrapped(StrCat(NameOf(b.op), with, ": ", b.why), 8, kIndent)));
  }
  if (!e.interpreted.empty()) Out("\nwithout machine code\n");
  for (const auto& [name, count] : e.interpreted) Out(fmt::format("{:5}x  {}\n", count, name));
  if (!e.obstacles.empty()) Out("\nwhy there is no plan\n");
  for (const std::string& why : e.obstacles) Out(Indented(why));
}

using Json = nlohmann::ordered_json;

Json ToJson(const std::vector<FusionBoundary>& boundaries) {
  Json list = Json::array();
  for (const FusionBoundary& b : boundaries) {
    list.push_back({{"op", b.op}, {"into", b.into}, {"why", b.why}, {"count", b.count}});
  }
  return list;
}

Json ToJson(const std::vector<lower::Remark>& remarks) {
  Json list = Json::array();
  for (const lower::Remark& r : remarks) {
    list.push_back({{"code", r.code}, {"strategy", r.strategy}, {"message", r.message}});
  }
  return list;
}

Json ToJson(const ExplainedFunction& f) {
  Json json = {{"name", f.info.name},
               {"operations", f.info.operations},
               {"results", f.results},
               {"calls", f.info.calls},
               {"strategy", f.info.strategy},
               {"interpreted", f.interpreted()},
               {"candidates", f.info.candidates},
               {"why_not", f.info.why_not},
               {"remarks", ToJson(f.info.remarks)},
               {"ms", NumberOrNull(f.ms)}};
  AddRates(json, WorkOf(f));
  json["ends"] = ToJson(f.ends);
  json["begins"] = ToJson(f.begins);
  return json;
}

std::string ToJson(const Explanation& e) {
  Json json = {{"target", e.target},
               {"precision", Name(e.precision)},
               {"machine", MachineToJson(e.machine)}};
  json["symbols"] = Json::object();
  for (const auto& [name, value] : e.symbols) json["symbols"][name] = value;
  json["run_ms"] = NumberOrNull(e.run_ms);
  AddRates(json, TotalOf(e).work);
  json["memory"] = e.plan ? MemoryToJson(*e.plan) : Json();
  json["functions"] = Json::array();
  for (const ExplainedFunction& f : e.functions) json["functions"].push_back(ToJson(f));
  json["boundaries"] = ToJson(e.boundaries);
  json["interpreted"] = Json::object();
  for (const auto& [name, count] : e.interpreted) json["interpreted"][name] = count;
  json["obstacles"] = e.obstacles;
  return JsonText(json, 2) + "\n";
}

int RunExplain(const ExplainArguments& o) {
  if (o.ranks.ranks > 0) {
    ExplainRanks(o.ranks, o.model, o.inputs, o.compile, o.runs > 0 ? o.runs : kRunsOfRanks, o.json);
    return kFine;
  }
  IrContext context;
  Program program = LoadStructure(o.model, context);
  if (LacksWeights(program)) {
    InventWeights(program);
    Words("the weights are made up: what depends on their numbers is not that of the model\n");
  }
  const Explanation e = Explain(
      program,
      {.compile = o.compile, .runs = o.runs, .inputs = o.inputs.Load(o.model, InputsOf(program))});
  if (o.json) {
    Out(ToJson(e));
  } else {
    Print(e, o);
  }
  return kFine;
}

}  // namespace

Run AddExplain(CLI::App& app) {
  auto o = std::make_shared<ExplainArguments>();
  o->model.AddTo(app);
  AddCompileOptions(app, o->compile);
  o->inputs.AddTo(app, /*random_by_default=*/true);
  o->ranks.AddTo(app);
  app.add_option("--runs", o->runs,
                 "to measure, after one to warm up; 0: nothing is run, but with --ranks five")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_option("--top", o->top, "functions to show, the most expensive first")
      ->check(CountBetween(0, kMostRows))
      ->type_name("K")
      ->capture_default_str();
  app.add_flag("--all", o->all, "all functions, and every strategy that was asked");
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] { return RunExplain(*o); };
}

}  // namespace lathe::command
