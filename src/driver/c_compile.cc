#include <algorithm>
#include <memory>
#include <optional>

#include "lathe/compiler.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/driver/emit.h"
#include "lathe/lathe.h"
#include "lathe/lower/disk_cache.h"
#include "lathe/support/text.h"
#include "src/runtime/c_program.h"

using lathe::CompileOptions;
using lathe::Executable;
using lathe::Model;
using lathe::StrCat;
using lathe::runtime::Expect;
using lathe::runtime::Guarded;

namespace {

lathe_compile_options Complete(const lathe_compile_options* options) {
  return lathe::runtime::Complete(options, offsetof(lathe_compile_options, pool),
                                  "lathe_compile_options.size is not set");
}

CompileOptions OptionsOf(const lathe_compile_options& options) {
  CompileOptions result;
  result.threads = options.threads;
  result.max_bytes = options.max_bytes;
  if (options.target != nullptr) result.target = options.target;
  if (options.precision != nullptr) result.precision = lathe::PrecisionNamed(options.precision);
  if (options.cache != nullptr) result.cache = options.cache;
  result.timeout_seconds = options.timeout_seconds;
  result.cancel = lathe::runtime::TokenOf(options.cancel);
  result.team = lathe::runtime::TeamOf(options.pool);
  result.allocate = lathe::runtime::AllocateBy(options.allocator);
  if (options.progress != nullptr) {
    result.progress = [progress = options.progress, user = options.user](
                          size_t done, size_t total) { progress(user, done, total); };
  }
  return result;
}

void Log(const lathe_compile_options& options, lathe_severity severity, const std::string& id,
         const std::string& text) {
  if (options.log != nullptr) options.log(options.user, severity, id.c_str(), text.c_str());
}

void Warn(const lathe_compile_options& options, const lathe::Error& error) {
  const std::string where = error.where().empty() ? "" : error.where() + ": ";
  Log(options, LATHE_WARNING, error.id(), where + error.message());
}

void LogFunctions(const lathe_compile_options& options, const Executable& exe) {
  for (const lathe::CompiledFunctionInfo& f : exe.functions()) {
    for (const lathe::lower::Remark& r : f.remarks) {
      Log(options, LATHE_NOTE, r.code, StrCat(f.operations, ": ", r.ToString()));
    }
  }
  for (const auto& [operations, calls] : exe.interpreted()) {
    Log(options, LATHE_NOTE, "compile/interpreted",
        StrCat(calls, "x ", operations, ": evaluated, without machine code"));
  }
}

lathe::OnnxImportOptions ImportOptions(const lathe_compile_options& options) {
  return {.warn = [&options](const lathe::Error& warning) { Warn(options, warning); }};
}

void FixSizes(Model& model, const lathe_compile_options& options) {
  if (options.num_sizes == 0) return;
  Expect(options.sizes != nullptr, "lathe_compile_options.sizes is NULL");
  lathe::ShapeBindings bindings;
  for (size_t i = 0; i < options.num_sizes; ++i) {
    const lathe_size& size = options.sizes[i];
    Expect(size.name != nullptr, "the name of a size is NULL");
    bindings.symbols.emplace_back(size.name, size.value);
  }
  lathe::SpecializeShapes(model.program(), bindings);
}

void ExpectPlan(const Executable& exe) {
  if (exe.executor() != nullptr) return;
  lathe::Error error(lathe::ErrorCode::kUnsupported, "run/no-plan",
                     "the interpreter would have to run a part of the model");
  for (const std::string& obstacle : exe.obstacles()) error.Note(obstacle);
  throw error;
}

lathe_program* Compiled(Model model, const lathe_compile_options& options) {
  const CompileOptions how = OptionsOf(options);
  if (const auto refused = lathe::DiskCache::WhyRefused(how.cache)) Warn(options, *refused);
  FixSizes(model, options);
  auto exe = std::make_shared<const Executable>(lathe::Compile(model, how));
  ExpectPlan(*exe);
  LogFunctions(options, *exe);
  const lathe::runtime::Executor* executor = exe->executor();
  return lathe::runtime::NewProgram({std::move(exe), executor});
}

}  // namespace

extern "C" {

lathe_error* lathe_compile_file(const char* path, const lathe_compile_options* options,
                                lathe_program** program) {
  return Guarded([&] {
    Expect(path != nullptr && program != nullptr, "an argument is NULL");
    *program = nullptr;
    const lathe_compile_options given = Complete(options);
    *program = Compiled(lathe::Load(path, ImportOptions(given)), given);
  });
}

lathe_error* lathe_compile_memory(const void* bytes, size_t size,
                                  const lathe_compile_options* options, lathe_program** program) {
  return Guarded([&] {
    Expect(bytes != nullptr && program != nullptr, "an argument is NULL");
    *program = nullptr;
    const lathe_compile_options given = Complete(options);
    auto buffer = lathe::Buffer::Wrap(bytes, size, nullptr);
    *program = Compiled(lathe::Load(std::move(buffer), ImportOptions(given)), given);
  });
}

lathe_error* lathe_compile_to_file(const char* path, const lathe_compile_options* options,
                                   const char* executable) {
  return Guarded([&] {
    Expect(path != nullptr && executable != nullptr, "an argument is NULL");
    const lathe_compile_options given = Complete(options);
    const CompileOptions how = OptionsOf(given);
    Model model = lathe::Load(path, ImportOptions(given));
    FixSizes(model, given);
    (void)lathe::CompileToFile(model.program(), how, executable);
  });
}

}  // extern "C"
