// Finds cases and runs each in a process of its own.

#include "lathe/driver/conformance.h"

#include <fcntl.h>
#include <poll.h>
#include <re2/re2.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "lathe/codegen/code_generator.h"
#include "lathe/support/budget.h"
#include "lathe/support/buffer.h"
#include "lathe/support/parallel.h"
#include "lathe/support/printable.h"
#include "src/driver/conformance_json.h"

namespace lathe {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

void AddCases(const std::string& directory, std::vector<std::string>& cases) {
  std::error_code ignored;
  if (fs::exists(directory + "/model.onnx", ignored)) {
    cases.push_back(directory);
    return;
  }
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(directory, kOptions, ignored), end; it != end;
       it.increment(ignored)) {
    if (it->path().filename() == "model.onnx") {
      cases.push_back(it->path().parent_path().string());
    }
  }
}

/// A case that runs in a child process.
class Running {
 public:
  Running(size_t index, const std::string& directory, const ConformanceOptions& options);
  size_t index() const { return index_; }
  int fd() const { return fd_; }
  bool TimedOut() const { return Clock::now() > deadline_; }
  /// Takes what the child wrote; false at its end.
  bool Read();
  void Kill() { kill(pid_, SIGKILL); }
  /// Waits for the child, which has closed its end, and gives the result.
  CaseResult Finish(bool timed_out);

 private:
  size_t index_;
  std::string directory_;
  pid_t pid_ = -1;
  int fd_ = -1;
  std::string text_;
  Clock::time_point start_;
  Clock::time_point deadline_;
};

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

[[noreturn]] void RunChild(const std::string& directory, const ConformanceOptions& options,
                           int fd) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (options.memory_limit != 0) Buffer::SetAllocationCap(options.memory_limit);
  WriteAll(fd, JsonText(CaseToJson(RunCase(directory, options))));
  _exit(0);
}

Running::Running(size_t index, const std::string& directory, const ConformanceOptions& options)
    : index_(index), directory_(directory), start_(Clock::now()) {
  deadline_ = start_ + std::chrono::duration_cast<Clock::duration>(
                           std::chrono::duration<double>(options.time_limit));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(ErrorCode::kIo, "io/pipe", std::strerror(errno));
  }
  pid_ = fork();
  if (pid_ < 0) throw Error(ErrorCode::kIo, "io/fork", std::strerror(errno));
  if (pid_ == 0) RunChild(directory, options, ends[1]);
  close(ends[1]);
  fd_ = ends[0];
}

bool Running::Read() {
  char bytes[4096];
  const ssize_t n = read(fd_, bytes, sizeof bytes);
  if (n > 0) text_.append(bytes, static_cast<size_t>(n));
  return n > 0;
}

CaseResult Running::Finish(bool timed_out) {
  close(fd_);
  int status = 0;
  waitpid(pid_, &status, 0);
  CaseResult result;
  const auto json = nlohmann::json::parse(text_, nullptr, false);
  if (json.is_object()) return CaseFromJson(json);
  result = DescribeCase(directory_);
  result.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  result.id = timed_out ? "conformance/timeout" : "conformance/crash";
  result.reason = timed_out ? "took longer than the time limit"
                  : WIFSIGNALED(status)
                      ? StrCat("the process was ended by signal ", WTERMSIG(status))
                      : StrCat("the process ended with ", WEXITSTATUS(status));
  return result;
}

/// Up to `jobs` cases at a time; results in order of the list.
class Pool {
 public:
  Pool(const std::vector<std::string>& directories, const ConformanceOptions& options)
      : directories_(directories), options_(options), results_(directories.size()) {}

  std::vector<CaseResult> Run() {
    const size_t jobs = options_.jobs > 0 ? static_cast<size_t>(options_.jobs)
                                          : static_cast<size_t>(HardwareThreads());
    while (next_ < directories_.size() || !running_.empty()) {
      while (running_.size() < jobs && next_ < directories_.size()) {
        running_.push_back(std::make_unique<Running>(next_, directories_[next_], options_));
        ++next_;
      }
      Step();
    }
    return std::move(results_);
  }

 private:
  void Step() {
    CheckBudget();
    std::vector<pollfd> fds;
    for (const auto& r : running_) fds.push_back({r->fd(), POLLIN, 0});
    constexpr int kTickMs = 100;
    poll(fds.data(), fds.size(), kTickMs);
    for (size_t i = fds.size(); i-- > 0;) {
      const bool timed_out = running_[i]->TimedOut();
      if (timed_out) running_[i]->Kill();
      if (timed_out || (fds[i].revents != 0 && !running_[i]->Read())) Retire(i, timed_out);
    }
  }

  void Retire(size_t i, bool timed_out) {
    CaseResult& result = results_[running_[i]->index()];
    result = running_[i]->Finish(timed_out);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    ++done_;
    if (options_.progress) options_.progress(result, done_, directories_.size());
  }

  const std::vector<std::string>& directories_;
  const ConformanceOptions& options_;
  std::vector<CaseResult> results_;
  std::vector<std::unique_ptr<Running>> running_;
  size_t next_ = 0;
  size_t done_ = 0;
};

void ApplyFilter(const std::string& filter, std::vector<std::string>& cases) {
  if (filter.empty()) return;
  const re2::RE2 pattern(filter, re2::RE2::Quiet);
  if (!pattern.ok()) {
    throw Error(
        ErrorCode::kInvalidArgument, "conformance/filter",
        StrCat("the filter ", Quote(filter), " is not a regular expression: ", pattern.error()))
        .Hint("filters follow https://github.com/google/re2/wiki/Syntax");
  }
  std::erase_if(cases, [&](const std::string& directory) {
    const fs::path path(directory);
    const std::string name =
        StrCat(path.parent_path().filename().string(), "/", path.filename().string());
    return !re2::RE2::PartialMatch(name, pattern);
  });
}

}  // namespace

std::vector<std::string> FindCases(const std::vector<std::string>& directories) {
  std::vector<std::string> cases;
  for (const std::string& directory : directories) {
    if (!fs::is_directory(directory)) {
      throw Error(ErrorCode::kNotFound, "io/open", "there is no such folder")
          .At(directory)
          .Hint("scripts/onnx_cases.py writes the official cases");
    }
    AddCases(fs::path(directory).lexically_normal().string(), cases);
  }
  std::sort(cases.begin(), cases.end());
  cases.erase(std::unique(cases.begin(), cases.end()), cases.end());
  return cases;
}

ConformanceReport RunConformance(const std::vector<std::string>& directories,
                                 const ConformanceOptions& options) {
  std::vector<std::string> cases = FindCases(directories);
  ApplyFilter(options.filter, cases);
  if (cases.empty()) {
    throw Error(ErrorCode::kNotFound, "conformance/no-cases",
                "there are no cases (folders with a model.onnx) here, or the filter leaves none")
        .At(directories[0])
        .Hint("scripts/onnx_cases.py writes the official cases");
  }
  if (!options.interpret) codegen::CodeGenerator::Get();  // loaded once, not by every process
  ConformanceReport report;
  report.cases = Pool(cases, options).Run();
  for (const CaseResult& c : report.cases) {
    report.passed += c.outcome == CaseOutcome::kPassed ? 1 : 0;
    report.failed += c.outcome == CaseOutcome::kFailed ? 1 : 0;
    report.refused += c.outcome == CaseOutcome::kRefused ? 1 : 0;
  }
  return report;
}

}  // namespace lathe
