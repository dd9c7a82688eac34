#include "src/driver/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lathe/support/error.h"

namespace lathe {
namespace {

struct Candidate {
  int64_t token;
  double weight;  // of the softmax, without its denominator
};

// Of equal ones the first token, so that nothing depends on how they are sorted.
bool IsLikelier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}
bool IsLessLikely(const Candidate& a, const Candidate& b) { return IsLikelier(b, a); }

Error BadOption(const std::string& what) {
  return {ErrorCode::kInvalidArgument, "generate/option", what};
}

int64_t Likeliest(std::span<const double> logits) {
  int64_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) {
      throw Error(ErrorCode::kInvalidArgument, "generate/logits",
                  StrCat("the logit of token ", i, " is NaN"));
    }
    if (logits[i] > logits[static_cast<size_t>(best)]) best = static_cast<int64_t>(i);
  }
  if (logits.empty() || !std::isfinite(logits[static_cast<size_t>(best)])) {
    throw Error(ErrorCode::kInvalidArgument, "generate/logits", "the largest logit is not finite");
  }
  return best;
}

double TotalOf(std::span<const Candidate> candidates) {
  double total = 0;
  for (const Candidate& c : candidates) total += c.weight;
  return total;
}

void KeepTopK(std::vector<Candidate>& all, int64_t k) {
  if (k == 0 || std::cmp_less_equal(all.size(), k)) return;
  std::nth_element(all.begin(), all.begin() + k, all.end(), IsLikelier);
  all.resize(static_cast<size_t>(k));
  std::ranges::sort(all, {}, &Candidate::token);
}

// A heap, because few of many tokens are kept.
void KeepTopP(std::vector<Candidate>& all, double p) {
  if (p >= 1) return;
  const double wanted = p * TotalOf(all);
  std::ranges::make_heap(all, IsLessLikely);
  double sum = 0;
  auto end = all.end();
  while (end != all.begin() && sum < wanted) {
    std::pop_heap(all.begin(), end, IsLessLikely);
    sum += (--end)->weight;
  }
  all.erase(all.begin(), end);
  std::ranges::sort(all, {}, &Candidate::token);
}

}  // namespace

void CheckSampling(const GenerateOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    throw BadOption(StrCat("a temperature of ", options.temperature));
  }
  if (options.top_k < 0) throw BadOption(StrCat("top_k is ", options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw BadOption(StrCat("top_p is ", options.top_p, ", not within (0, 1]"));
  }
  if (options.temperature == 0 && (options.top_k > 0 || options.top_p < 1)) {
    throw BadOption("top_k and top_p are for drawing tokens; a temperature of 0 draws none")
        .Hint("give a temperature, such as 1");
  }
}

int64_t ChooseToken(std::span<const double> logits, const GenerateOptions& options, double random) {
  const int64_t likeliest = Likeliest(logits);
  if (options.temperature == 0) return likeliest;
  const double largest = logits[static_cast<size_t>(likeliest)];
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((logits[i] - largest) / options.temperature);
    candidates.push_back({static_cast<int64_t>(i), weight});
  }
  KeepTopK(candidates, options.top_k);
  KeepTopP(candidates, options.top_p);
  const double wanted = random * TotalOf(candidates);
  double sum = 0;
  for (const Candidate& c : candidates) {
    sum += c.weight;
    if (sum > wanted) return c.token;
  }
  return likeliest;  // rounding: the sum is a little less than the total
}

}  // namespace lathe
