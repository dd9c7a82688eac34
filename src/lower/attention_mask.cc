#include "src/lower/attention_mask.h"

#include <limits>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/dialect/nn/term.h"

namespace lathe::lower {
namespace {

using nn::Term;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

Value AttentionMask::I32(const Dim& value) {
  return nn::CastOp::Create(lb_.b(), im_.At(value), {.to = ElementType::kI32}).output();
}

// `first`, `first` + 1, ...
Value AttentionMask::Numbers(const Dim& first, int64_t lanes) {
  std::vector<int32_t> numbers;
  for (int32_t i = 0; i < lanes; ++i) numbers.push_back(i);
  return Term(lb_.b(), lb_.Constant(Tensor::Of<int32_t>({lanes}, numbers))) +
         Term(lb_.b(), I32(first));
}

void AttentionMask::SetHead(const Dim& batch, const Dim& head, const Dim& keys) {
  batch_ = batch;
  head_ = head;
  keys_ = keys;
  if (form_.mask) {
    const auto type = form_.mask.type().cast<AnyTensorType>();
    keys_ = im_.Name(Min(keys_, im_.Extent(type.dims().back())));
  }
  offset_ = I32(form_.cached() ? im_.Extent(form_.past_key->rows) : Dim(0));
  if (!form_.lengths) return;
  Builder& b = lb_.b();
  const Value at[] = {im_.At(batch)};
  const Term length(b, lb_.Load(body_.argument(form_.lengths.index()), at));
  const Term queries(b, im_.At(im_.Extent(form_.q.rows)));
  offset_ = nn::CastOp::Create(b, length - queries, {.to = ElementType::kI32}).output();
  keys_ = im_.Name(Min(keys_, im_.Of(Greatest(length, 0))));
}

Dim AttentionMask::KeysFor(const Dim& last) {
  if (!form_.causal && form_.right < 0) return keys_;
  int64_t ahead = form_.causal ? 0 : form_.right;
  if (form_.causal && form_.right >= 0) ahead = std::min<int64_t>(ahead, form_.right);
  const Term end = Term(lb_.b(), I32(last)) + Term(lb_.b(), offset_) + static_cast<double>(ahead);
  const Value bound =
      nn::CastOp::Create(lb_.b(), Greatest(end, 0), {.to = ElementType::kI64}).output();
  return im_.Name(Min(keys_, im_.Of(bound)));
}

// Null: all.
Value AttentionMask::Allowed(Value query, Value key) {
  Builder& b = lb_.b();
  const Term position = Term(b, query) + Term(b, offset_);
  Value allowed;
  const auto require = [&](const Term& low, const Term& high) {
    const Term fits = low.Call(nn::kLessOrEqual, {high});
    allowed = allowed ? Term(b, allowed).Call(nn::kAnd, {fits}) : fits;
  };
  const Term at(b, key);
  if (form_.causal) require(at, position);
  if (form_.left >= 0) require(position - at, at.Number(static_cast<double>(form_.left)));
  if (form_.right >= 0) require(at - position, at.Number(static_cast<double>(form_.right)));
  return allowed;
}

// A scalar where all lanes read the same element.
Value AttentionMask::LoadMask(const Dim& query, const Dim& key, bool along_keys, int64_t lanes,
                              Value live) {
  const Value memory = body_.argument(form_.mask.index());
  const auto dims = form_.mask.type().cast<AnyTensorType>().dims();
  const Dim numbers[] = {batch_, head_, query};
  std::vector<Value> indices;
  bool gathers = false;
  for (size_t a = 0; a + 1 < dims.size(); ++a) {
    const size_t which = 4 - dims.size() + a;
    const Dim last =
        dims[a].is_constant() ? Dim(dims[a].value() - 1) : im_.Extent(dims[a]) - 1;  // 0 or all
    if (which == 2 && !along_keys && !dims[a].IsConstant(1)) {
      const Term most(lb_.b(), I32(last));
      indices.push_back(Term(lb_.b(), Numbers(query, lanes)).Call(nn::kMin, {most}));
      gathers = true;
    } else {
      indices.push_back(im_.At(dims[a].IsConstant(1) ? Dim(0) : Min(numbers[which], last)));
    }
  }
  indices.push_back(im_.At(key));
  if (gathers) return lb_.Gather(memory, indices, live);
  return along_keys ? lb_.Load(memory, indices, lanes, live) : lb_.Load(memory, indices);
}

Value AttentionMask::Apply(Value scores, const Dim& query, const Dim& key, bool along_keys,
                           int64_t lanes, Value live) {
  Builder& b = lb_.b();
  Value allowed;
  if (form_.causal || form_.left >= 0 || form_.right >= 0) {
    allowed = along_keys ? Allowed(I32(query), Numbers(key, lanes))
                         : Allowed(Numbers(query, lanes), I32(key));
  }
  Term result(b, scores);
  const Term never = result.Number(-kInfinity);
  if (form_.mask) {
    const Term mask(b, LoadMask(query, key, along_keys, lanes, live));
    if (mask.element() == ElementType::kBool) {
      allowed = allowed ? Term(b, allowed).Call(nn::kAnd, {mask}) : mask;
    } else {
      result = Where(mask.Call(nn::kEqual, {never}), never, result + mask);
    }
  }
  if (allowed) result = Where(Term(b, allowed), result, never);
  return result;
}

}  // namespace lathe::lower
