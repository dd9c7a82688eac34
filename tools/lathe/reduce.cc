#include "lathe/driver/reduce.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lathe/driver/model_file.h"
#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/printable.h"
#include "lathe/support/safetensors.h"
#include "tools/lathe/command.h"
#include "tools/lathe/inputs.h"
#include "tools/lathe/shell.h"

namespace lathe::command {
namespace {

struct ReduceArguments {
  ModelOptions model;
  InputOptions inputs;
  OutputOptions outputs;
  std::string command;
  bool check = false, crash = false;
  std::string against, python;
  std::string rtol, atol;
  std::vector<int> fail_codes;
  double run_timeout = 0;
  ReduceOptions reduce;
  std::string output;
  bool json = false;
};

// ---- what is run ----

// Exit codes that a test has besides those that say that it fails.
constexpr int kCannotTell = 125, kCannotRun = 126, kNotFound = 127;

// A command for the shell, with "{}" for the model and "{inputs}" for its inputs, and what its exit
// code says.
struct TestCommand {
  std::string text;
  std::set<int> codes;         ///< that say that it fails; empty: any but 0 and 125 to 127
  bool signals_count = false;  ///< codes above 128 say so, too

  bool Fails(int code) const {
    if (signals_count && code > 128) return true;
    if (!codes.empty()) return codes.contains(code);
    return code != 0 && (code < kCannotTell || code > kNotFound);
  }
};

// In the text of a test of ours: `--input` with the inputs, or nothing if there are none.
constexpr std::string_view kInputOption = " {--input}";

// `lathe` itself, with the options that say how models are read.
std::string OwnCommand(const ReduceArguments& o, const std::string& command) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string text = StrCat(ShellQuoted(self), " ", command, " {}");
  for (const std::string& plugin : o.model.plugins) text += " --load " + ShellQuoted(plugin);
  if (o.model.allow_unregistered) text += " --allow-unregistered";
  return text.append(kInputOption);
}

std::string WithOption(const std::string& text, const char* option, const std::string& value) {
  return value.empty() ? text : StrCat(text, " ", option, " ", ShellQuoted(value));
}

TestCommand MakeTest(const ReduceArguments& o) {
  if (o.check) return {OwnCommand(o, "check"), {kCheckFailed}};
  if (o.crash) return {OwnCommand(o, "run") + " --random --no-cache", {kOurBug}, true};
  if (!o.against.empty()) {
    std::string text = StrCat(OwnCommand(o, "check"), " --against ", o.against);
    text = WithOption(text, "--python", o.python);
    text = WithOption(WithOption(text, "--rtol", o.rtol), "--atol", o.atol);
    return {text, {kCheckFailed}};
  }
  std::string text = o.command;
  if (text.find("{}") == std::string::npos) text += " {}";
  return {text, {o.fail_codes.begin(), o.fail_codes.end()}};
}

void CheckOptions(const ReduceArguments& o) {
  const int tests = static_cast<int>(!o.command.empty()) + static_cast<int>(o.check) +
                    static_cast<int>(o.crash) + static_cast<int>(!o.against.empty());
  if (tests != 1) {
    throw UsageError(
        "how is a model told that fails? one of --command, --check, --against, --crash",
        "such as --command 'lathe check {}'");
  }
  const bool reads_inputs = o.command.find("{inputs}") != std::string::npos;
  if (reads_inputs && o.inputs.given.empty()) {
    throw UsageError("{inputs} is the file of what --input gives, and there is no --input");
  }
  if (!o.command.empty() && !reads_inputs && !o.inputs.given.empty()) {
    throw UsageError("the command does not read what --input gives",
                     "its file is {inputs}: --command 'lathe run {} --input {inputs}'");
  }
}

// As a word of the shell, and between quotes of the user's, if it can be.
std::string AsWord(const std::string& path) {
  constexpr std::string_view kPlain = "_-./+@%:,";
  const bool is_plain = std::ranges::all_of(path, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != kPlain.npos;
  });
  return is_plain ? path : ShellQuoted(path);
}

std::string Replaced(std::string text, std::string_view mark, const std::string& by) {
  for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += by.size()) {
    text.replace(at, mark.size(), by);
  }
  return text;
}

void WriteInputs(const std::string& path, const NamedValues& values) {
  SafeTensors content;
  for (const auto& [name, value] : values) {
    if (!value.is_tensor()) {
      throw Error(ErrorCode::kUnsupported, "reduce/inputs",
                  StrCat("input '", name, "' is a ", value.KindName(), ", which --input of reduce ",
                         "does not pass on"));
    }
    content.tensors.emplace_back(name, value.tensor());
  }
  WriteSafeTensors(path, content);
}

struct Outcome {
  ShellResult result;
  std::string output;
};

// Runs the test, by any number of threads at a time.
class Tester {
 public:
  explicit Tester(const ReduceArguments& o) : o_(o), test_(MakeTest(o)) {}

