#include "src/driver/plan_homes.h"

#include <algorithm>
#include <numeric>

#include "lathe/support/error.h"
#include "lathe/support/pack_blocks.h"

namespace lathe {

using runtime::kNone;

PlanHomes::Spot PlanHomes::Outside(Place place, uint32_t index, Dim bytes) {
  homes_.push_back({place, index, std::move(bytes)});
  return {static_cast<uint32_t>(homes_.size() - 1), 0};
}

PlanHomes::Spot PlanHomes::Storage(Dim bytes) {
  return Outside(Place::kArena, kNone, std::move(bytes));
}

PlanHomes::Spot PlanHomes::Resolve(Spot spot) const {
  while (homes_[spot.home].parent != kNone) {
    const Home& home = homes_[spot.home];
    spot = {home.parent, spot.offset + home.offset};
  }
  return spot;
}

// No bytes stay where they are: their number does not tell when the other place is known, which may
// be after a computed extent beside the 0.
bool PlanHomes::IsWholeStorage(Spot spot, const Dim& bytes) const {
  const Home& home = homes_[spot.home];
  return !bytes.IsConstant(0) && spot.offset == 0 && home.parent == kNone &&
         home.place == Place::kArena && home.bytes == bytes && !bytes.is_unknown();
}

void PlanHomes::MoveInto(Spot from, Spot into) {
  homes_[from.home].parent = into.home;
  homes_[from.home].offset = into.offset;
}

void PlanHomes::MoveToOutput(Spot from, uint32_t output) {
  homes_[from.home].place = Place::kOutput;
  homes_[from.home].index = output;
}

void PlanHomes::Touch(Spot spot, uint32_t step) {
  Home& home = homes_[spot.home];
  home.begin = std::min(home.begin, step);
  home.end = std::max(home.end, step);
}

void PlanHomes::EndLoop(uint32_t first_home, uint32_t first, uint32_t last) {
  for (uint32_t i = 0; i < first_home; ++i) {
    if (homes_[i].begin != kNone && homes_[i].end >= first) homes_[i].end = last;
  }
}

void PlanHomes::Finish(runtime::Plan& plan, const std::vector<Spot>& spots) {
  SpreadTouches();
  for (const Call& call : calls_) ShareMemory(call);
  MakeStorages(plan);
  Pack(plan);
  for (size_t i = 0; i < spots.size(); ++i) {
    const Spot spot = Resolve(spots[i]);
    const Home& home = homes_[spot.home];
    LATHE_CHECK(home.index != kNone, "value ", i, " has no memory");
    plan.values[i].place = home.place;
    plan.values[i].index = home.index;
    plan.values[i].offset = spot.offset;
  }
}

void PlanHomes::SpreadTouches() {
  for (uint32_t i = 0; i < homes_.size(); ++i) {
    const Home& home = homes_[i];
    if (home.parent == kNone || home.begin == kNone) continue;
    const Spot root = Resolve({i, 0});
    Touch(root, home.begin);
    Touch(root, home.end);
  }
}

// Earlier calls come first, so that one tensor after another may live in the same bytes.
void PlanHomes::ShareMemory(const Call& call) {
  for (const auto& pair : call.in_place) {
    if (!MayTake(call, pair)) continue;
    const Spot from = Resolve(call.reads[pair.first]), into = Resolve(call.writes[pair.second]);
    MoveInto(from, into);
    Touch(into, homes_[from.home].begin);
  }
}

// Both must be all there is in their memory, so that nothing is alive longer than it would be
// apart. A variable holds its old value before the call.
bool PlanHomes::MayTake(const Call& call, std::pair<size_t, size_t> pair) const {
  const Spot from = Resolve(call.reads[pair.first]), into = Resolve(call.writes[pair.second]);
  const Home &old = homes_[from.home], &fresh = homes_[into.home];
  if (!IsWholeStorage(from, fresh.bytes) || into.offset != 0 || old.end != call.step) return false;
  return fresh.begin == call.step && fresh.place != Place::kVariable && from.home != into.home &&
         ReadsOnlyInPlace(call, pair);
}

// Whatever else of the memory of the first the call reads, it writes in its place, too.
bool PlanHomes::ReadsOnlyInPlace(const Call& call, std::pair<size_t, size_t> pair) const {
  const Spot from = Resolve(call.reads[pair.first]);
  const auto lies_there = [&](Spot spot) { return Resolve(spot).home == from.home; };
  for (size_t i = 0; i < call.reads.size(); ++i) {
    const bool same = Resolve(call.reads[i]).offset == from.offset &&
                      std::ranges::count(call.in_place, std::pair(i, pair.second)) != 0;
    if (lies_there(call.reads[i]) && !same) return false;
  }
  return std::ranges::none_of(call.writes, lies_there);
}

bool PlanHomes::MayUpdate(Spot variable, Spot from, uint32_t first_step) const {
  const Home &old = homes_[variable.home], &fresh = homes_[from.home];
  if (!IsWholeStorage(from, old.bytes) || fresh.begin == kNone || fresh.begin < first_step) {
    return false;
  }
  if (old.begin == kNone || old.end < fresh.begin) return true;
  const auto call = std::ranges::lower_bound(calls_, fresh.begin, {}, &Call::step);
  if (old.end > fresh.begin || call == calls_.end() || call->step != fresh.begin) return false;
  return std::ranges::any_of(call->in_place, [&](const auto& pair) {
    const Spot read = Resolve(call->reads[pair.first]), write = Resolve(call->writes[pair.second]);
    return read.home == variable.home && read.offset == 0 && write.home == from.home &&
           write.offset == 0 && ReadsOnlyInPlace(*call, pair);
  });
}

void PlanHomes::MakeStorages(runtime::Plan& plan) {
  std::vector<uint32_t> order(homes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](uint32_t i) { return homes_[i].begin; });
  for (const uint32_t i : order) {
    Home& home = homes_[i];
    if (home.parent != kNone || home.place != Place::kArena || home.begin == kNone) continue;
    home.index = static_cast<uint32_t>(plan.storages.size());
    plan.storages.push_back({home.bytes, home.begin, home.end, 0});
  }
}

void PlanHomes::Pack(runtime::Plan& plan) {
  std::vector<MemoryBlock> blocks;
  std::vector<size_t> ids;
  for (size_t i = 0; i < plan.storages.size(); ++i) {
    const runtime::PlanStorage& s = plan.storages[i];
    if (!s.bytes.is_constant()) continue;
    blocks.push_back({static_cast<size_t>(s.bytes.value()), s.begin, s.end});
    ids.push_back(i);
  }
  PackBlocks(blocks, runtime::kStorageAlignment);
  for (size_t i = 0; i < ids.size(); ++i) plan.storages[ids[i]].offset = blocks[i].offset;
}

}  // namespace lathe
