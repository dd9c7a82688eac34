#include "src/transform/simplify.h"

namespace lathe {

class DeadCodePass : public SimplifyPass {
 public:
  DeadCodePass() : SimplifyPass({.fold = false, .merge = false, .drop = true}) {}
};

REGISTER_PASS(dead_code, DeadCodePass)
    .Doc("drops operations whose results nobody reads and that have no side effect")
    .Details(
        "The part of `simplify` that drops. Inputs of the program stay; `prune` drops them too.");

}  // namespace lathe
