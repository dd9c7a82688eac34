#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "lathe/ir/context.h"
#include "src/pass/detector_run.h"

namespace lathe {

namespace detail {

/// A root of a pattern that waits for its turn.
struct Turn {
  size_t first;  ///< position of the first op of the match
  int benefit;
  size_t pattern;
  size_t root;                               ///< among the roots of the pattern
  bool operator<(const Turn& other) const {  // the least comes last in a priority queue
    return std::tuple(other.first, benefit, other.pattern, other.root) <
           std::tuple(first, other.benefit, pattern, root);
  }
};

/// One call of a group.
class GroupRun {
 public:
  using Entries = std::vector<std::unique_ptr<PatternGroup::Entry>>;
  GroupRun(const Entries& entries, Graph& graph, bool explain) : entries_(entries) {
    for (Operation& op : *graph.block()) positions_.emplace(&op, positions_.size());
    for (const auto& entry : entries) {
      if (entry->pattern.nodes().empty()) {
        throw Error(ErrorCode::kInvalidArgument, "pattern/empty",
                    StrCat("the pattern '", entry->name, "' has no node"));
      }
      entry->pattern.CheckNames(graph.context());
      runs_.push_back(std::make_unique<DetectorRun>(entry->pattern, graph, explain, claims_));
      roots_.push_back(runs_.back()->Roots());
    }
  }

  int Run() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      for (size_t k = 0; k < roots_[i].size(); ++k) {
        turns_.push({FirstAt(i, k), entries_[i]->benefit, i, k});
      }
    }
    int count = 0;
    while (!turns_.empty()) {
      Turn turn = turns_.top();
      turns_.pop();
      const size_t first = FirstAt(turn.pattern, turn.root);
      if (first > turn.first) {  // what began there was taken by another match
        turn.first = first;
        turns_.push(turn);
      } else {
        count += runs_[turn.pattern]->MatchesAt(roots_[turn.pattern][turn.root],
                                                entries_[turn.pattern]->handler);
      }
    }
    return count;
  }

  std::vector<std::string> Explanations() {
    std::vector<std::string> all;
    for (size_t i = 0; i < runs_.size(); ++i) {
      for (const std::string& why : runs_[i]->explanations()) {
        all.push_back(StrCat(entries_[i]->name, ": ", why));
      }
    }
    return all;
  }

 private:
  /// Where the match at a root begins; where there is none now, after all that begin somewhere.
  size_t FirstAt(size_t pattern, size_t root) {
    size_t first = positions_.size();
    for (Operation* op : runs_[pattern]->OpsOfMatchAt(roots_[pattern][root])) {
      const auto at = positions_.find(op);
      // A new op may lie where one was that is gone.
      if (at != positions_.end() && !claims_.IsGone(Node(op))) first = std::min(first, at->second);
    }
    return first;
  }

  const Entries& entries_;
  Claims claims_;
  std::vector<std::unique_ptr<DetectorRun>> runs_;
  std::vector<std::vector<Node>> roots_;                    // by pattern
  std::unordered_map<const Operation*, size_t> positions_;  // look-up only
  std::priority_queue<Turn> turns_;
};

}  // namespace detail

PDPattern* PatternGroup::Add(std::string name, GraphPatternDetector::handle_t handler,
                             int benefit) {
  entries_.push_back(std::make_unique<Entry>());
  entries_.back()->name = std::move(name);
  entries_.back()->handler = std::move(handler);
  entries_.back()->benefit = benefit;
  return &entries_.back()->pattern;
}

int PatternGroup::operator()(Graph* graph) {
  detail::GroupRun run(entries_, *graph, explain_);
  const int count = run.Run();
  explanations_ = run.Explanations();
  return count;
}

}  // namespace lathe
