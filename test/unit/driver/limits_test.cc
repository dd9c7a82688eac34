#include <chrono>
#include <functional>

#include "lathe/driver/executable.h"
#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"

// Limits of time and memory hold whatever is being done: compiling, folding, evaluating, running.
namespace lathe {
namespace {

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class LimitsTest : public testing::ProgramTest {
 protected:
  Error ErrorOf(const std::function<void()>& work) {
    Error caught(ErrorCode::kInternal, "none", "no error");
    // Far less than the work would take, far more than it should.
    EXPECT_LT(SecondsOf([&] {
                try {
                  work();
                } catch (const Error& error) {
                  caught = error;
                }
              }),
              20);
    return caught;
  }
  void AddParameter(Program& program, const char* name, const Shape& shape) {
    program.parameters().Insert(StrAttribute::Get(context_, name),
                                {Tensor(ElementType::kF32, shape), false});
  }
};

std::string NotesOf(const Error& error) {
  std::string all;
  for (const Note& note : error.notes()) all += note.text + ";";
  return all;
}

// About 7 * 10^10 multiplications: a second of compiled code, a minute of the interpreter.
constexpr const char* kLong = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[4096, 4096], f32>
    %y = nn.matmul(%x, %x) : (v_tensor<[4096, 4096], f32>, v_tensor<[4096, 4096], f32>) -> v_tensor<[4096, 4096], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[4096, 4096], f32>) -> ())";

// One row, so that there is nothing to share: 5 * 10^4 steps of a recurrence, one after another.
constexpr const char* kSerial = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[50000, 1, 256], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[1, 256, 256], f32>
    %r = builtin.get_parameter() {name = "r"} : () -> v_tensor<[1, 256, 256], f32>
    %y, %h = nn.rnn(%x, %w, %r) {hidden_size = 256} : (v_tensor<[50000, 1, 256], f32>, v_tensor<[1, 256, 256], f32>, v_tensor<[1, 256, 256], f32>) -> (v_tensor<[50000, 1, 1, 256], f32>, v_tensor<[1, 1, 256], f32>)
    nn.fetch(%h) {name = "h"} : (v_tensor<[1, 1, 256], f32>) -> ())";

TEST_F(LimitsTest, CompiledKernelsEndInTime) {
  codegen::NeedCodeGenerator();
  const Program program = Parse(kLong);
  for (const int threads : {1, 2}) {
    const Executable made(program, {.threads = threads});
    const NamedValues inputs = {{"x", Tensor(ElementType::kF32, {4096, 4096})}};
    const Error error = ErrorOf([&] { (void)made.Run(inputs, {.timeout_seconds = 0.2}); });
    EXPECT_EQ(error.id(), "limit/time");
    EXPECT_NE(NotesOf(error).find("matmul"), std::string::npos) << NotesOf(error);
  }
}

TEST_F(LimitsTest, SerialLoopsOfCompiledKernelsEndInTime) {
  codegen::NeedCodeGenerator();
  Program program = Parse(kSerial);
  AddParameter(program, "w", {1, 256, 256});
  AddParameter(program, "r", {1, 256, 256});
  const Executable made(program, {.threads = 1});
  const NamedValues inputs = {{"x", Tensor(ElementType::kF32, {50000, 1, 256})}};
  (void)made.Run(inputs);
  const double whole = SecondsOf([&] { (void)made.Run(inputs); });
  const double cut = SecondsOf([&] {
    EXPECT_EQ(ErrorOf([&] { (void)made.Run(inputs, {.timeout_seconds = whole / 10}); }).id(),
              "limit/time");
  });
  EXPECT_LT(cut, whole / 2);
}

// What the loop does is compiled and short; the loop itself is the interpreter's.
TEST_F(LimitsTest, LoopsOfShortKernelsEndInTime) {
  codegen::NeedCodeGenerator();
  const Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
    %n = nn.feed() {name = "n"} : () -> v_tensor<[], i64>
    %y = cf.while(%n, none, %x) ({
      ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %v: v_tensor<[2], f32>):
      %d = nn.add(%v, %v) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
      cf.yield(%go, %d) : (v_tensor<[], bool>, v_tensor<[2], f32>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[2], f32>) -> ())");
  const Executable made(program, {.interpreter = {.max_steps = 100'000'000}});
  const NamedValues inputs = {{"x", Tensor(ElementType::kF32, {2})},
                              {"n", Tensor::Scalar<int64_t>(int64_t{1} << 40)}};
  const double seconds = SecondsOf([&] {
    EXPECT_EQ(ErrorOf([&] { (void)made.Run(inputs, {.timeout_seconds = 0.2}); }).id(),
              "limit/time");
  });
  EXPECT_LT(seconds, 2);
}

TEST_F(LimitsTest, TheInterpreterEndsInTime) {
  Program program = Parse(kLong);
  const Error error = ErrorOf([&] {
    RunUnder({.seconds = 0.2}, [&] {
      (void)Interpreter(program).Run({{"x", Tensor(ElementType::kF32, {4096, 4096})}});
    });
  });
  EXPECT_EQ(error.id(), "limit/time");
  EXPECT_NE(NotesOf(error).find("nn.matmul"), std::string::npos) << NotesOf(error);
}

TEST_F(LimitsTest, CompilingEndsInTime) {
  codegen::NeedCodeGenerator();
  const Program program = Parse(kLong);
  const Error late = ErrorOf([&] { Executable(program, {.timeout_seconds = 1e-6}); });
  EXPECT_EQ(late.id(), "limit/time");
  EXPECT_NE(NotesOf(late), "") << "it says where";
  CancelToken token;
  token.Cancel();
  EXPECT_EQ(ErrorOf([&] { Executable(program, {.cancel = &token}); }).id(), "run/cancelled");
}

// Of constants of which all is known; it must not be taken for an operation that cannot be folded.
TEST_F(LimitsTest, FoldingEndsInTime) {
  Program program = Parse(R"(
    %x = builtin.get_parameter() {name = "x"} : () -> v_tensor<[4096, 4096], f32>
    %y = nn.matmul(%x, %x) : (v_tensor<[4096, 4096], f32>, v_tensor<[4096, 4096], f32>) -> v_tensor<[4096, 4096], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[4096, 4096], f32>) -> ())");
  AddParameter(program, "x", {4096, 4096});
  const Error error = ErrorOf(
      [&] { Executable(program, {.enabled = {"precompute_prune"}, .timeout_seconds = 0.3}); });
  EXPECT_EQ(error.id(), "limit/time");
  EXPECT_NE(NotesOf(error).find("precompute_prune"), std::string::npos) << NotesOf(error);
}

TEST_F(LimitsTest, CompilingKeepsToItsMemory) {
  codegen::NeedCodeGenerator();
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 1024], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[1024, 1024], f32>
    %y = nn.matmul(%x, %w) : (v_tensor<[N, 1024], f32>, v_tensor<[1024, 1024], f32>) -> v_tensor<[N, 1024], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[N, 1024], f32>) -> ())");
  AddParameter(program, "w", {1024, 1024});
  const Error error = ErrorOf([&] { Executable(program, {.max_bytes = 1 << 20}); });
  EXPECT_EQ(error.id(), "limit/memory");
  EXPECT_EQ(ErrorOf([&] { Executable(program, {.max_bytes = 64 << 20}); }).id(), "none");
}

}  // namespace
}  // namespace lathe
