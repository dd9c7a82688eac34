#pragma once

#include "src/lower/attention_form.h"
#include "src/lower/index_math.h"

namespace lathe::lower {

/// Which keys a query may look at, and what is added to their scores.
class AttentionMask {
 public:
  AttentionMask(LoopBuilder& lb, IndexMath& im, const AttentionForm& form, const Block& body)
      : lb_(lb), im_(im), form_(form), body_(body) {}

  /// A query head of a batch. Keys from `keys` on do not exist.
  void SetHead(const Dim& batch, const Dim& head, const Dim& keys);
  /// Keys from there on are masked for all queries before `last`.
  Dim KeysFor(const Dim& last);
  /// The scores of neighboring queries for one key, or with `along_keys` of one query for
  /// neighboring keys.
  Value Apply(Value scores, const Dim& query, const Dim& key, bool along_keys, int64_t lanes,
              Value live);

  /// Of the head, whatever masks say of them.
  const Dim& keys() const { return keys_; }

 private:
  Value I32(const Dim& value);
  Value Numbers(const Dim& first, int64_t lanes);
  Value Allowed(Value query, Value key);
  Value LoadMask(const Dim& query, const Dim& key, bool along_keys, int64_t lanes, Value live);

  LoopBuilder& lb_;
  IndexMath& im_;
  const AttentionForm& form_;
  const Block& body_;
  Dim batch_, head_, keys_;
  Value offset_;  // i32: what a query's number is short of its position
};

}  // namespace lathe::lower
