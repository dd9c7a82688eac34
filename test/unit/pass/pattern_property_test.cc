#include <gtest/gtest.h>

#include <algorithm>

#include "lathe/dialect/all.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/pattern_detector.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/random.h"

/// Random patterns on random graphs against a matcher that tries everything.
namespace lathe {
namespace {

using Match = std::vector<Node>;  // by node of the pattern
using Role = PDNode::Role;
using Kind = PDNode::Kind;

/// A pattern as plain data, from which both the detector's pattern and the expected matches come.
struct Sketch {
  struct Place {
    Kind kind = Kind::kAny;
    std::vector<std::string> types = {};  ///< of an op; empty: any
    std::string reader = "";              ///< a variable that an op of this type reads ...
    std::string arg = "";                 ///< ... so, if not empty
    Role role = Role::kUnknown;
  };
  std::vector<Place> places;
  std::vector<std::pair<size_t, size_t>> edges;

  void Draw(PDPattern* pattern) const {
    for (const Place& place : places) {
      PDNode* node = pattern->NewNode();
      if (place.kind == Kind::kOp) node->assert_is_op();
      if (!place.types.empty()) node->assert_is_ops(place.types);
      if (place.kind == Kind::kVar) node->assert_is_var();
      if (!place.reader.empty()) node->assert_is_op_input(place.reader, place.arg);
      if (place.role == Role::kInput) node->AsInput();
      if (place.role == Role::kOutput) node->AsOutput();
      if (place.role == Role::kIntermediate) node->AsIntermediate();
    }
    for (const auto& [from, to] : edges) {
      pattern->AddEdge(pattern->nodes()[from].get(), pattern->nodes()[to].get());
    }
  }
};

class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}
  bool Of(double p) { return random_.NextDouble() < p; }
  size_t Below(size_t n) {
    return static_cast<size_t>(random_.Int(0, static_cast<int64_t>(n) - 1));
  }
  template <class T>
  const T& From(const std::vector<T>& items) {
    return items[Below(items.size())];
  }

 private:
  RandomStream random_;
};

constexpr const char* kTypes[] = {"nn.neg", "nn.sub", "t.two", "t.one"};

Program RandomGraph(IrContext& context, Chance& chance) {
  Program program(context);
  Builder b = Builder::AtEnd(program.block());
  const Type type = Type(ParseType(context, "v_tensor<[2], f32>"));
  const Type types[] = {type, type};
  std::vector<Value> values = {b.Create("t.in", {}, {}, {types, 1})->result(0)};
  const size_t count = 3 + chance.Below(7);
  for (size_t i = 0; i < count; ++i) {
    const std::string name = kTypes[chance.Below(4)];
    std::vector<Value> operands = {chance.From(values)};
    if (name == "nn.sub" || (name == "t.two" && chance.Of(0.5))) {
      operands.push_back(chance.From(values));
    }
    const Operation* op = b.Create(name, operands, {}, {types, name == "t.two" ? 2U : 1U});
    for (size_t k = 0; k < op->num_results(); ++k) values.push_back(op->result(k));
  }
  std::vector<Value> kept = {values.back()};
  while (chance.Of(0.5)) kept.push_back(chance.From(values));
  b.Create("t.keep", kept, {}, {});
  return program;
}

bool IsEdge(const Node& from, const Node& to) {
  const std::vector<Node> outputs = from.outputs();
  return std::find(outputs.begin(), outputs.end(), to) != outputs.end();
}

/// Whether an op of the place's reader type, this one, reads the variable as asserted.
bool Reads(const Sketch::Place& place, const Node& variable, const Operation* op) {
  if (op->name() != place.reader) return false;
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const bool as =
        place.arg.empty() || (place.arg == "a" && i == 0) || (place.arg == "b" && i == 1);
    if (as && op->operand(i) == variable.value()) return true;
  }
  return false;
}

bool IsExclusive(const Sketch::Place& place, const Node& node) {
  if (node.IsVar()) return place.role == Role::kIntermediate;
  return place.role == Role::kUnknown || place.role == Role::kIntermediate;
}

bool Contains(const Match& match, const Node& node) {
  return std::find(match.begin(), match.end(), node) != match.end();
}

