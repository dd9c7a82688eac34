// differential [options]: random valid graphs over all ops, compiled for each tier and compared
// with the interpreter (trial.h), each in a process of its own.
//   --seeds=A..B      graphs (default 1..500); --seed=N: one, printed
//   --tiers=A,B       targets (default: avx512, avx2 and x86-64, those that run here)
//   --rotate          one tier per graph, in turns
//   --levels=A,B      of optimization (default 2)
//   --ops=nn.A,nn.B   graphs of these ops
//   --check-accesses  code that checks each access; one out of bounds is a finding
//   --budget=SECONDS  no graph begins later
//   --jobs=N          graphs at a time
//   --save=FOLDER     findings as programs (.lathe) with their inputs (.npy)
//   --no-shrink       findings as they are; otherwise the first few of each kind shrink
//   --ignore=A,B      findings whose kind begins so are none
//   --memory-mb=N     address space of a graph (default 8192; 0: no limit)  --seconds=N (default
//   10)

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "lathe/codegen/code_generator.h"
#include "lathe/codegen/target.h"
#include "lathe/dialect/all.h"
#include "lathe/driver/model_file.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/support/error.h"
#include "lathe/support/npy.h"
#include "lathe/support/text.h"
#include "test/differential/isolated.h"
#include "test/differential/shrink.h"
#include "test/differential/tally.h"
#include "test/differential/trial.h"

namespace lathe::testing {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kMostShrinkTrials = 150;
constexpr size_t kShrunkPerKind = 3;

struct Options {
  uint64_t first = 1, last = 500;
  DifferentialOptions trial;
  bool rotate = false;
  bool shrink = true;
  bool print = false;
  std::set<std::string> ops;
  std::vector<std::string> ignore;
  double budget = 1e9;
  unsigned jobs = static_cast<unsigned>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  std::string save;
  uint64_t memory = uint64_t{8} << 30;
  int seconds = 10;
};

json ToJson(const TrialResult& result) {
  json findings = json::array();
  for (const Finding& f : result.findings) findings.push_back({f.kind, f.detail});
  return {{"findings", findings}, {"coverage", result.coverage}};
}

TrialResult FromJson(const json& value) {
  TrialResult result;
  for (const json& f : value["findings"]) result.findings.push_back({f[0], f[1]});
  result.coverage = value["coverage"];
  return result;
}

std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Tries graphs one by one; findings and coverage go to a pipe, a line of JSON each.
class Worker {
 public:
  Worker(IrContext& context, const Options& options, int out)
      : context_(context), options_(options), out_(out) {}

  void Run(uint64_t seed) {
    DifferentialOptions trial = options_.trial;
    if (options_.rotate) trial.tiers = {trial.tiers[seed % trial.tiers.size()]};
    // Grown in the child, too: growing infers and evaluates.
    TrialResult result = Isolated([&] { return RunCase(Grown(seed), seed, trial); });
    std::erase_if(result.findings, [&](const Finding& f) { return IsIgnored(f.kind); });
    json line = ToJson(result);
    line["seed"] = seed;
    if (!result.findings.empty()) line["text"] = Describe(seed, trial, result);
    Send(line);
  }

 private:
  bool IsIgnored(const std::string& kind) const {
    return std::ranges::any_of(options_.ignore,
                               [&](const std::string& k) { return kind.starts_with(k); });
  }

  Case Grown(uint64_t seed) const { return GraphGrower(context_, seed, options_.ops).Grow(); }

  std::string RunCase(const Case& trial, uint64_t seed, const DifferentialOptions& options) const {
    if (options_.print) fputs(Print(trial.program).c_str(), stderr);
    return Dump(ToJson(RunDifferentialTrial(trial, seed, options)));
  }

  TrialResult Isolated(const std::function<std::string()>& work) const {
    const IsolatedResult result = RunIsolated(work, options_.seconds, options_.memory);
    if (!result.death.empty()) return {{{result.death, result.death}}, {}};
    return FromJson(json::parse(result.text));
  }

