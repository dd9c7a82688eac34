#include "src/transform/simplify.h"

namespace lathe {

class CsePass : public SimplifyPass {
 public:
  CsePass() : SimplifyPass({.fold = false, .merge = true, .drop = false}) {}
};

REGISTER_PASS(cse, CsePass)
    .Doc("merges operations that compute the same from the same")
    .Details(
        "The part of `simplify` that merges. An op in a region may be replaced by one around it, "
        "never the other way round. The pass attribute `skip`, a "
        "`std::function<bool(const Operation*)>`, keeps further ops apart.")
    .Option("skip", PassOption::Kind::kStrings, "[]", "kinds of ops that are not merged");

}  // namespace lathe
