// pass_corpus [options] PATH...: every registered pass and named pipeline on every model and text
// program below the paths, and on random programs; verified, and run before and after.
//   --full        compare large models after each pass, too
//   --every-pass  a pass that changes nothing in the whole corpus is a failure
//   --pass=NAME   this one alone     --seeds=N  random programs     --seed=N  that one alone
//   --jobs=N      programs at a time

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "lathe/dialect/all.h"
#include "lathe/driver/model_file.h"
#include "lathe/driver/summary.h"
#include "lathe/driver/value_files.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"
#include "test/corpus/layer_grower.h"
#include "test/corpus/prepare.h"
#include "test/corpus/trial.h"
#include "test/unit/dialect/program_grower.h"

namespace lathe::testing {
namespace {

/// A model with more work is compared after the named pipelines only, unless --full.
constexpr double kSlowFlops = 1e10;
constexpr uint64_t kSeeds = 150;

struct Options {
  bool full = false;
  bool every_pass = false;  ///< a pass that has nothing to do in the whole corpus is a failure
  uint64_t first_seed = 1;
  uint64_t seeds = kSeeds;
  unsigned jobs = std::thread::hardware_concurrency();
  std::string only_pass;
  std::vector<std::string> paths;
};

/// What this thread is at, for the last words of a crash.
thread_local std::string doing;

void TellAndDie(int signal) {
  fprintf(stderr, "FAIL crash in %s\n", doing.c_str());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

Trial Try(const std::string& name, const Program& program, const PassSetting& setting,
          const NumericReference* reference) {
  doing = StrCat(name, ", pipeline '", setting.pipeline, "'");
  return RunTrial(program, setting.pipeline, reference);
}

/// What all threads count into.
class Tally {
 public:
  void Add(const std::string& program, const PassSetting& setting, const Trial& trial) {
    const std::lock_guard lock(mutex_);
    Row& row = rows_[setting.pass];
    ++(trial.failure.empty() ? passed_ : failed_);
    row.changed += trial.changed;
    row.compared += trial.compared;
    if (trial.failure.empty()) return;
    Fail(StrCat(program, ", pipeline '", setting.pipeline, "':\n", trial.failure));
  }
  void Skip(const std::string& program, const std::string& why) {
    const std::lock_guard lock(mutex_);
    skipped_.push_back(StrCat(program, ": ", why.substr(0, why.find('\n'))));
  }

  /// The table of passes; one that never had anything to do has not been tested.
  int Report(const std::vector<PassSetting>& settings, bool every_pass) {
    printf("%9s %9s  pass\n", "changed", "compared");
    for (const PassSetting& s : settings) {
      const Row& row = rows_[s.pass];
      printf("%9zu %9zu  %s%s%s\n", row.changed, row.compared, s.pass.c_str(),
             s.reason.empty() ? "" : ": ", s.reason.c_str());
      if (row.compared > 0 || !s.reason.empty() || !every_pass) continue;
      ++failed_;
      Fail(StrCat("pass '", s.pass, "' changed no program of the corpus"));
    }
    std::sort(skipped_.begin(), skipped_.end());
    printf("%zu programs not compared\n", skipped_.size());
    for (const std::string& line : skipped_) printf("  %s\n", line.c_str());
    // Once more, where a reader of the last lines sees it.
    for (const std::string& line : failures_) printf("FAIL %s\n", line.c_str());
    printf("%zu passed, %zu failed\n", passed_, failed_);
    return failed_ == 0 ? 0 : 3;
  }

 private:
  struct Row {
    size_t changed = 0, compared = 0;
  };
  void Fail(const std::string& text) {
    printf("FAIL %s\n", text.c_str());
    fflush(stdout);
    failures_.push_back(text.substr(0, text.find('\n')));
  }

  std::mutex mutex_;
  std::map<std::string, Row> rows_;
  std::vector<std::string> skipped_, failures_;
  size_t passed_ = 0, failed_ = 0;
};

/// The inputs that lie beside a model of the conformance tests; none if there are not all.
NamedValues CaseInputs(const std::string& path, const Program& program) {
  const auto folder = std::filesystem::path(path).parent_path() / "test_data_set_0";
  NamedValues inputs;
  for (const Operation* feed : program.feeds()) {
    const std::string file = folder / StrCat("input_", inputs.size(), ".pb");
    if (!std::filesystem::exists(file)) return {};
    const std::string name(feed->attribute("name").cast<StrAttribute>().value());
    inputs.emplace_back(name, LoadInput(name, file, feed->result(0).type(), {}).value);
  }
  return inputs;
}

bool IsPipeline(const PassSetting& setting) { return setting.pipeline.ends_with("{level=3}"); }

class Corpus {
 public:
  explicit Corpus(Options options) : options_(std::move(options)), settings_(AllSettings()) {
    for (const std::string& path : options_.paths) AddPath(path);
    std::set<std::string> seen;
    std::erase_if(files_, [&](const std::string& file) { return !seen.insert(file).second; });
    std::erase_if(settings_, [&](const PassSetting& s) {
      return !options_.only_pass.empty() && s.pass != options_.only_pass;
    });
  }

  int Run() {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < std::max(1U, options_.jobs); ++i) {
      threads.emplace_back([this] { Work(); });
    }
    for (std::thread& t : threads) t.join();
    return tally_.Report(settings_, options_.every_pass);
  }

 private:
  void AddPath(const std::string& path) {
    namespace fs = std::filesystem;
    const auto is_program = [](const fs::path& p) {
      return p.extension() == ".onnx" || p.extension() == ".lathe";
    };
    if (!fs::exists(path)) {
      throw Error(ErrorCode::kIo, "io/open", "there is no such file or folder").At(path);
    }
    if (!fs::is_directory(path)) {
      files_.push_back(path);
      return;
    }
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file() && is_program(entry.path())) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    files_.insert(files_.end(), found.begin(), found.end());
  }

