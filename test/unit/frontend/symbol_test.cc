#include "lathe/frontend/symbol.h"

#include <cmath>
#include <sstream>

#include "lathe/pass/graph.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

using testing::ValuesOf;
using testing::Vec;
using Names = std::vector<std::string>;

class SymbolTest : public testing::ProgramTest {
 protected:
  Symbol Var(std::string_view name, SymbolAttrs attrs = {}) {
    return Symbol::CreateVariable(context_, name, std::move(attrs));
  }
  Symbol Op(std::string_view op, const SymbolAttrs& attrs = {}) {
    return Symbol::CreateFunctor(context_, op, attrs);
  }
  static Tensor Ramp(Shape shape, float first = 0) {
    Tensor t(ElementType::kF32, std::move(shape));
    for (float& v : t.mutable_data<float>()) v = first++;
    return t;
  }
  static std::string Text(const Symbol& s) {
    std::ostringstream os;
    s.Print(os);
    return os.str();
  }
};

// ---- composition ----

TEST_F(SymbolTest, ComposesByPositionAndByName) {
  const Symbol x = Var("x");
  const Symbol y = Op("nn.gemm")({x}, {{"b", Var("w")}}, "fc");
  EXPECT_EQ(y.ListInputNames(), (Names{"x", "w", "fc_c"}));
  EXPECT_EQ(y.ListOutputNames(), Names{"fc_y"});
}

// A dense layer with default arguments has a weight and a bias, which use_<bias> = false drops.
TEST_F(SymbolTest, LayersMakeTheirOwnVariables) {
  const Symbol x = Var("x");
  EXPECT_EQ(Op("nn.gemm")({x}, {}, "fc").ListInputNames(), (Names{"x", "fc_b", "fc_c"}));
  EXPECT_EQ(Op("nn.gemm", {{"use_c", "false"}})({x}, {}, "fc").ListInputNames(),
            (Names{"x", "fc_b"}));
  EXPECT_EQ(Op("nn.conv")({x}, {}, "conv").ListInputNames(), (Names{"x", "conv_w", "conv_b"}));
  EXPECT_EQ(Op("nn.conv")({}, {}, "conv").ListInputNames(), (Names{"conv_x", "conv_w", "conv_b"}));
  EXPECT_EQ(Op("nn.gemm")({x}).ListInputNames(), (Names{"x", "b", "c"}));
  EXPECT_EQ(Op("nn.lstm")({x}, {}, "l").ListInputNames(), (Names{"x", "l_w", "l_r", "l_b"}));
  EXPECT_EQ(Op("nn.lstm", {{"use_initial_h", "true"}})({x}, {}, "l").ListInputNames(),
            (Names{"x", "l_w", "l_r", "l_b", "l_initial_h"}));
}

TEST_F(SymbolTest, InputsComeInTheOrderOfTheArguments) {
  const Symbol y = Op("nn.gemm")({}, {{"c", Var("third")}, {"a", Var("first")}}, "fc");
  EXPECT_EQ(y.ListInputNames(), (Names{"first", "fc_b", "third"}));
}

TEST_F(SymbolTest, OptionalArgumentsThatAreNoWeightsStayAbsent) {
  const Symbol y = Op("nn.clip")({Var("x")}, {{"max", Symbol::CreateScalar(context_, 1)}}, "c");
  EXPECT_EQ(y.ListInputNames(), Names{"x"});
  Program p = y.ToProgram({.types = {{"x", ParseType(context_, "v_tensor<[3], f64>")}}});
  const NamedValues out = Interpreter(p).Run({{"x", Vec<double>({-2, 0.5, 3})}});
  EXPECT_EQ(ValuesOf<double>(out[0].second), (std::vector<double>{-2, 0.5, 1}));
}

TEST_F(SymbolTest, AuxiliaryStatesAreThoseThatOpsKeep) {
  const Symbol y = Op("nn.batch_normalization")({Var("x")}, {}, "bn");
  EXPECT_EQ(y.ListInputNames(), (Names{"x", "bn_scale", "bn_b", "bn_mean", "bn_var"}));
  EXPECT_EQ(y.ListInputNames(Symbol::kAuxiliaryStates), (Names{"bn_mean", "bn_var"}));
  EXPECT_EQ(y.ListInputNames(Symbol::kReadOnlyArgs), (Names{"x", "bn_scale", "bn_b"}));
  EXPECT_EQ(y.num_outputs(), 1u) << "two results are hidden";
  const Symbol w = Var("w");
  EXPECT_EQ(Assign(w, w + 1.0).ListInputNames(Symbol::kAuxiliaryStates), Names{"w"});
}

