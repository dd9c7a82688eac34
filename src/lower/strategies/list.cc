#include "src/lower/strategies/list.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/lower/strategy.h"

namespace lathe::lower {
namespace {

constexpr const char* kFunctions[] = {builtin::kFunc};  // whatever their operations are
constexpr const char* kProducts[] = {nn::kMatmul, nn::kEinsum, nn::kMatmulInteger};
constexpr const char* kProductsOfNbits[] = {nn::kMatmulNbits};
constexpr const char* kConvs[] = {nn::kConv};
constexpr const char* kConvsAndThoseOfBytes[] = {nn::kConv, nn::kConvBytes};
constexpr const char* kTransposedConvs[] = {nn::kConvTranspose};
constexpr const char* kPools[] = {nn::kMaxPool,       nn::kAveragePool,       nn::kLpPool,
                                  nn::kGlobalMaxPool, nn::kGlobalAveragePool, nn::kGlobalLpPool};
constexpr const char* kResizes[] = {nn::kResize};
constexpr const char* kAttentions[] = {nn::kAttention};
constexpr const char* kRecurrentLayers[] = {nn::kRnn, nn::kGru, nn::kLstm};
constexpr const char* kAlongLines[] = {nn::kArgMax, nn::kArgMin, nn::kCumSum, nn::kCumProd,
                                       nn::kHardmax};

constexpr LoopStrategy kStrategies[] = {
    {"matmul_tiles", &LowerMatmulTiles, kProducts},
    {"matmul_bytes", &LowerMatmulBytes, kProducts},
    {"matmul_bf16", &LowerMatmulBf16, kProducts},
    {"matmul_bf16x3", &LowerMatmulBf16x3, kProducts},
    {"matmul_nbits", &LowerMatmulNbits, kProductsOfNbits},
    {"matmul_dots", &LowerMatmulDots, kProducts},
    {"matmul", &LowerMatmul, kProducts},
    {"conv_depthwise_far", &LowerConvDepthwiseFar, kConvs},
    {"conv_channel_lanes", &LowerConvChannelLanes, kConvs},
    {"conv_depthwise", &LowerConvDepthwise, kConvs},
    {"conv_depthwise_blocks", &LowerConvDepthwiseBlocks, kConvs},
    {"conv_tiles", &LowerConvTiles, kConvs},
    {"conv_winograd", &LowerConvWinograd, kConvs},
    {"conv_few_positions", &LowerConvFewPositions, kConvs},
    {"conv_filter_lanes", &LowerConvFilterLanes, kConvsAndThoseOfBytes},
    {"conv", &LowerConv, kConvs},
    {"conv_transpose", &LowerConvTranspose, kTransposedConvs},
    {"pool_global", &LowerPoolGlobal, kPools},
    {"pool", &LowerPool, kPools},
    {"pool_blocks", &LowerPoolBlocks, kPools},
    {"resize", &LowerResize, kResizes},
    {"attention", &LowerAttention, kAttentions},
    {"recurrent", &LowerRecurrent, kRecurrentLayers},
    {"lines", &LowerLines, kAlongLines},
    {"elementwise", &LowerElementwise, kFunctions},
    {"rows", &LowerRows, kFunctions},
    {kLastResort, &LowerLoops, kFunctions},
};

OpStrategy StrategyOf(std::string_view op) {
  OpStrategy strategy;
  for (const LoopStrategy& s : kStrategies) {
    const bool serves = std::ranges::find(s.ops, op) != s.ops.end();
    if (serves) strategy.Add({.name = s.name, .lower = s.lower});
  }
  return strategy;
}

}  // namespace

std::span<const LoopStrategy> LoopStrategies() { return kStrategies; }

void RegisterLoopStrategies(StrategyRegistry& registry) {
  std::set<std::string_view> ops;
  for (const LoopStrategy& s : kStrategies) ops.insert(s.ops.begin(), s.ops.end());
  for (const std::string_view op : ops) {
    registry.Register(op, StrategyRegistry::kOwnKey,
                      [op](const OpCall&) { return StrategyOf(op); });
  }
}

}  // namespace lathe::lower
