#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lathe/support/buffer.h"
#include "tools/lathe/command.h"

namespace lathe::command {

void AddSandboxOption(CLI::App& app, bool& sandbox);

/// Memory that a sandboxed command writes its result to, as to its standard output.
class SandboxedResult {
 public:
  SandboxedResult();
  SandboxedResult(const SandboxedResult&) = delete;
  SandboxedResult& operator=(const SandboxedResult&) = delete;
  ~SandboxedResult();

  int descriptor() const { return fd_; }
  /// What was written; from here on nobody can change it.
  std::shared_ptr<Buffer> Read() const;

 private:
  int fd_;
};

/// Runs a part of a command, which gets the options that hold there, in a process that can only
/// compute, and read the model, the files beside it and `files`. What it prints is shown without
/// control characters; with `result`, its standard output goes there. Gives its exit code. Errors:
/// those of RunInSandbox; UsageError for options that need what a sandbox has not.
int RunSandboxed(const ModelOptions& model, const CompileOptions& options,
                 const std::vector<std::string>& files, const SandboxedResult* result,
                 const std::function<int(const CompileOptions&)>& work);

}  // namespace lathe::command
