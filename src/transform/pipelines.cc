#include "lathe/pass/pass_manager.h"

namespace lathe {

/// The pipelines, each a list in order.
std::vector<NamedPipeline> NamedPipelines() {
  return {
      {"inference", "what every model for inference goes through",
       "simplify,"            // drop what nothing reads, a dropout's mask say
       "simplify_inference,"  // batch norm to scale and shift; dropout and identity go
       "fold_shapes,"         // what exporters compute from shapes
       "canonicalize,"        // reshapes, transposes, casts that undo one another
       "simplify,"            // fold, merge, drop
       "precompute_prune,"    // what depends on weights alone
       "fold_scale_axis_backward,fold_scale_axis_forward,"  // the scales into weights
       "fuse_layer_norm,fuse_gelu,fuse_softmax,"            // what exporters spell out, by algebra
       "fuse_attention,"                                    // after its softmax
       "conv_bias_fuse,fc_fuse,"                            // additions into the layer before them
       "canonicalize,"
       "simplify"},
  };
}

void Optimize(Program& program, std::string_view name, int level, PassManagerOptions options) {
  if (level <= 0) return;
  PassManager manager(std::move(options));
  manager.Add(name);
  manager.Run(program);
}

}  // namespace lathe