/// Whether the other match has a node that this one has for itself.
bool Owns(const Sketch& sketch, const Match& match, const Match& other) {
  for (size_t i = 0; i < match.size(); ++i) {
    if (IsExclusive(sketch.places[i], match[i]) && Contains(other, match[i])) return true;
  }
  return false;
}

/// What a match is, told in another way than the detector does.
class Oracle {
 public:
  explicit Oracle(const Sketch& sketch) : sketch_(sketch) {}

  /// All matches in the graph, whatever overlaps.
  std::vector<Match> All(const Graph& graph) {
    nodes_ = graph.Nodes();
    found_.clear();
    Match match;
    Extend(match);
    return found_;
  }

  bool IsMatch(const Match& match) const {
    for (size_t i = 0; i < match.size(); ++i) {
      if (!MayStand(i, match[i]) || !HoldsItsRole(i, match) || !IsReadAsAsserted(i, match))
        return false;
      if (std::count(match.begin(), match.end(), match[i]) != 1) return false;
    }
    return std::all_of(sketch_.edges.begin(), sketch_.edges.end(),
                       [&](const auto& e) { return IsEdge(match[e.first], match[e.second]); });
  }

  bool Overlap(const Match& a, const Match& b) const {
    return Owns(sketch_, a, b) || Owns(sketch_, b, a);
  }

 private:
  void Extend(Match& match) {
    const size_t at = match.size();
    if (at == sketch_.places.size()) {
      if (IsMatch(match)) found_.push_back(match);
      return;
    }
    for (const Node& node : nodes_) {
      if (!MayStand(at, node) || Contains(match, node)) continue;
      match.push_back(node);
      const bool linked =
          std::all_of(sketch_.edges.begin(), sketch_.edges.end(), [&](const auto& e) {
            return std::max(e.first, e.second) != at || IsEdge(match[e.first], match[e.second]);
          });
      if (linked) Extend(match);
      match.pop_back();
    }
  }

  bool MayStand(size_t i, const Node& node) const {
    const Sketch::Place& place = sketch_.places[i];
    if (place.kind != Kind::kAny && node.IsOp() != (place.kind == Kind::kOp)) return false;
    return place.types.empty() || (node.IsOp() && std::count(place.types.begin(), place.types.end(),
                                                             node.op()->name()) != 0);
  }

  bool HoldsItsRole(size_t i, const Match& match) const {
    const Node& node = match[i];
    if (sketch_.places[i].role != Role::kIntermediate) return true;
    const auto inside = [&](const Node& n) { return Contains(match, n); };
    const auto all_inside = [&](const std::vector<Node>& n) {
      return std::all_of(n.begin(), n.end(), inside);
    };
    if (node.IsVar()) {
      return !node.inputs().empty() && all_inside(node.inputs()) && all_inside(node.outputs());
    }
    const bool goes_on = std::any_of(sketch_.edges.begin(), sketch_.edges.end(),
                                     [&](const auto& e) { return e.first == i; });
    const std::vector<Node> results = node.outputs();
    return !goes_on || std::all_of(results.begin(), results.end(), [&](const Node& r) {
      return inside(r) || all_inside(r.outputs());
    });
  }

  bool IsReadAsAsserted(size_t i, const Match& match) const {
    const Sketch::Place& place = sketch_.places[i];
    if (place.reader.empty()) return true;
    bool linked = false;
    for (const auto& [from, to] : sketch_.edges) {
      if (from != i || match[to].op()->name() != place.reader) continue;
      linked = true;
      if (!Reads(place, match[i], match[to].op())) return false;
    }
    const std::vector<Node> readers = match[i].outputs();
    return linked || std::any_of(readers.begin(), readers.end(),
                                 [&](const Node& r) { return Reads(place, match[i], r.op()); });
  }

  const Sketch& sketch_;
  std::vector<Node> nodes_;
  std::vector<Match> found_;
};

