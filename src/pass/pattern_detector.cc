#include "lathe/pass/pattern_detector.h"

#include <algorithm>

#include "lathe/ir/context.h"
#include "lathe/support/budget.h"
#include "src/pass/detector_run.h"

namespace lathe {

namespace detail {

namespace {

constexpr int64_t kBudget = 4096;  // steps at one root

/// A node that one match has for itself.
bool IsExclusive(const PDNode& node, const Node& bound) {
  if (bound.IsVar()) return node.role() == PDNode::Role::kIntermediate;
  return node.role() != PDNode::Role::kInput && node.role() != PDNode::Role::kOutput;
}

}  // namespace

DetectorRun::DetectorRun(const PDPattern& pattern, Graph& graph, bool explain, Claims& claims)
    : search_(*this),
      pattern_(pattern),
      graph_(graph),
      explain_(explain),
      claims_(claims),
      bound_(pattern.nodes().size()) {
  IndexOps();
  Plan();
  neighbors_.resize(steps_.size());
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
      met = alternative < candidates.size() && !claims_.IsGone(candidates[alternative]) &&
            Bind(step.to, candidates[alternative]);
      break;
    }
    default:
      met = TryNeighbor(step, alternative, more);
  }
  if (met && goal.step + 1 < steps_.size()) further.push_back({goal.step + 1});
  return met;
}

/// Kept while the step starts from the same node of an unchanged graph: readers of one variable may
/// be many.
const std::vector<Node>& DetectorRun::NeighborsOf(const Step& step) {
  const Node from = bound_[step.from];
  Neighbors& known = neighbors_[static_cast<size_t>(&step - steps_.data())];
  if (known.from != from) {
    known = {from, step.kind == StepKind::kInputs ? from.inputs() : from.outputs()};
  }
  return known.nodes;
}

bool DetectorRun::TryNeighbor(const Step& step, uint32_t alternative, bool& more) {
  const std::vector<Node>& neighbors = NeighborsOf(step);
  if (alternative >= neighbors.size()) {
    return Fail(
        [&] { return StrCat("'", pattern_.nodes()[step.from]->name(), "' has no neighbor"); });
  }
  more = alternative + 1 < neighbors.size();
  return Bind(step.to, neighbors[alternative]) && CheckEdge(step);
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
  const bool taken = IsExclusive(node, bound) ? claims_.IsUsed(bound) : claims_.IsExclusive(bound);
  return !taken || Fail([&] { return StrCat("'", node.name(), "' belongs to an earlier match"); });
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

void Claims::Destroying(Operation* op) {
  flags_.Set(op, kGone);
  for (size_t i = 0; i < op->num_results(); ++i) flags_.Set(op->result(i).impl(), kGone);
}

void DetectorRun::Destroying(Operation* op) {
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
    claims_.Claim(bound, IsExclusive(*node, bound));
  }
  handler(subgraph, &graph_);
  std::fill(neighbors_.begin(), neighbors_.end(), Neighbors());
}

bool DetectorRun::Find(const Node& root) {
  Undo(0);
  candidate_root_ = root;
  furthest_ = 1;
  return !claims_.IsGone(root) && search_.Run({{0}}, kBudget);
}

void DetectorRun::Explain(const Node& root) {
  if (!explain_ || furthest_ <= 1) return;
  explanations_.push_back(StrCat(root.IsOp() ? root.op()->Describe() : root.Name(), ": ", why_));
}

int DetectorRun::MatchesAt(const Node& root, const GraphPatternDetector::handle_t& handler) {
  CheckBudget();
  const bool once = IsExclusive(*pattern_.nodes()[root_], root);
  handed_out_.clear();
  int count = 0;
  while ((count == 0 || !once) && Find(root)) {
    ++count;
    if (!once) handed_out_.push_back(bound_);
    HandOut(handler);
  }
  if (count == 0) Explain(root);
  return count;
}

std::vector<Operation*> DetectorRun::OpsOfMatchAt(const Node& root) {
  std::vector<Operation*> ops;
  handed_out_.clear();
  if (!Find(root)) return ops;
  for (const Node& node : bound_) {
    if (node.IsOp()) ops.push_back(node.op());
  }
  return ops;
}

}  // namespace detail

int GraphPatternDetector::operator()(Graph* graph, const handle_t& handler) {
  explanations_.clear();
  if (pattern_.nodes().empty()) return 0;
  pattern_.CheckNames(graph->context());
  detail::Claims claims;
  detail::DetectorRun run(pattern_, *graph, explain_, claims);
  int count = 0;
  for (const Node& root : run.Roots()) count += run.MatchesAt(root, handler);
  explanations_ = std::move(run.explanations());
  return count;
}

}  // namespace lathe
