#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/transform/optimizer/optimizer.h"

namespace lathe {

/// A read, where `reads` stands, of a variable of the program that is made first, filled with
/// `initial`, if there is none of that name.
Value ReadVariable(Program& program, Builder& reads, const std::string& name, ElementType element,
                   const Shape& shape, double initial);

/// Builds the updates of one optimizer at the end of a program.
class TrainingStep {
 public:
  TrainingStep(OptimizerPass& optimizer, Program& program);
  /// Throws gradient/missing, optimizer/parameter, optimizer/two-groups, optimizer/twice,
  /// optimizer/group and optimizer/option.
  void Build();
  int64_t num_updated() const { return static_cast<int64_t>(targets_.size()); }

 private:
  /// Parameters that share all options.
  struct Group {
    std::string name;
    std::unique_ptr<Pass> owned;
    const OptimizerPass* rule;
    std::vector<std::string> patterns;
    std::optional<Scalar> rate = {};  ///< of this update, once it is built
  };
  /// A parameter with its gradient.
  struct Target {
    std::string name;
    Value read;  ///< of the forward pass
    Value gradient = {};
    std::vector<Operation*> outputs = {};  ///< what gives the gradient to the caller
    Shape shape = {};                      ///< of the parameter
    int64_t nranks = 1;                    ///< that have a shard of the gradient each
    Group* group = nullptr;
  };

  void FindTargets();
  void CheckIsInput(std::string_view name) const;
  void ReadGroups();
  void AssignGroups();
  Group* GroupOf(const std::string& name) const;
  void CheckNotUpdated() const;

  Value ReadCounter(std::string_view name);
  void BuildUpdates(std::vector<nn::Term> gradients);
  int64_t NumShards() const;
  Scalar RateOf(const Group& group, const Scalar& done);
  void Accumulate();
  void YieldEach(Operation* holder, Value apply, const std::vector<VariableUpdate>& sums);
  void SetAll();
  void EraseGradientOutputs();

  OptimizerPass& optimizer_;
  Program& program_;
  Rewriter rewriter_;
  Builder reads_;  ///< before what is computed from variables
  std::vector<Target> targets_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Operation*> outputs_;  ///< gradients that need not be given any more
  std::vector<VariableUpdate> updates_;
};

}  // namespace lathe
