// The run-time library as others get it: what it needs, how large it is, what C and C++ see of it.

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "lathe/runtime/lx_file.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "test/unit/runtime/plan_util.h"
#include "test/unit/sanitized.h"
#include "test/unit/temp_folder.h"

namespace lathe::runtime {
namespace {

const std::string kLibrary = LATHE_BUILD_DIR "/lib/liblathe_runtime.so";

// What a command prints, its errors included.
std::string OutputOf(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  std::array<char, 4096> chunk;
  while (const size_t n = fread(chunk.data(), 1, chunk.size(), pipe)) text.append(chunk.data(), n);
  pclose(pipe);
  return text;
}

class ReleasedLibraryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers bring libraries, symbols and memory";
  }
};

TEST_F(ReleasedLibraryTest, NeedsTheCAndCppLibrariesAlone) {
  std::istringstream lines(OutputOf("readelf -d " + kLibrary));
  size_t needed = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    ++needed;
    const std::string name = line.substr(line.find('[') + 1);
    const bool allowed = name.starts_with("libstdc++.") || name.starts_with("libm.") ||
                         name.starts_with("libgcc_s.") || name.starts_with("libc.") ||
                         name.starts_with("ld-linux");
    EXPECT_TRUE(allowed) << line;
  }
  EXPECT_GE(needed, 2u);
}

TEST_F(ReleasedLibraryTest, IsSmall) {
  const TempFolder folder;
  const std::string stripped = folder / "runtime.so";
  EXPECT_EQ(OutputOf("strip -o " + stripped + " " + kLibrary), "");
  EXPECT_LT(FileSize(stripped), 3'000'000u);
  RecordProperty("bytes", static_cast<int>(FileSize(stripped)));
}

TEST_F(ReleasedLibraryTest, ExportsTheInterfaceAlone) {
  std::istringstream lines(OutputOf("nm -D --defined-only " + kLibrary));
  size_t exported = 0;
  for (std::string line; std::getline(lines, line); ++exported) {
    EXPECT_NE(line.find(" lathe_"), std::string::npos) << line;
  }
  EXPECT_GE(exported, 20u);
}

#if defined(__x86_64__)
// More shapes than are remembered.
TEST_F(ReleasedLibraryTest, MemoryDoesNotGrow) {
  const TempFolder folder;
  SavePlan(*testing::DoublesPlan(), folder / "doubles.lx");
  const std::string command = LATHE_BUILD_DIR "/bin/runtime_soak " + folder / "doubles.lx";
  EXPECT_EQ(std::system((command + " 100000 1000 2 >/dev/null").c_str()), 0) << command;
}

TEST(RuntimeLibraryTest, ServesC) {
  const TempFolder folder;
  SavePlan(*testing::DoublePlan(), folder / "double.lx");
  SavePlan(*testing::DoublePlan(), folder / "double.json");
  const std::string check = LATHE_BUILD_DIR "/bin/runtime_check ";
  EXPECT_EQ(OutputOf(check + folder / "double.lx" + " " + folder / "trace.json" + " " +
                     folder / "double.json"),
            "fine\n");
  EXPECT_NE(ReadFile(folder / "trace.json").find("\"name\":\"double\""), std::string::npos);
}

TEST(RuntimeLibraryTest, ServesCpp) {
  const TempFolder folder;
  SavePlan(*testing::DoublePlan(), folder / "double.lx");
  EXPECT_EQ(OutputOf(LATHE_BUILD_DIR "/bin/model_check " + folder / "double.lx"), "fine\n");
}

TEST(RuntimeLibraryTest, ServesTheExample) {
  const TempFolder folder;
  SavePlan(*testing::DoublePlan(), folder / "double.lx");
  const std::string example = LATHE_BUILD_DIR "/bin/example_run_lx ";
  EXPECT_EQ(OutputOf(example + folder / "double.lx" + " 4"),
            "input x : f32[N]\noutput y : f32[N]\ny: 0 0.02 0.04 0.06 (16 bytes)\n");
  EXPECT_EQ(OutputOf(example + folder / "none.lx").substr(0, 16), "error[io/open]: ");
}
#endif

}  // namespace
}  // namespace lathe::runtime
