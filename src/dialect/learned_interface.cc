#include "lathe/dialect/learned_interface.h"

#include <algorithm>

namespace lathe {

bool LearnedContext::Flag(const char* name) const {
  Attribute value = attributes_.Find(name);
  const auto names = op_.impl()->attribute_names();
  for (size_t i = 0; i < names.size() && !value; ++i) {
    if (names[i].value() == name) value = op_.impl()->default_value(i);
  }
  const auto flag = value.dyn_cast<BoolAttribute>();
  return flag && flag.value();
}

bool LearnedContext::IsWeight(size_t operand) const {
  return std::find(weights_.begin(), weights_.end(), operand) != weights_.end();
}

}  // namespace lathe
