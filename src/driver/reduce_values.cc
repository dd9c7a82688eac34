#include "src/driver/reduce_values.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <span>
#include <unordered_map>

#include "lathe/ir/walk.h"
#include "lathe/support/error.h"

namespace lathe::reduction {
namespace {

constexpr uint64_t kMostSteps = 1'000'000;  // of loops that data no longer end

// Thrown by an observer, to end a run.
struct EnoughRan {};

// Runs a program until it ends, fails or `ran` throws; `ran` gets the places of operations, in the
// order of OpWalker, and their results when they run first.
void Interpret(const Program& program, const NamedValues& inputs,
               const std::function<void(size_t place, std::span<const RtValue>)>& ran) {
  Program copy = program.Clone();
  std::unordered_map<const Operation*, size_t> places;
  for (OpWalker w(copy.block()); const Operation* op = w.Next();) places.emplace(op, places.size());
  std::vector<bool> has_run(places.size());
  InterpreterOptions options;
  options.verify = false;
  options.max_steps = kMostSteps;
  options.observer = [&](const RanOp& op) {
    const auto at = places.find(op.op);  // those of functions may be copies
    if (at == places.end() || has_run[at->second]) return;
    has_run[at->second] = true;
    ran(at->second, op.outputs);
  };
  try {
    (void)Interpreter(copy, std::move(options)).Run(inputs);
  } catch (const Error&) {
    return;  // what has run until then is known
  } catch (const EnoughRan&) {
    return;
  }
}

[[noreturn]] void TryInChild(const Program& program, const NamedValues& inputs, int fd) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  Interpret(program, inputs, [fd](size_t, std::span<const RtValue>) {
    const char byte = 0;
    if (write(fd, &byte, 1) != 1) _exit(1);
  });
  _exit(0);
}

size_t CountUntilEnd(int fd) {
  size_t count = 0;
  char bytes[4096];
  while (true) {
    const ssize_t n = read(fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return count;
    count += static_cast<size_t>(n);
  }
}

// How many operations run, and not into a crash.
size_t CountThatRun(const Program& program, const NamedValues& inputs) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(ErrorCode::kIo, "io/pipe", std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) TryInChild(program, inputs, ends[1]);
  close(ends[1]);
  const size_t count = child > 0 ? CountUntilEnd(ends[0]) : 0;
  close(ends[0]);
  if (child < 0) throw Error(ErrorCode::kIo, "io/fork", "no process for the interpreter");
  waitpid(child, nullptr, 0);
  return count;
}

}  // namespace

CaseValues::Results CaseValues::Compute(const NamedValues& inputs) const {
  size_t count = 0;
  for (OpWalker w(case_->program.block()); w.Next() != nullptr;) ++count;
  Results results(count);
  size_t left = CountThatRun(case_->program, inputs);
  if (left == 0) return results;
  Interpret(case_->program, inputs, [&](size_t place, std::span<const RtValue> outputs) {
    results[place].assign(outputs.begin(), outputs.end());
    if (--left == 0) throw EnoughRan();
  });
  return results;
}

const std::vector<RtValue>& CaseValues::ResultsOf(size_t set, size_t index) {
  if (sets_.empty()) sets_.resize(case_->inputs.size());
  if (!sets_[set]) sets_[set] = Compute(case_->inputs[set].values);
  return sets_[set]->at(index);
}

}  // namespace lathe::reduction
