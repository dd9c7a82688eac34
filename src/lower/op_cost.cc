#include "src/lower/op_cost.h"

#include <array>
#include <string_view>
#include <utility>

#include "lathe/dialect/nn/op_names.h"

namespace lathe::lower {

int InstructionsOf(const Operation& op) {
  constexpr std::array<std::pair<std::string_view, int>, 18> kCosts = {{{nn::kExp, 14},
                                                                        {nn::kLookup, 16},
                                                                        {nn::kLog, 18},
                                                                        {nn::kTanh, 24},
                                                                        {nn::kErf, 28},
                                                                        {nn::kSigmoid, 20},
                                                                        {nn::kDiv, 4},
                                                                        {nn::kSqrt, 4},
                                                                        {nn::kGelu, 32},
                                                                        {nn::kSoftplus, 34},
                                                                        {nn::kElu, 16},
                                                                        {nn::kSelu, 16},
                                                                        {nn::kMish, 60},
                                                                        {nn::kSin, 30},
                                                                        {nn::kCos, 30},
                                                                        {nn::kTan, 40},
                                                                        {nn::kPow, 80},
                                                                        {nn::kMod, 8}}};
  for (const auto& [name, cost] : kCosts) {
    if (op.name() == name) return cost;
  }
  return 1;
}

}  // namespace lathe::lower
