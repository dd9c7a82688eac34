#include "lathe/support/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/text.h"
#include "test/unit/temp_folder.h"

namespace lathe {
namespace {

class ProcessorsTest : public ::testing::Test {
 protected:
  void Put(const std::string& path, const std::string& text) {
    const std::string full = root_.path() + path;
    MakeDirectory(full.substr(0, full.rfind('/')));
    WriteFile(full, text);
  }
  int Quota() const { return ProcessorQuota(root_.path()); }
  int Cores() const { return UsableCores(root_.path()); }

  TempFolder root_;
};

TEST_F(ProcessorsTest, WithoutGroupsThereIsNoQuota) {
  EXPECT_EQ(Quota(), 0);
  Put("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(Quota(), 0);
  Put("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), 0);
}

TEST_F(ProcessorsTest, TheTightestGroupCounts) {
  Put("/proc/self/cgroup", "0::/outer/inner\n");
  Put("/sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
  EXPECT_EQ(Quota(), 2);
  Put("/sys/fs/cgroup/outer/inner/cpu.max", "20000 100000\n");
  EXPECT_EQ(Quota(), 1);
  Put("/sys/fs/cgroup/outer/inner/cpu.max", "900000 100000\n");
  EXPECT_EQ(Quota(), 2);
}

TEST_F(ProcessorsTest, ReadsTheFirstVersionOfGroups) {
  Put("/proc/self/cgroup", "5:memory:/other\n4:cpu,cpuacct:/box\n");
  Put("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "250000\n");
  Put("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), 3);
  Put("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(Quota(), 0);
}

TEST_F(ProcessorsTest, NonsenseIsNoQuota) {
  Put("/proc/self/cgroup", "what\n0::\n:::\n");
  Put("/sys/fs/cgroup/cpu.max", "-5 zero\n");
  EXPECT_EQ(Quota(), 0);
}

TEST_F(ProcessorsTest, MemoryOfGroupsCounts) {
  const uint64_t machine = UsableMemory(root_.path());
  EXPECT_GT(machine, uint64_t{1} << 26);
  Put("/proc/self/cgroup", "0::/outer/inner\n");
  Put("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
  EXPECT_EQ(UsableMemory(root_.path()), machine);
  Put("/sys/fs/cgroup/outer/memory.max", "50331648\n");
  EXPECT_EQ(UsableMemory(root_.path()), 50331648);
  Put("/sys/fs/cgroup/outer/inner/memory.max", "9223372036854771712\n");
  EXPECT_EQ(UsableMemory(root_.path()), 50331648);
}

TEST_F(ProcessorsTest, MemoryOfTheFirstVersionOfGroups) {
  const uint64_t machine = UsableMemory(root_.path());
  Put("/proc/self/cgroup", "5:memory:/box\n4:cpu,cpuacct:/other\n");
  Put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "33554432\n");
  EXPECT_EQ(UsableMemory(root_.path()), 33554432);
  Put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(UsableMemory(root_.path()), machine) << "what such groups have without a limit";
}

TEST_F(ProcessorsTest, ThreadsOfOneCoreCountOnce) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_EQ(Cores(), CPU_COUNT(&set)) << "as many as processors if nothing is known of cores";
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &set)) continue;
    Put(StrCat("/sys/devices/system/cpu/cpu", i, "/topology/thread_siblings_list"), "0-1023\n");
  }
  EXPECT_EQ(Cores(), 1);
  EXPECT_GE(UsableCores(), 1);
}

TEST(Processors, RefuseMoreThreadsThanAnybodyHas) {
  EXPECT_EQ(CheckedThreads(0), 0);
  EXPECT_EQ(CheckedThreads(kMaxThreads), kMaxThreads);
  for (const int threads : {-1, kMaxThreads + 1, 100000}) {
    try {
      (void)CheckedThreads(threads);
      FAIL() << threads;
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "run/threads");
    }
  }
}

}  // namespace
}  // namespace lathe
