#pragma once

#include <functional>

#include "lathe/support/divide.h"
#include "src/lower/attention_form.h"
#include "src/lower/attention_mask.h"
#include "src/lower/index_math.h"
#include "src/lower/tiles.h"

namespace lathe::lower {

/// Attention of some queries of one head: scores of one tile of keys after another stay in cache,
/// and what was summed is scaled down where a later tile has a greater score [Milakov, Gimelshein:
/// Online normalizer calculation for softmax, 2018].
class AttentionBlock {
 public:
  /// Where rows of keys and values are read, and results written.
  using Place = std::function<std::vector<Value>(const Dim& row, const Dim& feature)>;
  struct Access {
    Value queries, keys, values, results;  // memory
    Place query, key, value, result;
  };

  AttentionBlock(LoopBuilder& lb, IndexMath& im, const Machine& machine, const AttentionForm& form,
                 AttentionMask& mask, Knobs& knobs);

  /// Queries of a block.
  int64_t queries() const { return vectors_ * lanes_; }
  /// From this many queries on a block is better than rows.
  int64_t few() const { return lanes_ / 2; }

  /// Queries in lanes, keys one by one: `rows` queries from `first` on, at most `queries()`.
  void WriteBlock(const Access& access, const Dim& first, const Dim& rows);
  /// One query; its features in lanes.
  void WriteRow(const Access& access, const Dim& query);

 private:
  struct Scratch {
    Value scores;    // [keys, queries], of a row [keys]
    Value results;   // [queries, features]
    Value greatest;  // [queries], as all that follow
    Value sum, factor;
  };
  Scratch Allocate(int64_t queries);
  Value Memory(std::vector<Dim> shape);
  void Fill(Value memory, int64_t elements, double value);
  void ForTiles(const Dim& keys,
                const std::function<void(const Dim& first, const Dim& count)>& body);

  void ClearResults(const Dim& row);
  void PackQueries(const Access& access, const Dim& first, const Dim& rows);
  void ScoreBlock(const Access& access, const Dim& key, const Dim& count);
  Value Capped(Value score);
  void NormalizeBlock(const Dim& query, const Dim& first_key, const Dim& count);
  void ScoreRow(const Access& access, const std::vector<Value>& query, const Dim& key,
                const Dim& count);
  void NormalizeRow(const Dim& query, const Dim& key, const Dim& count);
  struct Online {
    Value shift, factor;
  };
  Online Shift(Value old, Value greatest);
  Value Inverse(Value of);
  void AddValues(const Access& access, const Dim& key, const Dim& rows, const Dim& count);
  Value Finish(const Access& access, const Dim& first, const Dim& rows);
  Value ValueOf(const Access& access, const Dim& key, Value k, const Dim& feature, Value live);
  int64_t value_vectors() const { return CeilDiv(form_.value_features(), lanes_); }
  Value LiveOf(int64_t vector, int64_t features);

  LoopBuilder& lb_;
  IndexMath& im_;
  const Machine& machine_;
  const AttentionForm& form_;
  AttentionMask& mask_;
  int64_t lanes_;
  int64_t vectors_;  // of queries, in a block
  int64_t keys_;     // in a tile: where softmax starts anew, and so the order of its sums
  Value packed_;     // queries as [features, queries]
  Scratch scratch_;
  bool row_ = false;
};

}  // namespace lathe::lower
