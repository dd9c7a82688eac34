#include "src/frontend/onnx/upgrade.h"

#include <algorithm>
#include <unordered_map>

namespace lathe::onnx {

namespace {

using RuleList = std::vector<const UpgradeRule*>;
using RuleTable = std::unordered_map<std::string_view, RuleList>;

RuleTable MakeTable() {
  RuleTable table;
  for (const auto rules : {ElementwiseUpgrades(), ShapeUpgrades(), NetworkUpgrades()}) {
    for (const UpgradeRule& rule : rules) table[rule.op].push_back(&rule);
  }
  for (auto& [op, list] : table) {
    std::sort(list.begin(), list.end(),
              [](const UpgradeRule* a, const UpgradeRule* b) { return a->since < b->since; });
  }
  return table;
}

const RuleTable& Table() {
  static const RuleTable table = MakeTable();
  return table;
}

// The rule for `op` with the smallest `since` above `opset`, or null.
const UpgradeRule* NextRule(Text op, int opset) {
  const auto found = Table().find(op);
  if (found == Table().end()) return nullptr;
  for (const UpgradeRule* rule : found->second) {
    if (rule->since > opset) return rule;
  }
  return nullptr;
}

}  // namespace

bool NeedsUpgrade(Text op_type, int opset) { return NextRule(op_type, opset) != nullptr; }

void Upgrade(UpgradeContext& c, int opset) {
  if (c.node.inputs.empty() || c.node.outputs.empty()) c.Refuse("it has no inputs or no outputs");
  while (const UpgradeRule* rule = NextRule(c.node.op_type, opset)) {
    rule->apply(c);
    opset = rule->since;
  }
}

ElementType UpgradeContext::InputElement(size_t i) {
  const Type type = InputType(i);
  return type.isa<AnyTensorType>() ? type.cast<AnyTensorType>().element() : ElementType::kUndefined;
}

std::optional<int64_t> UpgradeContext::InputRank(size_t i) {
  const Type type = InputType(i);
  if (!type.isa<AnyTensorType>() || !type.cast<AnyTensorType>().has_rank()) return std::nullopt;
  return static_cast<int64_t>(type.cast<AnyTensorType>().rank());
}

int64_t UpgradeContext::NeedRank(size_t i) {
  const auto rank = InputRank(i);
  if (!rank) Refuse(StrCat("the rank of input ", i, " is not known"));
  return *rank;
}

std::optional<int64_t> UpgradeContext::IntAttr(Text name) const {
  const AttributeMsg* a = node.Find(name);
  if (a == nullptr || a->type != AttrType::kInt) return std::nullopt;
  return a->i;
}

std::optional<std::vector<int64_t>> UpgradeContext::IntsAttr(Text name) const {
  const AttributeMsg* a = node.Find(name);
  if (a == nullptr || a->type != AttrType::kInts) return std::nullopt;
  return a->ints;
}

std::optional<double> UpgradeContext::FloatAttr(Text name) const {
  const AttributeMsg* a = node.Find(name);
  if (a == nullptr || a->type != AttrType::kFloat) return std::nullopt;
  return a->f;
}

std::optional<Text> UpgradeContext::StringAttr(Text name) const {
  const AttributeMsg* a = node.Find(name);
  if (a == nullptr || a->type != AttrType::kString) return std::nullopt;
  return a->s;
}

void UpgradeContext::Erase(Text name) {
  std::erase_if(node.attributes, [&](const AttributeMsg& a) { return a.name == name; });
}

void UpgradeContext::SetInt(Text name, int64_t value) {
  Erase(name);
  node.attributes.push_back(MakeInt(name, value));
}

void UpgradeContext::SetInts(Text name, std::vector<int64_t> values) {
  Erase(name);
  node.attributes.push_back(MakeInts(name, std::move(values)));
}

void UpgradeContext::SetString(Text name, Text value) {
  Erase(name);
  node.attributes.push_back(MakeString(name, value));
}

void UpgradeContext::SetInput(size_t i, Text name) {
  if (node.inputs.size() <= i) node.inputs.resize(i + 1);
  node.inputs[i] = name;
}

Text UpgradeContext::IntsConstant(std::span<const int64_t> values) {
  return AddConstant(Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
}

Text UpgradeContext::ScalarLike(size_t like, double value) {
  const ElementType type = InputElement(like);
  if (type == ElementType::kUndefined) Refuse(StrCat("the type of input ", like, " is not known"));
  return AddConstant(Cast(Tensor::Scalar<double>(value), type));
}

NodeMsg MakeNode(Text op_type, std::vector<Text> inputs) {
  NodeMsg node;
  node.op_type = op_type;
  node.inputs = std::move(inputs);
  return node;
}

AttributeMsg MakeInts(Text name, std::vector<int64_t> values) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kInts;
  a.ints = std::move(values);
  return a;
}

AttributeMsg MakeInt(Text name, int64_t value) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kInt;
  a.i = value;
  return a;
}

AttributeMsg MakeFloat(Text name, float value) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kFloat;
  a.f = value;
  return a;
}

AttributeMsg MakeString(Text name, Text value) {
  AttributeMsg a;
  a.name = name;
  a.type = AttrType::kString;
  a.s = value;
  return a;
}

}  // namespace lathe::onnx
