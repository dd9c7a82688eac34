#include <exception>
#include <new>

#include "lathe/support/error.h"
#include "lathe/support/version.h"
#include "tools/lathe/command.h"
#include "tools/lathe/limits.h"

namespace lathe::command {

namespace {

int Report(const Error& error) {
  fflush(stdout);
  Draw(stderr, error.Render(UseColor(2)));
  return error.code() == ErrorCode::kInternal ? kOurBug : kInputAtFault;
}

}  // namespace

int Guarded(const Run& run) {
  try {
    const int code = run();
    if (fflush(stdout) != 0) {
      Words("error[io/stdout]: could not write the whole output\n");
      return kInputAtFault;
    }
    return code;
  } catch (const Error& error) {
    return Report(error);
  } catch (const UsageError& error) {
    const std::string hint = error.hint.empty() ? "" : StrCat("   = help: ", error.hint, "\n");
    Words(StrCat("error[usage]: ", error.what(), "\n", hint, "   = help: see 'lathe --help'\n"));
    return kUsage;
  } catch (const std::bad_alloc&) {
    return Report(internal::OutOfMemory());
  } catch (const std::exception& error) {
    return Report(Error(ErrorCode::kInternal, "internal/exception", error.what()));
  }
}

namespace {
std::string CommandsOf(const CLI::App& app) {
  std::string list;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    list += StrCat(list.empty() ? "" : ", ", sub->get_name());
  }
  return list;
}

/// Words of the command line that are no option and no command, with what they may have meant.
int ReportUsage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* at = &app;
  for (const CLI::App* sub : app.get_subcommands()) at = sub;
  std::vector<std::string> known;
  for (const CLI::Option* o : at->get_options()) {
    for (const std::string& name : o->get_lnames()) known.push_back("--" + name);
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (at == &app) known.push_back(sub->get_name());
  }
  std::string hints;
  for (const std::string& word : app.remaining(true)) {
    if (const std::string near = DidYouMean(word, known); !near.empty()) {
      hints += StrCat("   = help: ", near, "\n");
    }
  }
  if (hints.empty() && at == &app)
    hints = StrCat("   = help: the commands are ", CommandsOf(app), "\n");
  const std::string command = at == &app ? "lathe" : "lathe " + at->get_name();
  const std::vector<std::string> words = app.remaining(true);
  const bool unknown = at == &app && !words.empty() && !words[0].starts_with("-");
  const std::string what =
      unknown ? StrCat("there is no command '", words[0], "'") : std::string(error.what());
  Words(StrCat("error[usage]: ", what, "\n", hints, "   = help: see '", command, " --help'\n"));
  return kUsage;
}

int Main(int argc, char** argv) {
  CLI::App app{"Lathe: a deep-learning graph compiler and runtime"};
  app.set_version_flag("--version", StrCat("lathe ", Version()));
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 fine, 1 the input is at fault, 2 wrong usage, 3 a check failed, 70 a bug "
      "of ours.\n'lathe help COMMAND' explains a command.");
  struct Entry {
    CLI::App* sub;
    Run run;
    OnInterrupt interrupt;
  };
  std::vector<Entry> entries;
  LimitOptions limits;
  const auto add = [&](const char* name, const char* about, Run (*make)(CLI::App&),
                       OnInterrupt interrupt = OnInterrupt::kEnds) {
    CLI::App* sub = app.add_subcommand(name, about);
    entries.push_back({sub, make(*sub), interrupt});
    limits.AddTo(*sub);
  };
  add("run", "run a model on files, pictures or random data", AddRun);
  add("generate", "continue sequences of token ids with a decoder", AddGenerate);
  add("compile", "make an executable of a model, which runs without the compiler", AddCompile);
  add("inspect", "show what a model or an executable is made of", AddInspect);
  add("verify", "check that an executable is as it was written, weights included", AddVerify);
  add("opt", "read, verify and print or convert a program", AddOpt);
  add("check", "compare the compiled program with the interpreter", AddCheck);
  add("diff", "compare two programs, or the results of two runs", AddDiff);
  add("extract", "write a part of a model, between values, as a model", AddExtract);
  add("reduce", "shrink a model that fails to a small one that fails too", AddReduce);
  add("quantize", "make layers of a model multiply bytes, with ranges measured on data",
      AddQuantize);
  add("bench", "time a compiled program", AddBench);
  add("explain", "show groups, strategies, what they cost and could cost", AddExplain);
  add("train", "train a model on data", AddTrain, OnInterrupt::kIsLooked);
  add("tune", "measure implementations; later builds take the fastest", AddTune);
  add("profile", "show where the time of a run goes", AddProfile);
  add("conformance", "run official ONNX test cases", AddConformance);
  add("ops", "explain the ops of programs", AddOps);
  add("help", "explain a command", AddHelp);
  add("completion", "print a script with which a shell completes commands", AddCompletion);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return ReportUsage(app, error);
  }
  for (const Entry& entry : entries) {
    if (!entry.sub->parsed()) continue;
    return EndAsInterrupted(Guarded([&] { return RunWithin(limits, entry.interrupt, entry.run); }));
  }
  return kUsage;
}

}  // namespace

}  // namespace lathe::command

int main(int argc, char** argv) { return lathe::command::Main(argc, argv); }
