#pragma once

#include <span>

#include "lathe/lower/lowering.h"

/// One strategy, one file; each writes a body of loops, terminator included, or says in `why` that
/// the function is none of its kind. In that case nothing was written.
namespace lathe {
class StrategyRegistry;
}

namespace lathe::lower {

struct LoopStrategy {
  const char* name;
  bool (*lower)(Lowering& lowering);
  std::span<const char* const> ops;  ///< a function with one of these may be computed by it
};

/// The strategies that come with Lathe, in order of preference.
std::span<const LoopStrategy> LoopStrategies();
/// Registers them for their ops, under StrategyRegistry::kOwnKey.
void RegisterLoopStrategies(StrategyRegistry& registry);

/// What serves where no other does.
inline constexpr const char* kLastResort = "loops";

/// Most of them: `Refusal()` says why not, `Write()` writes.
template <class Strategy>
bool WriteUnlessRefused(Lowering& l) {
  Strategy strategy(l);
  l.why = strategy.Refusal();
  if (!l.why.empty()) return false;
  strategy.Write();
  return true;
}

bool LowerElementwise(Lowering& lowering);
bool LowerMatmulTiles(Lowering& lowering);
bool LowerMatmulBytes(Lowering& lowering);
bool LowerMatmulBf16(Lowering& lowering);
bool LowerMatmulBf16x3(Lowering& lowering);
bool LowerMatmulNbits(Lowering& lowering);
bool LowerMatmulDots(Lowering& lowering);
bool LowerMatmul(Lowering& lowering);
bool LowerConv(Lowering& lowering);
bool LowerConvTiles(Lowering& lowering);
bool LowerConvWinograd(Lowering& lowering);
bool LowerConvFilterLanes(Lowering& lowering);
bool LowerConvChannelLanes(Lowering& lowering);
bool LowerConvDepthwise(Lowering& lowering);
bool LowerConvDepthwiseFar(Lowering& lowering);
bool LowerConvDepthwiseBlocks(Lowering& lowering);
bool LowerConvFewPositions(Lowering& lowering);
bool LowerConvTranspose(Lowering& lowering);
bool LowerPoolGlobal(Lowering& lowering);
bool LowerPool(Lowering& lowering);
bool LowerPoolBlocks(Lowering& lowering);
bool LowerResize(Lowering& lowering);
bool LowerRows(Lowering& lowering);
bool LowerAttention(Lowering& lowering);
bool LowerRecurrent(Lowering& lowering);
bool LowerLines(Lowering& lowering);
bool LowerLoops(Lowering& lowering);

}  // namespace lathe::lower
