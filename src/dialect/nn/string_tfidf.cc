// The n-gram counter of the string family.
#include "src/dialect/nn/string_tfidf.h"

#include <algorithm>
#include <map>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/string.h"
#include "lathe/support/error.h"

namespace lathe::nn {

namespace {

[[noreturn]] void FailPool(std::string message) {
  eval::FailArgument("run/tf-idf", std::move(message));
}

// Words or numbers as small numbers; 0 for those not in the pool.
template <class T>
class Alphabet {
 public:
  explicit Alphabet(const std::vector<T>& pool) {
    for (const T& token : pool)
      pool_.push_back(numbers_.try_emplace(token, numbers_.size() + 1).first->second);
  }
  const std::vector<size_t>& pool() const { return pool_; }
  size_t operator()(const T& token) const {
    const auto found = numbers_.find(token);
    return found == numbers_.end() ? 0 : found->second;
  }

 private:
  std::map<T, size_t> numbers_;
  std::vector<size_t> pool_;
};

// Numbers of the n-grams of the pool, in its order.
class Grams {
 public:
  Grams(TfIdfVectorizerOp op, const std::vector<size_t>& pool) {
    for (const PoolGram& gram : PoolGramsOf(op, pool.size())) {
      const auto first = pool.begin() + static_cast<std::ptrdiff_t>(gram.begin);
      numbers_[{first, first + static_cast<std::ptrdiff_t>(gram.length)}].push_back(count_++);
    }
  }
  size_t count() const { return count_; }
  /// The numbers of an n-gram; null if it is not in the pool.
  const std::vector<size_t>* Find(const std::vector<size_t>& gram) const {
    const auto found = numbers_.find(gram);
    return found == numbers_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::vector<size_t>, std::vector<size_t>> numbers_;
  size_t count_ = 0;
};

struct Vectorizer {
  Vectorizer(TfIdfVectorizerOp op, const std::vector<size_t>& pool)
      : grams(op, pool),
        places(op.ngram_indexes()),
        mode(op.mode()),
        weights(op.weights().value_or(std::vector<double>(places.size(), 1))),
        shortest(op.min_gram_length()),
        longest(op.max_gram_length()),
        skips(op.max_skip_count()) {}

  // Adds every n-gram of `n` tokens, `step` apart.
  void Count(std::span<const size_t> row, size_t n, size_t step,
             std::vector<double>& counts) const {
    for (size_t begin = 0; begin + (n - 1) * step < row.size(); ++begin) {
      std::vector<size_t> gram;
      for (size_t k = 0; k < n; ++k) gram.push_back(row[begin + k * step]);
      if (const auto* numbers = grams.Find(gram)) {
        for (const size_t number : *numbers) ++counts[number];
      }
    }
  }

  void Row(std::span<const size_t> row, std::span<float> out) const {
    std::vector<double> counts(grams.count(), 0);
    const auto size = static_cast<int64_t>(row.size());
    for (int64_t n = shortest; n <= std::min(longest, size); ++n) {
      // Single tokens have no distance to vary; longer ones must fit into the row.
      const int64_t most = n == 1 ? 0 : std::min(skips, (size - 1) / (n - 1) - 1);
      for (int64_t skip = 0; skip <= most; ++skip) {
        Count(row, static_cast<size_t>(n), static_cast<size_t>(skip) + 1, counts);
      }
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      const double count = mode == "IDF" ? std::min(counts[i], 1.0) : counts[i];
      out[static_cast<size_t>(places[i])] +=
          static_cast<float>(mode == "TF" ? count : count * weights[i]);
    }
  }

  Grams grams;
  std::vector<int64_t> places;
  std::string mode;
  std::vector<double> weights;
  int64_t shortest, longest, skips;
};

int64_t Width(TfIdfVectorizerOp op) {
  const auto places = op.ngram_indexes();
  if (places.empty()) return 0;
  const int64_t last = *std::max_element(places.begin(), places.end());
  if (last == INT64_MAX) FailPool("an entry of ngram_indexes is too large");
  return last + 1;
}

SymShape TfIdfRule(const SymShape& in, int64_t width) {
  if (!in.ranked) return {};
  if (in.rank() == 1) return {width};
  if (in.rank() == 2) return {in.dims[0], width};
  eval::FailShape("shape/tf-idf", StrCat("the input must have rank 1 or 2, not ", in.rank()));
}

template <class T>
void Vectorize(TfIdfVectorizerOp op, std::span<const T> tokens, const std::vector<T>& pool,
               size_t rows, Tensor& out) {
  const Alphabet<T> alphabet(pool);
  const Vectorizer vectorizer(op, alphabet.pool());
  std::vector<size_t> numbers;
  for (const T& token : tokens) numbers.push_back(alphabet(token));
  const auto values = out.mutable_data<float>();
  const size_t length = rows == 0 ? 0 : numbers.size() / rows;
  const size_t width = rows == 0 ? 0 : values.size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    vectorizer.Row(std::span(numbers).subspan(row * length, length),
                   values.subspan(row * width, width));
  }
}

}  // namespace

std::vector<PoolGram> PoolGramsOf(TfIdfVectorizerOp op, size_t pool) {
  std::vector<PoolGram> grams;
  const auto starts = op.ngram_counts();
  for (size_t n = 1; n <= starts.size(); ++n) {
    const auto size = static_cast<int64_t>(pool);
    const int64_t begin = starts[n - 1];
    const int64_t end = n < starts.size() ? starts[n] : size;
    if (begin > end || end > size || (end - begin) % static_cast<int64_t>(n) != 0) {
      FailPool(StrCat("ngram_counts does not cut the pool of ", size, " entries into ", n,
                      "-grams: they would span ", begin, " to ", end));
    }
    for (auto at = static_cast<size_t>(begin); at < static_cast<size_t>(end); at += n) {
      grams.push_back({at, n});
    }
  }
  const size_t places = op.ngram_indexes().size();
  const auto weights = op.weights();
  if (places != grams.size() || (weights && weights->size() != grams.size())) {
    FailPool(StrCat("the pool has ", grams.size(), " n-grams, but there are ", places,
                    " ngram_indexes and ", weights ? weights->size() : places, " weights"));
  }
  return grams;
}

void TfIdfVectorizerOp::InferShape(InferShapeContext& c) {
  c.SetShape(kY, TfIdfRule(c.shape(kX), Width(TfIdfVectorizerOp(c.op()))));
}

void TfIdfVectorizerOp::Eval(EvalContext& c) {
  const TfIdfVectorizerOp op(c.op());
  const Tensor& x = c.input(kX);
  const auto shape = TfIdfRule(SymShape::FromConstants(x.shape()), Width(op)).Constants();
  Tensor out(ElementType::kF32, *shape);
  const size_t rows = x.rank() == 1 ? 1 : static_cast<size_t>(x.shape()[0]);
  if (x.element_type() == ElementType::kString) {
    if (!op.pool_strings()) FailPool("strings need pool_strings");
    Vectorize<std::string>(op, x.data<std::string>(), *op.pool_strings(), rows, out);
  } else {
    if (!op.pool_int64s()) FailPool("integers need pool_int64s");
    const auto tokens = ToInt64s(x);
    Vectorize<int64_t>(op, tokens, *op.pool_int64s(), rows, out);
  }
  c.SetOutput(kY, std::move(out));
}

}  // namespace lathe::nn
