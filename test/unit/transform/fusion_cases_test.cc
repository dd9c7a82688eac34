#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/pass/rule.h"
#include "lathe/support/random.h"
#include "lathe/transform/patterns.h"

// Cases of other frameworks' fusion tests, as programs of ours.

namespace lathe {
namespace {

using namespace pat;  // NOLINT: the words of a rule

constexpr const char* kMatrix = "v_tensor<[2, 2], f32>";
constexpr const char* kRow = "v_tensor<[2], f32>";

/// Writes programs on matrices [2, 2] and rows [2].
class Writer {
 public:
  std::string Feed(const std::string& name, const std::string& type = kMatrix) {
    Line(StrCat("%", name, " = nn.feed() {name = \"", name, "\"} : () -> ", type));
    types_[name] = type;
    return name;
  }
  std::string Op(const std::string& result, const std::string& op,
                 const std::vector<std::string>& operands, const std::string& attributes = "") {
    std::string names, types;
    for (const std::string& o : operands) {
      names += (names.empty() ? "%" : ", %") + o;
      types += (types.empty() ? "" : ", ") + types_[o];
    }
    Line(StrCat("%", result, " = nn.", op, "(", names, ")", attributes, " : (", types, ") -> ",
                kMatrix));
    types_[result] = kMatrix;
    return result;
  }
  void Fetch(const std::string& value) {
    Line(StrCat("nn.fetch(%", value, ") {name = \"out.", value, "\"} : (", types_[value],
                ") -> ()"));
  }
  /// x w + b and an activation, if there is one.
  std::string Layer(const std::string& name, const std::string& x, const std::string& activation) {
    Feed(name + "w");
    Feed(name + "b", kRow);
    Op(name + "m", "matmul", {x, name + "w"});
    Op(name + "s", "add", {name + "m", name + "b"});
    return activation.empty() ? name + "s" : Op(name + "a", activation, {name + "s"});
  }
  std::string Text() const { return "program {\n" + text_ + "}\n"; }

 private:
  void Line(const std::string& line) { text_ += "  " + line + "\n"; }
  std::string text_;
  std::map<std::string, std::string> types_;
};

class FusionCases : public ::testing::Test {
 protected:
  FusionCases() { LoadAllDialects(context); }
  Program Parse(const Writer& writer) { return ParseProgram(context, writer.Text()); }