TEST_F(SymbolTest, MisuseOfArgumentsIsSaidClearly) {
  const Symbol x = Var("x");
  const Symbol two = Symbol::CreateGroup({x, Var("y")});
  const auto id = [&](auto&& fn) { return ErrorOf(fn).id(); };
  EXPECT_EQ(id([&] { Op("nn.add")({x}); }), "symbol/missing-argument");
  EXPECT_EQ(id([&] { Op("nn.add")({x, x, x}); }), "symbol/too-many-arguments");
  EXPECT_EQ(id([&] { Op("nn.add")({x, x}, {{"a", x}}); }), "symbol/duplicate-argument");
  EXPECT_EQ(id([&] { Op("nn.add")({x, two}); }), "symbol/many-outputs");
  EXPECT_EQ(id([&] { Op("nn.add")({x, Op("nn.relu")}); }), "symbol/no-arguments");
  EXPECT_EQ(id([&] { Op("nn.concat", {{"axis", "0"}})({}); }), "symbol/missing-argument");
  EXPECT_EQ(id([&] { Op("nn.concat")({x}); }), "symbol/missing-attribute");
  EXPECT_EQ(id([&] { x({x}); }), "symbol/variable-arguments");
  EXPECT_EQ(id([&] { Op("nn.relu")({x})({x}); }), "symbol/has-arguments");
  EXPECT_EQ(id([&] { Op("cf.if"); }), "symbol/op");
  EXPECT_EQ(id([&] { Op("nn.relu").ToProgram(); }), "symbol/no-arguments");
  EXPECT_EQ(id([&] { Symbol::CreateGroup({}); }), "symbol/empty-group");

  const Error argument = ErrorOf([&] { Op("nn.gemm")({x}, {{"cc", x}}); });
  EXPECT_EQ(argument.id(), "symbol/unknown-argument");
  EXPECT_NE(argument.Render().find("its arguments: a, b, c"), std::string::npos);
  EXPECT_NE(ErrorOf([&] { Op("nn.rellu"); }).Render().find("nn.relu"), std::string::npos);
}

TEST_F(SymbolTest, AttributesAreCheckedWhenTheyAreGiven) {
  const auto error = [&](const char* key, const char* text) {
    return ErrorOf([&] { Op("nn.conv", {{key, text}}); });
  };
  EXPECT_EQ(error("strides", "two").id(), "symbol/attribute-value");
  EXPECT_EQ(error("use_b", "maybe").id(), "symbol/attribute-value");
  EXPECT_EQ(error("auto_pad", "SAME").id(), "symbol/attribute-value");
  const Error misspelt = error("stride", "[2, 2]");
  EXPECT_EQ(misspelt.id(), "symbol/unknown-attribute");
  EXPECT_NE(misspelt.Render().find("did you mean 'strides'?"), std::string::npos);
  EXPECT_EQ(error("__stride__", "[2, 2]").id(), "") << "said to be a runtime attribute";
  EXPECT_EQ(error("strides", "(2, 2)").id(), "");
  EXPECT_EQ(error("strides", "2, 2").id(), "");
}

TEST_F(SymbolTest, ReplacesVariablesByNameEverywhereOrNowhere) {
  const Symbol x = Var("x");
  Symbol y = Op("nn.mul")({x, Op("nn.relu")({x}, {}, "r")}, {}, "m");
  const Symbol other = y({}, {{"x", Var("z")}});
  EXPECT_EQ(other.ListInputNames(), Names{"z"});
  EXPECT_EQ(y.ListInputNames(), Names{"x"}) << "operator() works on a copy";

  EXPECT_EQ(ErrorOf([&] { y.Compose({}, {{"x", Var("z")}, {"q", x}}); }).id(),
            "symbol/unknown-argument");
  EXPECT_EQ(y.ListInputNames(), Names{"x"});
  EXPECT_EQ(ErrorOf([&] { y.Compose({}, {{"x", y}}); }).id(), "symbol/cycle");
  y.Compose({}, {{"x", y.Copy()}});
  EXPECT_EQ(y.GetInternals().ListOutputNames(), (Names{"x", "r_y", "m_c", "r_y", "m_c"}));

  Symbol group = Symbol::CreateGroup({x, y});
  group.Compose({}, {{"x", Var("q")}});
  EXPECT_EQ(group.ListOutputNames(), (Names{"q", "m_c"})) << "an output that is the variable";
}

