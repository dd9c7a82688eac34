#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/ir/operation.h"
#include "lathe/lower/condition.h"

/// How an op may be computed on a target, and which way is taken.
namespace lathe::lower {
struct Lowering;
}

namespace lathe {

/// A machine to compile for. `keys` are the names under which strategies are looked up, the most
/// special first: {"avx512", "x86-64", "cpu"}; "generic" is tried last by itself.
struct TargetKeys {
  std::string name;  ///< as the user wrote it; tuned records are kept by it
  std::vector<std::string> keys;

  /// Of a target of the code generator: its name, "cpu".
  static TargetKeys Of(std::string_view target);
};

/// What is to be computed: an op (with its attributes and types) on a target.
struct OpCall {
  Operation* op;
  const TargetKeys* target;
  std::string workload = {};  ///< what records are kept under; empty: made of the op
  /// Extent `axis` (negative: from the back) of operand `i`; unknown if there is no such one.
  Dim InputDim(size_t i, int64_t axis) const;
  Dim OutputDim(size_t i, int64_t axis) const;
  /// Name, attributes that matter and types, as text: equal for calls that one kernel can serve.
  std::string Workload() const;
};

/// One way to compute a function whose anchor op is one.
struct OpImplementation {
  std::string name;
  int plevel = 10;  ///< priority: the highest that is valid is taken
  /// Writes the loops: what is computed and how; false with the reason if it cannot.
  std::function<bool(lower::Lowering&)> lower = {};
  /// Why it cannot serve this call; empty: it can. Absent: it always can.
  std::function<std::string(const OpCall&)> refuse = {};
  /// Estimated seconds, for `explain`; absent: not known.
  std::function<double(const OpCall&)> cost = {};
};

/// Implementations that are valid where a condition holds.
struct OpSpecialization {
  Condition condition;
  std::vector<OpImplementation> implementations;
};

/// All ways to compute an op on a target, in order of preference among equals.
class OpStrategy {
 public:
  /// Valid for all extents.
  OpStrategy& Add(OpImplementation implementation) { return Add({}, std::move(implementation)); }
  /// Valid where `condition` holds; joins the last specialization if it is of that condition.
  OpStrategy& Add(const Condition& condition, OpImplementation implementation);
  std::span<const OpSpecialization> specializations() const { return specializations_; }

 private:
  std::vector<OpSpecialization> specializations_;
};

/// Measured times of implementations, one JSON object a line:
///   {"implementation":"pack","seconds":0.001,"target":"avx2","workload":"nn.matmul(...)"}
class TuningRecords {
 public:
  /// Keeps the better of two records of the same workload, target and implementation.
  void Add(std::string_view workload, std::string_view target, std::string_view implementation,
           double seconds);
  void Add(const TuningRecords& others);
  std::optional<double> Find(std::string_view workload, std::string_view target,
                             std::string_view implementation) const;
  /// All of a workload on a target, the fastest first; names and seconds.
  std::vector<std::pair<std::string, double>> Ranked(std::string_view workload,
                                                     std::string_view target) const;
  /// The fastest of a workload on a target; its name and seconds.
  std::optional<std::pair<std::string, double>> Best(std::string_view workload,
                                                     std::string_view target) const;
  size_t size() const;
  std::string ToText() const;
  /// Errors name the line: tune/record.
  static TuningRecords FromText(std::string_view text);

 private:
  using Call = std::pair<std::string, std::string>;  // workload, target
  std::map<Call, std::map<std::string, double, std::less<>>> seconds_;
};

/// An implementation as the selection saw it.
struct Candidate {
  const OpImplementation* implementation;
  Condition condition;
  Truth holds;
  std::string refused;                  ///< why it is out; empty if it is valid
  std::optional<double> measured = {};  ///< seconds of its tuned record
  std::optional<double> estimated = {};
};

/// The outcome. Views the strategy, which must outlive it.
struct Selection {
  std::vector<Candidate> candidates;  ///< all, in the strategy's order
  /// What to try at run time, in order; the last one always holds. Indices of `candidates`.
  std::vector<size_t> dispatch;

  const OpImplementation& best() const { return *candidates[dispatch.front()].implementation; }
  bool is_static() const { return dispatch.size() == 1; }
  /// The one taken for these values of the symbols.
  const OpImplementation& Pick(const Dim::Lookup& lookup) const;
  /// A line per candidate: taken, valid, or refused and why.
  std::string Explain() const;
};

/// Picks. A tuned record beats priority, priority beats order, the first of equals is taken. A
/// condition that is neither proven nor refuted makes an entry of the dispatch. Nothing valid:
/// lower/no-implementation, naming op, target, shapes and every condition that was rejected; the
/// same if nothing is valid for all extents.
Selection SelectImplementation(const OpStrategy& strategy, const OpCall& call,
                               const TuningRecords* records = nullptr);

/// Strategies by op and target key. Those of `builtin.func` are for functions of any operations;
/// the op of their OpCall is the function.
class StrategyRegistry {
 public:
  using Make = std::function<OpStrategy(const OpCall&)>;
  /// Under this key are the strategies that come with Lathe. They are asked on every target, after
  /// those of its keys that have the same priority.
  static constexpr const char* kOwnKey = "lathe";
  /// That of the process. Holds Lathe's own; plug-ins add to it when they are loaded. Read-only
  /// afterwards.
  static StrategyRegistry& Global();
  /// A second one for the same op and key is an error (lower/duplicate-strategy).
  void Register(std::string_view op, std::string_view key, Make make);
  /// That of the first of the target's keys that has one, or the generic one. None:
  /// lower/no-strategy, naming the keys that have one.
  OpStrategy Find(const OpCall& call) const;
  /// Whether Find has an answer.
  bool Has(const OpCall& call) const { return Look(call) != nullptr; }

 private:
  const Make* Look(const OpCall& call) const;
  std::map<std::pair<std::string, std::string>, Make> makers_;  ///< by op, key
};

}  // namespace lathe
