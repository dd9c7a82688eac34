#include "lathe/lower/lower_function.h"

#include <array>

#include "lathe/support/error.h"
#include "src/lower/strategy_list.h"

namespace lathe::lower {
namespace {

// In order of preference.
constexpr std::array kStrategies = {
    LoopStrategy{"elementwise", &LowerElementwise},
    LoopStrategy{"matmul", &LowerMatmul},
};

// A block with the same arguments as the function's.
Block* AddBodyLike(const Block& old, Region& region) {
  Block* body = region.AddBlock();
  for (size_t i = 0; i < old.num_arguments(); ++i) body->AddArgument(old.argument(i).type());
  return body;
}

}  // namespace

Lowered LowerFunction(Operation* function, const Machine& machine) {
  Lowered lowered;
  Region& region = function->region(0);
  for (const LoopStrategy& strategy : kStrategies) {
    Region loops(function);
    std::string why;
    if (strategy.lower(*region.front(), AddBodyLike(*region.front(), loops), machine, why)) {
      region.Clear();
      region.TakeBody(loops);
      lowered.done = true;
      lowered.strategy = strategy.name;
      return lowered;
    }
    lowered.why_not += StrCat(lowered.why_not.empty() ? "" : "; ", strategy.name, ": ", why);
  }
  return lowered;
}

}  // namespace lathe::lower
