#pragma once

#include <vector>

#include "lathe/pass/pass.h"
#include "src/dialect/nn/term.h"

namespace lathe {

/// The options `clip_value`, `clip_norm` and `clip_global_norm` of every optimizer.
void AddClipOptions(PassRegistrar& pass);

/// Clips the gradients as the options say: each element to [-clip_value, clip_value], then each
/// gradient to the L2 norm clip_norm, then all together to clip_global_norm. A norm above c is
/// brought down by the factor c / (norm + 1e-6), as torch.nn.utils.clip_grad_norm_ does.
/// With several `nranks`, each rank has a shard of each gradient.
void ClipGradients(const Pass& pass, std::vector<nn::Term>& gradients, int64_t nranks);

/// The L2 norm, a scalar, of a tensor of which each rank has a shard.
nn::Term NormOf(const nn::Term& x, int64_t nranks);

}  // namespace lathe
