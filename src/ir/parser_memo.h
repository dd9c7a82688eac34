#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "lathe/support/hash.h"

namespace lathe {

/// Remembers what pieces of the text mean, by their characters, so that a repeated type signature
/// or attribute dictionary is not read again. A fixed number of slots; a clash forgets the older.
template <class T>
class TextMemo {
 public:
  explicit TextMemo(size_t slots) : slots_(slots) {}

  /// The slot for `text`: a hit if `slot.text == text`.
  struct Slot {
    std::string_view text;
    T value;
  };
  Slot& At(std::string_view text) { return slots_[HashString(text) % slots_.size()]; }

 private:
  std::vector<Slot> slots_;
};

}  // namespace lathe
