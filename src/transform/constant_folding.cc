#include "src/transform/simplify.h"

namespace lathe {

class ConstantFoldingPass : public SimplifyPass {
 public:
  ConstantFoldingPass() : SimplifyPass({.fold = true, .merge = false, .drop = true}) {}
};

REGISTER_PASS(constant_folding, ConstantFoldingPass)
    .Doc("computes what follows from constants and drops what then has no reader")
    .Details(
        "The part of `simplify` that folds: ops of which all operands are constants or immutable "
        "parameters are run, and each op's own Fold is asked. Random ops and what reads mutable "
        "parameters stay; so does what would take more than `max_bytes`.")
    .Option("max_bytes", PassOption::Kind::kInt, "65536",
            "largest result, in bytes, that is computed ahead")
    .AtLeast(0);

}  // namespace lathe
