#include "src/lower/master.h"

#include "lathe/support/text.h"

namespace lathe::lower {

std::string FindMaster(const Block& function, std::string_view what,
                       const std::function<bool(const Operation&)>& is_one,
                       const Operation*& master) {
  master = nullptr;
  for (const Operation& op : function) {
    if (!is_one(op)) continue;
    if (master != nullptr) return StrCat("there are two ", what, "s");
    master = &op;
  }
  return master == nullptr ? StrCat("there is no ", what) : "";
}

bool ReadsArguments(const Operation& op, size_t first) {
  for (size_t i = first; i < op.num_operands(); ++i) {
    if (op.operand(i) && !op.operand(i).is_block_argument()) return false;
  }
  return true;
}

}  // namespace lathe::lower
