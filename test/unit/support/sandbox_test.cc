#include "lathe/support/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <vector>

#include "lathe/support/budget.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/parallel.h"
#include "src/support/sandbox_filter.h"
#include "test/unit/sanitized.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

class SandboxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers do what sandboxes forbid";
    if (const std::string why = WhyNoSandbox(); !why.empty()) GTEST_SKIP() << why;
    options_.output = [this](std::string_view text) { output_ += text; };
    options_.errors = [this](std::string_view text) { errors_ += text; };
  }
  int Run(const std::function<int()>& work) { return RunInSandbox(options_, work); }
  std::string ErrorOf(const std::function<int()>& work, const Limits& limits = {}) {
    try {
      const int code = RunUnder(limits, [&] { return Run(work); });
      return StrCat("exit code ", code, ", ", errors_);
    } catch (const Error& error) {
      return error.id();
    }
  }

  SandboxOptions options_;
  std::string output_, errors_;
};

TEST_F(SandboxTest, ComputesAndTells) {
  EXPECT_EQ(Run([] {
              ThreadPool pool(3);
              std::atomic<int> sum = 0;
              pool.ParallelFor(0, 100, 1, [&](int64_t i, int64_t) { sum += static_cast<int>(i); });
              std::printf("sum %d", sum.load());
              std::fprintf(stderr, "%d threads", pool.threads());
              return 7;
            }),
            7);
  EXPECT_EQ(output_, "sum 4950");
  EXPECT_EQ(errors_, "3 threads");
}

TEST_F(SandboxTest, ExceptionsWork) {
  EXPECT_EQ(Run([] {
              try {
                throw Error(ErrorCode::kShape, "a/b", "c");
              } catch (const Error&) {
                return 3;
              }
            }),
            3);
}

TEST_F(SandboxTest, HandsBackBytes) {
  options_.result = memfd_create("test", MFD_CLOEXEC);
  EXPECT_EQ(Run([] { return std::printf("bytes") == 5 ? 0 : 1; }), 0);
  char read_back[6] = {};
  EXPECT_EQ(pread(options_.result, read_back, 5, 0), 5);
  EXPECT_STREQ(read_back, "bytes");
  EXPECT_EQ(output_, "");
  close(options_.result);
}

TEST_F(SandboxTest, CannotHandBackMoreThanAllowed) {
  options_.result = memfd_create("test", MFD_CLOEXEC);
  options_.max_result_bytes = 1000;
  EXPECT_EQ(ErrorOf([] {
              const std::string much(5000, 'x');
              while (write(1, much.data(), much.size()) > 0) continue;
              return 0;
            }),
            "limit/memory");
  close(options_.result);
}

TEST_F(SandboxTest, ReadsWhatIsNamedAndNothingElse) {
  const TempFolder folder;
  const std::string allowed = folder / "model", other = folder / "secret";
  WriteFile(allowed, "weights");
  WriteFile(other, "secret");
  options_.readable = {allowed};
  EXPECT_EQ(Run([&] { return ReadFile(allowed) == "weights" ? 0 : 1; }), 0);
  EXPECT_EQ(Run([&] { return open(other.c_str(), O_RDONLY) < 0 ? 0 : 1; }), 0);
  EXPECT_EQ(Run([&] { return open("/etc/passwd", O_RDONLY) < 0 ? 0 : 1; }), 0);
}

TEST_F(SandboxTest, AttacksEndIt) {
  const TempFolder folder;
  const std::string file = folder / "file";
  WriteFile(file, "old");
  options_.readable = {file};
  EXPECT_EQ(ErrorOf([] { return socket(AF_INET, SOCK_STREAM, 0) < 0 ? 1 : 0; }),
            "sandbox/violation");
  EXPECT_EQ(ErrorOf([&] { return open(file.c_str(), O_RDWR) < 0 ? 1 : 0; }), "sandbox/violation");
  EXPECT_EQ(ErrorOf([&] { return open((file + "2").c_str(), O_CREAT | O_WRONLY, 0600); }),
            "sandbox/violation");
  EXPECT_EQ(ErrorOf([&] { return unlink(file.c_str()); }), "sandbox/violation");
  EXPECT_EQ(ErrorOf([] { return fork() < 0 ? 1 : 0; }), "sandbox/violation");
  EXPECT_EQ(ErrorOf([] { return execl("/bin/true", "true", nullptr); }), "sandbox/violation");
  EXPECT_EQ(ErrorOf([] { return kill(getppid(), SIGTERM); }), "sandbox/violation");
  EXPECT_EQ(ErrorOf([] { return memfd_create("more", 0) < 0 ? 1 : 0; }), "sandbox/violation");
  EXPECT_EQ(ReadFile(file), "old");
  EXPECT_FALSE(FileExists(file + "2"));
}

TEST_F(SandboxTest, HasNoEnvironment) {
  setenv("LATHE_TEST_SECRET", "secret", 1);
  EXPECT_EQ(Run([] { return std::getenv("LATHE_TEST_SECRET") == nullptr ? 0 : 1; }), 0);
  unsetenv("LATHE_TEST_SECRET");
}

TEST_F(SandboxTest, CrashesAreErrors) {
  EXPECT_EQ(ErrorOf([] {
              std::signal(SIGSEGV, SIG_DFL);
              return raise(SIGSEGV);
            }),
            "sandbox/ended");
}

TEST_F(SandboxTest, EndsInTime) {
  const auto forever = [] {
    while (true) continue;
    return 0;
  };
  EXPECT_EQ(ErrorOf(forever, {.seconds = 0.1}), "limit/time");
  options_.cpu_seconds = 1;
  EXPECT_EQ(ErrorOf(forever), "limit/time");
}

TEST_F(SandboxTest, EndsWithItsMemory) {
  options_.max_bytes = 256 << 20;
  EXPECT_EQ(Run([] {
              try {
                std::vector<char> much(size_t{1} << 30, 'x');
                return static_cast<int>(much[12345]);
              } catch (const std::bad_alloc&) {
                return 5;
              }
            }),
            5);
}

}  // namespace
}  // namespace lathe
