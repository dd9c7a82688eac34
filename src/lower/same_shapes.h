#pragma once

#include <vector>

#include "src/lower/dataflow.h"

namespace lathe {

/// Of rank 0.
bool IsScalar(Value v);

/// Which values of a block have the same shape whatever the symbols are.
class SameShapes {
 public:
  explicit SameShapes(const Dataflow& flow);
  bool Same(Value a, Value b) const;

 private:
  Value Representative(Value v) const { return Representative(v, flow_.producer(v)); }
  Value Representative(Value v, uint32_t id) const {
    return id == Dataflow::kNone || v.index() > 0 || !like_[id] ? v : like_[id];
  }
  Value Like(uint32_t id) const;

  const Dataflow& flow_;
  std::vector<Value> like_;
};

}  // namespace lathe
