// GroupQueryAttention of com.microsoft, as a cache that is written into and attention with a mask.

#include <limits>

#include "lathe/support/error.h"
#include "src/frontend/onnx/contrib.h"

namespace lathe::onnx {

namespace {

// Before every window.
constexpr int64_t kNowhere = -(int64_t{1} << 40);
constexpr auto kI64 = static_cast<int64_t>(ElementType::kI64);
constexpr size_t kPastKey = 3, kPastValue = 4, kLastIndices = 5, kTotal = 6, kCos = 7, kSin = 8,
                 kPositions = 9, kBias = 10, kSink = 11;

class GroupQuery {
 public:
  explicit GroupQuery(UpgradeContext& c)
      : c_(c),
        make_(c),
        heads_(c.IntAttr("num_heads").value_or(0)),
        kv_heads_(c.IntAttr("kv_num_heads").value_or(0)) {
    Check();
    is_packed_ = !c.HasInput(1);
    size_ = NeedSize(c, 0, 2) / (is_packed_ ? heads_ + 2 * kv_heads_ : heads_);
  }

  void Write() {
    SplitHeads();
    FindPositions();
    Rotate();
    if (IsWindowed()) {
      KeepWindow();
    } else {
      key_ = Present(key_, kPastKey);
      value_ = Present(value_, kPastValue);
      present_key_ = key_;
      present_value_ = value_;
      keys_at_ = UpTo(make_.Size(key_, 2));
    }
    c_.Give(0, Attended());
    if (c_.HasOutput(1)) c_.Give(1, present_key_);
    if (c_.HasOutput(2)) c_.Give(2, present_value_);
  }

 private:
  void Check() {
    if (heads_ < 1 || heads_ > kMostSize || kv_heads_ < 1 || heads_ % kv_heads_ != 0) {
      c_.Refuse("'kv_num_heads' does not divide 'num_heads'");
    }
    if (!c_.HasInput(kLastIndices) || !c_.HasInput(kTotal)) c_.Refuse("the lengths are missing");
    if (c_.HasInput(1) != c_.HasInput(2)) c_.Refuse("keys and values come together");
    if (c_.HasInput(kPastKey) != c_.HasInput(kPastValue)) {
      c_.Refuse("past keys and values come together");
    }
    for (size_t i = kSink + 1; i < c_.node.inputs.size(); ++i) {
      if (c_.HasInput(i)) c_.Refuse(StrCat("input ", i, " is not supported"));
    }
    if (c_.IntAttr("qk_output").value_or(0) > 0) c_.Refuse("'qk_output' is not supported");
    for (const Text name : {Text("k_quant_type"), Text("v_quant_type")}) {
      if (c_.StringAttr(name).value_or("NONE") != "NONE") {
        c_.Refuse(StrCat("'", name, "' is not supported"));
      }
    }
    if (c_.HasOutput(3)) c_.Refuse("output 'output_qk' is not supported");
    if (!IsWindowed()) return;
    if (!c_.HasInput(kPastKey) || Window() < 1) {
      c_.Refuse("'sliding_window_cache' needs a window and past keys");
    }
    if (c_.HasInput(kBias)) c_.Refuse("'attention_bias' with 'sliding_window_cache'");
  }

  bool IsWindowed() const { return c_.IntAttr("sliding_window_cache").value_or(0) != 0; }
  bool IsCausal() const { return c_.IntAttr("causal").value_or(1) != 0; }
  int64_t Window() const { return c_.IntAttr("local_window_size").value_or(-1); }

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
    ends_ = make_("Add", {Whole(kLastIndices), make_.Ints({1})});
    start_ = make_("Max", {make_("Sub", {ends_, length}), make_.Ints({0})});
    positions_ = make_("Add", {Column(start_), UpTo(length)});
  }

  Text Column(Text of) { return make_("Unsqueeze", {of, make_.Ints({1})}); }

  void Rotate() {
    if (c_.IntAttr("do_rotary").value_or(0) == 0) return;
    if (!c_.HasInput(kCos) || !c_.HasInput(kSin)) c_.Refuse("'do_rotary' without its tables");
    std::vector<AttributeMsg> attributes = {
        MakeInt("interleaved", c_.IntAttr("rotary_interleaved").value_or(0))};
    const int64_t rotated = 2 * NeedSize(c_, kCos, 1);
    if (rotated != size_) attributes.push_back(MakeInt("rotary_embedding_dim", rotated));
    const Text at = c_.HasInput(kPositions) ? c_.node.inputs[kPositions] : positions_;
    for (Text* x : {&query_, &key_}) {
      *x = make_("RotaryEmbedding", {*x, c_.node.inputs[kCos], c_.node.inputs[kSin], at},
                 attributes);
    }
  }