  /// Largest first would be better; the paths are given in that order.
  void Work() {
    const size_t total = files_.size() + options_.seeds;
    for (size_t i; (i = next_++) < total;) {
      if (i < files_.size()) {
        RunFile(files_[i]);
      } else {
        RunSeed(options_.first_seed + i - files_.size());
      }
    }
  }

  void RunFile(const std::string& path) {
    IrContext context;
    LoadAllDialects(context);
    // Passes must leave ops alone that nobody knows.
    context.allow_unregistered_ops(path.ends_with(".lathe"));
    doing = path + " while it is read";
    try {
      const Program program = LoadModel(context, path);
      VerifyLoaded(program, path);
      const NamedValues inputs = CaseInputs(path, program);
      RunAll(path, program, inputs);
      if (path.ends_with(".onnx")) RunAll(path + " (prepared)", Prepare(program), inputs);
    } catch (const Error& error) {
      // Golden tests of the reader and the verifier are no programs; a model is one.
      if (path.ends_with(".onnx")) {
        tally_.Add(path, {path, "", "", true}, {error.Render(), false, false});
      } else {
        tally_.Skip(path, error.message());
      }
    }
  }

  void RunAll(const std::string& name, const Program& program, const NamedValues& inputs) {
    const bool slow = !options_.full && Summarize(program).flops > kSlowFlops;
    const auto reference = ReferenceFor(program, inputs);
    if (!reference) tally_.Skip(name, "does not run on these inputs");
    if (slow) tally_.Skip(name, "large: compared after named pipelines only");
    for (const PassSetting& setting : settings_) {
      if (setting.pipeline.empty()) continue;
      const bool compare = reference && setting.compare && (!slow || IsPipeline(setting));
      tally_.Add(name, setting, Try(name, program, setting, compare ? &*reference : nullptr));
    }
  }

  void RunSeed(uint64_t seed) {
    IrContext context;
    LoadAllDialects(context);
    doing = StrCat("random program, seed ", seed, ", while it grows");
    ProgramGrower ops(context, seed, 3);
    const Program program = ops.Grow(25);
    RunRandom(StrCat("random ops, seed ", seed), program, ops.Inputs(program));
    const Program network = LayerGrower(context, seed).Grow(8);
    VerifyOrThrow(network);
    RunRandom(StrCat("random layers, seed ", seed), network, SampleInputs(network, {}, seed));
  }

  void RunRandom(const std::string& name, const Program& program, const NamedValues& inputs) {
    const auto reference = ReferenceFor(program, inputs);
    if (!reference) tally_.Skip(name, "does not run");
    for (const PassSetting& setting : settings_) {
      if (setting.pipeline.empty()) continue;
      const bool compare = reference && setting.compare;
      Trial trial = Try(name, program, setting, compare ? &*reference : nullptr);
      if (!trial.failure.empty()) {
        const Shrunk small = Shrink(program, inputs, setting.pipeline);
        trial.failure +=
            StrCat("\n", name, ", as small as it gets:\n", Print(small.program), small.failure);
      }
      tally_.Add(name, setting, trial);
    }
  }

  Options options_;
  std::vector<PassSetting> settings_;
  std::vector<std::string> files_;
  std::atomic<size_t> next_ = 0;
  Tally tally_;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&](std::string_view name) -> std::optional<std::string> {
      if (!word.starts_with(StrCat(name, "="))) return std::nullopt;
      return word.substr(name.size() + 1);
    };
    const auto number = [&](std::string_view name) -> std::optional<uint64_t> {
      const auto text = value(name);
      if (!text) return std::nullopt;
      const auto parsed = ParseInt(*text);
      if (parsed && *parsed >= 0) return static_cast<uint64_t>(*parsed);
      throw Error(ErrorCode::kInvalidArgument, "usage",
                  StrCat(name, " takes a number, not ", *text));
    };
    if (word == "--full") {
      options.full = true;
    } else if (word == "--every-pass") {
      options.every_pass = true;
    } else if (const auto seeds = number("--seeds")) {
      options.seeds = *seeds;
    } else if (const auto seed = number("--seed")) {
      options.first_seed = *seed;
      options.seeds = 1;
    } else if (const auto jobs = number("--jobs")) {
      options.jobs = static_cast<unsigned>(*jobs);
    } else if (const auto pass = value("--pass")) {
      options.only_pass = *pass;
    } else {
      options.paths.push_back(word);
    }
  }
  return options;
}

}  // namespace

int RunCorpus(int argc, char** argv) {
  std::signal(SIGABRT, TellAndDie);
  std::signal(SIGSEGV, TellAndDie);
  return Corpus(Parse(argc, argv)).Run();
}

}  // namespace lathe::testing

int main(int argc, char** argv) {
  try {
    return lathe::testing::RunCorpus(argc, argv);
  } catch (const lathe::Error& error) {
    fputs(error.Render().c_str(), stderr);
    return 1;
  }
}
