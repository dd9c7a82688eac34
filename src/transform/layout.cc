#include <algorithm>
#include <numeric>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/fold.h"
#include "lathe/pass/pass.h"
#include "src/transform/layout_region.h"

namespace lathe {

namespace {

/// Convolutions and pools: what is worth a transpose for the sake of its layout.
constexpr const char* kAnchors[] = {nn::kConv, nn::kMaxPool, nn::kAveragePool, nn::kGlobalMaxPool,
                                    nn::kGlobalAveragePool};

Permutation ToLast(size_t rank) {
  Permutation perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
  return perm;
}

}  // namespace

/// Convolutions and pools get the wanted layout; transposes stand only around what does not commute
/// with the change.
class LayoutPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const std::string to = option("to");
    if (to != "nhwc" && to != "nchw") {
      throw Error(ErrorCode::kInvalidArgument, "layout/to", StrCat("there is no layout '", to, "'"))
          .Hint("it is nchw or nhwc");
    }
    std::vector<Block*> blocks{graph.block()};
    for (OpWalker w(graph.block()); Operation* op = w.Next();) {
      for (const Region& region : op->regions()) {
        for (Block& block : region) blocks.push_back(&block);
      }
    }
    Rewriter rewriter(graph.program(), this);
    for (Block* block : blocks) Convert(block, to == "nhwc", rewriter);
    MergeTransposes(graph.program(), this);
  }

 private:
  static bool IsAnchor(const Operation& op, bool to_last) {
    const auto is = [&](const char* name) { return op.name() == name; };
    if (std::none_of(std::begin(kAnchors), std::end(kAnchors), is)) return false;
    const auto layout = op.attribute("layout").dyn_cast<StrAttribute>();
    return (layout && layout.value() == "NHWC") != to_last;
  }

  void Convert(Block* block, bool to_last, Rewriter& rewriter) {
    ProgramConstants constants(rewriter.program());
    LayoutRegion region(rewriter, constants, block, to_last ? "NHWC" : "NCHW");
    int64_t anchors = 0;
    for (Operation& op : *block) {
      if (!IsAnchor(op, to_last)) continue;  // which has an input
      const auto type = op.operand(0).type().dyn_cast<AnyTensorType>();
      if (!type || !type.has_rank() || type.rank() < 3) {
        Missed(&op, "the rank of its input is not known");
        continue;
      }
      const Permutation perm = ToLast(type.rank());
      if (region.AddAnchor(&op, to_last ? perm : Inverse(perm))) {
        ++anchors;
      } else {
        Missed(&op, "it cannot work in this layout");
      }
    }
    if (anchors == 0) return;
    region.Solve();
    region.Apply();
    Count("converted", anchors);
  }
};

REGISTER_PASS(layout, LayoutPass)
    .Doc("gives convolutions and pools another layout of their channels")
    .Details(
        "`nhwc` puts the channels last, `nchw` at axis 1, by the attribute `layout` of the ops. "
        "What lies between them and commutes with the change (interface Permute) works in the new "
        "layout; the transposes that are left are the fewest that do. They are named after what "
        "they read and the layout.")
    .Option("to", PassOption::Kind::kString, "nhwc", "nhwc or nchw");

}  // namespace lathe