  // With the sizes that its heads have, where the file leaves them open.
  Text Past(size_t input) {
    const auto type = c_.InputType(input).dyn_cast<AnyTensorType>();
    const bool is_known = type && type.has_rank() && type.rank() == 4 &&
                          type.dims()[1].is_constant() && type.dims()[3].is_constant();
    const Text past = c_.node.inputs[input];
    return is_known ? past : make_("Reshape", {past, make_.Ints({0, kv_heads_, 0, size_})});
  }

  // The buffer with the rows that it lacks.
  Text AtLeast(Text buffer, Text length) {
    const Text lacking =
        make_("Max", {make_("Sub", {length, make_.Size(buffer, 2)}), make_.Ints({0})});
    const Text pads = make_("Concat", {make_.Ints({0, 0, 0, 0, 0, 0}), lacking, make_.Ints({0})},
                            {MakeInt("axis", 0)});
    return make_("Pad", {buffer, pads});
  }

  // A buffer that is long enough stays as long; a shorter one gets the rows that it lacks.
  Text Present(Text rows, size_t past) {
    if (!c_.HasInput(past)) return rows;
    return make_("TensorScatter", {AtLeast(Past(past), total_), rows, start_},
                 {MakeInt("axis", 2)});
  }

  // How many of the first `count` tokens of a sequence lie in a window's buffer of `capacity`: when
  // it is full, all but the window are dropped at once.
  Text Resident(Text count, Text capacity) {
    const Text dropped = make_("Add", {capacity, make_.Ints({1 - Window()})});
    const Text over = make_("Max", {make_("Sub", {count, capacity}), make_.Ints({0})});
    const Text last = make_("Sub", {dropped, make_.Ints({1})});
    const Text times = make_("Div", {make_("Add", {over, last}), dropped});
    return make_("Sub", {count, make_("Mul", {dropped, times})});
  }

  // Buffers that are shorter than the window, as before the first token, become as long. Attends to
  // what lies in the buffers and to the new rows behind them; both are written to the
  // buffers as far as they stay.
  void KeepWindow() {
    const Text capacity =
        make_("Max", {make_.Size(c_.node.inputs[kPastKey], 2), make_.Ints({Window()})});
    const Text held = Resident(start_, capacity);
    const Text first = Column(make_("Sub", {start_, held}));
    const Text slots = UpTo(capacity);
    const Text old_at = make_("Where", {make_("Less", {slots, Column(held)}),
                                        make_("Add", {slots, first}), make_.Int(kNowhere)});
    keys_at_ = make_("Concat", {old_at, positions_}, {MakeInt("axis", 1)});
    keys_at_ = make_("Unsqueeze", {keys_at_, make_.Ints({1})});
    key_ = Behind(kPastKey, key_, capacity);
    value_ = Behind(kPastValue, value_, capacity);
    const Text kept_from = make_("Sub", {ends_, Resident(ends_, capacity)});
    const Text wanted = make_("Add", {Column(kept_from), slots});
    const Text is_old = make_("Less", {wanted, Column(start_)});
    const Text column =
        make_("Where", {is_old, make_("Sub", {wanted, first}),
                        make_("Add", {make_("Sub", {wanted, Column(start_)}), capacity})});
    const Text last = make_("Sub", {make_.Size(key_, 2), make_.Ints({1})});
    const Text from = make_("Min", {column, last});
    present_key_ = RowsAt(key_, from);
    present_value_ = RowsAt(value_, from);
  }

  Text Behind(size_t past, Text rows, Text capacity) {
    return make_("Concat", {AtLeast(Past(past), capacity), rows}, {MakeInt("axis", 2)});
  }

  // Of [B, heads, T, E] those that `from` [B, C] says of each sequence.
  Text RowsAt(Text rows, Text from) {
    const std::vector<AttributeMsg> swap = {MakeInts("perm", {0, 2, 1, 3})};
    const Text picked = make_(
        "GatherND", {make_("Transpose", {rows}, swap), make_("Unsqueeze", {from, make_.Ints({2})})},
        {MakeInt("batch_dims", 1)});
    return make_("Transpose", {picked}, swap);
  }

