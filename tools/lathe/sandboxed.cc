#include "tools/lathe/sandboxed.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "lathe/codegen/code_generator.h"
#include "lathe/codegen/target.h"
#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "lathe/support/processors.h"
#include "lathe/support/sandbox.h"

namespace lathe::command {
namespace {

namespace fs = std::filesystem;

// The model, and weights that may lie beside it.
std::vector<std::string> FilesOf(const std::string& model) {
  std::vector<std::string> files = {model, "/proc/cpuinfo"};  // for which code is, or was, made
  const fs::path folder = fs::path(model).parent_path();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored)) {
    const bool hidden = entry.path().filename().string().starts_with('.');
    if (!hidden && entry.symlink_status(ignored).type() == fs::file_type::regular) {
      files.push_back(entry.path().string());
    }
  }
  return files;
}

// What must be known, or loaded, before files can no longer be opened.
CompileOptions Prepared(CompileOptions options) {
  options.cache.clear();
  if (options.threads == 0) options.threads = UsableCores();
  if (options.max_bytes == 0) options.max_bytes = UsableMemory() / 5 * 4;
  (void)codegen::Target::Host();
  try {
    (void)codegen::CodeGenerator::Get();
  } catch (const Error&) {  // without it, too, there is something to say or to interpret
  }
  return options;
}

}  // namespace

void AddSandboxOption(CLI::App& app, bool& sandbox) {
  app.add_flag("--sandbox", sandbox,
               "for models that nobody trusts: work in a process without network and files");
}

SandboxedResult::SandboxedResult()
    : fd_(memfd_create("lathe-result", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (fd_ < 0) {
    throw Error(ErrorCode::kUnsupported, "sandbox/unsupported",
                StrCat("there is no memory for the result: ", strerror(errno)));
  }
}

SandboxedResult::~SandboxedResult() { close(fd_); }

std::shared_ptr<Buffer> SandboxedResult::Read() const {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (fcntl(fd_, F_ADD_SEALS, kSeals) != 0) {
    throw Error(ErrorCode::kIo, "sandbox/result",
                StrCat("the result can still be changed: ", strerror(errno)));
  }
  return Buffer::MapDescriptor(fd_, "the result of the sandbox");
}

int RunSandboxed(const ModelOptions& model, const CompileOptions& options,
                 const std::vector<std::string>& files, const SandboxedResult* result,
                 const std::function<int(const CompileOptions&)>& work) {
  if (!model.plugins.empty()) throw UsageError("--sandbox loads no libraries: not with --load");
  if (!options.external.empty()) {
    throw UsageError("--sandbox loads no compilers of others: not with --external");
  }
  const CompileOptions inside = Prepared(options);
  SandboxOptions sandbox{.readable = FilesOf(model.path),
                         .result = result == nullptr ? -1 : result->descriptor(),
                         .output = [](std::string_view text) { Out(text); },
                         .errors = [](std::string_view text) { Words(text); }};
  if (!options.records.empty()) sandbox.readable.push_back(options.records);
  sandbox.readable.insert(sandbox.readable.end(), files.begin(), files.end());
  // What ends the work is told here, in the child; the budget is that of this process.
  const auto ended = [&] { return RunUnder({}, [&] { return work(inside); }); };
  return RunInSandbox(sandbox, [&] { return Guarded(ended); });
}

}  // namespace lathe::command
