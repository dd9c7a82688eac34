#include "lathe/pass/pipeline_places.h"
#include "lathe/transform/keep_constraints.h"

namespace lathe {

namespace {

/// The pipelines, each a list in order: from which level on, passes, why there.
std::vector<NamedPipeline> OwnPipelines() {
  return {
      {"inference",
       "what every model for inference goes through",
       {
           {1, "inline", "functions to their calls"},
           {1, "lift_parameters", "the order of values is all there is"},
           {1, "maximize_value_semantics", "patterns, fusion and plans know values only"},
           {1, "infer_shape",
            "a declared type that does not follow is a claim: nothing builds on it"},
           {1, "one_spelling", "so that patterns need to know only one"},
           {1, "loop_invariants", "weights that a loop hands through are constants"},
           {1, "scalar_conditions", "what conditions are made of has one element, too"},
           {1, "expand_lists", "plans know tensors only"},
           {2, "quantized_layers", "bytes are products of bytes before weights are folded"},
           {2, "block_weights", "and what is left of small weights is unpacked in registers"},
           {2, "skip_rounding", "types of 16 bits say how values are kept"},
           {1, "widen_half", "the kernels of large operations take f32"},
           {1, "bind_sizes{told=true}", "shapes that say nothing new go, but a run may contradict"},
           {1, "simplify", "what nothing reads goes, a dropout's mask say"},
           {1, "simplify_inference{keep_used=true}",
            "batch norm to scale and shift; dropout and identity go"},
           {1, "decide_if", "branches that sizes and ranks decide"},
           {1, "tail_duplication,decide_if", "consumers of branches of two ranks have one in each"},
           {1, "scan_as_loop", "only loops have plans"},
           {1, "unify_sizes", "sizes that inputs must have, or share"},
           {1, "expand_einsum,merge_einsum", "products that are spelled as einsum"},
           {2, "conv_transpose_as_matmul,conv_transpose_as_conv",
            "there are faster kernels for them; gradients are such ones"},
           {2, "split_pool", "windows side by side have most of their elements in common"},
           {1, "fold_shapes", "what exporters compute from shapes"},
           {1, "canonicalize", "reshapes, transposes, casts that undo one another"},
           {1, "simplify", "fold, merge, drop"},
           {1, "bind_sizes", "what has no size before the program runs"},
           {2, "cancel_quantize", "what is moved may stay small"},
           {2, "decompose{ops=[nn.conv_integer,nn.qlinear_conv]}",
            "the other kernels of convolutions take floats"},
           {2, "decompose{ops=[nn.quantize_linear,nn.dequantize_linear]}",
            "by one scale they are arithmetic, which is fused"},
           {2, "decompose{ops=[nn.softmax_cross_entropy_loss]}",
            "a gradient reads the logarithms, too"},
           {2, "fuse_recurrent,join_recurrent_steps", "cells while their weights are apart"},
           {2, "precompute_prune", "what depends on weights alone"},
           {2, "fuse_activation{exact=true}", "before what is made of activations"},
           {2, "fuse_layer_norm{exact=true},fuse_gelu", "what exporters spell out, by algebra"},
           {2, "fuse_softmax{exact=true},fuse_rotary_embedding", "likewise"},
           {2, "fuse_attention", "after its softmax"},
           {2, "fuse_matmul{exact=true},absorb_attention",
            "what stands around products and attention"},
           {2, "fold_scale_axis_backward,fold_scale_axis_forward", "scales left over into weights"},
           {2, "fuse_group_norm", "after its layer norm"},
           {2, "fuse_movement,fuse_arithmetic{exact=true}",
            "what is not part of something greater"},
           {2, "conv_bias_fuse,conv_transpose_bias_fuse,fc_fuse",
            "additions into the layer before them"},
           {kByFastMath, "fold_affine", "what is left of scales and shifts"},
           {2, "byte_tables", "what is left of activations between quantized tensors"},
           {3, "combine_parallel_conv,combine_parallel_dense", "layers of one input to one layer"},
           {1, "canonicalize", "what the steps before have left"},
           {1, "simplify", "what the steps before have left"},
           {1, "release_sizes", "bound where what patterns have replaced hid them"},
           {1, "name_sizes", "after the patterns, which would take names for other sizes"},
       }},
  };
}

}  // namespace

std::vector<NamedPipeline> NamedPipelines() { return WithJoined(OwnPipelines()); }

void Optimize(Program& program, std::string_view name, int level, PassManagerOptions options) {
  options.level = level;
  PassManager manager(std::move(options));
  manager.Add(name);
  RunAndKeepConstraints(manager, program);
}

}  // namespace lathe