TEST_F(SymbolTest, ReplacingAWrittenVariableNeedsAVariable) {
  const Symbol w = Var("w");
  Symbol y = Assign(w, w + 1.0);
  EXPECT_EQ(ErrorOf([&] { y.Compose({}, {{"w", Var("a") + Var("b")}}); }).id(), "symbol/write");
  EXPECT_EQ(y.ListInputNames(), Names{"w"});
  y.Compose({}, {{"w", Var("v")}});
  EXPECT_EQ(y.ListInputNames(Symbol::kAuxiliaryStates), Names{"v"});
  EXPECT_EQ(ErrorOf([&] { Assign(w + 1.0, w); }).id(), "symbol/write");
}

TEST_F(SymbolTest, CopySharesNothing) {
  const Symbol y = Op("nn.relu")({Var("x")}, {}, "r");
  Symbol copy = y.Copy();
  copy.SetAttrs({{"name", "other"}});
  copy.ListInputs()[0].SetAttrs({{"lr", "2"}});
  EXPECT_EQ(y.ListOutputNames(), Names{"r_y"});
  EXPECT_TRUE(y.ListAttrs(Symbol::kRecursive).empty());
  EXPECT_EQ(copy.ListOutputNames(), Names{"other_y"});
}

// ---- lists and attributes ----

TEST_F(SymbolTest, RecursiveAttributesNameTheirNodes) {
  const Symbol x = Var("x");
  const Symbol add = Op("nn.add", {{"gpu", "2"}})({x, x}, {}, "add");
  const Symbol y = Op("nn.exp", {{"gpu", "1"}})({add}, {}, "exp");
  const auto all = y.ListAttrs(Symbol::kRecursive);
  EXPECT_EQ(all.at("add$gpu"), "2");
  EXPECT_EQ(all.at("exp$gpu"), "1");
  EXPECT_EQ(y.ListAttrs(Symbol::kShallow), (std::map<std::string, std::string>{{"gpu", "1"}}));
  using Triple = std::tuple<std::string, std::string, std::string>;
  EXPECT_EQ(y.ListAttrsRecursive(),
            (std::vector<Triple>{{"add", "gpu", "2"}, {"exp", "gpu", "1"}}));
}

// Weights inherit what is said of their op, but not its own attributes.
TEST_F(SymbolTest, OwnVariablesCopyRuntimeAttributes) {
  const Symbol y = Op("nn.conv", {{"strides", "[2, 2]"}, {"lr_mult", "3"}})({Var("x")}, {}, "c");
  const auto all = y.ListAttrs(Symbol::kRecursive);
  EXPECT_EQ(all.at("c_w$lr_mult"), "3");
  EXPECT_EQ(all.at("c_b$lr_mult"), "3");
  EXPECT_EQ(all.count("c_w$strides"), 0u);
  EXPECT_EQ(all.count("x$lr_mult"), 0u);
}

TEST_F(SymbolTest, SpecialAttributesAndLateOnes) {
  Symbol y = Op("nn.gemm")({Var("x")}, {}, "fc");
  std::string text;
  EXPECT_TRUE(y.GetAttr("name", &text));
  EXPECT_EQ(text, "fc");
  EXPECT_TRUE(y.GetAttr("op_name", &text));
  EXPECT_EQ(text, "nn.gemm");
  EXPECT_TRUE(Var("x").GetAttr("op_name", &text));
  EXPECT_EQ(text, "null");
  EXPECT_FALSE(y.GetAttr("alpha", &text));
  y.SetAttrs({{"alpha", "0.5"}, {"mark", "here"}});
  EXPECT_TRUE(y.GetAttr("alpha", &text));
  EXPECT_EQ(text, "0.5");
  EXPECT_EQ(ErrorOf([&] { y.SetAttrs({{"use_c", "false"}}); }).id(), "symbol/late-attribute");
  EXPECT_EQ(ErrorOf([&] { y.SetAttrs({{"alpha", "big"}}); }).id(), "symbol/attribute-value");
  EXPECT_EQ(ErrorOf([&] { Symbol::CreateGroup({y, Var("z")}).SetAttrs({{"k", "v"}}); }).id(),
            "symbol/group");
  const Symbol split =
      Op("nn.split", {{"num_outputs", "3"}, {"num_results", "3"}})({Var("x")}, {}, "s");
  EXPECT_EQ(split.ListOutputNames(), (Names{"s_outputs0", "s_outputs1", "s_outputs2"}));
  EXPECT_TRUE(split[2].GetAttr("_value_index", &text));
  EXPECT_EQ(text, "2");
  EXPECT_EQ(ErrorOf([&] { split[3]; }).id(), "symbol/output");
  EXPECT_EQ(split["s_outputs1"].outputs()[0].index, 1u);
}

