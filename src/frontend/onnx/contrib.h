#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "src/frontend/onnx/upgrade.h"

/// Operators of com.microsoft (onnxruntime, docs/ContribOperators.md), of ai.onnx.ml, and early
/// ones of the standard, written as other operators of the standard.
namespace lathe::onnx {

/// How one of them is written; it sees and changes what a rule that upgrades does, and gives every
/// output that the node names.
struct ContribRule {
  const char* op;
  size_t min_inputs, max_inputs, max_outputs;
  void (*apply)(UpgradeContext&);
  /// Names of the attributes that it reads, separated by spaces; any other one is refused.
  const char* attributes = "";
};

std::span<const ContribRule> ContribLayers();
std::span<const ContribRule> ContribAttention();
std::span<const ContribRule> ContribGroupQuery();
std::span<const ContribRule> ContribBlocks();
std::span<const ContribRule> ContribStates();
std::span<const ContribRule> ContribExperts();
std::span<const ContribRule> ContribQuantized();
std::span<const ContribRule> ContribClassical();  ///< of ai.onnx.ml
std::span<const ContribRule> ContribEarly();      ///< of the standard

/// Null if there is no such operator. `domain` is in normal form.
const ContribRule* FindContrib(Text domain, Text op);
/// Refuses what the rule does not know, then applies it.
void ApplyContrib(const ContribRule& rule, UpgradeContext& c);

/// Makes operators of the standard, one call each, on the way to the outputs of a node.
class Nodes {
 public:
  explicit Nodes(UpgradeContext& c) : c_(c) {}

  Text operator()(Text op, std::vector<Text> inputs, std::vector<AttributeMsg> attributes = {}) {
    return Many(op, std::move(inputs), std::move(attributes), 1)[0];
  }
  /// Of an operator with several outputs.
  std::vector<Text> Many(Text op, std::vector<Text> inputs, std::vector<AttributeMsg> attributes,
                         size_t outputs) {
    NodeMsg node = MakeNode(op, std::move(inputs));
    node.attributes = std::move(attributes);
    node.is_current = true;
    return c_.EmitAll(std::move(node), outputs);
  }
  Text Ints(std::vector<int64_t> values) { return c_.IntsConstant(values); }
  Text Int(int64_t value) { return c_.AddConstant(Tensor::Scalar<int64_t>(value)); }
  /// A scalar of the element type of input `like`.
  Text Scalar(size_t like, double value) { return c_.ScalarLike(like, value); }
  /// The size of one axis, as a tensor of one element.
  Text Size(Text of, int64_t axis) {
    return (*this)("Gather", {(*this)("Shape", {of}), Ints({axis})}, {MakeInt("axis", 0)});
  }
  /// Absent values (empty names) are left out of a sum.
  Text Sum(std::initializer_list<Text> values) {
    Text sum;
    for (const Text value : values) {
      if (value.empty()) continue;
      sum = sum.empty() ? value : (*this)("Add", {sum, value});
    }
    return sum;
  }

 private:
  UpgradeContext& c_;
};

/// Input `i`, or an empty name.
inline Text InputOr(const UpgradeContext& c, size_t i) {
  return c.HasInput(i) ? c.node.inputs[i] : Text();
}
/// More than any operator has of heads, features and the like; products of two fit in an integer.
inline constexpr int64_t kMostSize = int64_t{1} << 30;
/// The size of an input on an axis; one that is not known, or above kMostSize, is refused.
int64_t NeedSize(UpgradeContext& c, size_t input, size_t axis);
/// As NeedSize, on the last axis; there is one, or it is refused.
int64_t LastSize(UpgradeContext& c, size_t input);
/// The numbers of 2, 4 or 8 bits in bytes of rank `rank`, low bits first: `columns` of them in the
/// last axis, which ends with the byte that has the last one.
Text UnpackedBits(UpgradeContext& c, Text bytes, int64_t rank, int64_t columns, int64_t bits);
/// Which `perm` of Transpose brings channels from the end to behind the batch.
std::vector<int64_t> ChannelsFirst(int64_t rank);
/// And from there to the end.
std::vector<int64_t> ChannelsLast(int64_t rank);

/// A copy of those attributes of the node that have one of these names.
std::vector<AttributeMsg> Pass(const UpgradeContext& c, std::initializer_list<Text> names);

}  // namespace lathe::onnx