  /// What was found, and as little as shows it.
  std::string Describe(uint64_t seed, const DifferentialOptions& trial, const TrialResult& result) {
    std::string text;
    for (const Finding& f : result.findings) text += StrCat("  ", f.kind, ": ", f.detail, "\n");
    if (!options_.shrink || ++described_[result.findings[0].kind] > kShrunkPerKind) return text;
    // In a child: what grows may crash. Its output is the description.
    const IsolatedResult shrunk = RunIsolated(
        [&] { return Smallest(seed, trial, result.findings[0].kind); }, 60 * options_.seconds, 0);
    return text +
           (shrunk.death.empty() ? shrunk.text : StrCat("  shrinking: ", shrunk.death, "\n"));
  }

  std::string Smallest(uint64_t seed, const DifferentialOptions& trial, const std::string& kind) {
    Case grown = Grown(seed);
    DifferentialOptions only = trial;
    only.coverage = false;
    const auto result_of = [&](const Case& c) {
      return Isolated([&] { return RunCase(c, seed, only); });
    };
    const auto shows = [&](const Case& c) {
      return std::ranges::any_of(result_of(c).findings,
                                 [&](const Finding& f) { return f.kind == kind; });
    };
    for (const std::string& tier : trial.tiers) {  // one tier shows it, if it is not just one
      only.tiers = {tier};
      if (shows(grown)) break;
      only.tiers = trial.tiers;
    }
    if (shows(grown)) grown = ShrinkCase(grown, shows, kMostShrinkTrials);
    if (!options_.save.empty()) Save(seed, grown);
    std::string text = Print(grown.program);
    for (const InputSet& set : grown.inputs) {
      for (const auto& [name, value] : set.values) {
        text += StrCat("  ", name, " = ", value.tensor().TypeString(), " ",
                       value.tensor().ToString(24), "\n");
      }
      if (!set.label.empty()) text += StrCat("  (", set.label, ")\n");
    }
    for (const Finding& f : result_of(grown).findings) {
      text += StrCat("  ", f.kind, ": ", f.detail, "\n");
    }
    return text;
  }

  void Save(uint64_t seed, const Case& trial) const {
    std::filesystem::create_directories(options_.save);
    const std::string base = StrCat(options_.save, "/", seed);
    SaveModel(trial.program, base + ".lathe");
    for (size_t i = 0; i < trial.inputs.size(); ++i) {
      for (const auto& [name, value] : trial.inputs[i].values) {
        try {
          WriteNpy(StrCat(base, ".", i, ".", name, ".npy"), value.tensor());
        } catch (const Error&) {  // numpy does not have the type; the text shows the values
        }
      }
    }
  }

  void Send(const json& line) const {
    const std::string text = Dump(line) + "\n";
    for (size_t at = 0; at < text.size();) {
      const ssize_t n = write(out_, text.data() + at, text.size() - at);
      if (n <= 0) _exit(1);
      at += static_cast<size_t>(n);
    }
  }

  IrContext& context_;
  const Options& options_;
  int out_;
  std::map<std::string, size_t> described_;
};

/// A worker's process and what it says.
struct Job {
  pid_t process;
  int from;
  std::string text;
};

class Fuzzer {
 public:
  explicit Fuzzer(Options options) : options_(std::move(options)) {
    LoadAllDialects(context_);
    (void)codegen::CodeGenerator::Get();  // loaded once, for all children
  }

  int Run() {
    for (unsigned i = 0; i < options_.jobs; ++i) jobs_.push_back(Start(i));
    while (!jobs_.empty()) {
      std::vector<pollfd> ready;
      for (const Job& job : jobs_) ready.push_back({job.from, POLLIN, 0});
      if (poll(ready.data(), ready.size(), -1) <= 0) continue;
      for (size_t i = jobs_.size(); i-- > 0;) {
        if (ready[i].revents != 0 && !Read(jobs_[i]))
          jobs_.erase(jobs_.begin() + static_cast<long>(i));
      }
    }
    std::vector<std::string> names;
    for (const OpInfo info : context_.ops()) {
      const bool counts = info.name().starts_with("nn.") || info.name().starts_with("cf.");
      if (counts && !info.name().ends_with('_')) names.emplace_back(info.name());
    }
    return tally_.Report(Seconds(), names);
  }

 private:
  Job Start(unsigned number) {
    int ends[2];
    LATHE_CHECK(pipe(ends) == 0);
    fflush(stdout);
    const pid_t process = fork();
    LATHE_CHECK(process >= 0, "fork");
    if (process != 0) {
      close(ends[1]);
      return {process, ends[0], ""};
    }
    close(ends[0]);
    Worker worker(context_, options_, ends[1]);
    for (uint64_t seed = options_.first + number; seed <= options_.last; seed += options_.jobs) {
      if (Seconds() > options_.budget) break;
      worker.Run(seed);
    }
    _exit(0);
  }

