#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/dialect/nn/attention.h"
#include "lathe/lower/lowering.h"

namespace lathe::lower {

/// An attention operation as loops see it: which operand is where, and the extents.
struct AttentionForm {
  /// An operand [B, H, rows, features], or [B, rows, H * features] if its heads are merged.
  struct Heads {
    Value value;
    Dim batch, heads, rows, features;
    bool merged = false;
  };

  /// Why the function is not an attention that can be lowered; empty if it is one.
  std::string Read(const Block& function);

  const Operation* op = nullptr;
  std::vector<size_t> results;  ///< of the operation that the function gives back, in its order
  Heads q, k, v;
  std::optional<Heads> past_key, past_value;
  Value mask, lengths;  ///< null if absent
  double scale = 1;
  double softcap = 0;
  bool causal = false;
  bool nan_rows = false;          ///< a row whose scores are all -inf gives NaN, not zeros
  int64_t left = -1, right = -1;  ///< of the window; -1: no bound

  bool cached() const { return past_key.has_value(); }
  int64_t features() const { return q.features.value(); }
  int64_t value_features() const { return v.features.value(); }
  /// Query heads that share a key head.
  Dim group() const {
    return ProvablyEqual(q.heads, k.heads) ? Dim(1) : Max(FloorDiv(q.heads, Max(k.heads, 1)), 1);
  }
  bool IsResult(size_t result) const;
  /// Whether some key may be masked for some query.
  bool masks() const { return mask || lengths || causal || left >= 0 || right >= 0; }

 private:
  std::string ReadHeads(Value value, std::optional<int64_t> heads, Heads& to);
  std::string Misfit() const;
  std::string ReadOptions();
};

}  // namespace lathe::lower