/// What the pattern says of a node that has been seen: more or less of the truth.
Sketch::Place Describe(const Node& node, Chance& chance) {
  Sketch::Place place;
  if (chance.Of(0.8)) place.kind = node.IsOp() ? Kind::kOp : Kind::kVar;
  if (node.IsOp() && chance.Of(0.8)) {
    place.kind = Kind::kOp;
    place.types = {std::string(node.op()->name())};
    if (chance.Of(0.2)) place.types.emplace_back(kTypes[chance.Below(4)]);
    if (chance.Of(0.05)) place.types = {kTypes[chance.Below(4)]};
  }
  if (node.IsVar() && !node.outputs().empty() && chance.Of(0.3)) {
    place.kind = Kind::kVar;
    place.reader = chance.From(node.outputs()).op()->name();
    if (place.reader == "nn.sub" && chance.Of(0.7)) place.arg = chance.Of(0.5) ? "a" : "b";
  }
  const std::vector<Role> roles = {Role::kUnknown,      Role::kUnknown, Role::kIntermediate,
                                   Role::kIntermediate, Role::kInput,   Role::kOutput};
  place.role = chance.From(roles);
  return place;
}

/// A part of the graph as it is, connected but for an occasional node, as a pattern.
Sketch RandomSketch(const Graph& graph, Chance& chance) {
  const std::vector<Node> nodes = graph.Nodes();
  Match seen = {chance.From(nodes)};
  const size_t size = 1 + chance.Below(5);
  for (int tries = 0; tries < 20 && seen.size() < size; ++tries) {
    const Node& from = chance.From(seen);
    const std::vector<Node> near = chance.Of(0.05)  ? nodes
                                   : chance.Of(0.5) ? from.inputs()
                                                    : from.outputs();
    if (near.empty()) continue;
    const Node& next = chance.From(near);
    if (!Contains(seen, next)) seen.push_back(next);
  }
  Sketch sketch;
  for (const Node& node : seen) sketch.places.push_back(Describe(node, chance));
  for (size_t i = 0; i < seen.size(); ++i) {
    for (size_t k = 0; k < seen.size(); ++k) {
      if (IsEdge(seen[i], seen[k]) && chance.Of(0.9)) sketch.edges.emplace_back(i, k);
    }
  }
  return sketch;
}

Match Listed(const PDPattern& pattern, const GraphPatternDetector::subgraph_t& found) {
  Match match;
  for (const auto& node : pattern.nodes()) match.push_back(found.at(node.get()));
  return match;
}

std::string Told(const Match& match) {
  std::string text;
  for (const Node& node : match) text += node.Name() + " ";
  return text;
}

std::string Told(const std::vector<Match>& matches) {
  std::string text;
  for (const Match& match : matches) text += "\n  " + Told(match);
  return text;
}

class PatternPropertyTest : public ::testing::Test {
 protected:
  PatternPropertyTest() {
    LoadAllDialects(context);
    context.allow_unregistered_ops(true);
  }
  IrContext context;
};

constexpr uint64_t kTrials = 10000;

// Each match handed out is one; no two overlap; what is left out overlaps one that was handed out;
// and a second run finds the same.
TEST_F(PatternPropertyTest, FindsAMaximalSetOfMatches) {
  size_t total = 0;
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    Chance chance(seed);
    Program program = RandomGraph(context, chance);
    Graph graph(program);
    const Sketch sketch = RandomSketch(graph, chance);
    GraphPatternDetector detector;
    sketch.Draw(detector.mutable_pattern());
    const auto run = [&] {
      std::vector<Match> matches;
      detector(&graph,
               [&](const auto& m, Graph*) { matches.push_back(Listed(detector.pattern(), m)); });
      return matches;
    };
    const std::vector<Match> found = run();
    SCOPED_TRACE(StrCat("seed ", seed, "\n", detector.pattern().DotString()));
    Oracle oracle(sketch);
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_TRUE(oracle.IsMatch(found[i]));
      for (size_t k = 0; k < i; ++k) ASSERT_FALSE(oracle.Overlap(found[i], found[k]));
      for (size_t k = 0; k < i; ++k) ASSERT_NE(found[i], found[k]);
    }
    for (const Match& match : oracle.All(graph)) {
      const bool accounted = std::any_of(found.begin(), found.end(), [&](const Match& f) {
        return f == match || oracle.Overlap(f, match);
      });
      ASSERT_TRUE(accounted) << Print(program) << Told(match) << "left out, found:" << Told(found);
    }
    ASSERT_EQ(run(), found);
    total += found.size();
  }
  EXPECT_GT(total, kTrials);  // or the trials tell little
}

