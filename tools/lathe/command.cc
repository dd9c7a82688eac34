#include "tools/lathe/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "lathe/dialect/all.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/driver/model_file.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/lower/disk_cache.h"
#include "lathe/support/clock.h"
#include "lathe/support/printable.h"
#include "tools/lathe/inputs.h"
#include "tools/lathe/structure.h"

namespace lathe::command {

void ModelOptions::AddTo(CLI::App& app, const char* what) {
  app.add_option("model", path, what)->required();
  app.add_option("--load", plugins, "shared library with dialects, ops or types to register")
      ->allow_extra_args(false)
      ->type_name("LIB");
  app.add_flag("--allow-unregistered", allow_unregistered,
               "accept text with ops that no dialect registers");
  app.add_flag("--strict", strict,
               "what an ONNX file says of its values and does not hold is an error, not a warning");
  app.add_option("--dim", dims, "fix sizes of symbolic dims of the inputs, such as N=1,H=320")
      ->type_name("NAME=N,...");
  app.add_option("--shape", shapes,
                 "fix sizes of an input, such as image=1,3,H,640; names stay open")
      ->type_name("INPUT=N,...");
}

namespace {

// Where programs keep what they can make again (XDG base directory specification).
std::string UserCacheFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return StrCat(cache, "/lathe");
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? StrCat(home, "/.cache/lathe") : "";
}

void Warn(const Error& error) {
  std::string text = StrCat("warning[", error.id(), "]: ", error.message(), "\n");
  if (!error.where().empty()) text += StrCat("  --> ", error.where(), "\n");
  for (const std::string& hint : error.hints()) text += StrCat("   = help: ", hint, "\n");
  Words(text);
}

}  // namespace

