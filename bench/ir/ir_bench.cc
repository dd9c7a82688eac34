// Reads, verifies and prints a file of text, and says how long each took:
//   bench_ir FILE [--repeat N] [--locations] [--output FILE]
// Runs a command with its output thrown away, and says how long it took and its peak memory. (A
// parent with little memory of its own: a child starts with its parent's peak.)
//   bench_ir --run COMMAND ARGUMENT...
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "lathe/dialect/all.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  const char* file = nullptr;
  const char* output = nullptr;
  int repeat = 1;
  bool locations = false;
};

Arguments Parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--repeat") == 0 && i + 1 < argc) {
      a.repeat = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--output") == 0 && i + 1 < argc) {
      a.output = argv[++i];
    } else if (std::strcmp(argv[i], "--locations") == 0) {
      a.locations = true;
    } else {
      a.file = argv[i];
    }
  }
  return a;
}

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

size_t PeakKib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") {
      size_t kib = 0;
      status >> kib;
      return kib;
    }
  }
  return 0;
}

void RunOnce(const Arguments& args) {
  const auto start = Clock::now();
  auto context = std::make_unique<lathe::IrContext>();
  lathe::LoadAllDialects(*context);
  const double load = MillisecondsSince(start);

  const auto read_start = Clock::now();
  std::optional<lathe::Program> program = lathe::ParseProgramFile(*context, args.file);
  const double read = MillisecondsSince(read_start);

  const auto verify_start = Clock::now();
  lathe::VerifyOrThrow(*program);
  const double verify = MillisecondsSince(verify_start);
  const size_t peak = PeakKib();

  std::FILE* out = args.output == nullptr ? nullptr : std::fopen(args.output, "w");
  const auto print_start = Clock::now();
  size_t bytes = 0;
  lathe::PrintOptions options;
  options.file_locations = args.locations;
  lathe::PrintTo(*program, options, [&](std::string_view piece) {
    bytes += piece.size();
    if (out != nullptr) std::fwrite(piece.data(), 1, piece.size(), out);
  });
  const double print = MillisecondsSince(print_start);
  if (out != nullptr) std::fclose(out);

  size_t ops = 0;
  for (lathe::OpWalker w(program->module()); w.Next() != nullptr;) ++ops;
  const auto drop_start = Clock::now();
  program.reset();
  context.reset();
  const double drop = MillisecondsSince(drop_start);
  std::printf(
      "{\"ops\": %zu, \"load_ms\": %.3f, \"read_ms\": %.3f, \"verify_ms\": %.3f, "
      "\"print_ms\": %.3f, \"drop_ms\": %.3f, \"bytes\": %zu, \"read_peak_kib\": %zu, "
      "\"peak_kib\": %zu}\n",
      ops, load, read, verify, print, drop, bytes, peak, PeakKib());
}

int RunCommand(char** command) {
  const auto start = Clock::now();
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    if (null >= 0) dup2(null, STDOUT_FILENO);
    execvp(command[0], command);
    _exit(127);
  }
  int status = 0;
  struct rusage usage{};
  if (child < 0 || wait4(child, &status, 0, &usage) != child) return 70;
  const double wall = MillisecondsSince(start);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::printf("{\"wall_ms\": %.3f, \"peak_kib\": %ld, \"status\": %d}\n", wall, usage.ru_maxrss,
              code);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::strcmp(argv[1], "--run") == 0) return RunCommand(argv + 2);
  const Arguments args = Parse(argc, argv);
  if (args.file == nullptr) {
    std::fprintf(
        stderr,
        "usage: bench_ir FILE [--repeat N] [--locations] [--output FILE], or --run COMMAND...\n");
    return 2;
  }
  try {
    for (int i = 0; i < args.repeat; ++i) RunOnce(args);
  } catch (const lathe::Error& error) {
    std::fputs(error.Render().c_str(), stderr);
    return 1;
  }
  return 0;
}
