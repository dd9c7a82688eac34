#include "lathe/support/processors.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe {
namespace {

// The words of a small file; none if it cannot be read.
std::vector<std::string> Words(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string word; file >> word;) words.push_back(word);
  return words;
}

double Ratio(const std::string& quota, const std::string& period) {
  const auto allowed = ParseInt(quota);  // "max" or -1: no limit
  const auto of = ParseInt(period);
  const bool limited = allowed && of && *allowed > 0 && *of > 0;
  return limited ? static_cast<double>(*allowed) / static_cast<double>(*of)
                 : std::numeric_limits<double>::infinity();
}

double ProcessorsOf(const std::string& folder) {
  const std::vector<std::string> v2 = Words(folder + "/cpu.max");
  if (v2.size() == 2) return Ratio(v2[0], v2[1]);
  const std::vector<std::string> quota = Words(folder + "/cpu.cfs_quota_us");
  const std::vector<std::string> period = Words(folder + "/cpu.cfs_period_us");
  if (quota.size() == 1 && period.size() == 1) return Ratio(quota[0], period[0]);
  return std::numeric_limits<double>::infinity();
}

double BytesOf(const std::string& folder) {
  for (const char* file : {"/memory.max", "/memory.limit_in_bytes"}) {
    const std::vector<std::string> words = Words(folder + file);
    if (words.size() == 1) return Ratio(words[0], "1");
  }
  return std::numeric_limits<double>::infinity();
}

// A line "4:cpu,cpuacct:/docker/abc" or "0::/user.slice": where such groups are mounted, if they
// are those of `controller`.
std::string MountOf(const std::string& controllers, std::string_view controller) {
  if (controllers.empty()) return "/sys/fs/cgroup";
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == controller) return StrCat("/sys/fs/cgroup/", controller);
  }
  return "";
}

// The least that `limit_of` gives of the folders of this process's groups, and of those that they
// are part of.
double LeastOfGroups(const std::string& root, std::string_view controller,
                     double (*limit_of)(const std::string& folder)) {
  double least = std::numeric_limits<double>::infinity();
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string mount = MountOf(line.substr(first + 1, second - first - 1), controller);
    if (mount.empty()) continue;
    std::string path = line.substr(second + 1);
    while (true) {
      least = std::min(least, limit_of(root + mount + (path == "/" ? "" : path)));
      const size_t slash = path.rfind('/');
      if (path.empty() || slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return least;
}

std::vector<int> AllowedProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> allowed;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return allowed;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) allowed.push_back(i);
  }
  return allowed;
}

}  // namespace

int ProcessorQuota(const std::string& root) {
  const double least = LeastOfGroups(root, "cpu", &ProcessorsOf);
  constexpr double kMost = 1 << 20;
  return least > kMost ? 0 : std::max(1, static_cast<int>(std::ceil(least)));
}

uint64_t UsableMemory(const std::string& root) {
  const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
  const uint64_t machine = pages * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  const double least = LeastOfGroups(root, "memory", &BytesOf);
  return least < static_cast<double>(machine) ? static_cast<uint64_t>(least) : machine;
}

int UsableCores(const std::string& root) {
  const std::vector<int> allowed = AllowedProcessors();
  std::vector<std::string> cores;
  for (const int i : allowed) {
    const auto siblings =
        Words(StrCat(root, "/sys/devices/system/cpu/cpu", i, "/topology/thread_siblings_list"));
    cores.push_back(siblings.empty() ? StrCat(i) : siblings[0]);
  }
  std::sort(cores.begin(), cores.end());
  const auto distinct = std::unique(cores.begin(), cores.end()) - cores.begin();
  const int usable = std::max(1, static_cast<int>(distinct));
  const int quota = ProcessorQuota(root);
  return quota == 0 ? usable : std::min(usable, quota);
}

int CheckedThreads(int threads) {
  if (threads >= 0 && threads <= kMaxThreads) return threads;
  throw Error(ErrorCode::kInvalidArgument, "run/threads",
              StrCat(threads, " threads were asked for; there are 1 to ", kMaxThreads))
      .Hint("0 takes one per processor core, which is rarely improved upon");
}

}  // namespace lathe
