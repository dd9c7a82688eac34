#pragma once

#include <string>
#include <string_view>

/// How a training program names what an optimizer keeps. The passes `sgd`, `adam`, `adamw`,
/// `adagrad`, `rmsprop`, `lion` and `lamb` make these variables, all of them mutable parameters of
/// the program, set to their initial values; checkpoints save them with the weights.
///
///   PARAMETER@OPTIMIZER.NAME    state of one parameter, such as `fc.weight@adamw.exp_avg`, with
///   its
///                               shape and element type; NAME is PyTorch's
///   PARAMETER@gradient.sum      the gradients of the micro-batches so far (`accumulate`)
///   optimizer@step              i64 scalar: how many updates have been made
///   optimizer@micro_step        i64 scalar: micro-batches since the last update (`accumulate`)
///   optimizer@loss_scale        f32 scalar: what the loss is multiplied by (`scale_loss`)
///   optimizer@good_steps        i64 scalar: steps with finite gradients since it has changed
///   optimizer@rate_factor       f64 scalar, initially 1: multiplies the rates
///   (`schedule=plateau`);
///                               nothing in the program changes it, the trainer does
namespace lathe {

inline constexpr std::string_view kStepCounter = "optimizer@step";
inline constexpr std::string_view kMicroStepCounter = "optimizer@micro_step";
inline constexpr std::string_view kRateFactor = "optimizer@rate_factor";
inline constexpr std::string_view kLossScale = "optimizer@loss_scale";
inline constexpr std::string_view kGoodSteps = "optimizer@good_steps";
/// The output whose gradients are taken in place of those of the loss.
inline constexpr std::string_view kScaledLoss = "scaled_loss";

/// Whether a parameter of that name belongs to an optimizer and not to the model.
bool IsOptimizerState(std::string_view name);

/// The name of what an optimizer keeps of `parameter`: `fc.weight@adamw.exp_avg`.
std::string OptimizerStateName(std::string_view parameter, std::string_view optimizer,
                               std::string_view state);

}  // namespace lathe
