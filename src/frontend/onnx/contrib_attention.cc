// Attention of com.microsoft, as attention of the standard.

#include <algorithm>
#include <array>
#include <limits>

#include "lathe/support/error.h"
#include "src/frontend/onnx/contrib.h"

namespace lathe::onnx {

namespace {

constexpr double kMaskFilter = -10000;
constexpr auto kI64 = static_cast<int64_t>(ElementType::kI64);

Dim DimOf(UpgradeContext& c, size_t input, size_t axis) {
  c.NeedRank(input);
  const auto type = c.InputType(input).cast<AnyTensorType>();
  return axis < type.rank() ? type.dims()[axis] : Dim::Unknown();
}

int64_t NumHeads(UpgradeContext& c) {
  const int64_t heads = c.IntAttr("num_heads").value_or(0);
  if (heads < 1) c.Refuse("attribute 'num_heads' is missing");
  return heads;
}

Text Columns(Nodes& make, Text axis) {
  return make("Unsqueeze", {make("Cast", {axis}, {MakeInt("to", kI64)}), make.Ints({1})});
}

// Which keys of [B, T] stand before the end, and at or behind the start, of their row.
Text KeptByLength(UpgradeContext& c, Nodes& make, size_t mask, Text total) {
  const Dim rows = DimOf(c, mask, 0), batch = DimOf(c, 0, 0);
  const bool with_start = ProvablyEqual(rows, batch * 2) && !ProvablyEqual(batch, 0);
  if (!with_start && !ProvablyEqual(rows, batch)) {
    c.Refuse(StrCat("a mask of ", rows.ToString(), " lengths for ", batch.ToString(), " rows"));
  }
  const Text positions = make("Range", {make.Int(0), make("Squeeze", {total}), make.Int(1)});
  if (!with_start) return make("Less", {positions, Columns(make, c.node.inputs[mask])});
  const std::vector<Text> parts =
      make.Many("Split", {c.node.inputs[mask]}, {MakeInt("num_outputs", 2), MakeInt("axis", 0)}, 2);
  return make("And", {make("Less", {positions, Columns(make, parts[0])}),
                      make("GreaterOrEqual", {positions, Columns(make, parts[1])})});
}

// What a mask adds to the scores [B, N, S, T], of the type of input `like`: nothing, or
// mask_filter_value. `total` is T.
template <class Total>
Text MaskBias(UpgradeContext& c, Nodes& make, size_t mask, const Total& total, size_t like = 0) {
  if (!c.HasInput(mask)) return {};
  const int64_t rank = c.NeedRank(mask);
  if (rank < 1 || rank > 3) c.Refuse(StrCat("a mask of rank ", rank));
  const Text kept = rank == 1 ? KeptByLength(c, make, mask, total())
                              : make("Greater", {c.node.inputs[mask], make.Scalar(mask, 0)});
  const Text axes = rank == 3 ? make.Ints({1}) : make.Ints({1, 2});
  const double filter = c.FloatAttr("mask_filter_value").value_or(kMaskFilter);
  return make("Where",
              {make("Unsqueeze", {kept, axes}), make.Scalar(like, 0), make.Scalar(like, filter)});
}

struct Heads {
  Text q, k, v;  ///< [B, S, N * E], [B, L, N * E], [B, L, N * F]
  Text past_key = {}, past_value = {};
  Text bias = {};
};

// The output, and the present key and value where `with_present`.
std::vector<Text> Attend(UpgradeContext& c, Nodes& make, const Heads& heads, bool with_present) {
  const int64_t n = NumHeads(c);
  std::vector<AttributeMsg> attributes = {
      MakeInt("q_num_heads", n), MakeInt("kv_num_heads", n),
      MakeInt("is_causal", c.IntAttr("unidirectional").value_or(0) != 0 ? 1 : 0)};
  const double scale = c.FloatAttr("scale").value_or(0);
  if (scale != 0) attributes.push_back(MakeFloat("scale", static_cast<float>(scale)));
  return make.Many("Attention",
                   {heads.q, heads.k, heads.v, heads.bias, heads.past_key, heads.past_value},
                   std::move(attributes), with_present ? 3 : 1);
}

// ---- Attention ----

std::array<int64_t, 3> HiddenSizes(UpgradeContext& c) {
  const auto given = c.IntsAttr("qkv_hidden_sizes");
  if (given && given->size() != 3) c.Refuse("'qkv_hidden_sizes' are not three");
  if (given) return {(*given)[0], (*given)[1], (*given)[2]};
  const int64_t size = NeedSize(c, 1, 1) / 3;
  return {size, size, size};
}

// Inputs that lie elsewhere in the quantized operator.
struct AttentionInputs {
  size_t mask, past, bias;
  size_t like = 0;  ///< has the type of the scores
};

// `all` is [B, S, Q + K + V].
void AttendTo(UpgradeContext& c, Nodes& make, Text all, const AttentionInputs& at) {
  const auto [q, k, v] = HiddenSizes(c);
  const std::vector<Text> parts =
      make.Many("Split", {all, make.Ints({q, k, v})}, {MakeInt("axis", 2)}, 3);
  Heads heads{parts[0], parts[1], parts[2]};
  const auto slice = [&](int64_t i) {
    return make("Gather", {c.node.inputs[at.past], make.Int(i)});
  };
  if (c.HasInput(at.past)) heads.past_key = slice(0), heads.past_value = slice(1);
  const auto total = [&] {
    const Text past = c.HasInput(at.past) ? make.Size(heads.past_key, 2) : Text();
    return make.Sum({make.Size(heads.k, 1), past});
  };
  heads.bias = make.Sum({MaskBias(c, make, at.mask, total, at.like), InputOr(c, at.bias)});
  const std::vector<Text> y = Attend(c, make, heads, c.HasOutput(1));
  c.Give(0, y[0]);
  if (!c.HasOutput(1)) return;
  const Text axis = make.Ints({0});
  c.Give(1, make("Concat", {make("Unsqueeze", {y[1], axis}), make("Unsqueeze", {y[2], axis})},
                 {MakeInt("axis", 0)}));
}

void RefuseSharedBuffer(UpgradeContext& c) {
  if (c.IntAttr("past_present_share_buffer").value_or(0) != 0) {
    c.Refuse("a buffer that past and present share is not supported");
  }
  if (c.IntAttr("do_rotary").value_or(0) != 0) c.Refuse("'do_rotary' is not supported");
}

void Attention(UpgradeContext& c) {
  if (c.HasInput(6)) c.Refuse("a buffer that past and present share is not supported");
  RefuseSharedBuffer(c);
  if (!c.HasInput(1)) c.Refuse("the weights are missing");
  Nodes make(c);
  const Text all = make.Sum({make("MatMul", {c.node.inputs[0], c.node.inputs[1]}), InputOr(c, 2)});
  AttendTo(c, make, all, {.mask = 3, .past = 4, .bias = 5});
}

// Sums of products of integers, which are exact, by both scales.
void QAttention(UpgradeContext& c) {
  RefuseSharedBuffer(c);
  for (const size_t i : {1, 2, 3, 4}) {
    if (!c.HasInput(i)) c.Refuse(StrCat("input ", i, " is missing"));
  }
  Nodes make(c);
  const Text sum =
      make("MatMulInteger", {c.node.inputs[0], c.node.inputs[1], InputOr(c, 6), InputOr(c, 7)});
  const auto type = static_cast<int64_t>(c.InputElement(3));
  const Text scale = make("Mul", {c.node.inputs[3], c.node.inputs[4]});
  const Text all = make("Mul", {make("Cast", {sum}, {MakeInt("to", type)}), scale});
  constexpr size_t kNone = 9;
  AttendTo(c, make, make("Add", {all, c.node.inputs[2]}),
           {.mask = 5, .past = 8, .bias = kNone, .like = 3});
}

// ---- MultiHeadAttention ----

// One of the packed [B, L, N, parts, E], as [B, L, N * E].
Text Unpacked(UpgradeContext& c, Nodes& make, size_t input, int64_t part) {
  const int64_t width = NeedSize(c, input, 2) * NeedSize(c, input, 4);
  const Text one = make("Gather", {c.node.inputs[input], make.Int(part)}, {MakeInt("axis", 3)});
  return make("Reshape", {one, make.Ints({0, 0, width})});
}

// [B, N, L, E] as [B, L, N * E].
Text Rows(UpgradeContext& c, Nodes& make, size_t input) {
  const int64_t width = NeedSize(c, input, 1) * NeedSize(c, input, 3);
  const Text moved = make("Transpose", {c.node.inputs[input]}, {MakeInts("perm", {0, 2, 1, 3})});
  return make("Reshape", {moved, make.Ints({0, 0, width})});
}

Heads QueryKeyValue(UpgradeContext& c, Nodes& make) {
  if (c.NeedRank(0) == 5) {
    if (c.HasInput(1) || c.HasInput(2)) c.Refuse("packed queries beside keys or values");
    return {Unpacked(c, make, 0, 0), Unpacked(c, make, 0, 1), Unpacked(c, make, 0, 2)};
  }
  const Text q = c.node.inputs[0];
  if (!c.HasInput(1)) c.Refuse("the keys are missing");
  if (c.NeedRank(1) == 5) {
    if (c.HasInput(2)) c.Refuse("packed keys beside values");
    return {q, Unpacked(c, make, 1, 0), Unpacked(c, make, 1, 1)};
  }
  if (!c.HasInput(2)) c.Refuse("the values are missing");
  const auto rows = [&](size_t i) {
    return c.NeedRank(i) == 4 ? Rows(c, make, i) : c.node.inputs[i];
  };
  return {q, rows(1), rows(2)};
}

// Of the queries and the keys each, as [B, L, N * E] has it; what is left is that of the values.
int64_t QueryWidth(UpgradeContext& c) {
  return c.NeedRank(0) == 5 ? NeedSize(c, 0, 2) * NeedSize(c, 0, 4) : NeedSize(c, 0, 2);
}

// Keys and values that come by heads were kept from a run before, and have theirs.
void AddBias(UpgradeContext& c, Nodes& make, Heads& heads) {
  if (!c.HasInput(3)) return;
  const int64_t width = QueryWidth(c);
  const std::vector<Text> parts = make.Many(
      "Split", {c.node.inputs[3], make.Ints({width, width, NeedSize(c, 3, 0) - 2 * width})},
      {MakeInt("axis", 0)}, 3);
  heads.q = make("Add", {heads.q, parts[0]});
  if (c.HasInput(1) && c.NeedRank(1) == 4) return;
  heads.k = make("Add", {heads.k, parts[1]});
  heads.v = make("Add", {heads.v, parts[2]});
}

// Which query stands where among more or fewer keys is not documented.
void CheckCausal(UpgradeContext& c) {
  if (c.IntAttr("unidirectional").value_or(0) == 0 || !c.HasInput(1)) return;
  const Dim keys = DimOf(c, 1, c.NeedRank(1) == 4 ? 2 : 1);
  if (!ProvablyEqual(DimOf(c, 0, 1), keys)) {
    c.Refuse("'unidirectional' needs as many new keys as queries");
  }
}

void MultiHeadAttention(UpgradeContext& c) {
  if (c.HasInput(8) || c.HasInput(9)) {
    c.Refuse("inputs 'past_sequence_length' and 'cache_indirection' are not supported");
  }
  if (c.HasOutput(3)) c.Refuse("output 'qk' is not supported");
  if (c.HasInput(6) != c.HasInput(7)) c.Refuse("past keys and values come together");
  CheckCausal(c);
  Nodes make(c);
  Heads heads = QueryKeyValue(c, make);
  AddBias(c, make, heads);
  heads.past_key = InputOr(c, 6);
  heads.past_value = InputOr(c, 7);
  const auto total = [&] {
    const Text past = c.HasInput(6) ? make.Size(heads.past_key, 2) : Text();
    return make.Sum({make.Size(heads.k, 1), past});
  };
  heads.bias = make.Sum({MaskBias(c, make, 4, total), InputOr(c, 5)});
  const std::vector<Text> y = Attend(c, make, heads, c.HasOutput(1) || c.HasOutput(2));
  for (size_t i = 0; i < y.size(); ++i) c.Give(i, y[i]);
}

// ---- RotaryEmbedding ----

// [B, L]: as given, or from an offset on.
Text PositionIds(UpgradeContext& c, Nodes& make) {
  const Text given = c.node.inputs[1];
  if (c.NeedRank(1) == 2) return given;
  const int64_t length_axis = c.NeedRank(0) == 4 ? 2 : 1;
  const Text length = make.Size(c.node.inputs[0], length_axis);
  const Text steps = make("Range", {make.Int(0), make("Squeeze", {length}), make.Int(1)});
  const Text shape = make("Concat", {make.Size(c.node.inputs[0], 0), length}, {MakeInt("axis", 0)});
  return make("Expand", {make("Add", {steps, given}), shape});
}

// By `tables`: cosines and sines, and the positions if the tables have no batch.
void Rotate(UpgradeContext& c, Nodes& make, std::vector<Text> tables) {
  if (c.IntAttr("is_packed_batching").value_or(0) != 0) {
    c.Refuse("'is_packed_batching' is not supported");
  }
  if (c.FloatAttr("scale").value_or(1) != 1) c.Refuse("a 'scale' other than 1 is not supported");
  const int64_t rotated = c.IntAttr("rotary_embedding_dim").value_or(0);
  int64_t heads = c.IntAttr("num_heads").value_or(0);
  if (rotated > 0 && heads < 1) c.Refuse("'rotary_embedding_dim' needs 'num_heads'");
  std::vector<AttributeMsg> attributes = Pass(c, {"interleaved"});
  if (c.NeedRank(0) == 3) {
    // Without a number of heads a head is as wide as the tables say.
    if (heads < 1) heads = NeedSize(c, 0, 2) / std::max<int64_t>(1, 2 * NeedSize(c, 2, 1));
    attributes.push_back(MakeInt("num_heads", heads));
  }
  if (rotated > 0) attributes.push_back(MakeInt("rotary_embedding_dim", rotated));
  tables.insert(tables.begin(), c.node.inputs[0]);
  c.Give(0, make("RotaryEmbedding", std::move(tables), std::move(attributes)));
}

void RotaryEmbedding(UpgradeContext& c) {
  if (c.node.inputs[1].empty()) c.Refuse("the positions are missing");
  Nodes make(c);
  Rotate(c, make, {c.node.inputs[2], c.node.inputs[3], PositionIds(c, make)});
}

// Which of the positions (time, height, width) turns each pair of a head.
std::vector<int64_t> Streams(UpgradeContext& c) {
  const AttributeMsg* given = c.node.Find("mrope_section");
  const std::vector<int64_t> parts = given == nullptr ? std::vector<int64_t>() : given->ints;
  const bool fits = parts.size() == 3 && std::ranges::all_of(parts, [](int64_t n) {
                      return n >= 0 && n <= std::numeric_limits<int16_t>::max();
                    });
  if (!fits) c.Refuse("'mrope_section' is not three sizes");
  std::vector<int64_t> streams;
  for (int64_t k = 0; k < 3; ++k) {
    const int64_t count = parts[static_cast<size_t>(k)];
    streams.insert(streams.end(), static_cast<size_t>(count), k);
  }
  if (c.IntAttr("mrope_layout").value_or(0) == 0) return streams;
  for (int64_t i = 0; i < std::ssize(streams); ++i) {
    const int64_t k = i % 3;
    streams[static_cast<size_t>(i)] = i < 3 * parts[static_cast<size_t>(k)] ? k : 0;
  }
  return streams;
}

// Rows of a table for each position, of each column those of its stream: [B, L, columns].
Text StreamRows(UpgradeContext& c, Nodes& make, Text table, const std::vector<int64_t>& streams) {
  Text rows;
  for (int64_t k = 0; k < 3; ++k) {
    const Text at = make("Gather", {c.node.inputs[1], make.Int(k)}, {MakeInt("axis", 0)});
    const Text own = make("Gather", {table, at}, {MakeInt("axis", 0)});
    Tensor is_own(ElementType::kBool, {std::ssize(streams)});
    for (size_t i = 0; i < streams.size(); ++i) is_own.mutable_data<bool>()[i] = streams[i] == k;
    rows = k == 0 ? own : make("Where", {c.AddConstant(is_own), own, rows});
  }
  return rows;
}

void MRotaryEmbedding(UpgradeContext& c) {
  Nodes make(c);
  const std::vector<int64_t> streams = Streams(c);
  const Text cosines = StreamRows(c, make, c.node.inputs[2], streams);
  Rotate(c, make, {cosines, StreamRows(c, make, c.node.inputs[3], streams)});
}

constexpr ContribRule kAttention[] = {
    {"Attention", 2, 7, 2, Attention,
     "do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes "
     "rotary_embedding_dim scale unidirectional"},
    {"MultiHeadAttention", 1, 10, 4, MultiHeadAttention,
     "mask_filter_value num_heads scale unidirectional"},
    {"QAttention", 5, 9, 2, QAttention,
     "do_rotary mask_filter_value num_heads past_present_share_buffer scale unidirectional"},
    {"RotaryEmbedding", 4, 4, 1, RotaryEmbedding,
     "interleaved is_packed_batching num_heads rotary_embedding_dim scale"},
    {"MRotaryEmbedding", 4, 4, 1, MRotaryEmbedding,
     "interleaved is_packed_batching mrope_layout mrope_section num_heads rotary_embedding_dim "
     "scale"},
};

}  // namespace

std::span<const ContribRule> ContribAttention() { return kAttention; }

}  // namespace lathe::onnx
