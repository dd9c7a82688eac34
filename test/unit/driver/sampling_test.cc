#include "src/driver/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "lathe/support/error.h"
#include "lathe/support/random.h"

namespace lathe {
namespace {

// The definition: softmax over what is left of a sorted list, in plain steps.
std::map<int64_t, double> Probabilities(const std::vector<double>& logits,
                                        const GenerateOptions& options) {
  std::vector<int64_t> sorted(logits.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  const auto logit = [&](int64_t i) { return logits[static_cast<size_t>(i)]; };
  std::ranges::stable_sort(sorted, [&](int64_t a, int64_t b) { return logit(a) > logit(b); });
  if (options.top_k > 0) sorted.resize(std::min<size_t>(sorted.size(), options.top_k));
  const auto normalize = [](std::vector<double>& weights) {
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& w : weights) w /= total;
  };
  std::vector<double> weights;
  for (const int64_t i : sorted) weights.push_back(std::exp(logit(i) / options.temperature));
  normalize(weights);
  size_t kept = 0;
  for (double sum = 0; kept < weights.size() && sum < options.top_p; ++kept) sum += weights[kept];
  weights.resize(kept);
  normalize(weights);
  std::map<int64_t, double> probabilities;
  for (size_t i = 0; i < kept; ++i) probabilities[sorted[i]] = weights[i];
  return probabilities;
}

std::map<int64_t, double> Shares(const std::vector<double>& logits, const GenerateOptions& options,
                                 int draws) {
  std::map<int64_t, double> shares;
  for (int i = 0; i < draws; ++i) {
    shares[ChooseToken(logits, options, (i + 0.5) / draws)] += 1.0 / draws;
  }
  return shares;
}

std::vector<double> RandomLogits(size_t count) {
  RandomStream random(3);
  std::vector<double> logits;
  for (size_t i = 0; i < count; ++i) logits.push_back(3 * random.Normal());
  return logits;
}

TEST(Sampling, SharesAreProbabilities) {
  const std::vector<double> logits = RandomLogits(40);
  constexpr int kDraws = 20000;
  for (const double temperature : {0.7, 1.0, 2.0}) {
    for (const int64_t top_k : {0, 1, 7, 100}) {
      for (const double top_p : {0.2, 0.9, 1.0}) {
        const GenerateOptions options{.temperature = temperature, .top_k = top_k, .top_p = top_p};
        const auto wanted = Probabilities(logits, options);
        const auto got = Shares(logits, options, kDraws);
        for (const auto& [token, share] : got) {
          ASSERT_TRUE(wanted.contains(token)) << token;
          EXPECT_NEAR(share, wanted.at(token), 2.0 / kDraws);
        }
        for (const auto& [token, share] : wanted) {
          EXPECT_TRUE(got.contains(token) || share < 2.0 / kDraws) << token;
        }
      }
    }
  }
}

TEST(Sampling, FirstOfEqualTokens) {
  const std::vector<double> logits = {1, 5, 2, 5, 5};
  EXPECT_EQ(ChooseToken(logits, {}, 0.9), 1);
  const GenerateOptions two{.temperature = 1, .top_k = 2};
  EXPECT_EQ(ChooseToken(logits, two, 0.1), 1);
  EXPECT_EQ(ChooseToken(logits, two, 0.9), 3);
}

TEST(Sampling, TokensThatAreRuledOutAreNotDrawn) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const std::vector<double> logits = {kNever, 0, kNever, 0};
  const GenerateOptions options{.temperature = 1};
  EXPECT_EQ(ChooseToken(logits, options, 0.0), 1);
  EXPECT_EQ(ChooseToken(logits, options, std::nextafter(1.0, 0.0)), 3);
}

template <class F>
std::string IdOf(F&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.id();
  }
  return "";
}

TEST(Sampling, LogitsThatAreNoneAreErrors) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& logits :
       {std::vector<double>{1, std::nan("")}, {1, kInfinity}, {-kInfinity, -kInfinity}, {}}) {
    EXPECT_EQ(IdOf([&] { ChooseToken(logits, {}, 0); }), "generate/logits");
  }
}

TEST(Sampling, OptionsOutOfRangeAreErrors) {
  for (const GenerateOptions& options :
       {GenerateOptions{.temperature = -1}, GenerateOptions{.temperature = std::nan("")},
        GenerateOptions{.temperature = 1, .top_k = -1}, GenerateOptions{.top_k = 3},
        GenerateOptions{.top_p = 0.5}, GenerateOptions{.temperature = 1, .top_p = 0},
        GenerateOptions{.temperature = 1, .top_p = 1.5}}) {
    EXPECT_EQ(IdOf([&] { CheckSampling(options); }), "generate/option");
  }
  CheckSampling({.temperature = 0.5, .top_k = 1, .top_p = 1});
}

}  // namespace
}  // namespace lathe
