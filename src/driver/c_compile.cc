#include <algorithm>
#include <memory>
#include <optional>

#include "lathe/compiler.h"
#include "lathe/dialect/shape_inference.h"
#include "lathe/driver/emit.h"
#include "lathe/lathe.h"
#include "lathe/support/text.h"
#include "src/runtime/c_program.h"

using lathe::CompileOptions;
using lathe::Executable;
using lathe::Model;
using lathe::StrCat;
using lathe::runtime::Expect;
using lathe::runtime::Guarded;

namespace {

CompileOptions OptionsOf(const lathe_compile_options* options) {
  if (options == nullptr) return {};
  Expect(options->size >= sizeof(*options), "lathe_compile_options.size is not set");
  CompileOptions result;
  result.threads = options->threads;
  result.max_bytes = options->max_bytes;
  if (options->target != nullptr) result.target = options->target;
  if (options->precision != nullptr) result.precision = lathe::PrecisionNamed(options->precision);
  if (options->cache != nullptr) result.cache = options->cache;
  result.timeout_seconds = options->timeout_seconds;
  result.cancel = lathe::runtime::TokenOf(options->cancel);
  return result;
}

void FixSizes(Model& model, const lathe_compile_options* options) {
  if (options == nullptr || options->num_sizes == 0) return;
  Expect(options->sizes != nullptr, "lathe_compile_options.sizes is NULL");
  lathe::ShapeBindings bindings;
  for (size_t i = 0; i < options->num_sizes; ++i) {
    const lathe_size& size = options->sizes[i];
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

lathe_program* Compiled(Model model, const lathe_compile_options* options) {
  const CompileOptions how = OptionsOf(options);
  FixSizes(model, options);
  auto exe = std::make_shared<const Executable>(lathe::Compile(model, how));
  ExpectPlan(*exe);
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
    *program = Compiled(lathe::Load(path), options);
  });
}

lathe_error* lathe_compile_memory(const void* bytes, size_t size,
                                  const lathe_compile_options* options, lathe_program** program) {
  return Guarded([&] {
    Expect(bytes != nullptr && program != nullptr, "an argument is NULL");
    *program = nullptr;
    *program = Compiled(lathe::Load(lathe::Buffer::Wrap(bytes, size, nullptr)), options);
  });
}

lathe_error* lathe_compile_to_file(const char* path, const lathe_compile_options* options,
                                   const char* executable) {
  return Guarded([&] {
    Expect(path != nullptr && executable != nullptr, "an argument is NULL");
    Model model = lathe::Load(path);
    const CompileOptions how = OptionsOf(options);
    FixSizes(model, options);
    (void)lathe::CompileToFile(model.program(), how, executable);
  });
}

}  // extern "C"
