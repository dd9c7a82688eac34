#pragma once

#include <cstdint>
#include <vector>

#include "lathe/runtime/plan.h"

namespace lathe {

/// Where the tensors of a plan lie, while it is made. A home is bytes that begin somewhere: those
/// of an input, an output or a constant, a storage, or a place within another home.
class PlanHomes {
 public:
  struct Spot {
    uint32_t home;
    uint64_t offset;  ///< bytes into it
  };
  using Place = runtime::PlanValue::Place;

  /// Memory of somebody else's.
  Spot Outside(Place place, uint32_t index, Dim bytes);
  bool IsObject(Spot spot) const { return homes_[spot.home].place == Place::kObject; }
  /// Memory of a storage of its own, until it is moved.
  Spot Storage(Dim bytes);

  /// How many there are so far: later ones have larger numbers.
  uint32_t size() const { return static_cast<uint32_t>(homes_.size()); }

  /// The spot in a home that lies in no other.
  Spot Resolve(Spot spot) const;
  /// All of the home that the spot lies in in the end.
  const Dim& BytesAt(Spot spot) const { return homes_[Resolve(spot).home].bytes; }
  /// Whether `bytes` at `spot` are a storage from its first byte to its last, and may move.
  bool IsWholeStorage(Spot spot, const Dim& bytes) const;
  /// Precondition: `from` is such a storage.
  void MoveInto(Spot from, Spot into);
  void MoveToOutput(Spot from, uint32_t output);
  /// Every home is touched from the first to the last touch of what lies in it.
  void SpreadTouches();
  /// Whether such a storage, first written in `first_step` or later, may lie in a variable instead:
  /// nothing reads what the variable held before once the storage holds something. Precondition:
  /// SpreadTouches since the last touch.
  bool MayUpdate(Spot variable, Spot from, uint32_t first_step) const;

  /// Step `step` reads or writes there.
  void Touch(Spot spot, uint32_t step);
  /// A loop of the steps from `first` to `last`: what of the homes before `first_home` is touched
  /// in it is alive until it ends.
  void EndLoop(uint32_t first_home, uint32_t first, uint32_t last);
  /// A call that reads and writes, each in the order of its values, and which of what it reads may
  /// be the same memory as which of what it writes.
  struct Call {
    uint32_t step;
    std::vector<Spot> reads, writes;
    std::vector<std::pair<size_t, size_t>> in_place;
  };
  void AddCall(Call call) { calls_.push_back(std::move(call)); }
  /// Has results take the memory of operands that die, makes the storages, in order of their first
  /// steps, with offsets, and places the values; `spots` is parallel to `plan.values`. Nothing may
  /// be moved afterwards.
  void Finish(runtime::Plan& plan, const std::vector<Spot>& spots);

 private:
  struct Home {
    Place place;
    uint32_t index;  // of the input, output, constant; in the end of the storage
    Dim bytes;
    uint32_t begin = runtime::kNone, end = 0;
    uint32_t parent = runtime::kNone;
    uint64_t offset = 0;  // in the parent
  };
  void ShareMemory(const Call& call);
  bool MayTake(const Call& call, std::pair<size_t, size_t> pair) const;
  bool ReadsOnlyInPlace(const Call& call, std::pair<size_t, size_t> pair) const;
  void MakeStorages(runtime::Plan& plan);
  static void Pack(runtime::Plan& plan);

  std::vector<Home> homes_;
  std::vector<Call> calls_;  // that may write over what they read, by step
};

}  // namespace lathe
