#pragma once

#include "lathe/lower/lowering.h"

/// One strategy, one file; each writes a body of loops, terminator included, or says in `why` that
/// the function is none of its kind. In that case nothing was written.
namespace lathe::lower {

struct LoopStrategy {
  const char* name;
  bool (*lower)(Lowering& lowering);
};

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
bool LowerMatmulNbits(Lowering& lowering);
bool LowerMatmulDots(Lowering& lowering);
bool LowerMatmul(Lowering& lowering);
bool LowerConv(Lowering& lowering);
bool LowerConvTiles(Lowering& lowering);
bool LowerConvWinograd(Lowering& lowering);
bool LowerConvFilterLanes(Lowering& lowering);
bool LowerConvChannelLanes(Lowering& lowering);
bool LowerConvDepthwise(Lowering& lowering);
bool LowerConvDepthwiseBlocks(Lowering& lowering);
bool LowerConvFewPositions(Lowering& lowering);
bool LowerConvTranspose(Lowering& lowering);
bool LowerConvTransposeBlocks(Lowering& lowering);
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
