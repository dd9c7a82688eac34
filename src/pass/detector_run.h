#pragma once

#include <map>
#include <string>
#include <vector>

#include "lathe/ir/observer.h"
#include "lathe/pass/pattern_detector.h"
#include "src/pass/pointer_map.h"
#include "src/pass/search.h"

namespace lathe::detail {

/// What the matches handed out so far have for themselves, of one pattern or of several that are
/// looked for together; and what has gone since. Asked only for membership.
class Claims : public DestructionObserver {
 public:
  static const void* KeyOf(const Node& node) {
    return node.IsOp() ? static_cast<const void*>(node.op()) : node.value().impl();
  }
  bool IsGone(const Node& node) const { return (flags_.Get(KeyOf(node)) & kGone) != 0; }
  bool IsUsed(const Node& node) const { return (flags_.Get(KeyOf(node)) & kUsed) != 0; }
  bool IsExclusive(const Node& node) const { return (flags_.Get(KeyOf(node)) & kExclusive) != 0; }
  void Claim(const Node& node, bool exclusive) {
    const uint8_t more = exclusive ? kUsed | kExclusive : kUsed;
    flags_.Set(KeyOf(node), flags_.Get(KeyOf(node)) | more);
  }
  void Destroying(Operation* op) override;

 private:
  static constexpr uint8_t kGone = 1, kUsed = 2, kExclusive = 4;
  PointerMap<uint8_t> flags_;
};

/// One pattern in one graph: the search domain of pattern graphs.
class DetectorRun : public DestructionObserver {
 public:
  struct Goal {
    uint32_t step;
  };
  DetectorRun(const PDPattern& pattern, Graph& graph, bool explain, Claims& claims);
  /// Where matches may be rooted, in program order.
  std::vector<Node> Roots() const { return Candidates(*pattern_.nodes()[root_]); }
  /// Hands out one match, or all if the root may stand in several. A root that has gone has none.
  int MatchesAt(const Node& root, const GraphPatternDetector::handle_t& handler);
  /// The ops of the match that would be handed out next at `root`; none if there is no match.
  std::vector<Operation*> OpsOfMatchAt(const Node& root);
  std::vector<std::string>& explanations() { return explanations_; }

  // ---- the search domain ----
  bool Try(const Goal& goal, uint32_t alternative, std::vector<Goal>& further, bool& more);
  size_t Mark() const { return trail_.size(); }
  void Undo(size_t mark);
  bool Accept();
  void GaveUp(int64_t steps);

  void Destroying(Operation* op) override;

 private:
  enum class StepKind : uint8_t { kRoot, kInputs, kOutputs, kEdge, kFree };
  /// Binds `to` to a neighbor of `from`, or checks an edge between bound nodes.
  struct Step {
    StepKind kind;
    size_t from;
    size_t to;
  };

  void IndexOps();
  size_t NumCandidates(const PDNode& node) const;
  std::vector<Node> Candidates(const PDNode& node) const;
  size_t ChooseRoot() const;
  void Plan();
  bool PlanEdge(std::vector<bool>& bound, std::vector<bool>& done);
  void PlanFree(std::vector<bool>& bound);

  bool Bind(size_t node, const Node& candidate);
  const std::vector<Node>& NeighborsOf(const Step& step);
  bool TryNeighbor(const Step& step, uint32_t alternative, bool& more);
  bool CheckEdge(const Step& step);
  bool CheckUse(const PDNode& variable, const Node& bound, const Operation* reader);
  bool UsesHold(const PDNode& node);
  bool HasNoConsumerOutside(const PDNode& node);
  bool IsFree(const PDNode& node);
  bool IsNew() const;
  bool IsBound(const Node& node) const;
  template <class MakeText>
  bool Fail(const MakeText& text);
  void HandOut(const GraphPatternDetector::handle_t& handler);
  bool Find(const Node& root);
  void Explain(const Node& root);

  Search<DetectorRun> search_;
  const PDPattern& pattern_;
  Graph& graph_;
  bool explain_;
  Claims& claims_;
  std::map<std::string, std::vector<Operation*>, std::less<>> ops_by_type_;
  std::vector<Operation*> ops_;
  std::vector<std::vector<Node>> free_candidates_;  // by pattern node
  size_t root_ = 0;
  std::vector<Step> steps_;
  struct Neighbors {
    Node from;
    std::vector<Node> nodes;
  };
  std::vector<Neighbors> neighbors_;  // by step

  std::vector<Node> bound_;    // by pattern node
  std::vector<size_t> trail_;  // pattern nodes in order of binding
  Node candidate_root_;
  std::vector<std::vector<Node>> handed_out_;  // at this root, if several matches may share it

  std::vector<std::string> explanations_;
  std::string why_;
  size_t furthest_ = 0;
};

}  // namespace lathe::detail