TEST_F(SymbolTest, InternalsAndChildren) {
  const Symbol y = Op("nn.exp")({Op("nn.add")({Var("x"), Var("z")}, {}, "add")}, {}, "exp");
  EXPECT_EQ(y.GetInternals().ListOutputNames(), (Names{"x", "z", "add_c", "exp_y"}));
  EXPECT_EQ(y.GetInternals()["add_c"].ListOutputNames(), Names{"add_c"});
  EXPECT_EQ(y.GetChildren().ListOutputNames(), Names{"add_c"});
  EXPECT_EQ(y.GetChildren().GetChildren().ListOutputNames(), (Names{"x", "z"}));
  EXPECT_EQ(Var("x").GetChildren().num_outputs(), 0u);
  EXPECT_EQ(ErrorOf([&] { y.GetInternals()["add_x"]; }).id(), "symbol/output");
}

// Post-order is the one order: lists, print, JSON, programs and indexed graphs agree.
TEST_F(SymbolTest, PostOrderIsTheOneOrder) {
  const Symbol x = Var("x");
  const Symbol a = Op("nn.relu")({x}, {}, "a");
  const Symbol b = Op("nn.mul")({Op("nn.exp")({Var("v")}, {}, "e"), a}, {}, "b");
  const Symbol y = Op("nn.add")({a, b}, {}, "y");
  const Names order{"x", "a", "v", "e", "b", "y"};

  Names internals;
  const Symbol all = y.GetInternals();
  for (size_t i = 0; i < all.num_outputs(); ++i) {
    EXPECT_TRUE(all[i].GetAttr("name", &internals.emplace_back()));
  }
  EXPECT_EQ(internals, order);

  Program program = y.ToProgram();
  const Graph graph(program);
  const IndexedGraph index(graph);
  Names indexed;
  for (uint32_t i = 0; i < index.num_nodes(); ++i) {
    const Node node = index[i];
    const Location location = node.op()->location();
    if (location.is_name()) {
      indexed.emplace_back(location.name());
    } else if (node.op()->num_results() > 0) {
      indexed.push_back(Node(node.op()->result(0)).Name());
    }
  }
  EXPECT_EQ(indexed, order);

  size_t at = 0;
  const std::string json = SaveJson(y);
  for (const std::string& name : order) {
    at = json.find(StrCat("\"name\":\"", name, "\""), at);
    EXPECT_NE(at, std::string::npos) << name;
  }
  EXPECT_EQ(Text(y),
            "output 0: y_c\nvariable 'x'\nnn.relu 'a'\n  argument 0: x\nvariable 'v'\nnn.exp 'e'\n"
            "  argument 0: v\nnn.mul 'b'\n  argument 0: e_y\n  argument 1: a_y\nnn.add 'y'\n"
            "  argument 0: a_y\n  argument 1: b_c\n");
}

// ---- programs ----

TEST_F(SymbolTest, ADenseLayerRuns) {
  const Symbol y = Op("nn.relu")({Op("nn.gemm")({Var("x", {{"__shape__", "[N, 2]"}})}, {}, "fc")});
  Program p = y.ToProgram({.parameters = {{"fc_b", Ramp({2, 3})}, {"fc_c", Ramp({3}, -20)}}});
  EXPECT_EQ(p.feeds().size(), 1u);
  EXPECT_EQ(p.feeds()[0]->result(0).type().ToString(), "v_tensor<[N, 2], f32>");
  EXPECT_EQ(p.fetches()[0]->operand(0).type().ToString(), "v_tensor<[N, 3], f32>");
  const NamedValues out = Interpreter(p).Run({{"x", Ramp({1, 2}, 5)}});
  // [5, 6] * [[0, 1, 2], [3, 4, 5]] + [-20, -19, -18]
  EXPECT_EQ(ValuesOf<float>(out[0].second), (std::vector<float>{0, 10, 22}));
  for (const ParameterMap::Entry& e : p.parameters()) EXPECT_FALSE(e.variable.is_mutable);
}

