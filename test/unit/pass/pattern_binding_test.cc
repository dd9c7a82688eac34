#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lathe/dialect/all.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/pattern_detector.h"
#include "lathe/pass/rewriter.h"

namespace lathe {
namespace {

/// A graph of many ops of few types, where what an op is follows only from the whole: 6 transposes,
/// 4 softmaxes, 3 products, 2 additions, 3 constants. Each is named by what it is in the pattern.
struct Part {
  const char* name;
  const char* type;
  std::vector<const char*> inputs;
};
const std::vector<Part>& Parts() {
  static const std::vector<Part> parts = {
      {"full1", "t.full", {}},
      {"full2", "t.full", {}},
      {"full3", "t.full", {}},
      {"turn1", "t.transpose", {"x"}},
      {"turn2", "t.transpose", {"x"}},
      {"turn3", "t.transpose", {"x"}},
      {"soft1", "t.softmax", {"turn1"}},
      {"soft2", "t.softmax", {"turn2"}},
      {"soft3", "t.softmax", {"turn3"}},
      {"times1", "t.matmul", {"soft1", "turn2"}},
      {"times2", "t.matmul", {"soft2", "turn1"}},
      {"times3", "t.matmul", {"soft3", "soft1"}},  // without this 1 and 2 could change places
      {"plus1", "t.add", {"times1", "full1"}},
      {"plus2", "t.add", {"times2", "full2"}},
      {"turn4", "t.transpose", {"plus1"}},
      {"turn5", "t.transpose", {"plus2"}},
      {"turn6", "t.transpose", {"times3"}},
      {"soft4", "t.softmax", {"turn6", "full3"}},
  };
  return parts;
}

bool IsResult(const std::string& name) {
  return name == "turn4" || name == "turn5" || name == "soft4";
}

/// x, the parts in one of the orders that their inputs allow, and ops around them: 27 in all.
Program Build(IrContext& context, bool reversed) {
  Program program(context);
  Builder b = Builder::AtEnd(program.block());
  const Type type = Type(ParseType(context, "f32"));
  const auto make = [&](const std::string& op, const std::vector<Value>& operands,
                        const std::string& name) {
    const NamedAttribute is = b.Named("is", b.Attr(name));
    return b.Create(op, operands, {&is, 1}, {&type, 1})->result(0);
  };
  std::map<std::string, Value> made;
  made["x"] = make("t.in", {}, "x");
  std::vector<Part> left = Parts();
  while (!left.empty()) {
    const auto ready = [&](const Part& p) {
      return std::all_of(p.inputs.begin(), p.inputs.end(),
                         [&](const char* input) { return made.count(input) != 0; });
    };
    auto at = std::find_if(left.begin(), left.end(), ready);
    for (auto later = at; reversed && later != left.end(); ++later) {
      if (ready(*later)) at = later;
    }
    std::vector<Value> operands;
    for (const char* input : at->inputs) operands.push_back(made.at(input));
    made[at->name] = make(at->type, operands, at->name);
    left.erase(at);
  }
  Value last = made.at("turn4");
  for (int i = 0; i < 6; ++i)
    last = make(i % 2 == 0 ? "t.transpose" : "t.softmax", {last}, "other");
  const Value both = make("t.matmul", {last, made.at("turn5")}, "other");
  b.Create("t.keep", std::vector<Value>{both, made.at("soft4")}, {}, {});
  return program;
}

size_t NumOps(const Program& program) {
  size_t n = 0;
  for ([[maybe_unused]] const Operation& op : *program.block()) ++n;
  return n;
}

class PatternBindingTest : public ::testing::TestWithParam<bool> {
 protected:
  PatternBindingTest() {
    LoadAllDialects(context);
    context.allow_unregistered_ops(true);
  }

  /// A node for each part and its value, in the order of the parts.
  static void Draw(PDPattern* pattern) {
    pattern->NewNode("x-value")->assert_is_var()->AsInput();
    for (const Part& part : Parts()) {
      PDNode* op = pattern->NewNode(part.name)->assert_is_op(part.type)->AsIntermediate();
      PDNode* value = pattern->NewNode(StrCat(part.name, "-value"))->assert_is_var();
      IsResult(part.name) ? value->AsOutput() : value->AsIntermediate();
      op->LinksTo({value});
      for (const char* input : part.inputs) {
        op->LinksFrom({pattern->RetrieveNode(StrCat(input, "-value"))});
      }
    }
  }

  IrContext context;
};

// Whatever the order of equal ops in the program: each node of the pattern gets the one op that it
// can be, and one rewrite takes all of them away.
TEST_P(PatternBindingTest, OpsOfOneTypeAreToldApart) {
  Program program = Build(context, GetParam());
  ASSERT_EQ(NumOps(program), 27U);
  GraphPatternDetector detector;
  PDPattern* pattern = detector.mutable_pattern();
  Draw(pattern);
  Graph graph(program);
  const auto fuse = [&](const GraphPatternDetector::subgraph_t& found, Graph* g) {
    std::vector<Operation*> ops;
    for (const Part& part : Parts()) {
      ops.push_back(found.at(pattern->RetrieveNode(part.name)).op());
      EXPECT_EQ(ops.back()->attribute("is").cast<StrAttribute>().value(), part.name);
    }
    std::sort(ops.begin(), ops.end(), [](auto* a, auto* b) { return a->IsBefore(b); });
    Rewriter rewriter(g->program(), nullptr);
    rewriter.SetInsertionPoint(ops.back());
    const Value x = found.at(pattern->RetrieveNode("x-value")).value();
    const Type type = x.type();
    const auto make = [&](const char* op, Value operand) {
      Builder b = Builder::Before(ops.front());
      return b.Create(op, {&operand, 1}, {}, {&type, 1})->result(0);
    };
    const Value prepared = make("t.prepared", x);
    for (const char* name : {"turn4", "turn5", "soft4"}) {
      rewriter.ReplaceAllUses(found.at(pattern->RetrieveNode(StrCat(name, "-value"))).value(),
                              make("t.fused", prepared));
    }
    for (size_t i = ops.size(); i-- > 0;) rewriter.Erase(ops[i]);
  };
  EXPECT_EQ(detector(&graph, fuse), 1);
  EXPECT_EQ(NumOps(program), 13U);
  VerifyOrThrow(program);
}

// One edge of the graph leads elsewhere: no binding holds, and the search says so soon.
TEST_P(PatternBindingTest, OneWrongEdgeRefusesAll) {
  Program program = Build(context, GetParam());
  for (Operation& op : *program.block()) {
    if (op.attribute("is") && op.attribute("is").cast<StrAttribute>().value() == "times3") {
      op.set_operand(1, op.operand(0));
    }
  }
  GraphPatternDetector detector;
  Draw(detector.mutable_pattern());
  detector.set_explain(true);
  Graph graph(program);
  EXPECT_EQ(detector(&graph, [](const auto&, Graph*) {}), 0);
  ASSERT_FALSE(detector.explanations().empty());
  for (const std::string& why : detector.explanations()) {
    EXPECT_EQ(why.find("gave up"), std::string::npos) << why;
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, PatternBindingTest, ::testing::Bool(), [](const auto& order) {
  return std::string(order.param ? "Reversed" : "Straight");
});

}  // namespace
}  // namespace lathe
