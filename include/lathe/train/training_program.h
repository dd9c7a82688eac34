#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lathe/ir/program.h"

namespace lathe::train {

/// Names of the outputs of a training program.
inline constexpr const char* kLossOutput = "loss";
inline constexpr const char* kCorrectOutput = "correct";  ///< of losses of classes

/// How a program is trained.
struct TrainingRecipe {
  /// cross_entropy, binary_cross_entropy, mse or l1, as the pass append_loss says; or the name of
  /// an output that is the loss.
  std::string loss = "cross_entropy";
  std::string output = {};  ///< which output the loss is of; empty: the only one
  int64_t class_axis = 1;   ///< of cross_entropy
  std::string target = {};  ///< name for the input of labels or targets; empty: that of append_loss
  /// Passes that update parameters by their gradients: "adamw{lr=1e-3}".
  std::string optimizer = "sgd{lr=1e-2}";
  std::vector<std::string> freeze = {};  ///< names and patterns of what is not trained
  /// Of symbols of the inputs, in the step alone. Some gradients need sizes that are known; a
  /// Trainer then takes those of its data.
  std::vector<Dim::Binding> sizes = {};
  /// What the loss is multiplied by in the first step, where parameters are f16 (the pass
  /// scale_loss); 0: gradients are those of the loss itself.
  double loss_scale = 65536;
};

/// What a recipe makes of an inference program.
struct TrainingProgram {
  /// Reads the inputs of the model and the target; gives kLossOutput, and kCorrectOutput for
  /// classes; sets parameters. Those that are f16 or bf16 in the model are f32 here (the pass
  /// master_weights).
  Program step;
  /// The same loss of the inference program. What `step` sets and this reads are inputs, under the
  /// names of `shared`.
  Program evaluation;
  /// Parameter, and the input of `evaluation` that stands for it.
  std::vector<std::pair<std::string, std::string>> shared;
  /// Parameter that `step` sets to the shard of this rank, and the shape of the whole of it.
  std::vector<std::pair<std::string, Shape>> shards;
  std::string target;        ///< the input of labels or targets; empty: the program has its own
  bool is_classes = false;   ///< labels are numbers of classes
  int64_t num_classes = -1;  ///< -1: not known
};

/// With several ranks, `step` also reads the input kRankWeight (lathe/transform/multi_devices.h)
/// and reduces its gradients over them; with `shard` each keeps states of the optimizer for a part
/// of each parameter alone. Errors: loss/... of the pass append_loss; gradient/... of
/// append_backward; train/no-parameters if nothing can be trained, with the reason; those of the
/// optimizer's passes, pass/unknown; train/optimizer if it sets no parameter.
TrainingProgram MakeTrainingProgram(const Program& inference, const TrainingRecipe& recipe,
                                    int64_t nranks = 1, bool shard = false);

}  // namespace lathe::train
