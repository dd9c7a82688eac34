#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lathe/dialect/all.h"
#include "lathe/ir/text_format.h"
#include "lathe/pass/rule.h"
#include "lathe/support/random.h"
#include "src/pass/rule_match.h"

/// Random rules on random programs against a matcher that lists every way to match.
namespace lathe {
namespace {

using detail::PatNode;
using Bindings = std::map<std::string, std::vector<Value>>;

class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}
  bool Of(double p) { return random_.NextDouble() < p; }
  size_t Below(size_t n) {
    return static_cast<size_t>(random_.Int(0, static_cast<int64_t>(n) - 1));
  }

 private:
  RandomStream random_;
};

/// neg, relu, add, sub and sum of earlier values, most of them read once.
Program RandomProgram(IrContext& context, Chance& chance) {
  Program program(context);
  Builder b = Builder::AtEnd(program.block());
  const Type type = Type(ParseType(context, "v_tensor<[2], f32>"));
  std::vector<Value> values;
  for (const char* name : {"x", "y"}) {
    const NamedAttribute named = b.Named("name", b.Attr(name));
    values.push_back(b.Create("nn.feed", {}, {&named, 1}, {&type, 1})->result(0));
  }
  const auto any = [&] {
    const size_t near = std::min<size_t>(values.size(), chance.Of(0.7) ? 3 : values.size());
    return values[values.size() - 1 - chance.Below(near)];
  };
  const size_t count = 4 + chance.Below(8);
  for (size_t i = 0; i < count; ++i) {
    static constexpr const char* kOps[] = {"nn.neg", "nn.neg", "nn.relu",
                                           "nn.add", "nn.sub", "nn.sum"};
    const std::string op = kOps[chance.Below(6)];
    std::vector<Value> operands = {any()};
    if (op == "nn.add" || op == "nn.sub") operands.push_back(any());
    for (size_t k = chance.Below(3); op == "nn.sum" && k > 0; --k) operands.push_back(any());
    values.push_back(b.Create(op, operands, {}, {&type, 1})->result(0));
  }
  const NamedAttribute named = b.Named("name", b.Attr("z"));
  b.Create("nn.fetch", {&values.back(), 1}, {&named, 1}, {});
  return program;
}

/// Every way in which a pattern matches a value, by plain recursion.
class Oracle {
 public:
  struct Way {
    std::vector<std::tuple<int, std::string, Value>> bound;  // scope, name
    std::vector<Operation*> ops, shared;

    [[nodiscard]] Bindings Names() const {
      Bindings names;
      for (const auto& [scope, name, value] : bound) names[name].push_back(value);
      return names;
    }
  };
  using Ways = std::vector<Way>;

  Ways Match(const Pat& pattern, Operation* root) {
    root_ = root;
    Ways ways = Met(*pattern.node(), root->result(0), {}, Way());
    std::erase_if(ways, [&](const Way& way) { return !IsWhole(way, root); });
    return ways;
  }

 private:
  struct Place {
    int scope = 0;
    const PatNode* chain = nullptr;
    size_t links = 0;
  };

  static void Append(Ways& to, Ways from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }

  static bool Bind(Way& way, const std::string& name, int scope, Value value) {
    for (const auto& [s, n, v] : way.bound) {
      if (s == scope && n == name) return v == value;
    }
    way.bound.emplace_back(scope, name, value);
    return true;
  }

  Ways Met(const PatNode& pat, Value value, Place place, Way way) {
    switch (pat.kind) {
      case PatNode::Kind::kVar:
        return Bind(way, pat.name, place.scope, value) ? Ways{way} : Ways{};
      case PatNode::Kind::kEither: {
        Ways ways;
        for (const Pat& child : pat.children) Append(ways, Met(*child.node(), value, place, way));
        return ways;
      }
      case PatNode::Kind::kChain:
        return Linked(pat, value, 0, way);
      case PatNode::Kind::kNext:
        return Linked(*place.chain, value, place.links, way);
      default:
        return MetByOp(pat, value, place, way);
    }
  }

  Ways Linked(const PatNode& chain, Value value, size_t links, const Way& way) {
    Ways ways = Met(*chain.children[0].node(), value, {++scopes_, &chain, links + 1}, way);
    if (links >= chain.min) Append(ways, Met(*chain.children[1].node(), value, {}, way));
    return ways;
  }