void AddCompileOptions(CLI::App& app, CompileOptions& options, bool* all_levels) {
  options.cache = UserCacheFolder();
  auto* folder = app.add_option("--cache", options.cache, "where machine code is kept")
                     ->type_name("DIR")
                     ->default_str("~/.cache/lathe");
  app.add_option_function<uint64_t>(
         "--cache-limit-mb", [&options](uint64_t mb) { options.cache_limit = mb << 20; },
         "of all that is kept there: what was not used for longest goes; 0: no limit")
      ->check(CountBetween(0, uint64_t{1} << 30))
      ->default_str("1024");
  // A command that reads a model has the flag already.
  CLI::Option* strict = app.get_option_no_throw("--strict");
  if (strict == nullptr) strict = app.add_flag("--strict");
  strict->description(StrCat(strict->get_description(),
                             strict->get_description().empty() ? "" : "; ",
                             "a function that is not computed as it should be is an error, not a "
                             "remark"));
  app.parse_complete_callback([&options, strict] {
    options.strict = strict->count() != 0;
    if (const auto refused = DiskCache::WhyRefused(options.cache)) {
      Words(StrCat("warning: ", refused->message(), "\n  --> ", refused->where(),
                   "\n   = help: ", refused->hints()[0], "\n"));
      options.cache.clear();
    }
  });
  app.add_flag_callback(
         "--no-cache", [&options] { options.cache.clear(); }, "compile everything, keep nothing")
      ->excludes(folder);
  app.add_option("--target", options.target,
                 "instruction set: x86-64, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, amx, "
                 "aarch64 (default: the best of this machine)")
      ->type_name("TARGET");
  app.add_option_function<std::string>(
         "--precision",
         [&options, all_levels](const std::string& name) {
           if (all_levels != nullptr) *all_levels = name == "all";
           if (all_levels != nullptr && *all_levels) return;
           try {
             options.precision = PrecisionNamed(name);
           } catch (const Error& error) {
             throw CLI::ValidationError("--precision",
                                        StrCat(error.message(), "; ", error.hints()[0]));
           }
         },
         StrCat("what kernels of f32 may do to take less time: strict, f32, high, bf16",
                all_levels != nullptr ? "; all: a table of what each costs" : "",
                " (docs/precision.md)"))
      ->type_name("PRECISION")
      ->default_str("f32");
  app.add_option("--level", options.level, "of optimization: steps at this level and below run")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_option("--disable", options.disabled, "leave this pass out; graph_fuse_partition: fusion")
      ->allow_extra_args(false)
      ->type_name("PASS");
  app.add_option("--enable", options.enabled, "run this pass though its level is higher")
      ->allow_extra_args(false)
      ->type_name("PASS");
  app.add_option("--external", options.external,
                 "compiler of others that gets all it takes: onednn, or one of a plug-in")
      ->type_name("NAME");
  app.add_option("--records", options.records, "what 'lathe tune' measured: the fastest is taken")
      ->type_name("FILE");
  app.add_flag("--check-accesses", options.check_accesses,
               "compiled code that compares each access of memory with the sizes of its arguments");
  app.add_option("--threads", options.threads, "for parallel loops; 0: one per processor")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

std::vector<std::string> ModelOptions::Files() const {
  std::vector<std::string> files = FilesOfModel(path);
  files.insert(files.end(), plugins.begin(), plugins.end());
  return files;
}

void OutputOptions::AddTo(CLI::App& app) {
  app.add_flag("--force", force, "replace files that are inputs, or that Lathe has not written");
}

void OutputOptions::Check(std::span<const OutputFile> outputs,
                          std::span<const std::string> inputs) const {
  if (!force) CheckOutputs(outputs, inputs);
}

namespace {

Program LoadFor(const ModelOptions& o, IrContext& context, WeightFile weights) {
  LoadAllDialects(context);
  for (const std::string& plugin : o.plugins) context.LoadPlugin(plugin);
  context.allow_unregistered_ops(o.allow_unregistered);
  const bool only_text = o.without_weights && DetectModelFormat(o.path) == ModelFormat::kText;
  Program program = only_text
                        ? ParseProgramFile(context, o.path)
                        : LoadModel(context, o.path, {.strict = o.strict, .warn = Warn}, weights);
  if (!only_text && LacksWeights(program)) {
    Warn(Error(ErrorCode::kNotFound, "model/weights",
               "there is no weight file beside it: this is the structure alone")
             .At(o.path)
             .Hint(StrCat("put its weights into '", WeightsPath(o.path), "'")));
  }
  VerifyLoaded(program, o.path);
  if (!o.dims.empty() || !o.shapes.empty()) {
    SpecializeShapes(program, {.symbols = GivenSizes(o, InputsOf(program))});
  }
  return program;
}

}  // namespace

Program ModelOptions::Load(IrContext& context) const {
  return LoadFor(*this, context, WeightFile::kNeeded);
}

Program LoadStructure(const ModelOptions& model, IrContext& context) {
  return LoadFor(model, context, WeightFile::kIfThere);
}

bool IsTerminal(int fd) { return isatty(fd) != 0; }

bool UseColor(int fd) {
  const char* refused = std::getenv("NO_COLOR");
  return IsTerminal(fd) && (refused == nullptr || *refused == '\0');
}

Progress::Progress(std::string what) : what_(std::move(what)), start_(SecondsNow()) {}

Progress::~Progress() {
  if (shown_) Draw(stderr, "\r\x1b[K");
}

void Progress::Update(size_t done, size_t total, std::string_view note) {
  const double now = SecondsNow();
  if (!IsTerminal(2) || now - start_ < 1 || now - last_ < 0.1) return;
  last_ = now;
  shown_ = true;
  constexpr size_t kWidth = 30;
  const size_t filled = total == 0 ? 0 : kWidth * done / total;
  Draw(stderr,
       StrCat("\r", what_, " [", std::string(filled, '#'), std::string(kWidth - filled, '.'), "] ",
              done, " of ", total, note.empty() ? "" : "  ", note, "\x1b[K"));
}

CompileOptions Shown(CompileOptions options, Progress& progress) {
  if (!options.progress) {
    options.progress = [&](size_t done, size_t total) { progress.Update(done, total); };
  }
  return options;
}

CLI::Validator CountBetween(uint64_t least, uint64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    const auto value = ParseUint(text);
    if (value && *value >= least && *value <= most) return "";
    return fmt::format("Value {} not in range {} to {}", text, least, most);
  };
  return CLI::Validator(check, fmt::format("UINT in [{} - {}]", least, most));
}

CLI::Validator NumberBetween(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    const auto value = ParseDouble(text);
    if (value && *value >= least && *value <= most) return "";
    return fmt::format("Value {} not in range {} to {}", text, least, most);
  };
  return CLI::Validator(check, fmt::format("FLOAT in [{} - {}]", least, most));
}

std::pair<std::string, std::string> SplitAssignment(const std::string& option,
                                                    const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0) {
    throw UsageError(StrCat(option, " takes NAME=VALUE, not '", text, "'"));
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

void NameModel(Error& error, const std::string& path) {
  const std::string where = error.where();
  if (!where.starts_with(path)) error.At(where.empty() ? path : StrCat(path, ": ", where));
}

namespace {
bool is_silent = false;
}  // namespace

void Out(std::string_view text) { Draw(stdout, Printable(text)); }
void Words(std::string_view text) { Draw(stderr, Printable(text)); }
void Draw(std::FILE* to, std::string_view text) {
  if (!is_silent) fwrite(text.data(), 1, text.size(), to);
}
void Silence(bool silent) { is_silent = silent; }

}  // namespace lathe::command