TEST_F(SymbolTest, OperatorsComputeAsTheySay) {
  const Symbol a = Var("a");
  const Symbol b = Var("b");
  const Symbol y = -(1.0 - a) / (2.0 / b) + Pow(a, 2.0) * 3.0 - (a - b) * (0.5 + a * b) - 1.0;
  const Type f64 = ParseType(context_, "v_tensor<[2], f64>");
  Program p = y.ToProgram({.types = {{"a", f64}, {"b", f64}}});
  const NamedValues out =
      Interpreter(p).Run({{"a", Vec<double>({3, -1})}, {"b", Vec<double>({5, 0.25})}});
  const auto expected = [](double u, double v) {
    return -(1 - u) / (2 / v) + u * u * 3 - (u - v) * (0.5 + u * v) - 1;
  };
  const auto values = ValuesOf<double>(out[0].second);
  EXPECT_DOUBLE_EQ(values[0], expected(3, 5));
  EXPECT_DOUBLE_EQ(values[1], expected(-1, 0.25));
}

TEST_F(SymbolTest, GroupsFetchEachOutputUnderItsOwnName) {
  const Symbol x = Var("x");
  const Symbol r = Op("nn.relu")({x}, {}, "r");
  Program p = Symbol::CreateGroup({r, x, r}).ToProgram();
  Names names;
  for (Operation* f : p.fetches()) {
    names.emplace_back(f->attribute("name").cast<StrAttribute>().value());
  }
  EXPECT_EQ(names, (Names{"r_y", "x", "r_y.1"}));
}

TEST_F(SymbolTest, RuntimeAttributesAndNamesReachTheProgram) {
  const Symbol y = Op("nn.relu", {{"ctx", "gpu"}})({Var("x", {{"lr", "0"}})}, {}, "r");
  Program p = y.ToProgram();
  EXPECT_EQ(p.feeds()[0]->attribute("lr").ToString(), "\"0\"");
  Operation* relu = p.fetches()[0]->operand(0).defining_op();
  EXPECT_EQ(relu->attribute("ctx").ToString(), "\"gpu\"");
  EXPECT_EQ(relu->location().name(), "r");
}

TEST_F(SymbolTest, MisuseOfProgramsIsSaidClearly) {
  const Symbol x = Var("x");
  const Error twice = ErrorOf([&] { (Var("x") + x).ToProgram(); });
  EXPECT_EQ(twice.id(), "symbol/duplicate-variable");
  const Error unknown =
      ErrorOf([&] { Var("weight").ToProgram({.parameters = {{"wieght", Ramp({1})}}}); });
  EXPECT_EQ(unknown.id(), "symbol/unknown-argument");
  EXPECT_NE(unknown.Render().find("did you mean 'weight'?"), std::string::npos);
  const Symbol w = Var("w");
  EXPECT_EQ(ErrorOf([&] { Assign(w, w + 1.0).ToProgram(); }).id(), "symbol/state-data");
  const Tensor two = Ramp({2});
  const Symbol wide = Assign(w, Var("v"));
  EXPECT_EQ(ErrorOf([&] {
              wide.ToProgram({.types = {{"v", ParseType(context_, "v_tensor<[3], f32>")}},
                              .parameters = {{"w", two}}});
            }).code(),
            ErrorCode::kShape);
  EXPECT_EQ(ErrorOf([&] {
              (Var("a") + Var("b"))
                  .ToProgram({.types = {{"a", ParseType(context_, "v_tensor<[3], f32>")},
                                        {"b", ParseType(context_, "v_tensor<[2], f32>")}}});
            }).code(),
            ErrorCode::kShape);
}

// ---- writes ----

// w := w + 1, w2 := w + 1, run twice.
TEST_F(SymbolTest, AssignmentsTakeEffectInOrder) {
  const Symbol w = Var("w");
  const Symbol w2 = Var("w2");
  const Symbol first = Assign(w, w + 1.0);
  const Symbol second = Assign(w2, first + 1.0);
  Program p = Symbol::CreateGroup({first, second})
                  .ToProgram({.parameters = {{"w", Ramp({2}, 10)}, {"w2", Ramp({2}, 70)}}});
  EXPECT_TRUE(p.parameters().Find("w")->is_mutable);
  Interpreter run(p);
  EXPECT_EQ(ValuesOf<float>(run.Run({})[1].second), (std::vector<float>{12, 13}));
  EXPECT_EQ(ValuesOf<float>(run.Run({})[1].second), (std::vector<float>{13, 14}));
  EXPECT_EQ(ValuesOf<float>(p.parameters().Find("w")->data), (std::vector<float>{12, 13}));
}