  Ways MetByOp(const PatNode& pat, Value value, Place place, Way way) {
    Operation* op = value.defining_op();
    if (op == nullptr || std::count(pat.types.begin(), pat.types.end(), op->name()) == 0) return {};
    const auto taken = [&](const auto& ops) { return std::count(ops.begin(), ops.end(), op) != 0; };
    if (!taken(way.ops) && !taken(way.shared))
      (pat.shared && op != root_ ? way.shared : way.ops).push_back(op);
    std::vector<Value> operands;
    for (size_t i = 0; i < op->num_operands(); ++i) operands.push_back(op->operand(i));
    Ways ways = WithOperands(pat, operands, place, way);
    if (op->name() == "nn.add") {
      std::swap(operands[0], operands[1]);
      Append(ways, WithOperands(pat, operands, place, way));
    }
    return ways;
  }

  Ways WithOperands(const PatNode& pat, const std::vector<Value>& operands, Place place,
                    const Way& way) {
    Ways ways = {way};
    const bool rest =
        !pat.children.empty() && pat.children.back().node()->kind == PatNode::Kind::kRest;
    const size_t fixed = pat.children.size() - (rest ? 1 : 0);
    const PatNode* each = rest ? pat.children.back().node().get() : nullptr;
    if (operands.size() < fixed + (rest ? each->min : 0)) return {};
    if (!rest && operands.size() > fixed) return {};
    for (size_t i = 0; i < operands.size(); ++i) {
      const PatNode& child = i < fixed ? *pat.children[i].node() : *each->children[0].node();
      const Place at = i < fixed ? place : Place{++scopes_};
      Ways longer;
      for (const Way& w : ways) Append(longer, Met(child, operands[i], at, w));
      ways = std::move(longer);
    }
    return ways;
  }

  /// The root is part of it, and no other op but the shared ones is read outside.
  static bool IsWhole(const Way& way, const Operation* root) {
    if (std::count(way.ops.begin(), way.ops.end(), root) == 0) return false;
    for (const Operation* op : way.ops) {
      for (const OpOperand use : op->result(0).uses()) {
        const bool inside = std::count(way.ops.begin(), way.ops.end(), use.owner()) != 0 ||
                            std::count(way.shared.begin(), way.shared.end(), use.owner()) != 0;
        if (op != root && !inside) return false;
      }
    }
    return true;
  }

  const Operation* root_ = nullptr;
  int scopes_ = 0;
};

/// A pattern of what is seen at a value, with all means of the language.
class Sketcher {
 public:
  Sketcher(Chance& chance, std::vector<std::string>& names) : chance_(chance), names_(names) {}

  Pat At(Value value, int depth, bool root = false) {
    Operation* op = value.defining_op();
    if (op->name() == "nn.feed" || (!root && (depth == 0 || chance_.Of(0.2)))) return Name(value);
    if (op->name() == "nn.neg" && chance_.Of(0.3)) return Negated(op, depth);
    Pat call = Call(op, depth);
    if (!root && chance_.Of(0.25)) call = call.Shared();
    if (chance_.Of(0.1)) return pat::Either({Named("nn.relu", {Name(value)}), call});
    if (chance_.Of(0.1))
      return pat::Optional([](const Pat& p) { return Named("nn.neg", {p}); }, call);
    return call;
  }

 private:
  static Pat Named(const char* type, std::vector<Pat> operands) {
    return pat::Call(type, std::move(operands));
  }

  /// One name for one value, but for slips.
  Pat Name(Value value) {
    const std::string name = StrCat("v", chance_.Of(0.1) ? chance_.Below(4) : Number(value));
    names_.push_back(name);
    return pat::Var(name);
  }

  size_t Number(Value value) {
    const auto at = std::find(seen_.begin(), seen_.end(), value);
    if (at == seen_.end()) seen_.push_back(value);
    return static_cast<size_t>(at - seen_.begin());
  }

