#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lathe/ir/type.h"
#include "lathe/support/tensor.h"
#include "lathe/support/text.h"
#include "src/frontend/onnx/messages.h"

namespace lathe::onnx {

/// What an upgrade rule sees and does: it edits `node` in place, may put nodes before it, and may
/// wrap its outputs. Everything it adds has the newest meaning already.
class UpgradeContext {
 public:
  explicit UpgradeContext(NodeMsg& at) : node(at) {}
  virtual ~UpgradeContext() = default;

  NodeMsg& node;

  bool HasInput(size_t i) const { return i < node.inputs.size() && !node.inputs[i].empty(); }
  bool HasOutput(size_t i) const { return i < node.outputs.size() && !node.outputs[i].empty(); }
  /// The type of input `i`; null if it is absent.
  virtual Type InputType(size_t i) = 0;
  /// Null if the input is absent or not known at compile time.
  virtual const Tensor* Constant(size_t i) = 0;
  /// A constant value; returns its name.
  virtual Text AddConstant(const Tensor& value) = 0;
  /// Imports a node with one output now and returns the name of its output.
  Text Emit(NodeMsg added) { return EmitAll(std::move(added), 1)[0]; }
  /// The same for a node with several outputs.
  virtual std::vector<Text> EmitAll(NodeMsg added, size_t outputs) = 0;
  /// Output `i` of the node at hand, if it has one, is the value `name`.
  virtual void Give(size_t i, Text name) = 0;
  /// Imports `node` after the node at hand.
  virtual void EmitAfter(NodeMsg node) = 0;
  /// A name that nothing else has.
  virtual Text FreshName(std::string_view hint) = 0;
  /// Keeps `text` as long as the import lasts.
  virtual Text Keep(std::string text) = 0;
  /// The model cannot be brought to the newest meaning. Error onnx/upgrade.
  [[noreturn]] virtual void Refuse(std::string_view why) = 0;

  // ---- conveniences ----
  ElementType InputElement(size_t i);
  /// Rank of tensor input `i`, if known.
  std::optional<int64_t> InputRank(size_t i);
  /// As InputRank, but an unknown one is refused.
  int64_t NeedRank(size_t i);
  std::optional<int64_t> IntAttr(Text name) const;
  std::optional<std::vector<int64_t>> IntsAttr(Text name) const;
  std::optional<double> FloatAttr(Text name) const;
  std::optional<Text> StringAttr(Text name) const;
  void Erase(Text name);
  void SetInt(Text name, int64_t value);
  void SetInts(Text name, std::vector<int64_t> values);
  void SetString(Text name, Text value);
  /// Makes input `i` be `name`, adding absent ones before it.
  void SetInput(size_t i, Text name);
  Text IntsConstant(std::span<const int64_t> values);
  /// A scalar of the element type of input `like`.
  Text ScalarLike(size_t like, double value);
};

/// A node with one output, which Emit names.
NodeMsg MakeNode(Text op_type, std::vector<Text> inputs);
AttributeMsg MakeInts(Text name, std::vector<int64_t> values);
AttributeMsg MakeInt(Text name, int64_t value);
AttributeMsg MakeFloat(Text name, float value);
AttributeMsg MakeString(Text name, Text value);

/// Of what exporters write in any version and peers read, though the operator says otherwise.
inline constexpr int kEveryOpset = std::numeric_limits<int>::max();

/// Brings `op` from any opset below `since` to the meaning it has in `since`.
struct UpgradeRule {
  const char* op;
  int since;
  void (*apply)(UpgradeContext&);
};

// Families of rules, each sorted by nothing in particular.
std::span<const UpgradeRule> ElementwiseUpgrades();
std::span<const UpgradeRule> ShapeUpgrades();
std::span<const UpgradeRule> NetworkUpgrades();

/// Applies to `c.node`, written for `opset` of the default domain, every rule with a larger
/// `since`, in order of `since`. A rule may rename the operator; then the rules of the new name go
/// on.
void Upgrade(UpgradeContext& c, int opset);
/// Whether any rule would apply.
bool NeedsUpgrade(Text op_type, int opset);

}  // namespace lathe::onnx
