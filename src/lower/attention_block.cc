#include "src/lower/attention_block.h"

#include <algorithm>
#include <limits>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/dialect/nn/term.h"
#include "src/lower/factors.h"

namespace lathe::lower {
namespace {

using nn::Term;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

AttentionBlock::AttentionBlock(LoopBuilder& lb, IndexMath& im, const Machine& machine,
                               const AttentionForm& form, AttentionMask& mask, Knobs& knobs)
    : lb_(lb),
      im_(im),
      machine_(machine),
      form_(form),
      mask_(mask),
      lanes_(machine.lanes(ElementType::kF32)) {
  const Dim& rows = form.q.rows;
  const bool few = rows.is_constant() && rows.value() <= lanes_;
  const int64_t vectors[] = {1, 2, 4};
  vectors_ = knobs.Choose("vectors", few ? 1 : 2, vectors);
  keys_ = knobs.Choose("keys", {128, 32, 64, 256, 512});
}

Value AttentionBlock::Memory(std::vector<Dim> shape) {
  return lb_.Alloc(VTensorType::Get(lb_.context(), SymShape(std::move(shape)), ElementType::kF32));
}

AttentionBlock::Scratch AttentionBlock::Allocate(int64_t queries) {
  const int64_t features = value_vectors() * lanes_;
  return {row_ ? Memory({keys_}) : Memory({keys_, queries}), Memory({queries, features}),
          Memory({queries}), Memory({queries}), Memory({queries})};
}

// Vectors of a vector's memory; a row's numbers are scalars.
void AttentionBlock::Fill(Value memory, int64_t elements, double value) {
  if (elements == 1) {
    const Value at[] = {lb_.Int(0)};
    lb_.Store(memory, lb_.Splat(ElementType::kF32, value), at);
    return;
  }
  for (int64_t i = 0; i < elements; i += lanes_) {
    const Value at[] = {lb_.Int(i)};
    lb_.Store(memory, lb_.Splat(ElementType::kF32, value, lanes_), at);
  }
}

// Tiles of which all but the last are full; written once where only a run knows how many there are.
void AttentionBlock::ForTiles(const Dim& keys,
                              const std::function<void(const Dim&, const Dim&)>& body) {
  if (!keys.is_constant()) {
    return im_.For(CeilDiv(keys, keys_), false, [&](const Dim& tile) {
      const Dim first = im_.Name(tile * keys_);
      body(first, im_.Name(Min(keys - first, keys_)));
    });
  }
  const Dim full = im_.Name(FloorDiv(keys, keys_)), rest = im_.Name(Mod(keys, keys_));
  im_.For(full, false, [&](const Dim& tile) { body(im_.Name(tile * keys_), keys_); });
  im_.For(Min(rest, 1), false, [&](const Dim&) { body(im_.Name(full * keys_), rest); });
}

// Lanes of a vector of features; null: all.
Value AttentionBlock::LiveOf(int64_t vector, int64_t features) {
  const int64_t left = features - vector * lanes_;
  return left < lanes_ ? lb_.Int(left) : Value();
}

Value AttentionBlock::Capped(Value score) {
  if (form_.softcap == 0) return score;
  const Term s(lb_.b(), score);
  return (s / form_.softcap).Call(nn::kTanh) * form_.softcap;
}

// What is taken off the scores, and what the sums so far are multiplied by.
AttentionBlock::Online AttentionBlock::Shift(Value old, Value greatest) {
  const Term top(lb_.b(), greatest);
  const Term none = top.Call(nn::kEqual, {top.Number(-kInfinity)});
  const Term shift = Where(none, top.Number(0), top);
  return {shift, Exp(Term(lb_.b(), old) - shift)};
}

// Of the sum of a row's exponentials. A sum of 0 makes NaN of the row if that is wanted and there
// are keys, else zeros.
Value AttentionBlock::Inverse(Value of) {
  const Term sum(lb_.b(), of);
  if (!form_.nan_rows) {
    return Where(sum.Call(nn::kEqual, {sum.Number(0)}), sum.Number(0), 1 / sum);
  }
  const Dim missing = Dim(1) - Min(mask_.keys(), 1);
  if (missing.IsConstant(0)) return 1 / sum;
  const Value none =
      nn::CastOp::Create(lb_.b(), im_.At(missing), {.to = ElementType::kF32}).output();
  return 1 / (sum + Term(lb_.b(), row_ ? none : lb_.Widen(none, lanes_)));
}

// ---- blocks ----

void AttentionBlock::WriteBlock(const Access& access, const Dim& first, const Dim& rows) {
  row_ = false;
  scratch_ = Allocate(queries());
  PackQueries(access, first, rows);
  Fill(scratch_.greatest, queries(), -kInfinity);
  Fill(scratch_.sum, queries(), 0);
  im_.For(rows, false, [&](const Dim& row) { ClearResults(row); });
  ForTiles(mask_.KeysFor(first + rows), [&](const Dim& key, const Dim& count) {
    ScoreBlock(access, key, count);
    NormalizeBlock(first, key, count);
    AddValues(access, key, rows, count);
  });
  for (int64_t v = 0; v < vectors_; ++v) {
    const std::vector<Value> at = im_.At({Dim(v * lanes_)});
    const Term sum(lb_.b(), lb_.Load(scratch_.sum, at, lanes_));
    lb_.Store(scratch_.factor, Inverse(sum), at);
  }
  const Value invalid = Finish(access, first, rows);
  if (!form_.masks()) return;
  // A masked value that is not a number must not count, though zero times it is none: once more,
  // with each value looked at.
  im_.For(rows * im_.Of(invalid), false,
          [&](const Dim& row) { WriteRow(access, im_.Name(first + row)); });
}

void AttentionBlock::ClearResults(const Dim& row) {
  im_.For(value_vectors(), false, [&](const Dim& v) {
    lb_.Store(scratch_.results, lb_.Splat(ElementType::kF32, 0, lanes_), im_.At({row, v * lanes_}));
  });
}

// A feature of all queries is a vector; those beyond `rows` are zero.
void AttentionBlock::PackQueries(const Access& access, const Dim& first, const Dim& rows) {
  packed_ = Memory({Dim(form_.features()), Dim(queries())});
  const Value factor = lb_.Splat(ElementType::kF32, form_.scale);
  const size_t row_axis = form_.q.merged ? 1 : 2;
  for (int64_t v = 0; v < vectors_; ++v) {
    const Dim row = first + v * lanes_;
    const bool partial = !rows.IsConstant(queries());
    const Value live = partial ? im_.At(Min(Max(rows - v * lanes_, 0), lanes_)) : Value();
    const int64_t tiles = partial ? 0 : form_.features() / lanes_;
    im_.For(tiles, false, [&](const Dim& tile) {
      std::vector<Value> vectors;
      for (int64_t r = 0; r < lanes_; ++r) {
        vectors.push_back(lb_.Load(access.queries, access.query(row + r, tile * lanes_), lanes_));
      }
      vectors = lb_.Transpose(vectors);
      for (int64_t e = 0; e < lanes_; ++e) {
        const Term scaled = Term(lb_.b(), vectors[static_cast<size_t>(e)]) * Term(lb_.b(), factor);
        lb_.Store(packed_, scaled, im_.At({tile * lanes_ + e, Dim(v * lanes_)}));
      }
    });
    im_.For(form_.features() - tiles * lanes_, false, [&](const Dim& left) {
      const Dim e = left + tiles * lanes_;
      const Term loaded(lb_.b(), lb_.LoadApart(access.queries, access.query(row, e), lanes_,
                                               static_cast<int64_t>(row_axis), 1, live));
      lb_.Store(packed_, loaded * Term(lb_.b(), factor), im_.At({e, Dim(v * lanes_)}));
    });
  }
}

void AttentionBlock::ScoreBlock(const Access& access, const Dim& key, const Dim& count) {
  const Tile tile = PickTile(count, queries(), lanes_, machine_.vector_registers, 0);
  PanelProduct product(lb_, machine_, ElementType::kF32, {tile.rows, vectors_});
  product.left = [&](Value row, Value k) {
    return lb_.Load(access.keys, access.key(key + im_.Of(row), im_.Of(k)));
  };
  product.right = [&](Value k, int64_t v) {
    return lb_.Load(packed_, im_.At({im_.Of(k), Dim(v * lanes_)}), lanes_);
  };
  product.finish = [&](Value row, int64_t v, Value sum) {
    lb_.Store(scratch_.scores, sum, im_.At({im_.Of(row), Dim(v * lanes_)}));
  };
  product.Write(im_.At(count), lb_.Int(form_.features()));
}

// Scores, masked, become exponentials of what they are less than the greatest.
void AttentionBlock::NormalizeBlock(const Dim& query, const Dim& first_key, const Dim& count) {
  const auto n = static_cast<size_t>(vectors_);
  std::vector<Value> old, shifts, sums;
  for (int64_t v = 0; v < vectors_; ++v) {
    old.push_back(lb_.Load(scratch_.greatest, im_.At({Dim(v * lanes_)}), lanes_));
  }
  const auto score_at = [&](Value key, size_t v) {
    return im_.At({im_.Of(key), Dim(static_cast<int64_t>(v) * lanes_)});
  };
  const auto greatest = lb_.For(im_.At(count), old, [&](Value key, std::span<const Value> tops) {
    std::vector<Value> next;
    for (size_t v = 0; v < n; ++v) {
      const Value sum = lb_.Load(scratch_.scores, score_at(key, v), lanes_);
      const Dim first = query + static_cast<int64_t>(v) * lanes_;
      const Term score(lb_.b(),
                       mask_.Apply(Capped(sum), first, first_key + im_.Of(key), false, lanes_, {}));
      if (score.value() != sum) lb_.Store(scratch_.scores, score, score_at(key, v));
      const Term top(lb_.b(), tops[v]);
      next.push_back(Where(score.Call(nn::kGreater, {top}), score, top));
    }
    return next;
  });
  std::vector<Value> factors;
  for (size_t v = 0; v < n; ++v) {
    const std::vector<Value> at = im_.At({Dim(static_cast<int64_t>(v) * lanes_)});
    const Online online = Shift(old[v], greatest[v]);
    shifts.push_back(online.shift);
    factors.push_back(online.factor);
    lb_.Store(scratch_.greatest, greatest[v], at);
    lb_.Store(scratch_.factor, online.factor, at);
    sums.push_back(Term(lb_.b(), lb_.Load(scratch_.sum, at, lanes_)) *
                   Term(lb_.b(), online.factor));
  }
  sums = lb_.For(im_.At(count), sums, [&](Value key, std::span<const Value> parts) {
    std::vector<Value> next;
    for (size_t v = 0; v < n; ++v) {
      const Term score(lb_.b(), lb_.Load(scratch_.scores, score_at(key, v), lanes_));
      const Term power = FactorOfScore(score - Term(lb_.b(), shifts[v]));
      lb_.Store(scratch_.scores, power, score_at(key, v));
      next.push_back(Term(lb_.b(), parts[v]) + power);
    }
    return next;
  });
  for (size_t v = 0; v < n; ++v) {
    lb_.Store(scratch_.sum, sums[v], im_.At({Dim(static_cast<int64_t>(v) * lanes_)}));
  }
}

// ---- values ----

// A vector of a key's value; of a masked key, zeros, if only one row reads it.
Value AttentionBlock::ValueOf(const Access& access, const Dim& key, Value k, const Dim& feature,
                              Value live) {
  const Term value(lb_.b(),
                   lb_.Load(access.values, access.value(key + im_.Of(k), feature), lanes_, live));
  if (!row_ || !form_.masks()) return value;
  const Value at[] = {k};
  const Term share(lb_.b(), lb_.Load(scratch_.scores, at));
  return Where(share.Call(nn::kEqual, {share.Number(0)}), value.Number(0), value);
}

void AttentionBlock::AddValues(const Access& access, const Dim& key, const Dim& rows,
                               const Dim& count) {
  const int64_t features = form_.value_features();
  const Tile tile = row_ ? Tile{1, std::min<int64_t>(value_vectors(), 8)}
                         : PickTile(rows, features, lanes_, machine_.vector_registers, 0);
  const auto write = [&](const Dim& first, int64_t vectors, bool is_last) {
    PanelProduct product(lb_, machine_, ElementType::kF32, {tile.rows, vectors});
    product.left = [&](Value row, Value k) {
      return lb_.Load(scratch_.scores,
                      row_ ? im_.At({im_.Of(k)}) : im_.At({im_.Of(k), im_.Of(row)}));
    };
    product.right = [&](Value k, int64_t v) {
      const Value live = is_last ? LiveOf(first.value() + v, features) : Value();
      return ValueOf(access, key, k, (first + v) * lanes_, live);
    };
    product.finish = [&](Value row, int64_t v, Value sum) {
      const std::vector<Value> at = im_.At({im_.Of(row), (first + v) * lanes_});
      const Term old(lb_.b(), lb_.Load(scratch_.results, at, lanes_));
      const Term factor(lb_.b(), lb_.Load(scratch_.factor, im_.At({im_.Of(row)})));
      lb_.Store(scratch_.results, old * factor + Term(lb_.b(), sum), at);
    };
    product.Write(im_.At(rows), im_.At(count));
  };
  const int64_t whole = features / lanes_ / tile.vectors, done = whole * tile.vectors;
  im_.For(whole, false,
          [&](const Dim& i) { write(im_.Name(i * tile.vectors), tile.vectors, false); });
  if (value_vectors() > done) write(done, value_vectors() - done, true);
}

// Stores the results; returns 1 if one is not a number.
Value AttentionBlock::Finish(const Access& access, const Dim& first, const Dim& rows) {
  const Value none = lb_.Splat(ElementType::kF32, 0, lanes_);
  const int64_t features = form_.value_features();
  const auto store = [&](Value number, std::span<const Value> before) {
    const Dim row = im_.Of(number);
    const Term inverse(lb_.b(), lb_.Load(scratch_.factor, im_.At({row})));
    const auto store_vector = [&](const Dim& v, Value live, Value invalid) {
      const Term sum(lb_.b(), lb_.Load(scratch_.results, im_.At({row, v * lanes_}), lanes_));
      const Term result = sum * inverse;
      lb_.Store(access.results, result, access.result(first + row, v * lanes_), live);
      return Where(result.Call(nn::kIsNan), result.Number(1), Term(lb_.b(), invalid)).value();
    };
    std::vector<Value> invalid =
        lb_.For(features / lanes_, before, [&](Value v, std::span<const Value> so_far) {
          return std::vector<Value>{store_vector(im_.Of(v), {}, so_far[0])};
        });
    if (features % lanes_ > 0) {
      const int64_t last = features / lanes_;
      invalid[0] = store_vector(last, LiveOf(last, features), invalid[0]);
    }
    return invalid;
  };
  const Value invalid = lb_.For(im_.At(rows), std::span(&none, 1), store)[0];
  return nn::CastOp::Create(lb_.b(), lb_.Reduce("max", invalid), {.to = ElementType::kI64})
      .output();
}

// ---- rows ----

void AttentionBlock::WriteRow(const Access& access, const Dim& query) {
  row_ = true;
  scratch_ = Allocate(1);
  Fill(scratch_.greatest, 1, -kInfinity);
  Fill(scratch_.sum, 1, 0);
  ClearResults(0);
  std::vector<Value> features;
  for (int64_t v = 0; v * lanes_ < form_.features(); ++v) {
    const Term part(lb_.b(), lb_.Load(access.queries, access.query(query, v * lanes_), lanes_,
                                      LiveOf(v, form_.features())));
    features.push_back(part * form_.scale);
  }
  ForTiles(mask_.KeysFor(query + 1), [&](const Dim& key, const Dim& count) {
    ScoreRow(access, features, key, count);
    NormalizeRow(query, key, count);
    AddValues(access, key, 1, count);
  });
  const Value at[] = {lb_.Int(0)};
  const Term sum(lb_.b(), lb_.Load(scratch_.sum, at));
  lb_.Store(scratch_.factor, Inverse(sum), at);
  Finish(access, query, 1);
}

void AttentionBlock::ScoreRow(const Access& access, const std::vector<Value>& query, const Dim& key,
                              const Dim& count) {
  im_.For(count, false, [&](const Dim& row) {
    Value sum;
    for (size_t v = 0; v < query.size(); ++v) {
      const auto vector = static_cast<int64_t>(v);
      const Value part = lb_.Load(access.keys, access.key(key + row, vector * lanes_), lanes_,
                                  LiveOf(vector, form_.features()));
      const Term product = Term(lb_.b(), query[v]) * Term(lb_.b(), part);
      sum = !sum               ? product.value()
            : machine_.has_fma ? loop::FmaOp::Create(lb_.b(), query[v], part, sum).y()
                               : Term(lb_.b(), sum) + product;
    }
    lb_.Store(scratch_.scores, lb_.Reduce("add", sum), im_.At({row}));
  });
}

void AttentionBlock::NormalizeRow(const Dim& query, const Dim& key, const Dim& count) {
  const Value at[] = {lb_.Int(0)};
  const Value old = lb_.Load(scratch_.greatest, at);
  const Value low = lb_.Splat(ElementType::kF32, -kInfinity, lanes_);
  const Value vectors = im_.At(CeilDiv(count, lanes_));
  const Value top = lb_.For(vectors, std::span(&low, 1), [&](Value i, std::span<const Value> tops) {
    const Dim first = im_.Of(i) * lanes_;
    const Value live = im_.At(Min(count - first, lanes_));
    Value score = lb_.Load(scratch_.scores, im_.At({first}), lanes_, live);
    score = mask_.Apply(Capped(score), query, key + first, true, lanes_, live);
    std::vector<int64_t> numbers;
    for (int64_t lane = 0; lane < lanes_; ++lane) numbers.push_back(lane);
    const Term lane(lb_.b(), lb_.Constant(Tensor::Of<int64_t>({lanes_}, numbers)));
    const Term is_live = lane.Call(nn::kLess, {live});
    const Term s = Where(is_live, Term(lb_.b(), score), Term(lb_.b(), low));
    lb_.Store(scratch_.scores, s, im_.At({first}), live);
    const Term before(lb_.b(), tops[0]);
    return std::vector<Value>{Where(s.Call(nn::kGreater, {before}), s, before)};
  })[0];
  const Term greatest = Term(lb_.b(), lb_.Reduce("max", top)).Call(nn::kMax, {old});
  const Online online = Shift(old, greatest);
  lb_.Store(scratch_.greatest, greatest, at);
  lb_.Store(scratch_.factor, online.factor, at);
  const Value zero = lb_.Splat(ElementType::kF32, 0, lanes_);
  const Value sum =
      lb_.For(vectors, std::span(&zero, 1), [&](Value i, std::span<const Value> sums) {
        const Dim first = im_.Of(i) * lanes_;
        const Value live = im_.At(Min(count - first, lanes_));
        std::vector<int64_t> numbers;
        for (int64_t lane = 0; lane < lanes_; ++lane) numbers.push_back(lane);
        const Term lane(lb_.b(), lb_.Constant(Tensor::Of<int64_t>({lanes_}, numbers)));
        const Term score(lb_.b(), lb_.Load(scratch_.scores, im_.At({first}), lanes_, live));
        const Term power = FactorOfScore(score - Term(lb_.b(), online.shift));
        lb_.Store(scratch_.scores, power, im_.At({first}), live);
        const Term part = Where(lane.Call(nn::kLess, {live}), power, Term(lb_.b(), zero));
        return std::vector<Value>{Term(lb_.b(), sums[0]) + part};
      })[0];
  const Term scaled = Term(lb_.b(), lb_.Load(scratch_.sum, at)) * Term(lb_.b(), online.factor);
  lb_.Store(scratch_.sum, scaled + Term(lb_.b(), lb_.Reduce("add", sum)), at);
}

}  // namespace lathe::lower
