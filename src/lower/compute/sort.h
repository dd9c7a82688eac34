#pragma once

#include <functional>

#include "src/lower/compute/elements.h"
#include "src/lower/compute/scalars.h"

namespace lathe::lower {

/// Sorts integers in memory of an operation by merging runs, each twice as long as the ones before,
/// from one half of the memory to the other. Stable. O(n log n), also of a number that is only
/// known at run time.
class MergeSort {
 public:
  /// Whether the integer at `a` goes before the one at `b`, which stood behind it so far.
  using Before = std::function<Value(const Dim& a, const Dim& b)>;

  /// `memory`: i64, of which 2 * `room` from `begin` on are used; the integers are in [0, `range`).
  MergeSort(Elements& e, Value memory, Dim begin, Dim room, Dim range, Before before)
      : e_(e),
        s_(e),
        memory_(memory),
        begin_(std::move(begin)),
        room_(std::move(room)),
        range_(std::move(range)),
        before_(std::move(before)) {}

  /// Puts number `at` of those to sort there.
  void Put(const Dim& at, Value integer) { e_.Store(memory_, Position(0, at), integer); }
  /// Sorts the first `count`, at most `room`.
  void Sort(const Dim& count);
  /// Number `at` of the sorted ones.
  Dim At(const Dim& at) { return e_.Loaded(e_.LoadFrom(memory_, Position(sorted_, at)), range_); }

 private:
  Dim Position(const Dim& half, const Dim& at) const { return begin_ + half * room_ + at; }
  void Pass(const Dim& count, const Dim& width, const Dim& from, const Dim& goes_on);
  // What is not one of those to sort is never taken, but nothing is known of what lies behind them.
  Value Candidate(const Dim& half, Value at, const Dim& count) {
    return e_.LoadFrom(memory_, Position(half, s_.Inside(at, count)));
  }

  Elements& e_;
  Scalars s_;
  Value memory_;
  Dim begin_, room_, range_, sorted_;
  Before before_;
};

/// Sorts lines of items by keys of 32 bits, a byte after another. Stable. O(n).
class RadixSort {
 public:
  /// Memory for `lines` lines of at most `room` items, which are integers in [0, `room`). Lines may
  /// be sorted at once.
  RadixSort(Elements& e, const Dim& lines, Dim room);

  /// Whether there is a key for elements of that type.
  static bool Takes(ElementType element);

  /// The line that the functions below mean.
  void SetLine(const Dim& line) { line_ = line; }
  /// Item number `at` of those to sort is `item`, and goes where `x` goes: in ascending order, or
  /// descending. NaN is above everything, and zeros are equal.
  void Put(const Dim& at, const Dim& item, Value x, bool descending);
  /// Of the first `count`, keeps those that will be among the first `wanted`, and what is equal to
  /// the last of them, in the order that they were put; how many. 1 <= wanted <= count.
  Dim Narrow(const Dim& count, const Dim& wanted);
  /// Sorts the first `count`.
  void Sort(const Dim& count);
  /// Item number `at` of the sorted ones.
  Dim At(const Dim& at) { return ItemAt(0, at); }

 private:
  Dim ItemAt(int64_t half, const Dim& at);
  Dim KeyOf(const Dim& item);
  void Clear();
  Dim LastDigit(const Dim& count, const Dim& wanted, int64_t shift, const Dim& before);
  Dim Keep(const Dim& count, int64_t shift, const Dim& last);
  Dim Digit(const Dim& item, int64_t shift);
  void Pass(const Dim& count, int64_t from, int64_t shift);
  Value Key(Value x, bool descending) const;

  Elements& e_;
  Scalars s_;
  Dim room_, line_ = 0;
  Value items_, keys_, counts_;
};

}  // namespace lathe::lower
