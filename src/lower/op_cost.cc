#include "src/lower/op_cost.h"

#include <array>
#include <string_view>
#include <utility>

namespace lathe::lower {

int InstructionsOf(const Operation& op) {
  constexpr std::array<std::pair<std::string_view, int>, 18> kCosts = {{{"nn.exp", 14},
                                                                        {"nn.lookup", 16},
                                                                        {"nn.log", 18},
                                                                        {"nn.tanh", 24},
                                                                        {"nn.erf", 28},
                                                                        {"nn.sigmoid", 20},
                                                                        {"nn.div", 4},
                                                                        {"nn.sqrt", 4},
                                                                        {"nn.gelu", 32},
                                                                        {"nn.softplus", 34},
                                                                        {"nn.elu", 16},
                                                                        {"nn.selu", 16},
                                                                        {"nn.mish", 60},
                                                                        {"nn.sin", 30},
                                                                        {"nn.cos", 30},
                                                                        {"nn.tan", 40},
                                                                        {"nn.pow", 80},
                                                                        {"nn.mod", 8}}};
  for (const auto& [name, cost] : kCosts) {
    if (op.name() == name) return cost;
  }
  return 1;
}

}  // namespace lathe::lower
