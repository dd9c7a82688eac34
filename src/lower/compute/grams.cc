#include <algorithm>
#include <bit>
#include <map>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/support/error.h"
#include "src/dialect/nn/string_tfidf.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/scalars.h"

// Counts of n-grams: each that a row has is looked for in a sorted table.
namespace lathe::lower {
namespace {

constexpr size_t kLongest = 16;  // tokens that are compared one after the other

using Gram = std::vector<int64_t>;

std::string Refuse(const Operation& op) {
  const nn::TfIdfVectorizerOp tfidf(&op);
  if (!tfidf.pool_int64s()) return "there is no pool of integers";
  try {
    for (const nn::PoolGram& gram : nn::PoolGramsOf(tfidf, tfidf.pool_int64s()->size())) {
      if (gram.length > kLongest) return "there are long n-grams";
    }
  } catch (const Error&) {
    return "its pool contradicts itself";
  }
  return NeedSizes(op);
}

class Vectorizer {
 public:
  explicit Vectorizer(const WholeTensorEmitter& w)
      : w_(w), e_(w.e), s_(w.e), op_(w.op), dims_(w.Dims(0)) {
    rows_ = dims_.size() == 1 ? Dim(1) : dims_[0];
    length_ = dims_.back();
    width_ = w.ResultDims(0).back().value();
    ReadPool();
  }

  void Write() {
    if (width_ == 0) return;
    counts_ = e_.Scratch(kWide, rows_ * kinds_);
    for (auto& [length, table] : tables_) table.tokens = Table(table.flat);
    kind_table_ = Table(kind_of_);
    place_table_ = Table(op_.ngram_indexes());
    if (const auto weights = op_.weights()) {
      weight_table_ =
          e_.lb().Constant(Tensor::Of<double>({static_cast<int64_t>(weights->size())}, *weights));
    }
    e_.For(rows_, WholeTensorEmitter::IsWorthParallelizing(rows_ * length_ * 16),
           [&](const Dim& row) {
             row_ = row;
             e_.For(kinds_, false, [&](const Dim& kind) {
               e_.Store(counts_, row * kinds_ + kind, s_.Number(kWide, 0.0));
             });
             for (const auto& [length, table] : tables_) Count(length, table);
             Sum();
           });
  }

 private:
  // All n-grams of one length, in order and each once.
  struct Sorted {
    int64_t first_kind = 0, count = 0;
    std::vector<int64_t> flat;
    Value tokens = {};
  };

  Value Table(const std::vector<int64_t>& entries) {
    return e_.lb().Constant(Tensor::Of<int64_t>({static_cast<int64_t>(entries.size())}, entries));
  }

  // Equal n-grams are of one kind.
  void ReadPool() {
    const std::vector<int64_t> pool = *op_.pool_int64s();
    std::map<size_t, std::map<Gram, int64_t>> kinds;
    std::vector<Gram> grams;
    for (const nn::PoolGram& gram : nn::PoolGramsOf(op_, pool.size())) {
      const auto begin = pool.begin() + static_cast<std::ptrdiff_t>(gram.begin);
      grams.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(gram.length));
      kinds[gram.length][grams.back()] = 0;
    }
    for (auto& [length, of_length] : kinds) {
      Sorted& table = tables_[static_cast<int64_t>(length)];
      table.first_kind = kinds_;
      table.count = static_cast<int64_t>(of_length.size());
      for (auto& [gram, kind] : of_length) {
        kind = kinds_++;
        table.flat.insert(table.flat.end(), gram.begin(), gram.end());
      }
    }
    for (const Gram& gram : grams) kind_of_.push_back(kinds[gram.size()][gram]);
    std::erase_if(tables_, [&](const auto& entry) {
      return entry.first < op_.min_gram_length() || entry.first > op_.max_gram_length();
    });
  }

  Value Token(const Dim& at) {
    const Place place = dims_.size() == 1 ? Place{at} : Place{row_, at};
    return ToInt64(e_, w_.Operand(0, place));
  }

  // Single tokens have no distance to vary; longer ones must fit into the row.
  void Count(int64_t length, const Sorted& table) {
    const int64_t steps = length - 1;
    const Dim skips =
        length == 1
            ? Dim(1)
            : Max(Min(FloorDiv(length_ + (steps - 1), Dim(steps)) - 1, op_.max_skip_count() + 1),
                  0);
    e_.For(skips, false, [&](const Dim& skip) {
      const Dim span = (skip + 1) * steps;
      const Dim begins = e_.Loaded(e_.Int(Max(length_ - span, 0)), length_ + 1);
      e_.For(begins, false, [&](const Dim& begin) {
        std::vector<Value> gram;
        for (int64_t i = 0; i < length; ++i) gram.push_back(Token(begin + (skip + 1) * i));
        CountOne(gram, table);
      });
    });
  }