  /// On the program as Lathe writes it.
  bool Fails(const FailingCase& c) {
    const TemporaryFolder folder;
    const std::string model = StrCat(folder.path(), "/model", FileExtension(o_.output));
    {
      const std::lock_guard lock(mutex_);  // exporters run passes, of plug-ins, too
      SaveModel(c.program, model);
    }
    const Outcome outcome = RunOn(model, c);
    const std::lock_guard lock(mutex_);
    if (Fails(outcome)) codes_.insert(outcome.result.code);
    return Fails(outcome);
  }
  bool Fails(const Outcome& outcome) const {
    return !outcome.result.timed_out && test_.Fails(outcome.result.code);
  }
  /// On a file that is there, and the inputs of `c`.
  Outcome RunOn(const std::string& model, const FailingCase& c) const {
    const TemporaryFolder folder;
    const std::string values = folder.path() + "/inputs.safetensors";
    const bool has_inputs = !c.inputs.empty() && !c.inputs[0].values.empty();
    if (!c.inputs.empty()) WriteInputs(values, c.inputs[0].values);
    std::string text =
        Replaced(test_.text, kInputOption, has_inputs ? " --input " + AsWord(values) : "");
    text = Replaced(std::move(text), "{inputs}", AsWord(values));
    text = Replaced(std::move(text), "{}", AsWord(model));
    const std::string output = folder.path() + "/output";
    const ShellResult result = RunShellWithin(text, o_.run_timeout, output);
    return {result, ReadFile(output)};
  }

  /// With which it has failed.
  const std::set<int>& codes() const { return codes_; }

 private:
  const ReduceArguments& o_;
  const TestCommand test_;
  std::mutex mutex_;
  std::set<int> codes_;
};

std::string HowItEnded(const ReduceArguments& o, const ShellResult& result) {
  if (result.timed_out) return StrCat("takes more than ", o.run_timeout, " seconds");
  if (result.code > 128) return StrCat("is ended by signal ", result.code - 128);
  return StrCat("ends with exit code ", result.code);
}

// Of a model that does not fail as Lathe writes it: perhaps it does as it is.
Error WhyNoFailure(const ReduceArguments& o, const Tester& tester, const FailingCase& c) {
  const Outcome original = tester.RunOn(o.model.path, c);
  if (tester.Fails(original)) {
    const char* other = FileExtension(o.output) == ".onnx" ? ".lathe" : ".onnx";
    return Error(ErrorCode::kInvalidArgument, "reduce/rewritten",
                 "the model fails, but not once Lathe has read and written it")
        .At(o.model.path)
        .Hint(StrCat("candidates have the format of the output: try -o FILE", other));
  }
  const int code = original.result.code;
  Error error(ErrorCode::kInvalidArgument, "reduce/no-failure",
              StrCat("the model does not fail: the command ", HowItEnded(o, original.result)));
  error.At(o.model.path);
  AddOutput(error, original.output);
  if (code == kCannotRun || code == kNotFound) error.Hint("the shell cannot run the command");
  return error.Hint("`lathe help reduce` says which exit codes count as failing");
}

// ---- the smallest so far ----

std::string Counted(size_t count, const char* what) {
  return StrCat(count, " ", what, count == 1 ? "" : "s");
}

// "3 operations, 1 input, 1 output"
std::string SizeOf(const FailingCase& c) {
  return StrCat(Counted(CountOperations(c.program), "operation"), ", ",
                Counted(c.program.feeds().size(), "input"), ", ",
                Counted(c.program.fetches().size(), "output"));
}

std::string InputsPath(const ReduceArguments& o) { return o.output + ".inputs.safetensors"; }

// Keeps the smallest so far in the file that is asked for.
class Keeper {
 public:
  explicit Keeper(const ReduceArguments& o) : o_(o) {}

  void Update(const ReduceProgress& progress) {
    if (!progress.is_new) return;
    const std::string size = SizeOf(progress.smallest);
    if (size != size_) Words(StrCat("run ", progress.runs, ": ", size, "\n"));
    size_ = size;
    if (progress.runs > 1) Write(progress.smallest);
  }
  void Write(const FailingCase& c) {
    SaveModel(c.program, o_.output);
    const bool has_file = FileExtension(o_.output) == ".lathe" && !c.program.parameters().empty();
    if (std::exchange(has_weight_file_, has_file) && !has_file) {
      std::filesystem::remove(WeightsPath(o_.output));
    }
    if (!c.inputs.empty()) WriteInputs(InputsPath(o_), c.inputs[0].values);
    written_ = true;
  }
  bool written() const { return written_; }
  const std::string& size() const { return size_; }

 private:
  const ReduceArguments& o_;
  bool has_weight_file_ = false;
  bool written_ = false;
  std::string size_;
};

FailingCase LoadCase(const ReduceArguments& o, IrContext& context) {
  FailingCase c{o.model.Load(context)};
  if (!o.inputs.given.empty()) {
    c.inputs.push_back({"", o.inputs.Load(o.model, InputsOf(c.program))});
  }
  return c;
}

