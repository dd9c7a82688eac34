#include "lathe/pass/pattern_detector.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lathe/ir/context.h"
#include "lathe/ir/observer.h"
#include "src/pass/search.h"

namespace lathe {

namespace detail {

namespace {

constexpr int64_t kBudget = 4096;  // steps at one root

const void* KeyOf(const Node& node) {
  return node.IsOp() ? static_cast<const void*>(node.op()) : node.value().impl();
}

/// A node that one match has for itself.
bool IsExclusive(const PDNode& node, const Node& bound) {
  if (bound.IsVar()) return node.role() == PDNode::Role::kIntermediate;
  return node.role() != PDNode::Role::kInput && node.role() != PDNode::Role::kOutput;
}

}  // namespace

/// One call of a detector: the search domain of pattern graphs, and what earlier matches own.
class DetectorRun : public DestructionObserver {
 public:
  struct Goal {
    uint32_t step;
  };
  DetectorRun(const PDPattern& pattern, Graph& graph, bool explain);
  int Run(const GraphPatternDetector::handle_t& handler);
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
  /// Binds `to` to a neighbour of `from`, or checks an edge between bound nodes.
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
  const std::vector<Node>& NeighboursOf(const Step& step);
  bool TryNeighbour(const Step& step, uint32_t alternative, bool& more);
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
  int MatchesAt(const Node& root, const GraphPatternDetector::handle_t& handler);

  Search<DetectorRun> search_;
  const PDPattern& pattern_;
  Graph& graph_;
  bool explain_;
  std::map<std::string, std::vector<Operation*>, std::less<>> ops_by_type_;
  std::vector<Operation*> ops_;
  std::vector<std::vector<Node>> free_candidates_;  // by pattern node
  size_t root_ = 0;
  std::vector<Step> steps_;
  struct Neighbours {
    Node from;
    std::vector<Node> nodes;
  };
  std::vector<Neighbours> neighbours_;  // by step

  std::vector<Node> bound_;    // by pattern node
  std::vector<size_t> trail_;  // pattern nodes in order of binding
  Node candidate_root_;
  std::vector<std::vector<Node>> handed_out_;  // at this root, if several matches may share it

  std::unordered_set<const void*> gone_;       // roots that were erased; membership only
  std::unordered_set<const void*> used_;       // by matches that were handed out
  std::unordered_set<const void*> exclusive_;  // likewise, for one match alone