  // By halving, as often as the table needs it.
  void CountOne(const std::vector<Value>& gram, const Sorted& table) {
    const Value one = e_.lb().Int(1), last = e_.lb().Int(table.count - 1);
    const auto rounds = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(table.count)));
    const auto next = [&](const Dim&, std::span<const Value> before) {
      const Value middle = s_.Div(s_.Add(before[0], before[1]), e_.lb().Int(2));
      const Value open = s_.Less(before[0], before[1]);
      const Dim at = e_.Loaded(s_.Min(middle, last), table.count);
      const Value above = s_.And(open, IsBefore(at, gram, table));
      const Value below = s_.And(open, s_.Not(above));
      return std::vector<Value>{s_.Select(above, s_.Add(middle, one), before[0]),
                                s_.Select(below, middle, before[1])};
    };
    const Value found = e_.For(rounds, {e_.lb().Int(0), e_.lb().Int(table.count)}, next)[0];
    const Dim at = e_.Loaded(s_.Min(found, last), table.count);
    Value same;
    for (size_t i = 0; i < gram.size(); ++i) {
      const Value equal = s_.Equal(PoolToken(at, i, gram, table), gram[i]);
      same = same ? s_.And(same, equal) : equal;
    }
    const Dim count = row_ * kinds_ + table.first_kind + at;
    e_.Store(counts_, count, s_.Add(e_.LoadFrom(counts_, count), s_.Cast(same, kWide)));
  }

  Value PoolToken(const Dim& at, size_t i, const std::vector<Value>& gram, const Sorted& table) {
    const auto length = static_cast<int64_t>(gram.size());
    return e_.LoadFrom(table.tokens, at * length + static_cast<int64_t>(i));
  }

  Value IsBefore(const Dim& at, const std::vector<Value>& gram, const Sorted& table) {
    Value before;
    for (size_t i = gram.size(); i-- > 0;) {
      const Value token = PoolToken(at, i, gram, table), less = s_.Less(token, gram[i]);
      before = before ? s_.Or(less, s_.And(s_.Equal(token, gram[i]), before)) : less;
    }
    return before;
  }

  void Sum() {
    constexpr ElementType kResult = ElementType::kF32;
    e_.For(width_, false, [&](const Dim& place) {
      e_.Store(w_.memory[0], row_ * width_ + place, s_.Number(kResult, 0.0));
    });
    e_.For(static_cast<int64_t>(kind_of_.size()), false, [&](const Dim& gram) {
      const Dim kind = e_.Loaded(e_.LoadFrom(kind_table_, gram), kinds_);
      const Dim place = e_.Loaded(e_.LoadFrom(place_table_, gram), width_);
      Value count = e_.LoadFrom(counts_, row_ * kinds_ + kind);
      if (op_.mode() == "IDF") count = s_.Min(count, s_.Number(kWide, 1.0));
      if (op_.mode() != "TF" && weight_table_) {
        count = s_.Mul(count, e_.LoadFrom(weight_table_, gram));
      }
      const Dim to = row_ * width_ + place;
      e_.Store(w_.memory[0], to, s_.Add(e_.LoadFrom(w_.memory[0], to), s_.Cast(count, kResult)));
    });
  }

  const WholeTensorEmitter& w_;
  Elements& e_;
  Scalars s_;
  nn::TfIdfVectorizerOp op_;
  std::vector<Dim> dims_;
  Dim rows_, length_, row_;
  int64_t width_ = 0, kinds_ = 0;
  std::map<int64_t, Sorted> tables_;  // by length
  std::vector<int64_t> kind_of_;      // of the n-grams of the pool
  Value counts_, kind_table_, place_table_, weight_table_;
};

void WriteCounts(const WholeTensorEmitter& w) { Vectorizer(w).Write(); }

constexpr Compute kGramComputes[] = {
    {nn::kTfIdfVectorizer, nullptr, Refuse, nullptr, WriteCounts},
};

}  // namespace

std::span<const Compute> GramComputes() { return kGramComputes; }

}  // namespace lathe::lower