  Pat Call(Operation* op, int depth) {
    std::vector<Pat> operands;
    const size_t count = op->num_operands();
    const bool rest = op->name() == "nn.sum" && chance_.Of(0.7);
    const size_t fixed = rest ? chance_.Below(count + 1) : count;
    for (size_t i = 0; i < fixed; ++i) operands.push_back(At(op->operand(i), depth - 1));
    if (op->name() == "nn.add" && chance_.Of(0.5)) std::swap(operands[0], operands[1]);
    if (rest) operands.push_back(pat::Rest(Each(), chance_.Below(count - fixed + 1)));
    std::vector<std::string> types = {std::string(op->name())};
    if (chance_.Of(0.1)) types.emplace_back("nn.sum");
    return pat::CallOneOf(types, operands);
  }

  Pat Each() {
    names_.emplace_back("each");
    if (chance_.Of(0.6)) return pat::Var("each");
    return pat::Either({Named("nn.neg", {pat::Var("each")}), pat::Var("each")});
  }

  /// neg as a link, alone or with an add that reads one value twice.
  Pat Negated(Operation* op, int depth) {
    const Pat link = chance_.Of(0.7) ? Named("nn.neg", {pat::Next()})
                                     : pat::Either({Named("nn.neg", {pat::Next()}), TwoSided()});
    const Pat end = At(op->operand(0), depth - 1);
    return pat::Chain(link, end, chance_.Below(3));
  }

  Pat TwoSided() {
    names_.emplace_back("side");
    return Named("nn.add", {pat::Next(), pat::Var("side")});
  }

  Chance& chance_;
  std::vector<std::string>& names_;
  std::vector<Value> seen_;
};

// A rule matches where there is a way to match, in one of the ways there are.
TEST(RulePropertyTest, MatchesAsTheListOfAllWaysSays) {
  IrContext context;
  LoadAllDialects(context);
  size_t matched = 0, refused = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Chance chance(seed);
    Program program = RandomProgram(context, chance);
    std::vector<Operation*> ops;
    for (Operation& op : *program.block()) {
      if (op.num_results() == 1 && op.name() != "nn.feed") ops.push_back(&op);
    }
    std::vector<std::string> names;
    const Value seen = ops[chance.Below(ops.size())]->result(0);
    const Pat pattern = Sketcher(chance, names).At(seen, 4, /*root=*/true);
    // A condition on what is bound that only some of the ways meet.
    const bool picky = !names.empty() && chance.Of(0.5);
    const auto holds = [&](Value v) {
      return !picky || !v || v.impl() == nullptr || v.defining_op() != ops[0];
    };

    std::map<Operation*, std::pair<Bindings, std::vector<Operation*>>> found;
    std::vector<Rule> rules;
    rules.push_back(
        Rule("any")
            .Match(pattern)
            .Where([&](const RuleMatch& m) { return names.empty() || holds(m[names[0]]); },
                   "as picked")
            .Replace([&](const RuleMatch& m, Rewriter&) {
              Bindings bound;
              for (const std::string& name : names) {
                if (m.Has(name)) bound[name] = m.values(name);
              }
              found[m.root()] = {bound, m.ops()};
              return Value();
            }));
    ApplyRules(program, nullptr, std::move(rules));

    SCOPED_TRACE(StrCat("seed ", seed, "\n", Print(program)));
    for (Operation* root : ops) {
      Oracle::Ways ways = Oracle().Match(pattern, root);
      std::erase_if(ways, [&](const Oracle::Way& way) {
        const Bindings bound = way.Names();
        return !names.empty() && bound.count(names[0]) != 0 && !holds(bound.at(names[0])[0]);
      });
      ASSERT_EQ(found.count(root) != 0, !ways.empty()) << root->Describe();
      if (ways.empty()) {
        ++refused;
        continue;
      }
      ++matched;
      const auto& [bound, taken] = found[root];
      ASSERT_TRUE(std::any_of(ways.begin(), ways.end(), [&](const Oracle::Way& way) {
        return way.Names() == bound && way.ops.size() == taken.size() &&
               std::is_permutation(way.ops.begin(), way.ops.end(), taken.begin());
      })) << root->Describe();
    }
  }
  EXPECT_GT(matched, 2000U);  // or the trials tell little
  EXPECT_GT(refused, 2000U);
}

}  // namespace
}  // namespace lathe