  /// False at the end.
  bool Read(Job& job) {
    char buffer[1 << 16];
    const ssize_t n = read(job.from, buffer, sizeof buffer);
    if (n <= 0) {
      close(job.from);
      waitpid(job.process, nullptr, 0);
      return false;
    }
    job.text.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = job.text.find('\n')) != std::string::npos;) {
      Count(json::parse(job.text.substr(0, end)));
      job.text.erase(0, end + 1);
    }
    return true;
  }

  void Count(const json& line) {
    const TrialResult result = FromJson(line);
    std::set<std::string> seen;
    for (const std::string& what : result.coverage) {
      if (seen.insert(what).second) tally_.AddCoverage(what);
    }
    if (result.findings.empty()) {
      tally_.AddPassed();
    } else {
      tally_.AddFinding({line["seed"], result.findings[0].kind, line["text"]});
    }
    if (tally_.done() % 500 != 0) return;
    printf("%zu graphs, %zu findings, %.1f per second\n", tally_.done(), tally_.failed(),
           static_cast<double>(tally_.done()) / Seconds());
    fflush(stdout);
  }

  double Seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  Options options_;
  IrContext context_;
  DifferentialTally tally_;
  std::vector<Job> jobs_;
  Clock::time_point start_ = Clock::now();
};

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

uint64_t Number(std::string_view text) {
  const auto number = ParseInt(std::string(text));
  if (number && *number >= 0) return static_cast<uint64_t>(*number);
  throw Error(ErrorCode::kInvalidArgument, "usage", StrCat("a number is wanted, not '", text, "'"));
}

void ParseSeeds(Options& options, std::string_view text) {
  const size_t dots = text.find("..");
  options.first = Number(text.substr(0, dots));
  options.last = dots == std::string_view::npos ? options.first : Number(text.substr(dots + 2));
}

void ParseWord(Options& options, const std::string& word) {
  const size_t at = word.find('=');
  const std::string name = word.substr(0, at);
  const std::string value = at == std::string::npos ? "" : word.substr(at + 1);
  if (name == "--seeds") {
    ParseSeeds(options, value);
  } else if (name == "--seed") {
    options.first = options.last = Number(value);
    options.print = true;
  } else if (name == "--tiers") {
    options.trial.tiers = Words(value);
  } else if (name == "--levels") {
    options.trial.levels.clear();
    for (const std::string& level : Words(value))
      options.trial.levels.push_back(static_cast<int>(Number(level)));
  } else if (name == "--ops") {
    for (const std::string& op : Words(value)) options.ops.insert(op);
  } else if (name == "--ignore") {
    options.ignore = Words(value);
  } else if (name == "--budget") {
    options.budget = static_cast<double>(Number(value));
  } else if (name == "--jobs") {
    options.jobs = static_cast<unsigned>(std::max<uint64_t>(1, Number(value)));
  } else if (name == "--save") {
    options.save = value;
  } else if (name == "--memory-mb") {
    options.memory = Number(value) << 20;
  } else if (name == "--seconds") {
    options.seconds = static_cast<int>(Number(value));
  } else if (name == "--rotate") {
    options.rotate = true;
  } else if (name == "--check-accesses") {
    options.trial.check_accesses = true;
  } else if (name == "--no-shrink") {
    options.shrink = false;
  } else {
    throw Error(ErrorCode::kInvalidArgument, "usage", StrCat("there is no option ", word));
  }
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) ParseWord(options, argv[i]);
  if (!options.trial.tiers.empty()) return options;
  for (const char* tier : {"avx512", "avx2", "x86-64"}) {
    if (codegen::Target::Named(tier).RunsHere()) options.trial.tiers.emplace_back(tier);
  }
  if (options.trial.tiers.empty()) options.trial.tiers = {codegen::Target::Host().name};
  return options;
}

}  // namespace
}  // namespace lathe::testing

int main(int argc, char** argv) {
  try {
    return lathe::testing::Fuzzer(lathe::testing::Parse(argc, argv)).Run();
  } catch (const lathe::Error& error) {
    fputs(error.Render().c_str(), stderr);
    return 1;
  }
}
