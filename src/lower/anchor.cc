#include "src/lower/anchor.h"

#include "lathe/support/text.h"

namespace lathe::lower {

std::string FindAnchor(const Block& function, std::string_view what,
                       const std::function<bool(const Operation&)>& is_one,
                       const Operation*& anchor) {
  anchor = nullptr;
  for (const Operation& op : function) {
    if (!is_one(op)) continue;
    if (anchor != nullptr) return StrCat("there are two ", what, "s");
    anchor = &op;
  }
  return anchor == nullptr ? StrCat("there is no ", what) : "";
}

bool ReadsArguments(const Operation& op, size_t first) {
  for (size_t i = first; i < op.num_operands(); ++i) {
    if (op.operand(i) && !op.operand(i).is_block_argument()) return false;
  }
  return true;
}

}  // namespace lathe::lower
