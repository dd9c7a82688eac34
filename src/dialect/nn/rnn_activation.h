#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::nn {

using Activation = std::function<double(double)>;

/// Which function an activation is: its ONNX name and what it takes.
struct ActivationName {
  std::string_view name;
  double alpha, beta;
};

// The activations of a recurrent layer by their ONNX names (case does not count), each with the
// next unused alpha and beta if it takes them, else with the defaults of the operator of that name.
// Throws rnn/activation for an unknown name.
std::vector<Activation> ActivationsOf(std::span<const std::string> names,
                                      std::span<const double> alphas,
                                      std::span<const double> betas);

/// The same as names.
std::vector<ActivationName> ActivationNamesOf(std::span<const std::string> names,
                                              std::span<const double> alphas,
                                              std::span<const double> betas);

}  // namespace lathe::nn