// Versions, not data flow: a read made after a write sees it, one made before does not.
TEST_F(SymbolTest, ReadsSeeTheVersionThatTheyWereMadeAt) {
  const Symbol w = Var("w");
  const Symbol before = w * 10.0;
  const Symbol write = Assign(w, w + 1.0);
  const Symbol after = w * 10.0;
  const Symbol again = Assign(w, w * 2.0);
  const Symbol last = w + 0.0;
  for (const Symbol& all : {Symbol::CreateGroup({before, write, after, again, last}),
                            Symbol::CreateGroup({last, again, after, write, before})}) {
    Program p = all.ToProgram({.parameters = {{"w", Ramp({1}, 3)}}});
    const NamedValues out = Interpreter(p).Run({});
    std::vector<float> values;
    for (const auto& [name, value] : out) values.push_back(ValuesOf<float>(value)[0]);
    std::sort(values.begin(), values.end());
    EXPECT_EQ(values, (std::vector<float>{4, 8, 8, 30, 40}));
    EXPECT_EQ(ValuesOf<float>(p.parameters().Find("w")->data), (std::vector<float>{8}));
  }
}

TEST_F(SymbolTest, BatchNormalizationUpdatesItsStatisticsInTraining) {
  const auto make = [&](const char* training) {
    return Op("nn.batch_normalization", {{"training_mode", training}, {"momentum", "0.5"}})(
        {Var("x", {{"__shape__", "[2, 1]"}})}, {}, "bn");
  };
  const SymbolBindings data{.parameters = {{"bn_scale", Ramp({1}, 1)},
                                           {"bn_b", Ramp({1}, 0)},
                                           {"bn_mean", Ramp({1}, 10)},
                                           {"bn_var", Ramp({1}, 1)}}};
  Program training = make("true").ToProgram(data);
  Interpreter(training).Run({{"x", Tensor::Of<float>({2, 1}, std::vector<float>{2, 6})}});
  EXPECT_EQ(ValuesOf<float>(training.parameters().Find("bn_mean")->data)[0], 7);   // (10 + 4) / 2
  EXPECT_EQ(ValuesOf<float>(training.parameters().Find("bn_var")->data)[0], 2.5);  // (1 + 4) / 2

  Program inference = make("false").ToProgram(data);
  for (const ParameterMap::Entry& e : inference.parameters()) {
    EXPECT_FALSE(e.variable.is_mutable) << e.name.value() << ": else nothing could be folded";
  }
}

// p := p - lr * (g + wd * p), as in gradient descent with weight decay.
TEST_F(SymbolTest, GradientDescentEqualsItsFormula) {
  const double lr = 0.1;
  const double wd = 0.01;
  const Symbol w = Var("w");
  const Symbol g = Var("g", {{"__shape__", "[3]"}, {"__dtype__", "f64"}});
  const Symbol step = Assign(w, w - (g + w * wd) * lr);
  const std::vector<double> start{1, -2, 0.5};
  Program p = step.ToProgram({.parameters = {{"w", Tensor::Of<double>({3}, start)}}});
  Interpreter run(p);
  std::vector<double> expected = start;
  for (int t = 0; t < 5; ++t) {
    const std::vector<double> grad{0.3 * t, -1.0 + t, 2.0 / (t + 1)};
    run.Run({{"g", Vec(grad)}});
    for (size_t i = 0; i < 3; ++i) expected[i] -= lr * (grad[i] + wd * expected[i]);
  }
  const auto values = ValuesOf<double>(p.parameters().Find("w")->data);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(values[i], expected[i], 1e-14);
}