  std::vector<std::string> explanations_;
  std::string why_;
  size_t furthest_ = 0;
};

DetectorRun::DetectorRun(const PDPattern& pattern, Graph& graph, bool explain)
    : search_(*this),
      pattern_(pattern),
      graph_(graph),
      explain_(explain),
      bound_(pattern.nodes().size()) {
  IndexOps();
  Plan();
  neighbours_.resize(steps_.size());
}

// ---- the plan ----

void DetectorRun::IndexOps() {
  for (Operation& op : *graph_.block()) {
    ops_.push_back(&op);
    auto at = ops_by_type_.find(op.name());
    if (at == ops_by_type_.end())
      at = ops_by_type_.emplace(op.name(), std::vector<Operation*>()).first;
    at->second.push_back(&op);
  }
}

size_t DetectorRun::NumCandidates(const PDNode& node) const {
  if (node.kind() != PDNode::Kind::kOp || node.op_types_.empty()) return ops_.size();
  size_t count = 0;
  for (const std::string& type : node.op_types_) {
    const auto at = ops_by_type_.find(type);
    count += at == ops_by_type_.end() ? 0 : at->second.size();
  }
  return count;
}

std::vector<Node> DetectorRun::Candidates(const PDNode& node) const {
  std::vector<Node> nodes;
  if (node.kind() != PDNode::Kind::kOp) {
    for (const Node& n : graph_.Nodes()) {
      if (n.IsVar() || node.kind() == PDNode::Kind::kAny) nodes.push_back(n);
    }
    return nodes;
  }
  const auto& types = node.op_types_;
  for (Operation* op : ops_) {
    if (types.empty() || std::find(types.begin(), types.end(), op->name()) != types.end()) {
      nodes.emplace_back(op);
    }
  }
  return nodes;
}

/// The op node with the fewest candidates, if possible one that a match has for itself.
size_t DetectorRun::ChooseRoot() const {
  const auto& nodes = pattern_.nodes();
  const auto cost = [&](size_t i) {
    const PDNode& n = *nodes[i];
    const bool shared = n.role() == PDNode::Role::kInput || n.role() == PDNode::Role::kOutput;
    return std::pair(!n.is_op() ? 2 : shared ? 1 : 0, NumCandidates(n));
  };
  size_t best = 0;
  for (size_t i = 1; i < nodes.size(); ++i) {
    if (cost(i) < cost(best)) best = i;
  }
  return best;
}

void DetectorRun::Plan() {
  free_candidates_.resize(pattern_.nodes().size());
  std::vector<bool> bound(pattern_.nodes().size()), done(pattern_.edges().size());
  root_ = ChooseRoot();
  bound[root_] = true;
  steps_.push_back({StepKind::kRoot, root_, root_});
  for (size_t i = 1; i < bound.size();) {
    if (PlanEdge(bound, done)) continue;
    PlanFree(bound);
    i = static_cast<size_t>(std::count(bound.begin(), bound.end(), true));
    if (i == bound.size()) break;
  }
  while (PlanEdge(bound, done)) {
  }
}

/// Takes an edge that can be followed now: one between bound nodes, else from an op or to the maker
/// of a variable, else to the readers of a variable.
bool DetectorRun::PlanEdge(std::vector<bool>& bound, std::vector<bool>& done) {
  const auto& edges = pattern_.edges();
  size_t best = edges.size();
  int best_cost = 4;
  for (size_t i = 0; i < edges.size(); ++i) {
    const auto& [from, to] = edges[i];
    if (done[i] || !(bound[from->index_] || bound[to->index_])) continue;
    const bool both = bound[from->index_] && bound[to->index_];
    const bool to_readers = bound[from->index_] && !from->is_op();
    const int cost = both ? 0 : to_readers ? 2 : 1;
    if (cost < best_cost) best = i, best_cost = cost;
  }
  if (best == edges.size()) return false;
  done[best] = true;
  const size_t from = edges[best].first->index_, to = edges[best].second->index_;
  if (best_cost == 0) {
    steps_.push_back({StepKind::kEdge, from, to});
  } else if (bound[from]) {
    steps_.push_back({StepKind::kOutputs, from, to});
    bound[to] = true;
  } else {
    steps_.push_back({StepKind::kInputs, to, from});
    bound[from] = true;
  }
  return true;
}

/// A node that no edge reaches: any candidate of the graph.
void DetectorRun::PlanFree(std::vector<bool>& bound) {
  const auto at = std::find(bound.begin(), bound.end(), false);
  if (at == bound.end()) return;
  const auto node = static_cast<size_t>(at - bound.begin());
  free_candidates_[node] = Candidates(*pattern_.nodes()[node]);
  steps_.push_back({StepKind::kFree, node, node});
  bound[node] = true;
}

// ---- the search ----

template <class MakeText>
bool DetectorRun::Fail(const MakeText& text) {
  if (explain_ && trail_.size() > furthest_) {
    furthest_ = trail_.size();
    why_ = text();
  }
  return false;
}

void DetectorRun::GaveUp(int64_t steps) {
  furthest_ = SIZE_MAX;
  why_ = StrCat("gave up after ", steps, " steps");
}

void DetectorRun::Undo(size_t mark) {
  for (; trail_.size() > mark; trail_.pop_back()) bound_[trail_.back()] = Node();
}

bool DetectorRun::IsBound(const Node& node) const {
  return std::any_of(trail_.begin(), trail_.end(), [&](size_t i) { return bound_[i] == node; });
}

bool DetectorRun::Try(const Goal& goal, uint32_t alternative, std::vector<Goal>& further,
                      bool& more) {
  const Step& step = steps_[goal.step];
  bool met = false;
  switch (step.kind) {
    case StepKind::kRoot:
      met = Bind(root_, candidate_root_);
      break;
    case StepKind::kEdge:
      met = CheckEdge(step);
      break;
    case StepKind::kFree: {
      const auto& candidates = free_candidates_[step.to];
      more = alternative + 1 < candidates.size();
      met = alternative < candidates.size() && gone_.count(KeyOf(candidates[alternative])) == 0 &&
            Bind(step.to, candidates[alternative]);
      break;
    }
    default:
      met = TryNeighbour(step, alternative, more);
  }
  if (met && goal.step + 1 < steps_.size()) further.push_back({goal.step + 1});
  return met;
}

/// Kept while the step starts from the same node of an unchanged graph: readers of one variable may
/// be many.
const std::vector<Node>& DetectorRun::NeighboursOf(const Step& step) {
  const Node from = bound_[step.from];
  Neighbours& known = neighbours_[static_cast<size_t>(&step - steps_.data())];
  if (known.from != from) {
    known = {from, step.kind == StepKind::kInputs ? from.inputs() : from.outputs()};
  }
  return known.nodes;
}

bool DetectorRun::TryNeighbour(const Step& step, uint32_t alternative, bool& more) {
  const std::vector<Node>& neighbours = NeighboursOf(step);
  if (alternative >= neighbours.size()) {
    return Fail(
        [&] { return StrCat("'", pattern_.nodes()[step.from]->name(), "' has no neighbour"); });
  }
  more = alternative + 1 < neighbours.size();
  return Bind(step.to, neighbours[alternative]) && CheckEdge(step);
}

bool DetectorRun::Bind(size_t node, const Node& candidate) {
  const PDNode& pattern = *pattern_.nodes()[node];
  if (candidate.IsOp() && candidate.op()->block() != graph_.block()) {
    return Fail([&] { return StrCat(candidate.op()->Describe(), " is in another block"); });
  }
  if (IsBound(candidate)) return false;
  for (const PDNode::Assertion& a : pattern.assertions_) {
    if (a.holds(candidate, graph_.program())) continue;
    return Fail([&] {
      return StrCat("'", pattern.name(),
                    "': ", candidate.IsOp() ? candidate.op()->Describe() : candidate.Name(),
                    ": it does not hold that it ", a.what);
    });
  }
  bound_[node] = candidate;
  trail_.push_back(node);
  return true;
}

/// Of an edge between bound nodes: that it is there, and that the op reads the variable as the
/// variable's assertions say.
bool DetectorRun::CheckEdge(const Step& step) {
  const bool backward = step.kind == StepKind::kInputs;
  const size_t from = backward ? step.to : step.from, to = backward ? step.from : step.to;
  const PDNode& source = *pattern_.nodes()[from];
  const Node& a = bound_[from];
  const Node& b = bound_[to];
  if (a.IsOp() == b.IsOp()) return false;
  if (a.IsOp()) return b.value().defining_op() == a.op();
  return CheckUse(source, a, b.op()) || Fail([&] {
           return StrCat("'", source.name(), "': ", b.op()->Describe(),
                         " does not read it as its assertions say");
         });
}

bool DetectorRun::CheckUse(const PDNode& variable, const Node& bound, const Operation* reader) {
  for (const detail::OpOperandImpl& slot : reader->operands()) {
    if (slot.value != bound.value().impl()) continue;
    const OpOperand use(const_cast<detail::OpOperandImpl*>(&slot));
    bool asserted = false, holds = false;
    for (const PDNode::UseAssertion& a : variable.uses_) {
      if (std::find(a.types.begin(), a.types.end(), reader->name()) == a.types.end()) continue;
      asserted = true;
      holds = holds || a.holds(use);
    }
    if (holds || !asserted) return true;
  }
  return false;
}

// ---- the whole match ----

/// Each assertion about readers, by a linked op or, failing that, by any.
bool DetectorRun::UsesHold(const PDNode& node) {
  const Value value = bound_[node.index_].IsVar() ? bound_[node.index_].value() : Value();
  for (const PDNode::UseAssertion& a : node.uses_) {
    const auto holds = [&](const OpOperand& use) {
      return std::find(a.types.begin(), a.types.end(), use.owner()->name()) != a.types.end() &&
             a.holds(use);
    };
    const auto by_linked = [&](const auto& edge) {
      if (edge.first != &node || !bound_[edge.second->index_].IsOp()) return false;
      for (detail::OpOperandImpl& slot : bound_[edge.second->index_].op()->operands()) {
        if (slot.value == value.impl() && holds(OpOperand(&slot))) return true;
      }
      return false;
    };
    const auto& edges = pattern_.edges();
    if (std::any_of(edges.begin(), edges.end(), by_linked)) continue;
    const UseRange uses = value.uses();
    if (std::any_of(uses.begin(), uses.end(), holds)) continue;
    return Fail([&] { return StrCat("'", node.name(), "': it does not hold that it ", a.what); });
  }
  return true;
}

bool DetectorRun::HasNoConsumerOutside(const PDNode& node) {
  if (node.role() != PDNode::Role::kIntermediate) return true;
  const Node& bound = bound_[node.index_];
  const auto read_outside = [&](Value value) -> const Operation* {
    for (const OpOperand use : value.uses()) {
      if (!IsBound(Node(use.owner()))) return use.owner();
    }
    return nullptr;
  };
  const Operation* reader = nullptr;
  if (bound.IsVar()) {
    Operation* maker = bound.value().defining_op();
    if (maker == nullptr || !IsBound(Node(maker))) {
      return Fail([&] { return StrCat("'", node.name(), "' is made outside of the match"); });
    }
    reader = read_outside(bound.value());
  } else {
    const auto& edges = pattern_.edges();
    const bool goes_on = std::any_of(edges.begin(), edges.end(),
                                     [&](const auto& edge) { return edge.first == &node; });
    for (size_t i = 0; goes_on && i < bound.op()->num_results() && reader == nullptr; ++i) {
      const Value result = bound.op()->result(i);
      if (!IsBound(Node(result))) reader = read_outside(result);
    }
  }
  return reader == nullptr ||
         Fail([&] { return StrCat("'", node.name(), "' is also read by ", reader->Describe()); });
}

bool DetectorRun::IsFree(const PDNode& node) {
  const Node& bound = bound_[node.index_];
  const auto& taken = IsExclusive(node, bound) ? used_ : exclusive_;
  return taken.count(KeyOf(bound)) == 0 ||
         Fail([&] { return StrCat("'", node.name(), "' belongs to an earlier match"); });
}

bool DetectorRun::IsNew() const {
  return std::find(handed_out_.begin(), handed_out_.end(), bound_) == handed_out_.end();
}

bool DetectorRun::Accept() {
  const auto holds = [&](const auto& node) {
    return UsesHold(*node) && HasNoConsumerOutside(*node) && IsFree(*node);
  };
  return std::all_of(pattern_.nodes().begin(), pattern_.nodes().end(), holds) && IsNew();
}

// ---- the run ----

void DetectorRun::Destroying(Operation* op) {
  const auto forget = [&](const void* key) {
    gone_.insert(key);
    used_.erase(key);
    exclusive_.erase(key);
  };
  forget(op);
  for (size_t i = 0; i < op->num_results(); ++i) forget(op->result(i).impl());
  std::erase_if(handed_out_, [&](const std::vector<Node>& match) {
    return std::any_of(match.begin(), match.end(), [&](const Node& node) {
      return node.IsOp() ? node.op() == op : node.value().defining_op() == op;
    });
  });
}

void DetectorRun::HandOut(const GraphPatternDetector::handle_t& handler) {
  GraphPatternDetector::subgraph_t subgraph;
  for (const auto& node : pattern_.nodes()) {
    const Node& bound = bound_[node->index_];
    subgraph[node.get()] = bound;
    used_.insert(KeyOf(bound));
    if (IsExclusive(*node, bound)) exclusive_.insert(KeyOf(bound));
  }
  handler(subgraph, &graph_);
  std::fill(neighbours_.begin(), neighbours_.end(), Neighbours());
}

/// One match, or all if the root may stand in several.
int DetectorRun::MatchesAt(const Node& root, const GraphPatternDetector::handle_t& handler) {
  candidate_root_ = root;
  handed_out_.clear();
  for (int count = 0;; ++count) {
    if (gone_.count(KeyOf(root)) != 0) return count;
    Undo(0);
    furthest_ = 1;
    if (!search_.Run({{0}}, kBudget)) return count;
    if (IsExclusive(*pattern_.nodes()[root_], root)) {
      HandOut(handler);
      return 1;
    }
    handed_out_.push_back(bound_);
    HandOut(handler);
  }
}

int DetectorRun::Run(const GraphPatternDetector::handle_t& handler) {
  int count = 0;
  for (const Node& candidate : Candidates(*pattern_.nodes()[root_])) {
    if (gone_.count(KeyOf(candidate)) != 0) continue;
    const int found = MatchesAt(candidate, handler);
    count += found;
    if (found == 0 && explain_ && furthest_ > 1) {
      explanations_.push_back(
          StrCat(candidate.IsOp() ? candidate.op()->Describe() : candidate.Name(), ": ", why_));
    }
  }
  return count;
}

}  // namespace detail

int GraphPatternDetector::operator()(Graph* graph, const handle_t& handler) {
  explanations_.clear();
  if (pattern_.nodes().empty()) return 0;
  pattern_.CheckNames(graph->context());
  detail::DetectorRun run(pattern_, *graph, explain_);
  const int count = run.Run(handler);
  explanations_ = std::move(run.explanations());
  return count;
}

}  // namespace lathe
