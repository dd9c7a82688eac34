#include "src/dialect/nn/heads.h"

#include "lathe/dialect/eval_util.h"
#include "lathe/support/size_condition.h"
#include "lathe/support/text.h"
#include "src/dialect/move.h"

namespace lathe::nn {

SymShape HeadShape(const SymShape& shape, int64_t heads, const char* what) {
  if (!shape.ranked) return SymShape::OfRank(4);
  if (shape.rank() == 4) return shape;
  if (shape.rank() != 3) {
    eval::FailShape("shape/rank",
                    StrCat(what, " has shape ", shape.ToString(), "; rank 3 or 4 is expected"));
  }
  if (heads < 1) {
    eval::FailShape("shape/heads",
                    StrCat(what, " has rank 3, and the number of heads is not given"),
                    "set the attributes that count the heads");
  }
  Assume(SizeCondition::Divides(heads, shape.dims[2]), "shape/heads", [&] {
    return StrCat(what, ": ", shape.dims[2].ToString(), " features do not divide into ", heads,
                  " heads");
  });
  return {shape.dims[0], heads, shape.dims[1], FloorDiv(shape.dims[2], heads)};
}

Heads::Heads(const Tensor& tensor, int64_t head_count, const char* what)
    : packed_(tensor.rank() == 3), values_(ToDoubles(tensor)) {
  const auto sizes =
      eval::Concrete(HeadShape(SymShape::FromConstants(tensor.shape()), head_count, what));
  batch = sizes[0], heads = sizes[1], rows = sizes[2], features = sizes[3];
}

}  // namespace lathe::nn