TEST_F(SymbolTest, AdamEqualsItsFormula) {
  const double lr = 0.01;
  const double b1 = 0.9;
  const double b2 = 0.99;
  const double eps = 1e-8;
  const Symbol w = Var("w");
  const Symbol m = Var("m");
  const Symbol v = Var("v");
  const Symbol t = Var("t");
  const Symbol g = Var("g", {{"__shape__", "[2]"}, {"__dtype__", "f64"}});
  const Symbol t1 = Assign(t, t + 1.0);
  const Symbol m1 = Assign(m, m * b1 + g * (1 - b1));
  const Symbol v1 = Assign(v, v * b2 + Pow(g, 2.0) * (1 - b2));
  const Symbol b1t = Pow(Symbol::CreateScalar(context_, b1), t1);
  const Symbol b2t = Pow(Symbol::CreateScalar(context_, b2), t1);
  const Symbol root = Op("nn.sqrt")({v1 / (1.0 - b2t)});
  const Symbol w1 = Assign(w, w - m1 / (1.0 - b1t) * lr / (root + eps));
  const Tensor zero = Tensor::Of<double>({2}, std::vector<double>{0, 0});
  Program p =
      w1.ToProgram({.parameters = {{"w", Tensor::Of<double>({2}, std::vector<double>{1, 2})},
                                   {"m", zero},
                                   {"v", zero},
                                   {"t", Tensor::Scalar<double>(0)}}});
  Interpreter run(p);
  std::vector<double> x{1, 2};
  std::vector<double> mean{0, 0};
  std::vector<double> square{0, 0};
  for (int step = 1; step <= 4; ++step) {
    const std::vector<double> grad{0.5 * step, -3.0};
    run.Run({{"g", Vec(grad)}});
    for (size_t i = 0; i < 2; ++i) {
      mean[i] = b1 * mean[i] + (1 - b1) * grad[i];
      square[i] = b2 * square[i] + (1 - b2) * grad[i] * grad[i];
      x[i] -= lr * (mean[i] / (1 - std::pow(b1, step))) /
              (std::sqrt(square[i] / (1 - std::pow(b2, step))) + eps);
    }
  }
  const auto values = ValuesOf<double>(p.parameters().Find("w")->data);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(values[i], x[i], 1e-12);
}

TEST_F(SymbolTest, ControlDependenciesBecomeTokens) {
  const Symbol x = Var("x");
  const Symbol first = Op("nn.exp")({x}, {}, "first");
  Symbol second = Op("nn.relu")({x}, {}, "second");
  second.AddControlDeps(first);
  EXPECT_EQ(ErrorOf([&] {
              Symbol f = first;
              f.AddControlDeps(second);
            }).id(),
            "symbol/cycle");
  EXPECT_EQ(ErrorOf([&] { Var("y").AddControlDeps(first); }).id(), "symbol/control-dep");
  Program p = second.ToProgram({.types = {{"x", ParseType(context_, "v_tensor<[2], f32>")}}});
  Names names;
  for (Operation& op : *p.block()) names.emplace_back(op.name());
  EXPECT_EQ(names, (Names{"nn.feed", "nn.exp", "builtin.token_of", "builtin.depend", "nn.relu",
                          "nn.fetch"}));
  EXPECT_EQ(ValuesOf<float>(Interpreter(p).Run({{"x", Ramp({2}, -1)}})[0].second),
            (std::vector<float>{0, 0}));
}

// ---- JSON ----

TEST_F(SymbolTest, JsonIsAFixedPoint) {
  const Symbol w = Var("w", {{"lr", "2"}});
  Symbol y = Op("nn.conv", {{"strides", "[2, 2]"}, {"gpu", "1"}})({Var("x"), w}, {}, "c \"1\"");
  y.AddControlDeps(Op("nn.relu")({Var("q")}, {}, "r"));
  const Symbol all = Symbol::CreateGroup(
      {y, Assign(w, w * 0.5), w * 3.0, Op("nn.clip")({y}, {{"max", Var("m")}}, "clip")});
  const GraphNotes notes{{"shape", std::vector<std::vector<int64_t>>{{1, 3}, {}}},
                         {"layout", std::string("NCHW")},
                         {"level", int64_t{3}},
                         {"names", Names{"a", "b"}},
                         {"storage_id", std::vector<int64_t>{0, 1}}};
  const std::string text = SaveJson(all, notes);
  const LoadedSymbol loaded = LoadJson(context_, text);
  EXPECT_EQ(loaded.notes, notes);
  EXPECT_EQ(SaveJson(loaded.symbol, loaded.notes), text);
  EXPECT_EQ(loaded.symbol.ListInputNames(), all.ListInputNames());
  EXPECT_EQ(loaded.symbol.ListInputNames(Symbol::kAuxiliaryStates), Names{"w"});
  EXPECT_EQ(loaded.symbol.ListAttrsRecursive(), all.ListAttrsRecursive());
  EXPECT_EQ(Text(loaded.symbol), Text(all));
}