  // [B, 1, L, T]: the keys up to each query, as many as the window has.
  Text Kept() {
    const Text queries = make_("Unsqueeze", {positions_, make_.Ints({2})});
    if (!IsCausal()) {
      const Text ends = make_("Unsqueeze", {ends_, make_.Ints({1, 2})});
      return make_("Unsqueeze", {make_("Less", {keys_at_, ends}), make_.Ints({1})});
    }
    Text kept = make_("LessOrEqual", {keys_at_, queries});
    if (Window() >= 0) {
      const Text last_left_out = make_("Sub", {queries, make_.Int(Window())});
      kept = make_("And", {kept, make_("Greater", {keys_at_, last_left_out})});
    }
    return make_("Unsqueeze", {kept, make_.Ints({1})});
  }

  // What the denominators of the heads have besides the keys, as scores [1, heads, 1, 1].
  Text Sink() {
    const bool smooth = c_.IntAttr("smooth_softmax").value_or(0) > 0;
    if (!c_.HasInput(kSink)) return smooth ? make_.Scalar(0, 0) : Text();
    return make_("Reshape", {c_.node.inputs[kSink], make_.Ints({1, heads_, 1, 1})});
  }

  // A sink is one more key, of zeros, whose value is zero.
  Text WithSink(Text bias, Text sink) {
    const Text one_more = make_.Ints({0, 0, 0, 0, 0, 0, 1, 0});
    key_ = make_("Pad", {key_, one_more});
    value_ = make_("Pad", {value_, one_more});
    const Text rows =
        make_("Concat", {make_.Size(query_, 0), make_.Ints({heads_}), make_.Size(query_, 2)},
              {MakeInt("axis", 0)});
    const auto spread = [&](Text x, Text columns) {
      return make_("Expand", {x, make_("Concat", {rows, columns}, {MakeInt("axis", 0)})});
    };
    return make_("Concat",
                 {spread(bias, make_("Shape", {bias}, {MakeInt("start", -1)})),
                  spread(sink, make_.Ints({1}))},
                 {MakeInt("axis", 3)});
  }

  Text Mask() {
    const Text kept = Kept(), sink = Sink();
    if (!c_.HasInput(kBias) && sink.empty()) return kept;
    const Text bias = c_.HasInput(kBias) ? c_.node.inputs[kBias] : make_.Scalar(0, 0);
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    const Text all = make_("Where", {kept, bias, make_.Scalar(0, kNever)});
    return sink.empty() ? all : WithSink(all, sink);
  }

  Text Attended() {
    std::vector<AttributeMsg> attributes = Pass(c_, {"softcap"});
    const double scale = c_.FloatAttr("scale").value_or(0);
    if (scale != 0) attributes.push_back(MakeFloat("scale", static_cast<float>(scale)));
    const Text mask = Mask();
    const Text y = make_("Attention", {query_, key_, value_, mask}, std::move(attributes));
    const Text rows = make_("Transpose", {y}, {MakeInts("perm", {0, 2, 1, 3})});
    return make_("Reshape", {rows, make_.Ints({0, 0, heads_ * size_})});
  }

  UpgradeContext& c_;
  Nodes make_;
  int64_t heads_, kv_heads_, size_ = 0;  // of a head
  bool is_packed_ = false;
  Text query_, key_, value_;
  Text present_key_, present_value_;
  Text total_, ends_, start_, positions_;  // [1], [B], [B], [B, L]
  Text keys_at_;                           // [T] or [B, 1, T]: positions of the keys
};

void GroupQueryAttention(UpgradeContext& c) { GroupQuery(c).Write(); }

constexpr ContribRule kGroupQuery[] = {
    {"GroupQueryAttention", 7, 17, 4, GroupQueryAttention,
     "causal do_rotary k_norm_epsilon k_quant_type kv_cache_bit_width kv_num_heads "
     "local_window_size num_heads q_norm_epsilon qk_norm_epsilon qk_output rotary_interleaved "
     "scale sliding_window_cache smooth_softmax softcap v_quant_type"},
};

}  // namespace

std::span<const ContribRule> ContribGroupQuery() { return kGroupQuery; }

}  // namespace lathe::onnx
