#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lathe/driver/executable.h"
#include "lathe/driver/output_files.h"
#include "lathe/ir/context.h"
#include "lathe/ir/program.h"

/// What the subcommands share. Results go to stdout, words to stderr.
namespace lathe::command {

/// Exit codes of the command.
enum Exit : int { kFine = 0, kInputAtFault = 1, kUsage = 2, kCheckFailed = 3, kOurBug = 70 };

/// A wrong command line, beyond what the option parser sees: exit code 2.
struct UsageError : std::runtime_error {
  explicit UsageError(const std::string& what, std::string help = "")
      : std::runtime_error(what), hint(std::move(help)) {}

  std::string hint;  ///< such as "did you mean 'N'?"; or empty
};

/// Options that every subcommand that reads a model has.
struct ModelOptions {
  std::string path;
  std::vector<std::string> plugins;
  bool allow_unregistered = false;
  bool strict = false;
  std::vector<std::string> dims, shapes;  ///< NAME=N; INPUT=N,N,...
  bool without_weights = false;           ///< those of text are not read, and need not be there

  void AddTo(CLI::App& app, const char* what = "an ONNX model (.onnx) or a text program (.lathe)");
  /// The model, what lies beside it, and the plug-ins: not to be overwritten.
  std::vector<std::string> Files() const;
  /// Loads dialects and plug-ins into `context`, then the model, verified, with the sizes that are
  /// given.
  Program Load(IrContext& context) const;
};

/// What a command writes, for which a file of somebody else is not lost.
struct OutputOptions {
  bool force = false;

  void AddTo(CLI::App& app);
  /// CheckOutputs, unless forced.
  void Check(std::span<const OutputFile> outputs, std::span<const std::string> inputs) const;
};

/// Options of every subcommand that compiles. With `all_levels`, `--precision all` sets it.
void AddCompileOptions(CLI::App& app, CompileOptions& options, bool* all_levels = nullptr);

/// True if `fd` (1 or 2) is a terminal and color is not refused by NO_COLOR.
bool UseColor(int fd);
bool IsTerminal(int fd);

/// Shows `done` of `total` on one line of a terminal's stderr, from the second second on; nothing
/// elsewhere. Clears the line when destroyed.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// `note` stands behind the bar.
  void Update(size_t done, size_t total, std::string_view note = {});

 private:
  std::string what_;
  double start_;
  double last_ = 0;
  bool shown_ = false;
};

/// Shows on a terminal how many functions are compiled, unless somebody looks already; `progress`
/// must outlive the compilation.
CompileOptions Shown(CompileOptions options, Progress& progress);

/// Of tables that are cut.
inline constexpr int kMostRows = 1 << 30;

/// Accepts an integer in a range; unlike CLI::Range, no "-1" for 2^64 - 1.
CLI::Validator CountBetween(uint64_t least, uint64_t most);
/// Accepts a number in a range; unlike CLI::Range, no NaN.
CLI::Validator NumberBetween(double least, double most);

/// "NAME=VALUE" split at the first '='; a UsageError naming `option` without one.
std::pair<std::string, std::string> SplitAssignment(const std::string& option,
                                                    const std::string& text);

/// To stdout, and to stderr; control characters are escaped, as what models hold is in the text.
void Out(std::string_view text);
void Words(std::string_view text);
/// As it is: for what Lathe has colored, and nothing of a model that is not escaped.
void Draw(std::FILE* to, std::string_view text);
/// Puts the path of a model before the place in it, unless it is there.
void NameModel(Error& error, const std::string& path);

/// From here on nothing is printed, or all is: of several processes one speaks.
void Silence(bool silent);

/// The registered passes and named pipelines: for a terminal, and as the page docs/passes.md.
std::string PassList();
std::string PassPage();

/// Each adds its subcommand; the returned function runs it and gives the exit code.
using Run = std::function<int()>;
/// The exit code of `run`, or that of what it throws, which is told on stderr.
int Guarded(const Run& run);
Run AddRun(CLI::App& app);
Run AddCompile(CLI::App& app);
Run AddInspect(CLI::App& app);
Run AddOpt(CLI::App& app);
Run AddConformance(CLI::App& app);
Run AddCheck(CLI::App& app);
Run AddBench(CLI::App& app);
Run AddProfile(CLI::App& app);
Run AddTrain(CLI::App& app);
Run AddTune(CLI::App& app);
Run AddExplain(CLI::App& app);
Run AddVerify(CLI::App& app);
Run AddDiff(CLI::App& app);
Run AddExtract(CLI::App& app);
Run AddReduce(CLI::App& app);
Run AddQuantize(CLI::App& app);
Run AddGenerate(CLI::App& app);
Run AddOps(CLI::App& app);
Run AddHelp(CLI::App& app);
Run AddCompletion(CLI::App& app);

}  // namespace lathe::command
