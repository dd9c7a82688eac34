#include "src/dialect/nn/rnn_activation.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "lathe/support/text.h"

namespace lathe::nn {
namespace {

using Function = double (*)(double x, double alpha, double beta);

struct Entry {
  const char* name;
  Function f;
  bool takes_alpha, takes_beta;
  double alpha, beta;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

const Entry kEntries[] = {
    {"Affine", [](double x, double a, double b) { return a * x + b; }, true, true, 1, 0},
    {"Elu", [](double x, double a, double) { return x >= 0 ? x : a * std::expm1(x); }, true, false,
     1, 0},
    {"HardSigmoid", [](double x, double a, double b) { return std::clamp(a * x + b, 0.0, 1.0); },
     true, true, 0.2, 0.5},
    {"LeakyRelu", [](double x, double a, double) { return x >= 0 ? x : a * x; }, true, false, 0.01,
     0},
    {"Relu", [](double x, double, double) { return x < 0 ? 0 : x; }, false, false, 0, 0},
    {"ScaledTanh", [](double x, double a, double b) { return a * std::tanh(b * x); }, true, true, 1,
     1},
    {"Sigmoid", [](double x, double, double) { return Sigmoid(x); }, false, false, 0, 0},
    {"Softplus",
     [](double x, double, double) {
       return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
     },
     false, false, 0, 0},
    {"Softsign", [](double x, double, double) { return x / (1 + std::fabs(x)); }, false, false, 0,
     0},
    {"Tanh", [](double x, double, double) { return std::tanh(x); }, false, false, 0, 0},
    {"ThresholdedRelu", [](double x, double a, double) { return x > a ? x : 0; }, true, false, 1,
     0},
};

bool SameName(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

const Entry& EntryOf(const std::string& name) {
  std::string names;
  for (const Entry& entry : kEntries) {
    if (SameName(entry.name, name)) return entry;
    names += StrCat(names.empty() ? "" : ", ", entry.name);
  }
  eval::FailArgument("rnn/activation", StrCat("unknown activation ", Quote(name.substr(0, 100))),
                     StrCat("one of ", names));
}

double Next(std::span<const double>& values, bool taken, double fallback) {
  if (!taken || values.empty()) return fallback;
  const double value = values.front();
  values = values.subspan(1);
  return value;
}

}  // namespace

std::vector<Activation> ActivationsOf(std::span<const std::string> names,
                                      std::span<const double> alphas,
                                      std::span<const double> betas) {
  std::vector<Activation> activations;
  for (const ActivationName& a : ActivationNamesOf(names, alphas, betas)) {
    const Function f = EntryOf(std::string(a.name)).f;
    activations.emplace_back([f, a](double x) { return f(x, a.alpha, a.beta); });
  }
  return activations;
}

std::vector<ActivationName> ActivationNamesOf(std::span<const std::string> names,
                                              std::span<const double> alphas,
                                              std::span<const double> betas) {
  std::vector<ActivationName> all;
  for (const std::string& name : names) {
    const Entry& entry = EntryOf(name);
    const double alpha = Next(alphas, entry.takes_alpha, entry.alpha);
    const double beta = Next(betas, entry.takes_beta, entry.beta);
    all.push_back({entry.name, alpha, beta});
  }
  return all;
}

}  // namespace lathe::nn
