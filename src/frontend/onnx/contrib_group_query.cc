// GroupQueryAttention of com.microsoft, as a cache that is written into and attention with a mask.

#include <utility>

#include "lathe/support/error.h"
#include "src/frontend/onnx/contrib.h"

namespace lathe::onnx {

namespace {

constexpr auto kI64 = static_cast<int64_t>(ElementType::kI64);
constexpr size_t kPastKey = 3, kPastValue = 4, kLastIndices = 5, kTotal = 6, kCos = 7, kSin = 8,
                 kPositions = 9;

int64_t Width(UpgradeContext& c, size_t input, size_t axis) {
  c.NeedRank(input);
  const auto type = c.InputType(input).cast<AnyTensorType>();
  if (std::cmp_less_equal(type.rank(), axis) || !type.dims()[axis].is_constant()) {
    c.Refuse(StrCat("the size of input ", input, " on axis ", axis, " is not known"));
  }
  return type.dims()[axis].value();
}

class GroupQuery {
 public:
  explicit GroupQuery(UpgradeContext& c)
      : c_(c),
        make_(c),
        heads_(c.IntAttr("num_heads").value_or(0)),
        kv_heads_(c.IntAttr("kv_num_heads").value_or(0)) {
    Check();
    is_packed_ = !c.HasInput(1);
    size_ = Width(c, 0, 2) / (is_packed_ ? heads_ + 2 * kv_heads_ : heads_);
  }

  void Write() {
    SplitHeads();
    FindPositions();
    Rotate();
    key_ = Present(key_, kPastKey);
    value_ = Present(value_, kPastValue);
    c_.Give(0, Attended());
    if (c_.HasOutput(1)) c_.Give(1, key_);
    if (c_.HasOutput(2)) c_.Give(2, value_);
  }

 private:
  void Check() {
    if (heads_ < 1 || kv_heads_ < 1 || heads_ % kv_heads_ != 0) {
      c_.Refuse("'kv_num_heads' does not divide 'num_heads'");
    }
    if (!c_.HasInput(kLastIndices) || !c_.HasInput(kTotal)) c_.Refuse("the lengths are missing");
    if (c_.HasInput(1) != c_.HasInput(2)) c_.Refuse("keys and values come together");
    if (c_.HasInput(kPastKey) != c_.HasInput(kPastValue)) {
      c_.Refuse("past keys and values come together");
    }
    for (size_t i = kPositions + 1; i < c_.node.inputs.size(); ++i) {
      if (c_.HasInput(i)) c_.Refuse(StrCat("input ", i, " is not supported"));
    }
    for (const Text name : {Text("smooth_softmax"), Text("qk_output")}) {
      if (c_.IntAttr(name).value_or(0) > 0) c_.Refuse(StrCat("'", name, "' is not supported"));
    }
    if (c_.HasOutput(3)) c_.Refuse("output 'output_qk' is not supported");
  }

  // [B, L, heads * E] as [B, heads, L, E].
  Text Heads(Text rows, int64_t heads) {
    const Text apart = make_("Reshape", {rows, make_.Ints({0, 0, heads, size_})});
    return make_("Transpose", {apart}, {MakeInts("perm", {0, 2, 1, 3})});
  }

  void SplitHeads() {
    std::vector<Text> rows = {c_.node.inputs[0], InputOr(c_, 1), InputOr(c_, 2)};
    if (is_packed_) {
      const Text sizes = make_.Ints({heads_ * size_, kv_heads_ * size_, kv_heads_ * size_});
      rows = make_.Many("Split", {rows[0], sizes}, {MakeInt("axis", 2)}, 3);
    }
    query_ = Heads(rows[0], heads_);
    key_ = Heads(rows[1], kv_heads_);
    value_ = Heads(rows[2], kv_heads_);
  }

  Text Number(Text of) { return make_("Reshape", {of, make_.Ints({-1})}); }
  Text Whole(size_t input) {
    return Number(make_("Cast", {c_.node.inputs[input]}, {MakeInt("to", kI64)}));
  }
  Text UpTo(Text end) {
    return make_("Range", {make_.Int(0), make_("Squeeze", {end}), make_.Int(1)});
  }

