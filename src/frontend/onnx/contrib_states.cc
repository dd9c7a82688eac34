// Operators of com.microsoft for layers that keep a state from step to step.

#include <algorithm>
#include <limits>

#include "src/frontend/onnx/contrib.h"
#include "src/frontend/onnx/op_table.h"

namespace lathe::onnx {

namespace {

constexpr auto kF32 = static_cast<int64_t>(ElementType::kF32);
constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

AttributeMsg To(ElementType type) { return MakeInt("to", static_cast<int64_t>(type)); }

void RefuseWindow(UpgradeContext& c) {
  if (c.IntAttr("state_window").value_or(0) != 0) c.Refuse("'state_window' is not supported");
}

bool IsSilu(UpgradeContext& c, Text otherwise) {
  const Text name = c.StringAttr("activation").value_or(otherwise);
  if (name == "silu" || name == "swish") return true;
  if (name != otherwise && name != "sigmoid" && name != "none") {
    c.Refuse(StrCat("activation ", Shown(name), " is not supported"));
  }
  return false;
}

// ---- CausalConvWithState ----

// The state is what lies before the input; without one, zeros.
void CausalConv(UpgradeContext& c) {
  RefuseWindow(c);
  if (c.IntAttr("ndim").value_or(1) != 1) c.Refuse("'ndim' other than 1 is not supported");
  Nodes make(c);
  const bool is_last = c.IntAttr("channels_last").value_or(0) != 0;
  if (c.NeedRank(0) != 3) c.Refuse("an input of other than three axes");
  const auto moved = [&](Text x) {
    return is_last ? make("Transpose", {x}, {MakeInts("perm", {0, 2, 1})}) : x;
  };
  const int64_t dilation = c.IntAttr("dilation").value_or(1);
  if (dilation < 1 || dilation > kMostSize) c.Refuse(StrCat("'dilation' is ", dilation));
  const int64_t state = (NeedSize(c, 1, 2) - 1) * dilation;
  const Text x = moved(c.node.inputs[0]);
  const Text all = c.HasInput(3)
                       ? make("Concat", {moved(c.node.inputs[3]), x}, {MakeInt("axis", 2)})
                       : make("Pad", {x, make.Ints({0, 0, state, 0, 0, 0})});
  Text y = make("Conv", {all, c.node.inputs[1], InputOr(c, 2)},
                {MakeInt("group", NeedSize(c, 1, 0)), MakeInts("dilations", {dilation})});
  if (IsSilu(c, "none")) y = make("Swish", {y});
  c.Give(0, moved(y));
  const Text from = make("Sub", {make.Size(all, 2), make.Ints({state})});
  c.Give(1, moved(make("Slice", {all, from, make.Ints({kEnd}), make.Ints({2})})));
}

// ---- linear attention ----

// Of [B, L, from * size] each head several times: [B, L, to * size].
Text HeadsRepeated(UpgradeContext& c, Text x, int64_t from, int64_t to, int64_t size) {
  if (from == to) return x;
  if (to % from != 0) c.Refuse(StrCat(from, " heads do not divide ", to));
  Nodes make(c);
  const Text apart = make("Reshape", {x, make.Ints({0, 0, from, 1, size})});
  const Text many = make("Expand", {apart, make.Ints({1, 1, 1, to / from, 1})});
  return make("Reshape", {many, make.Ints({0, 0, to * size})});
}

// There may be fewer heads of queries and of keys than of values.
void LinearAttention(UpgradeContext& c) {
  RefuseWindow(c);
  const int64_t values = c.IntAttr("kv_num_heads").value_or(0);
  const int64_t queries = c.IntAttr("q_num_heads").value_or(0);
  if (values < 1 || values > kMostSize || queries < 1) {
    c.Refuse("the numbers of heads are missing or too large");
  }
  const int64_t size = NeedSize(c, 0, 2) / queries;
  if (size < 1 || NeedSize(c, 1, 2) < size) c.Refuse("'q_num_heads' does not fit the queries");
  std::vector<Text> inputs = c.node.inputs;
  if (queries < values) inputs[0] = HeadsRepeated(c, inputs[0], queries, values, size);
  inputs[1] = HeadsRepeated(c, inputs[1], NeedSize(c, 1, 2) / size, values, size);
  std::vector<AttributeMsg> attributes = Pass(c, {"chunk_size", "scale", "update_rule"});
  attributes.push_back(MakeInt("kv_num_heads", values));
  attributes.push_back(MakeInt("q_num_heads", std::max(queries, values)));
  const std::vector<Text> y =
      Nodes(c).Many("LinearAttention", std::move(inputs), std::move(attributes), 2);
  for (size_t i = 0; i < 2; ++i) c.Give(i, y[i]);
}

void LinearAttentionGate(UpgradeContext& c) {
  Nodes make(c);
  const AttributeMsg back = To(c.InputElement(0)), wide = MakeInt("to", kF32);
  const Text a = make("Add", {make("Cast", {c.node.inputs[0]}, {wide}), c.node.inputs[1]});
  const Text decay = make("Mul", {make("Softplus", {a}), c.node.inputs[2]});
  c.Give(0, make("Cast", {decay}, {back}));
  if (!c.HasOutput(1)) return;
  if (!c.HasInput(3)) c.Refuse("output 'beta' without input 'b'");
  c.Give(1, make("Sigmoid", {c.node.inputs[3]}));
}

// Over groups of as many elements as the scale has.
void GatedRmsNorm(UpgradeContext& c) {
  Nodes make(c);
  const AttributeMsg wide = MakeInt("to", kF32);
  const int64_t rank = c.NeedRank(0), width = NeedSize(c, 1, 0), all = LastSize(c, 0);
  if (width < 1 || all % width != 0) c.Refuse("the scale does not divide the last axis");
  std::vector<int64_t> apart(static_cast<size_t>(rank - 1), 0), back = apart;
  apart.insert(apart.end(), {all / width, width});
  back.push_back(all);
  const auto numbers = [&](size_t i) { return make("Cast", {c.node.inputs[i]}, {wide}); };
  const auto epsilon = static_cast<float>(c.FloatAttr("epsilon").value_or(1e-5));
  Text y = make("RMSNormalization", {make("Reshape", {numbers(0), make.Ints(apart)}), numbers(1)},
                {MakeFloat("epsilon", epsilon)});
  y = make("Reshape", {y, make.Ints(back)});
  const Text gate = make(IsSilu(c, "silu") ? "Swish" : "Sigmoid", {numbers(2)});
  c.Give(0, make("Cast", {make("Mul", {y, gate})}, {To(c.InputElement(0))}));
}

constexpr ContribRule kStates[] = {
    {"CausalConvWithState", 2, 4, 2, CausalConv,
     "activation channels_last dilation ndim state_window"},
    {"GatedRMSNorm", 3, 3, 1, GatedRmsNorm, "activation epsilon"},
    {"LinearAttention", 3, 6, 2, LinearAttention,
     "chunk_size kv_num_heads q_num_heads scale state_window update_rule"},
    {"LinearAttentionGate", 3, 4, 2, LinearAttentionGate},
};

}  // namespace

std::span<const ContribRule> ContribStates() { return kStates; }

}  // namespace lathe::onnx
