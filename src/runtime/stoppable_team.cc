#include "src/runtime/stoppable_team.h"

#include <algorithm>
#include <chrono>

namespace lathe::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// What takes less is taken together with more, what takes longer is cut.
constexpr auto kShort = std::chrono::microseconds(250);
constexpr auto kLong = std::chrono::microseconds(1000);

}  // namespace

struct StoppableTeam::Loop {
  StoppableTeam& team;
  Body body;
  void* captured;
};

StoppableTeam::StoppableTeam(const Budget* budget, KernelTeam* team)
    : KernelTeam{&RunLoop, &Ask, team == nullptr ? 1 : team->num_threads},
      budget_(budget),
      team_(team) {}

// Once true, always true: a kernel that has left out a part must not go on as if it had not.
bool StoppableTeam::Ask(KernelTeam* team) {
  auto& self = *static_cast<StoppableTeam*>(team);
  if (self.has_stopped()) return true;
  if (!self.budget_->stopped()) return false;
  self.stopped_.store(true, std::memory_order_relaxed);
  return true;
}

void StoppableTeam::RunLoop(KernelTeam* team, int64_t extent, Body body, void* captured) {
  auto& self = *static_cast<StoppableTeam*>(team);
  Loop loop{self, body, captured};
  if (self.team_ == nullptr) return RunPiece(0, extent, &loop);
  self.team_->run(self.team_, extent, &RunPiece, &loop);
}

void StoppableTeam::RunPiece(int64_t begin, int64_t end, void* loop) {
  const Loop& job = *static_cast<Loop*>(loop);
  int64_t size = 1;
  auto before = Clock::now();
  while (begin < end && !Ask(&job.team)) {
    const int64_t next = begin + std::min(size, end - begin);
    job.body(begin, next, job.captured);
    begin = next;
    const auto now = Clock::now();
    if (now - before < kShort) size *= 2;
    if (now - before > kLong) size = std::max<int64_t>(1, size / 2);
    before = now;
  }
}

}  // namespace lathe::runtime