/// Puts a new op in the place of `op`, which goes.
void Renew(Operation* op) {
  Builder b = Builder::Before(op);
  std::vector<Value> operands;
  for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(op->operand(i));
  std::vector<Type> types;
  for (size_t i = 0; i < op->num_results(); ++i) types.push_back(op->result(i).type());
  const Operation* fresh = b.Create("t.new", operands, {}, types);
  for (size_t i = 0; i < op->num_results(); ++i) op->result(i).ReplaceAllUsesWith(fresh->result(i));
  op->Erase();
}

// Whatever the handler does to ops of the match and to others: what is handed out next is there and
// is a match of the graph as it is then.
TEST_F(PatternPropertyTest, MatchesAreOfTheGraphAsItIs) {
  size_t total = 0;
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    Chance chance(seed);
    Program program = RandomGraph(context, chance);
    Graph graph(program);
    const Sketch sketch = RandomSketch(graph, chance);
    GraphPatternDetector detector;
    sketch.Draw(detector.mutable_pattern());
    const Oracle oracle(sketch);
    SCOPED_TRACE(StrCat("seed ", seed, "\n", detector.pattern().DotString()));
    const auto handle = [&](const GraphPatternDetector::subgraph_t& found, Graph*) {
      const Match match = Listed(detector.pattern(), found);
      const std::vector<Node> now = graph.Nodes();
      const bool there = std::all_of(match.begin(), match.end(), [&](const Node& node) {
        return std::find(now.begin(), now.end(), node) != now.end();
      });
      ASSERT_TRUE(there);
      ASSERT_TRUE(oracle.IsMatch(match));
      ++total;
      for (Operation* op : graph.TopologySortOperations()) {
        if (chance.Of(Contains(match, Node(op)) ? 0.5 : 0.1)) Renew(op);
      }
    };
    detector(&graph, handle);
    if (HasFatalFailure()) return;
    VerifyOrThrow(program);
  }
  EXPECT_GT(total, kTrials / 2);
}

// The same of several patterns at once: none of their matches overlap, and what is left out
// overlaps.
TEST_F(PatternPropertyTest, GroupsFindAMaximalSetOfMatches) {
  size_t total = 0;
  for (uint64_t seed = 0; seed < kTrials / 2; ++seed) {
    Chance chance(seed);
    Program program = RandomGraph(context, chance);
    Graph graph(program);
    std::vector<Sketch> sketches;
    for (size_t i = 1 + chance.Below(3); i > 0; --i) {
      sketches.push_back(RandomSketch(graph, chance));
    }
    std::vector<std::pair<size_t, Match>> found;
    std::vector<PDPattern*> patterns;
    PatternGroup group;
    for (size_t i = 0; i < sketches.size(); ++i) {
      patterns.push_back(group.Add(
          StrCat("p", i),
          [&, i](const auto& m, Graph*) { found.emplace_back(i, Listed(*patterns[i], m)); },
          static_cast<int>(chance.Below(3))));
      sketches[i].Draw(patterns.back());
    }
    SCOPED_TRACE(StrCat("seed ", seed, "\n", Print(program)));
    const int count = group(&graph);
    ASSERT_EQ(static_cast<size_t>(count), found.size());
    const auto overlap = [&](size_t i, const Match& a, size_t k, const Match& b) {
      return Owns(sketches[i], a, b) || Owns(sketches[k], b, a);
    };
    for (size_t a = 0; a < found.size(); ++a) {
      ASSERT_TRUE(Oracle(sketches[found[a].first]).IsMatch(found[a].second));
      for (size_t b = 0; b < a; ++b) {
        ASSERT_FALSE(overlap(found[a].first, found[a].second, found[b].first, found[b].second));
      }
    }
    for (size_t i = 0; i < sketches.size(); ++i) {
      for (const Match& match : Oracle(sketches[i]).All(graph)) {
        ASSERT_TRUE(std::any_of(found.begin(), found.end(), [&](const auto& f) {
          return f == std::pair(i, match) || overlap(f.first, f.second, i, match);
        }));
      }
    }
    total += found.size();
  }
  EXPECT_GT(total, kTrials / 2);
}

}  // namespace
}  // namespace lathe
