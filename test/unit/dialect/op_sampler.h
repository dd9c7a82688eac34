#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lathe/dialect/interpreter.h"
#include "lathe/ir/context.h"
#include "lathe/ir/op_def.h"

namespace lathe::testing {

/// One valid use of an op: values for its operands and attributes beside the defaults.
struct OpSample {
  OpInfo info;
  std::vector<RtValue> inputs;  ///< none: absent
  std::vector<std::pair<std::string, Attribute>> attributes;
  size_t num_results = 0;
  std::string label;  ///< "nn.conv T=f32 #0"
};

/// Grows samples from an op's declaration and its `sample` hint (tools/opgen/README.md):
/// every element type of every type variable, each case of the hint; without a hint operands of
/// shape [2, 3], for elementwise ops also ones that broadcast, scalars and empty tensors.
class OpSampler {
 public:
  OpSampler(IrContext& context, nlohmann::json hints, uint64_t seed)
      : context_(context), hints_(std::move(hints)), seed_(seed) {}

  /// Why the op cannot be sampled, or an empty string.
  std::string ReasonAgainst(OpInfo info) const;
  std::vector<OpSample> Samples(OpInfo info);

 private:
  struct Choice;
  nlohmann::json Hint(OpInfo info) const;
  std::vector<nlohmann::json> Cases(OpInfo info) const;
  OpSample Make(OpInfo info, const nlohmann::json& hint, const std::vector<ElementType>& elements);
  void AddOperand(OpSample& sample, const ValueDef& def, const nlohmann::json& hint,
                  const std::vector<ElementType>& elements);
  RtValue MakeValue(const TypeRule& rule, const nlohmann::json& spec,
                    const std::vector<ElementType>& elements);
  Tensor MakeTensor(ElementType element, const nlohmann::json& spec);
  Attribute MakeAttribute(AttrKind kind, const nlohmann::json& value);
  void AddAttributes(OpSample& sample, const nlohmann::json& hint);

  IrContext& context_;
  nlohmann::json hints_;
  uint64_t seed_;
  uint64_t stream_ = 0;
};

/// The hints that the op generator gathered from the declarations.
nlohmann::json ReadSampleHints();

}  // namespace lathe::testing
