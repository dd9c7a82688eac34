// The n-gram counter of the string family.
#include "src/dialect/nn/string_tfidf.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/nn/string.h"
#include "lathe/support/error.h"
#include "src/dialect/prepared.h"

namespace lathe::nn {

namespace {

[[noreturn]] void FailPool(std::string message) {
  eval::FailArgument("run/tf-idf", std::move(message));
}

// Of a row of the result.
int64_t Width(std::span<const int64_t> places) {
  if (places.empty()) return 0;
  const int64_t last = *std::ranges::max_element(places);
  if (last == INT64_MAX) FailPool("an entry of ngram_indexes is too large");
  return last + 1;
}

SymShape TfIdfRule(const SymShape& in, int64_t width) {
  if (!in.ranked) return {};
  if (in.rank() == 1) return {width};
  if (in.rank() == 2) return {in.dims[0], width};
  eval::FailShape("shape/tf-idf", StrCat("the input must have rank 1 or 2, not ", in.rank()));
}

// Words or numbers as small numbers; 0 for those not in the pool.
template <class T>
class Alphabet {
 public:
  uint32_t Add(const T& token) {
    return numbers_.try_emplace(token, static_cast<uint32_t>(numbers_.size() + 1)).first->second;
  }
  uint32_t operator()(const T& token) const {
    const auto found = numbers_.find(token);
    return found == numbers_.end() ? 0 : found->second;
  }

 private:
  std::unordered_map<T, uint32_t> numbers_;  // looked up, never iterated
};

// The n-grams of the pool as a trie over tokens. What belongs to a node lies side by side: its
// children, by token, and the numbers of the n-grams that end there.
class Grams {
 public:
  using Node = uint32_t;
  static constexpr Node kNone = ~Node{0};

  explicit Grams(const std::vector<std::span<const uint32_t>>& grams) {
    std::map<std::pair<Node, uint32_t>, Node> next;
    std::vector<std::pair<Node, uint32_t>> ends;
    Node nodes = 1;  // the root
    for (uint32_t number = 0; number < grams.size(); ++number) {
      Node node = 0;
      for (const uint32_t token : grams[number]) {
        const auto [child, is_new] = next.try_emplace({node, token}, nodes);
        nodes += is_new ? 1 : 0;
        node = child->second;
      }
      ends.emplace_back(node, number);
    }
    std::ranges::sort(ends);
    first_child_.resize(nodes + 1);
    first_number_.resize(nodes + 1);
    for (const auto& [at, child] : next) AddChild(at.first, at.second, child);
    for (const auto& [node, number] : ends) {
      ++first_number_[node + 1];
      numbers_.push_back(number);
    }
    std::partial_sum(first_child_.begin(), first_child_.end(), first_child_.begin());
    std::partial_sum(first_number_.begin(), first_number_.end(), first_number_.begin());
  }

  // Where n-grams are that begin with `token`; kNone if none of the pool does.
  Node Begin(uint32_t token) const { return token < begins_.size() ? begins_[token] : kNone; }
  // Where an n-gram that ends at `node` goes on with `token`.
  Node Next(Node node, uint32_t token) const {
    const auto end = tokens_.begin() + first_child_[node + 1];
    const auto found = std::lower_bound(tokens_.begin() + first_child_[node], end, token);
    if (found == end || *found != token) return kNone;
    return children_[static_cast<size_t>(found - tokens_.begin())];
  }
  std::span<const uint32_t> NumbersAt(Node node) const {
    return std::span(numbers_).subspan(first_number_[node],
                                       first_number_[node + 1] - first_number_[node]);
  }

 private:
  void AddChild(Node node, uint32_t token, Node child) {
    ++first_child_[node + 1];
    tokens_.push_back(token);
    children_.push_back(child);
    if (node != 0) return;
    begins_.resize(std::max<size_t>(begins_.size(), token + 1), kNone);
    begins_[token] = child;
  }

  std::vector<Node> begins_;  // by token
  std::vector<uint32_t> first_child_, first_number_;
  std::vector<uint32_t> tokens_;
  std::vector<Node> children_;
  std::vector<uint32_t> numbers_;
};

// How often each n-gram is in a row.
class Counts {
 public:
  explicit Counts(size_t grams) : counts_(grams) {}

  void Add(uint32_t gram) {
    if (counts_[gram]++ == 0) found_.push_back(gram);
  }
  // Calls f(gram, count), in the order of the pool if `in_order`, and begins anew.
  template <class F>
  void Take(bool in_order, const F& f) {
    if (in_order) std::ranges::sort(found_);
    for (const uint32_t gram : found_) f(gram, std::exchange(counts_[gram], 0));
    found_.clear();
  }