  static void Run(Program& program, const std::string& passes) {
    PassManager manager;
    manager.Add(passes);
    manager.Run(program);
  }
  static int Count(const Program& program, const std::string& op) {
    int count = 0;
    for (OpWalker w(program.module()); const Operation* o = w.Next();) count += o->name() == op;
    return count;
  }
  static NamedValues Inputs(const Program& program) {
    NamedValues inputs;
    uint64_t stream = 0;
    for (Operation* feed : program.feeds()) {
      const auto type = feed->result(0).type().cast<AnyTensorType>();
      inputs.emplace_back(feed->attribute("name").cast<StrAttribute>().value(),
                          RandomTensor(type.element(), *type.shape().Constants(), 3, stream++));
    }
    return inputs;
  }
  static void ExpectSame(const NamedValues& a, const NamedValues& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const std::vector<double> x = ToDoubles(a[i].second.tensor()),
                                y = ToDoubles(b[i].second.tensor());
      ASSERT_EQ(x.size(), y.size()) << a[i].first;
      for (size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(x[k], y[k], 1e-5) << a[i].first;
    }
  }
  IrContext context;
};

/// Rules that look and change nothing.
Rule Looking(const std::string& name, const Pat& source, std::vector<size_t>& found,
             const std::string& counted) {
  return Rule(name).Match(source).Replace([&found, counted](const RuleMatch& m, Rewriter&) {
    found.push_back(m.values(counted).size());
    return Value();
  });
}

// A relu that is no part of a layer stays, and only the first of two layers has an activation.
TEST_F(FusionCases, FcFuse) {
  Writer w;
  w.Feed("x");
  w.Op("r", "relu", {"x"});
  const std::string first = w.Layer("l1", "r", "relu");
  w.Fetch(w.Layer("l2", first, ""));
  Program program = Parse(w);
  const NamedValues before = Interpreter(program).Run(Inputs(program));

  const auto layers = [&](const patterns::FcOptions& options) {
    Graph graph(program);
    GraphPatternDetector detector;
    patterns::FC(detector.mutable_pattern(), "fc", nullptr, options);
    return detector(&graph, [](const GraphPatternDetector::subgraph_t&, Graph*) {});
  };
  EXPECT_EQ(layers({.activation = "nn.relu"}), 1);
  EXPECT_EQ(layers({}), 2);

  Run(program, "fc_fuse");
  EXPECT_EQ(Count(program, "nn.gemm"), 2);
  EXPECT_EQ(Count(program, "nn.matmul"), 0);
  EXPECT_EQ(Count(program, "nn.add"), 0);
  EXPECT_EQ(Count(program, "nn.relu"), 2);
  ExpectSame(before, Interpreter(program).Run(Inputs(program)));
}

// A chain of layers is found at its whole length, however long it is; the last layer has no relu.
TEST_F(FusionCases, RepeatedFcRelu) {
  for (const size_t n : {3, 9, 13}) {
    Writer w;
    std::string x = w.Feed("x");
    for (size_t i = 0; i < n; ++i) x = w.Layer(StrCat("l", i, "_"), x, i + 1 < n ? "relu" : "");
    w.Fetch(x);
    Program program = Parse(w);
    Run(program, "fc_fuse");
    EXPECT_EQ(Count(program, "nn.gemm"), static_cast<int>(n));

    const auto is_last = [](const RuleMatch& m) {
      const Operation* reader = (*m.root()->result(0).uses().begin()).owner();
      return reader->result(0).uses().begin() == reader->result(0).uses().end() ||
             (*reader->result(0).uses().begin()).owner()->name() != "nn.relu";
    };
    std::vector<size_t> found;
    const Pat link = Call("nn.relu", {Call("nn.gemm", {Next(), Var("w"), Var("b")})});
    ApplyRules(program, nullptr,
               {Looking("chain", Chain(link, Var("x"), 2), found, "w")
                    .Where(is_last, "no further link follows")});
    EXPECT_EQ(found, std::vector<size_t>{n - 1});
  }
}

// Any number of branches of one kind that are joined: one op on what is joined. An input may have
// another reader. (The branches of the original are sequence pools, which we have not.)
TEST_F(FusionCases, BranchesAndConcat) {
  for (const size_t n : {1, 2, 10}) {
    Writer w;
    std::vector<std::string> sums;
    for (size_t i = 0; i < n; ++i) {
      const std::string x = w.Feed(StrCat("x", i));
      w.Op(StrCat("a", i), "abs", {x});
      sums.push_back(w.Op(StrCat("s", i), "tanh", {x}));
    }
    std::string text = w.Text();
    const std::string type = StrCat("v_tensor<[2, ", 2 * n, "], f32>");
    std::string names, types;
    for (const std::string& s : sums) {
      names += (names.empty() ? "%" : ", %") + s;
      types += (types.empty() ? "" : ", ") + std::string(kMatrix);
    }
    text.resize(text.size() - 2);
    text += StrCat("  %y = nn.concat(", names, ") {axis = 1} : (", types, ") -> ", type,
                   "\n  nn.fetch(%y) {name = \"y\"} : (", type, ") -> ()\n",
                   "  nn.fetch(%a0) {name = \"a\"} : (", kMatrix, ") -> ()\n}\n");
    Program program = ParseProgram(context, text);
    const NamedValues before = Interpreter(program).Run(Inputs(program));
    const Pat source = Call("nn.concat", {Rest(Call("nn.tanh", {Var("x")}), 1)}).Carry("axis");
    const Pat result = Call("nn.tanh", {Call("nn.concat", {Rest(Var("x"))}).Carry("axis")});
    ApplyRules(program, nullptr, {Rule("joined").Match(source).Replace(result)});
    EXPECT_EQ(Count(program, "nn.tanh"), 1);
    EXPECT_EQ(Count(program, "nn.concat"), 1);
    EXPECT_EQ(Count(program, "nn.abs"), static_cast<int>(n));
    ExpectSame(before, Interpreter(program).Run(Inputs(program)));
  }
}

// Four layers with their gradients: each forward product takes its bias in; one that two additions
// read stays as it is.
TEST_F(FusionCases, LinearWithBackward) {
  Writer w;
  std::string x = w.Feed("x");
  int i = 0;
  for (const char* activation : {"relu", "tanh", "tanh", ""}) {
    x = w.Layer(StrCat("l", i++, "_"), x, activation);
  }
  w.Feed("b1", kRow);
  w.Feed("b2", kRow);
  w.Feed("v");
  w.Op("twice", "matmul", {x, "v"});
  w.Op("s1", "add", {"twice", "b1"});
  w.Op("s2", "add", {"twice", "b2"});
  w.Op("loss", "mul", {"s1", "s2"});
  w.Fetch("loss");
  Program program = Parse(w);
  Run(program, "append_backward{loss=[out.loss],parameters=[x,l0_w,l1_w,l2_w,l3_w,l0_b,v]}");
  const int products = Count(program, "nn.matmul");
  ASSERT_GE(products, 5 + 9);
  const NamedValues before = Interpreter(program).Run(Inputs(program));
  Run(program, "fc_fuse");
  EXPECT_EQ(Count(program, "nn.gemm"), 4);
  EXPECT_EQ(Count(program, "nn.matmul"), products - 4);
  ExpectSame(before, Interpreter(program).Run(Inputs(program)));
}

// Six transposes, four softmaxes, three products, two additions and three constants in one pattern,
// in a program where the first candidates for the same types of op are the wrong ones.
TEST_F(FusionCases, SameTypesAreToldApart) {
  Writer w;
  for (const char* name : {"x0", "x1", "x2", "c0", "c1", "c2"}) w.Feed(name);
  const auto transpose = [&](const std::string& to, const std::string& from) {
    w.Op(to, "transpose", {from});
  };
  transpose("d0", "x1");
  transpose("t1", "x1");
  transpose("t0", "x0");
  w.Op("m1", "matmul", {"t0", "t1"});
  w.Op("a1", "add", {"c0", "m1"});
  w.Op("p1", "softmax", {"a1"});
  transpose("t2", "x2");
  w.Op("m2", "matmul", {"p1", "t2"});
  transpose("t3", "m2");
  w.Op("p2", "softmax", {"t3"});
  transpose("t4", "p2");
  transpose("t5", "x0");
  w.Op("wrong", "matmul", {"d0", "t5"});
  w.Op("m3", "matmul", {"t4", "t5"});
  w.Op("a2", "add", {"wrong", "m3"});
  w.Op("p3", "softmax", {"a2"});
  w.Op("p4", "softmax", {"p3"});
  w.Op("y", "mul", {"c2", "p4"});
  w.Fetch("y");
  Program program = Parse(w);

  const auto t = [](const Pat& x) { return Call("nn.transpose", {x}); };
  const auto softmax = [](const Pat& x) { return Call("nn.softmax", {x}); };
  const Pat x0 = Var("x0");
  const Pat first = Call("nn.add", {Call("nn.matmul", {t(x0), t(Var("x1"))}), Var("c0")});
  const Pat second = softmax(t(Call("nn.matmul", {softmax(first), t(Var("x2"))})));
  const Pat third = Call("nn.matmul", {t(second), t(x0).Shared()});
  const Pat whole =
      Call("nn.mul", {softmax(softmax(Call("nn.add", {third, Var("other")}))), Var("c2")});
  ApplyRules(program, nullptr,
             {Rule("whole").Match(whole).Replace(
                 Call("nn.sum", {x0, Var("x1"), Var("x2"), Var("c0"), Var("other"), Var("c2")}))});
  ASSERT_EQ(Count(program, "nn.sum"), 1);
  const Operation* sum = program.fetches()[0]->operand(0).defining_op();
  const std::vector<std::string> names{"x0", "x1", "x2", "c0", "", "c2"};
  for (size_t k = 0; k < names.size(); ++k) {
    const Operation* maker = sum->operand(k).defining_op();
    if (names[k].empty()) {
      EXPECT_EQ(maker->name(), "nn.matmul");
    } else {
      EXPECT_EQ(maker->attribute("name").cast<StrAttribute>().value(), names[k]);
    }
  }
  EXPECT_EQ(Count(program, "nn.softmax"), 0);
  EXPECT_EQ(Count(program, "nn.transpose"), 2);  // of the product that is not ours
  EXPECT_EQ(Count(program, "nn.matmul"), 1);
}

}  // namespace
}  // namespace lathe