  // A prompt begins at 0, however long its sequences are; later ids follow those of their sequence.
  void FindPositions() {
    const Text length = make_.Size(query_, 2);
    total_ = Whole(kTotal);
    const Text one = make_.Ints({1});
    const Text behind = make_("Sub", {make_("Add", {Whole(kLastIndices), one}), length});
    start_ = make_("Where", {make_("Equal", {length, total_}), make_.Ints({0}), behind});
    positions_ = make_("Add", {make_("Unsqueeze", {start_, one}), UpTo(length)});
  }

  void Rotate() {
    if (c_.IntAttr("do_rotary").value_or(0) == 0) return;
    if (!c_.HasInput(kCos) || !c_.HasInput(kSin)) c_.Refuse("'do_rotary' without its tables");
    std::vector<AttributeMsg> attributes = {
        MakeInt("interleaved", c_.IntAttr("rotary_interleaved").value_or(0))};
    const int64_t rotated = 2 * Width(c_, kCos, 1);
    if (rotated != size_) attributes.push_back(MakeInt("rotary_embedding_dim", rotated));
    const Text at = c_.HasInput(kPositions) ? c_.node.inputs[kPositions] : positions_;
    for (Text* x : {&query_, &key_}) {
      *x = make_("RotaryEmbedding", {*x, c_.node.inputs[kCos], c_.node.inputs[kSin], at},
                 attributes);
    }
  }

  // A buffer that is long enough stays as long; a shorter one gets the rows that it lacks.
  Text Present(Text rows, size_t past) {
    if (!c_.HasInput(past)) return rows;
    const Text buffer = c_.node.inputs[past];
    const Text lacking =
        make_("Max", {make_("Sub", {total_, make_.Size(buffer, 2)}), make_.Ints({0})});
    const Text pads = make_("Concat", {make_.Ints({0, 0, 0, 0, 0, 0}), lacking, make_.Ints({0})},
                            {MakeInt("axis", 0)});
    return make_("TensorScatter", {make_("Pad", {buffer, pads}), rows, start_},
                 {MakeInt("axis", 2)});
  }

  // [B, 1, L, T]: the keys up to each query, as many as the window has.
  Text Mask() {
    const Text keys = UpTo(make_.Size(key_, 2));
    const Text queries = make_("Unsqueeze", {positions_, make_.Ints({2})});
    Text kept = make_("LessOrEqual", {keys, queries});
    const int64_t window = c_.IntAttr("local_window_size").value_or(-1);
    if (window >= 0) {
      const Text last_left_out = make_("Sub", {queries, make_.Int(window)});
      kept = make_("And", {kept, make_("Greater", {keys, last_left_out})});
    }
    return make_("Unsqueeze", {kept, make_.Ints({1})});
  }

  Text Attended() {
    std::vector<AttributeMsg> attributes = Pass(c_, {"softcap"});
    const double scale = c_.FloatAttr("scale").value_or(0);
    if (scale != 0) attributes.push_back(MakeFloat("scale", static_cast<float>(scale)));
    const Text y = make_("Attention", {query_, key_, value_, Mask()}, std::move(attributes));
    const Text rows = make_("Transpose", {y}, {MakeInts("perm", {0, 2, 1, 3})});
    return make_("Reshape", {rows, make_.Ints({0, 0, heads_ * size_})});
  }

  UpgradeContext& c_;
  Nodes make_;
  int64_t heads_, kv_heads_, size_ = 0;  // of a head
  bool is_packed_ = false;
  Text query_, key_, value_;
  Text total_, start_, positions_;  // [1], [B], [B, L]
};

void GroupQueryAttention(UpgradeContext& c) { GroupQuery(c).Write(); }

constexpr ContribRule kGroupQuery[] = {
    {"GroupQueryAttention", 7, 14, 4, GroupQueryAttention,
     "do_rotary kv_num_heads local_window_size num_heads qk_output rotary_interleaved scale "
     "smooth_softmax softcap"},
};

}  // namespace

std::span<const ContribRule> ContribGroupQuery() { return kGroupQuery; }

}  // namespace lathe::onnx
