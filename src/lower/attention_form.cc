#include "src/lower/attention_form.h"

#include <algorithm>
#include <cmath>

#include "lathe/support/error.h"
#include "src/lower/compute/fits.h"

namespace lathe::lower {
namespace {

constexpr int64_t kMostFeatures = 2048;

}  // namespace

bool AttentionForm::IsResult(size_t result) const {
  return std::ranges::find(results, result) != results.end();
}

std::string AttentionForm::ReadHeads(Value value, std::optional<int64_t> heads, Heads& to) {
  const auto type = value.type().dyn_cast<AnyTensorType>();
  if (!value.is_block_argument() || !type || !type.has_rank())
    return "an operand is not an argument";
  if (type.element() != ElementType::kF32) return StrCat("elements are ", Name(type.element()));
  const auto dims = type.dims();
  if (dims.size() == 4) {
    to = {value, dims[0], dims[1], dims[2], dims[3], false};
  } else {
    to = {value, dims[0], *heads, dims[1], FloorDiv(dims[2], *heads), true};
  }
  if (!to.features.is_constant()) return "the number of features is not known";
  if (to.heads.is_unknown() || to.heads.IsConstant(0)) return "the number of heads is not known";
  return to.features.value() > kMostFeatures ? "a head is too wide" : "";
}

std::string AttentionForm::ReadOptions() {
  const nn::AttentionOp attention(op);
  scale = attention.scale().value_or(1 / std::sqrt(static_cast<double>(features())));
  softcap = attention.softcap();
  causal = attention.is_causal();
  nan_rows = attention.nan_rows();
  left = attention.left_window_size();
  right = attention.right_window_size();
  mask = attention.attn_mask();
  lengths = attention.nonpad_kv_seqlen();
  if (attention.softmax_precision().value_or(ElementType::kF32) != ElementType::kF32) {
    return "the softmax is not in f32";
  }
  for (const Value input : {mask, lengths}) {
    if (input && (!input.is_block_argument() || !TensorOf(input).has_rank()))
      return "an operand is not an argument";
  }
  if (mask) {
    const ElementType element = TensorOf(mask).element();
    const bool known = element == ElementType::kBool || element == ElementType::kF32;
    if (!known) return StrCat("the mask is of ", Name(element));
  }
  return "";
}

std::string AttentionForm::Read(const Block& function) {
  for (const Operation& o : function) {
    if (o.HasTrait<Terminator>()) continue;
    if (o.name() != nn::AttentionOp::kName || op != nullptr) return "it is not attention alone";
    op = &o;
  }
  if (op == nullptr) return "there is no attention";
  const Operation* end = function.terminator();
  for (size_t i = 0; i < end->num_operands(); ++i) {
    if (end->operand(i).defining_op() != op) return "an argument is given back";
    results.push_back(end->operand(i).index());
    if (results.back() == nn::AttentionOp::kQkMatmulOutput) return "the scores are a result";
  }
  if (!IsResult(nn::AttentionOp::kY)) return "the result is not used";
  const nn::AttentionOp attention(op);
  if (std::string why = ReadHeads(attention.q(), attention.q_num_heads(), q); !why.empty())
    return why;
  if (std::string why = ReadHeads(attention.k(), attention.kv_num_heads(), k); !why.empty())
    return why;
  if (std::string why = ReadHeads(attention.v(), attention.kv_num_heads(), v); !why.empty())
    return why;
  if (attention.past_key()) {
    std::string why = ReadHeads(attention.past_key(), {}, past_key.emplace(Heads{}));
    if (why.empty()) why = ReadHeads(attention.past_value(), {}, past_value.emplace(Heads{}));
    if (!why.empty()) return why;
    const bool kept =
        IsResult(nn::AttentionOp::kPresentKey) && IsResult(nn::AttentionOp::kPresentValue);
    if (!kept) return "keys and values of before are not kept";
  }
  const std::string why = Misfit();
  return why.empty() ? ReadOptions() : why;
}

// Loops do not look whether extents agree.
std::string AttentionForm::Misfit() const {
  Fits fits(*op);
  fits.Same(q.batch, k.batch).Same(q.batch, v.batch).Same(k.rows, v.rows);
  fits.Same(q.features, k.features).Same(k.heads, v.heads);
  if (past_key) {
    fits.Same(q.batch, past_key->batch).Same(q.batch, past_value->batch);
    fits.Same(past_key->rows, past_value->rows).Same(past_key->features, k.features);
    fits.Same(past_value->features, v.features).Same(past_key->heads, k.heads);
    fits.Same(past_value->heads, v.heads);
  }
  return fits.why();
}

}  // namespace lathe::lower