TEST_F(SymbolTest, ALoadedVariableComposesAgain) {
  const LoadedSymbol loaded = LoadJson(context_, SaveJson(Var("x", {{"lr", "1"}})));
  const Symbol y = Op("nn.gemm")({loaded.symbol}, {}, "fc");
  EXPECT_EQ(y.ListInputNames(), (Names{"x", "fc_b", "fc_c"}));
  const LoadedSymbol functor = LoadJson(context_, SaveJson(Op("nn.relu")));
  EXPECT_EQ(functor.symbol({loaded.symbol}, {}, "r").ListOutputNames(), Names{"r_y"});

  // A loaded variable goes on counting its versions.
  const Symbol w = Var("w");
  const LoadedSymbol written = LoadJson(context_, SaveJson(Assign(w, w + 1.0)));
  const Symbol v = written.symbol.ListInputs()[0];
  const Symbol twice = Assign(v, v * 2.0);
  Program p =
      Symbol::CreateGroup({written.symbol, twice}).ToProgram({.parameters = {{"w", Ramp({1}, 3)}}});
  Interpreter(p).Run({});
  EXPECT_EQ(ValuesOf<float>(p.parameters().Find("w")->data), (std::vector<float>{8}));
}

TEST_F(SymbolTest, MalformedJsonIsRefused) {
  const char* texts[] = {
      "",
      "[]",
      "{}",
      R"({"nodes": [], "heads": []})",
      R"({"nodes": [{"op": "null", "name": "x", "inputs": []}], "heads": [[1, 0, 0]]})",
      R"({"nodes": [{"op": "null", "name": "x", "inputs": []}], "heads": [[0, 1, 0]]})",
      R"({"nodes": [{"op": "null", "name": "x", "inputs": [[0, 0, 0]]}], "heads": [[0, 0, 0]]})",
      R"({"nodes": [{"op": "nn.relu", "name": "x", "inputs": [[0, 0, 0]]}], "heads": [[0, 0]]})",
      R"({"nodes": [{"op": "nn.relu", "name": "x", "inputs": [[-1, 0, 0]]}], "heads": [[0, 0]]})",
      R"({"nodes": [{"op": "null", "name": "x", "inputs": []}], "heads": [[0, 0], [-1, 0]]})",
      R"({"nodes": [{"op": "null", "name": 7, "inputs": []}], "heads": [[0, 0, 0]]})",
      R"({"nodes": [{"op": "null", "name": "x", "inputs": []}], "heads": [[0, 0]],
          "attrs": {"k": ["list_any", []]}})",
  };
  for (const char* text : texts) {
    EXPECT_EQ(ErrorOf([&] { LoadJson(context_, text); }).id(), "parse/symbol-json") << text;
  }
  const Error unknown = ErrorOf([&] {
    LoadJson(context_, R"({"nodes": [{"op": "nn.rellu", "name": "a", "inputs": []},
                                     {"op": "nn.tahn", "name": "b", "inputs": []}],
                           "heads": [[1, 0, 0]]})");
  });
  EXPECT_EQ(unknown.id(), "ir/unknown-op");
  EXPECT_EQ(unknown.others.size(), 1u);
  EXPECT_EQ(unknown.where(), "node 'a'");
}

// ---- size ----

TEST_F(SymbolTest, AMillionOpsNeedNoStack) {
  constexpr int kOps = 1'000'000;
  const Symbol relu = Op("nn.relu");
  Symbol y = Var("x", {{"__shape__", "[1]"}});
  for (int i = 0; i < kOps; ++i) y = relu({y});
  EXPECT_EQ(y.ListInputNames(), Names{"x"});
  const Symbol copy = y.Copy();
  EXPECT_EQ(copy.GetInternals().num_outputs(), size_t{kOps} + 1);
  Program p = copy.ToProgram();
  EXPECT_EQ(p.fetches().size(), 1u);
}

TEST_F(SymbolTest, DeepJsonNeedsNoStack) {
  constexpr int kOps = 50'000;
  const Symbol relu = Op("nn.relu");
  Symbol y = Var("x");
  for (int i = 0; i < kOps; ++i) y = relu({y});
  const std::string text = SaveJson(y);
  EXPECT_EQ(SaveJson(LoadJson(context_, text).symbol), text);
  EXPECT_EQ(ErrorOf([&] { LoadJson(context_, std::string(1'000'000, '[')); }).id(),
            "parse/symbol-json");
}

}  // namespace
}  // namespace lathe