int Report(const ReduceArguments& o, const ReducedCase& r, size_t operations,
           const Tester& tester) {
  const size_t left = CountOperations(r.smallest.program);
  if (o.json) {
    const nlohmann::ordered_json document = {
        {"output", o.output}, {"operations_before", operations}, {"operations", left},
        {"runs", r.runs},     {"exit_codes", tester.codes()},    {"finished", r.finished}};
    Out(JsonText(document, 2) + "\n");
    return kFine;
  }
  if (!r.finished) Words(StrCat("stopped after --max-runs ", r.runs, "\n"));
  if (tester.codes().size() > 1) {
    std::string codes;
    for (const int code : tester.codes()) codes += StrCat(codes.empty() ? "" : ", ", code);
    Words(StrCat("note: candidates failed with exit codes ", codes,
                 "; --fail-codes takes those alone that you look for\n"));
  }
  Out(StrCat("wrote ", o.output, ": ", left, " of ", Counted(operations, "operation"), ", after ",
             Counted(static_cast<size_t>(r.runs), "run"), "\n"));
  if (!r.smallest.inputs.empty()) Out(StrCat("wrote ", InputsPath(o), "\n"));
  return kFine;
}

ReducedCase RunReduction(const ReduceArguments& o, const FailingCase& failing, Tester& tester) {
  Keeper keeper(o);
  ReduceOptions options = o.reduce;
  options.progress = [&](const ReduceProgress& p) { keeper.Update(p); };
  try {
    ReducedCase r = Reduce(failing, [&](const FailingCase& c) { return tester.Fails(c); }, options);
    keeper.Write(r.smallest);
    return r;
  } catch (Stopped& stopped) {
    if (keeper.written()) {
      stopped.error().Note(StrCat("the smallest so far is in ", o.output, ": ", keeper.size()));
    }
    throw;
  } catch (const Error& error) {
    if (error.id() != "reduce/no-failure") throw;
    throw WhyNoFailure(o, tester, failing);
  }
}

void CheckFiles(const ReduceArguments& o) {
  std::vector<std::string> read = o.model.Files();
  for (const auto& more : {DataFilesOf(o.model.path), o.inputs.Files()}) {
    read.insert(read.end(), more.begin(), more.end());
  }
  std::vector<OutputFile> written = ModelFiles(o.output);
  if (!o.inputs.given.empty()) written.push_back({InputsPath(o), FileKind::kWeights});
  o.outputs.Check(written, read);
}

int ReduceModel(const ReduceArguments& o) {
  CheckOptions(o);
  CheckFiles(o);
  IrContext context;
  const FailingCase failing = LoadCase(o, context);
  Tester tester(o);
  const ReducedCase r = RunReduction(o, failing, tester);
  return Report(o, r, CountOperations(failing.program), tester);
}

void AddTestOptions(CLI::App& app, ReduceArguments& o) {
  app.add_option("--command", o.command,
                 "run by the shell on each candidate: {} is its file (without it, the last "
                 "argument), {inputs} the file of its inputs. Exit code 0: the candidate is good; "
                 "125: nobody can tell, 126 and 127: it cannot be run; any other one, or a signal: "
                 "it fails, as the model does")
      ->type_name("COMMAND");
  app.add_option("--fail-codes", o.fail_codes,
                 "exit codes of --command that alone say that it fails")
      ->delimiter(',')
      ->check(CLI::Range(1, 255))
      ->type_name("N,...")
      ->needs("--command");
  app.add_flag("--check", o.check, "instead: `lathe check` finds a difference");
  CLI::Option* against =
      app.add_option("--against", o.against, "instead: `lathe check --against` finds a difference")
          ->check(CLI::IsMember({"onnxruntime"}))
          ->type_name("onnxruntime");
  app.add_option("--python", o.python, "as of `lathe check`")->type_name("FILE")->needs(against);
  app.add_option("--rtol", o.rtol, "as of `lathe check`")
      ->check(NumberBetween(0, HUGE_VAL))
      ->needs(against);
  app.add_option("--atol", o.atol, "as of `lathe check`")
      ->check(NumberBetween(0, HUGE_VAL))
      ->needs(against);
  app.add_flag("--crash", o.crash, "instead: `lathe run` crashes, or says that it has a bug");
  app.add_option("--run-timeout", o.run_timeout,
                 "a candidate that takes longer does not count as failing")
      ->check(NumberBetween(1e-3, 1e9))
      ->type_name("SECONDS");
}

}  // namespace

Run AddReduce(CLI::App& app) {
  auto o = std::make_shared<ReduceArguments>();
  o->model.AddTo(app);
  AddTestOptions(app, *o);
  o->inputs.AddTo(app, /*random_by_default=*/true);
  app.add_option("--max-runs", o->reduce.max_runs, "stop after so many runs of the test")
      ->check(CountBetween(1, INT64_MAX))
      ->type_name("N");
  app.add_option("--jobs,-j", o->reduce.jobs, "tests at a time; the result does not depend on it")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--output,-o", o->output,
                 "FILE.onnx or FILE.lathe, the format of the candidates, too; always the smallest "
                 "so far")
      ->type_name("FILE")
      ->required();
  app.add_flag("--json", o->json, "machine-readable output");
  o->outputs.AddTo(app);
  return [o] { return ReduceModel(*o); };
}

}  // namespace lathe::command
