#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/builder.h"
#include "lathe/pass/graph.h"

namespace lathe {

class Pass;

/// Is told of every mutation that goes through a Rewriter.
class RewriteListener {
 public:
  virtual ~RewriteListener() = default;
  virtual void Inserted(Operation*) {}
  virtual void Modified(Operation*) {}
  virtual void ResultsReplaced(Operation*) {}
  virtual void Erasing(Operation*) {}
};

/// The one door through which passes mutate a program. New operations get the union of the
/// locations, and the runtime attributes, of what they replace; dead producers can be erased along.
class Rewriter : public Builder {
 public:
  /// Inference of new ops sees the program's constants.
  Rewriter(Program& program, Pass* pass);
  ~Rewriter();

  Program& program() const { return program_; }
  void set_listener(RewriteListener* listener) { listener_ = listener; }

  /// Ops created until the scope ends replace `ops`: they carry their locations and runtime
  /// attributes, and are inserted before the last of `ops` in program order.
  class Replacing {
   public:
    Replacing(Rewriter& rewriter, std::span<Operation* const> ops);
    ~Replacing();
    Replacing(const Replacing&) = delete;

   private:
    Rewriter& rewriter_;
    Location saved_location_;
    std::vector<NamedAttribute> saved_attributes_;
  };

  /// Creates with inference, carrying what the current Replacing scope says.
  Operation* Create(std::string_view op, std::span<const Value> operands,
                    std::span<const NamedAttribute> attributes = {}, size_t num_results = 0);
  /// A builtin.constant of the value. Carries no runtime attributes, so that equal constants merge.
  Value Constant(const Tensor& value);
  /// A new parameter with a fresh name from `base`, read by a get_parameter before the insertion
  /// point.
  Value Parameter(std::string_view base, Tensor data);

  /// Replaces all uses of `op`'s results and erases it. Types must be compatible.
  void ReplaceOp(Operation* op, std::span<const Value> values);
  void ReplaceOp(Operation* op, Value value) { ReplaceOp(op, std::span<const Value>(&value, 1)); }
  void ReplaceAllUses(Value from, Value to);
  void SetOperand(Operation* op, size_t i, Value value);
  void SetAttribute(Operation* op, std::string_view name, Attribute value);
  void SetResultType(Operation* op, size_t i, Type type);
  /// Results must be unused.
  void Erase(Operation* op);
  /// Erases `op` and, transitively, producers that then have no use and no side effect.
  void EraseDead(Operation* op);
  void MoveBefore(Operation* op, Operation* other);

  // ---- remarks of the pass, each once; cheap when nobody asked for them ----
  bool wants_remarks() const;
  void Applied(const Operation* op, std::string message);
  void Missed(const Operation* op, std::string why);
  /// The program was changed, by this class or by whoever calls this, such as inference of types.
  void MarkChanged();

 private:
  Operation* Announce(Operation* op);
  Program& program_;
  Pass* pass_;
  RewriteListener* listener_ = nullptr;
  std::vector<NamedAttribute> carried_;
  std::set<std::string> missed_;  ///< remarks made
  std::unique_ptr<ValueFacts> constants_;
};

/// The op may be removed when no result is used: no trait or effect says otherwise, no nested op
/// does.
bool IsRemovableWhenUnused(const Operation* op);
/// An operand or a result is a tensor that may be written to.
bool TouchesMutableTensor(const Operation* op);
/// Two such ops with equal operands, attributes and types give equal results and may be merged.
bool IsMergeable(const Operation* op);
/// The constant that `value` is known to be: a builtin.constant, or an immutable parameter; null if
/// neither.
const Tensor* ConstantValue(const Program& program, Value value);

/// A rewrite of one op, tried by the greedy driver.
class RewritePattern {
 public:
  /// `root` empty: every op.
  RewritePattern(std::string name, std::string root, int benefit = 1)
      : name_(std::move(name)), root_(std::move(root)), benefit_(benefit) {}
  virtual ~RewritePattern() = default;
  /// True iff the program was changed through `rewriter`.
  virtual bool MatchAndRewrite(Operation* op, Rewriter& rewriter) const = 0;
  const std::string& name() const { return name_; }
  const std::string& root() const { return root_; }
  int benefit() const { return benefit_; }

 private:
  std::string name_, root_;
  int benefit_;
};

using PatternSet = std::vector<std::unique_ptr<RewritePattern>>;

struct GreedyOptions {
  int64_t max_rewrites_per_op = 1000;  ///< beyond: error pass/no-convergence naming the pattern
  bool fold = false;  ///< asks each op's own Fold before the patterns; counted as "fold"
};
/// Applies patterns until none fires: one worklist in program order, neighbors of a change queued
/// again, no rescans. Returns the number of rewrites. `counts` receives hits by pattern name.
int64_t ApplyPatternsGreedily(Program& program, Pass* pass, const PatternSet& patterns,
                              const GreedyOptions& options = {});

}  // namespace lathe