 private:
  std::vector<uint32_t> counts_;
  std::vector<uint32_t> found_;
};

// What the attributes say, ready to count with.
template <class T>
class Vectorizer {
 public:
  Vectorizer(TfIdfVectorizerOp op, const std::vector<T>& pool)
      : grams_(GramsOf(op, pool)),
        places_(op.ngram_indexes()),
        width_(Width(places_)),
        shares_places_(std::set(places_.begin(), places_.end()).size() < places_.size()),
        counts_(op.mode() != "IDF"),
        weighs_(op.mode() != "TF"),
        weights_(op.weights().value_or(std::vector<double>(places_.size(), 1))),
        shortest_(op.min_gram_length()),
        longest_(op.max_gram_length()),
        skips_(op.max_skip_count()) {}

  // Of tokens of that shape.
  Tensor Apply(std::span<const T> tokens, const Shape& shape) const {
    const SymShape result = TfIdfRule(SymShape::FromConstants(shape), width_);
    Tensor out(ElementType::kF32, *result.Constants());
    const auto width = static_cast<size_t>(width_);
    const size_t rows = shape.size() == 1 ? 1 : static_cast<size_t>(shape[0]);
    const size_t length = rows == 0 ? 0 : tokens.size() / rows;
    const auto values = out.mutable_data<float>();
    std::vector<uint32_t> numbers;
    Counts counts(places_.size());
    for (size_t row = 0; row < rows; ++row) {
      numbers.clear();
      for (const T& token : tokens.subspan(row * length, length)) {
        numbers.push_back(alphabet_(token));
      }
      Count(numbers, counts);
      Give(counts, values.subspan(row * width, width));
    }
    return out;
  }

 private:
  Grams GramsOf(TfIdfVectorizerOp op, const std::vector<T>& pool) {
    std::vector<uint32_t> numbers;
    for (const T& token : pool) numbers.push_back(alphabet_.Add(token));
    std::vector<std::span<const uint32_t>> grams;
    for (const PoolGram& gram : PoolGramsOf(op, pool.size())) {
      grams.push_back(std::span(numbers).subspan(gram.begin, gram.length));
    }
    return Grams(grams);
  }

  void Give(Counts& counts, std::span<float> out) const {
    counts.Take(shares_places_, [&](uint32_t gram, uint32_t times) {
      const double count = counts_ ? times : 1;
      out[static_cast<size_t>(places_[gram])] +=
          static_cast<float>(weighs_ ? count * weights_[gram] : count);
    });
  }

  void Count(std::span<const uint32_t> row, Counts& counts) const {
    const int64_t steps = std::min(skips_, static_cast<int64_t>(row.size())) + 1;
    for (int64_t step = 1; step <= steps; ++step) {
      for (size_t begin = 0; begin < row.size(); ++begin) {
        CountFrom(row.subspan(begin), static_cast<size_t>(step), counts);
      }
    }
  }

  // Single tokens have no distance to vary.
  void CountFrom(std::span<const uint32_t> row, size_t step, Counts& counts) const {
    Grams::Node node = Grams::kNone;
    for (size_t k = 0; k * step < row.size(); ++k) {
      const auto length = static_cast<int64_t>(k) + 1;
      if (length > longest_) return;
      node = k == 0 ? grams_.Begin(row[0]) : grams_.Next(node, row[k * step]);
      if (node == Grams::kNone) return;
      if (length < shortest_ || (length == 1 && step > 1)) continue;
      for (const uint32_t gram : grams_.NumbersAt(node)) counts.Add(gram);
    }
  }

  Alphabet<T> alphabet_;
  Grams grams_;
  std::vector<int64_t> places_;
  int64_t width_;
  bool shares_places_;  // then the order of sums counts
  bool counts_, weighs_;
  std::vector<double> weights_;
  int64_t shortest_, longest_, skips_;
};

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
  const auto places = TfIdfVectorizerOp(c.op()).ngram_indexes();
  c.SetShape(kY, TfIdfRule(c.shape(kX), Width(places)));
}

void TfIdfVectorizerOp::Eval(EvalContext& c) {
  const TfIdfVectorizerOp op(c.op());
  const Tensor& x = c.input(kX);
  if (x.element_type() == ElementType::kString) {
    const auto vectorizer = Prepared(c, [&] {
      if (!op.pool_strings()) FailPool("strings need pool_strings");
      return Vectorizer(op, *op.pool_strings());
    });
    return c.SetOutput(kY, vectorizer->Apply(x.data<std::string>(), x.shape()));
  }
  const auto vectorizer = Prepared(c, [&] {
    if (!op.pool_int64s()) FailPool("integers need pool_int64s");
    return Vectorizer(op, *op.pool_int64s());
  });
  c.SetOutput(kY, vectorizer->Apply(ToInt64s(x), x.shape()));
}

}  // namespace lathe::nn
