// Gradients of whole programs, beside central differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "lathe/dialect/all.h"
#include "lathe/dialect/interpreter.h"
#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "lathe/transform/optimizer.h"

namespace lathe::testing {
namespace {

class AppendBackward : public ::testing::Test {
 protected:
  AppendBackward() { LoadAllDialects(context_); }

  Program Parse(const std::string& body) {
    return ParseProgram(context_, StrCat("program {\n", body, "}\n"), {.file_locations = false});
  }

  /// Random numbers for the feeds of f64, `given` for the others.
  static NamedValues Inputs(const Program& program, const NamedValues& given) {
    NamedValues inputs = given;
    uint64_t stream = 0;
    for (Operation* feed : program.feeds()) {
      const auto type = feed->result(0).type().cast<AnyTensorType>();
      const std::string name(feed->attribute("name").cast<StrAttribute>().value());
      if (Find(inputs, name) != nullptr) continue;
      inputs.emplace_back(name,
                          RandomTensor(ElementType::kF64, *type.shape().Constants(), 7, stream++));
    }
    return inputs;
  }

  static double Sum(const RtValue& value) {
    double sum = 0;
    for (const double v : ToDoubles(value.tensor())) sum += v;
    return sum;
  }

  double Loss(const std::string& body, const NamedValues& inputs,
              const std::vector<std::string>& losses) {
    Program program = Parse(body);
    const NamedValues outputs = Interpreter(program).Run(inputs);
    double sum = 0;
    for (const std::string& name : losses) sum += Sum(*Find(outputs, name));
    return sum;
  }

  Program Differentiate(const std::string& body, const std::string& options) {
    Program program = Parse(body);
    PassManager manager({.verify_each = true});
    manager.Add("append_backward" + options);
    manager.Run(program);
    return program;
  }

  /// The gradients of `losses` with respect to `xs` are the slopes of the program.
  void ExpectSlopes(const std::string& body, const std::vector<std::string>& xs,
                    const NamedValues& given = {},
                    const std::vector<std::string>& losses = {"loss"}) {
    const auto list = [](const std::vector<std::string>& names) {
      std::string text;
      for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
      return text;
    };
    Program program =
        Differentiate(body, StrCat("{loss=[", list(losses), "],parameters=[", list(xs), "]}"));
    const NamedValues inputs = Inputs(program, given);
    const NamedValues outputs = Interpreter(program).Run(inputs);
    for (const std::string& x : xs) {
      const RtValue* gradient = Find(outputs, x + "@GRAD");
      ASSERT_NE(gradient, nullptr) << x;
      const std::vector<double> actual = ToDoubles(gradient->tensor());
      ASSERT_EQ(gradient->tensor().shape(), Find(inputs, x)->tensor().shape());
      for (size_t k = 0; k < actual.size(); ++k) {
        EXPECT_NEAR(actual[k], Slope(body, inputs, losses, x, k), 1e-6) << x << "[" << k << "]";
      }
    }
  }

  double Slope(const std::string& body, const NamedValues& inputs,
               const std::vector<std::string>& losses, const std::string& x, size_t k) {
    constexpr double kStep = 1e-5;
    const auto moved = [&](double by) {
      NamedValues other = inputs;
      for (auto& [name, value] : other) {
        if (name == x) value.mutable_tensor().mutable_data<double>()[k] += by;
      }
      return Loss(body, other, losses);
    };
    return (moved(kStep) - moved(-kStep)) / (2 * kStep);
  }

  Error ErrorOf(const std::string& body, const std::string& options) {
    try {
      (void)Differentiate(body, options);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::kInternal, "", "no error");
  }

  IrContext context_;
};

const std::string kFeeds = R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 3], f64>
  %w = nn.feed() {name = "w"} : () -> v_tensor<[3, 2], f64>
)";
const std::string kProduct = kFeeds + R"(
  %m = nn.matmul(%x, %w) : (v_tensor<[2, 3], f64>, v_tensor<[3, 2], f64>) -> v_tensor<[2, 2], f64>
)";
const std::string kFetch = "nn.fetch(%l) {name = \"loss\"} : (v_tensor<[2, 2], f64>) -> ()\n";

TEST_F(AppendBackward, ManyUsesAddUp) {
  ExpectSlopes(kProduct + R"(
    %a = nn.tanh(%m) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
    %b = nn.mul(%a, %m) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
    %c = nn.matmul(%b, %a) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
    %l = nn.add(%c, %b) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
  )" + kFetch,
               {"x", "w"});
}

TEST_F(AppendBackward, TwoLossesAddUp) {
  ExpectSlopes(kProduct + R"(
    %l = nn.tanh(%m) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
    %k = nn.exp(%x) : (v_tensor<[2, 3], f64>) -> v_tensor<[2, 3], f64>
    nn.fetch(%k) {name = "other"} : (v_tensor<[2, 3], f64>) -> ()
    nn.fetch(%x) {name = "itself"} : (v_tensor<[2, 3], f64>) -> ()
  )" + kFetch,
               {"x", "w"}, {}, {"loss", "other", "itself"});
}

TEST_F(AppendBackward, StoppedValuesLetNothingThrough) {
  for (const char* stop :
       {"nn.block_gradient(%m) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>",
        "nn.exp(%m) {stop_gradient = [true]} : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>"}) {
    const std::string body = StrCat(kProduct, "%s = ", stop, R"(
      %l = nn.mul(%s, %w2) : (v_tensor<[2, 2], f64>, v_tensor<[2, 1], f64>) -> v_tensor<[2, 2], f64>
    )",
                                    kFetch);
    const std::string whole =
        "%w2 = nn.feed() {name = \"w2\"} : () -> v_tensor<[2, 1], f64>\n" + body;
    ExpectSlopes(whole, {"w2"});
    Program program = Differentiate(whole, "{parameters=[w,x]}");
    const NamedValues outputs = Interpreter(program).Run(Inputs(program, {}));
    for (const char* name : {"w@GRAD", "x@GRAD"}) {
      for (const double v : ToDoubles(Find(outputs, name)->tensor())) EXPECT_EQ(v, 0) << name;
    }
  }
}

TEST_F(AppendBackward, Refusals) {
  const std::string loss =
      kProduct + "%l = nn.tanh(%m) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>\n" + kFetch;
  const std::string other = loss + "%u = nn.feed() {name = \"u\"} : () -> v_tensor<[2], f64>\n";
  const Error unreachable = ErrorOf(other, "{parameters=[u]}");
  EXPECT_EQ(unreachable.id(), "gradient/unreachable");
  EXPECT_EQ(unreachable.message(), "the loss does not depend on 'u'");
  EXPECT_EQ(ErrorOf(other, "{parameters=[v]}").id(), "gradient/variable");
  EXPECT_NE(ErrorOf(other, "{loss=[los]}").Render().find("did you mean 'loss'"), std::string::npos);
  const std::string two = loss + "nn.fetch(%m) {name = \"m\"} : (v_tensor<[2, 2], f64>) -> ()\n";
  EXPECT_EQ(ErrorOf(two, "").id(), "gradient/loss");
  const std::string writes = kFeeds + R"(
    %t = builtin.to_tensor(%x) : (v_tensor<[2, 3], f64>) -> tensor<[2, 3], f64>
    %n = nn.neg_(%t) : (tensor<[2, 3], f64>) -> tensor<[2, 3], f64>
    nn.fetch(%t) {name = "loss"} : (tensor<[2, 3], f64>) -> ()
  )";
  EXPECT_EQ(ErrorOf(writes, "{parameters=[x]}").id(), "gradient/in-place");
  const std::string held =
      kProduct +
      "%l = nn.optional_get_element(%m) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>\n" +
      kFetch;
  EXPECT_EQ(ErrorOf(held, "{parameters=[x]}").id(), "gradient/unsupported");
}

TEST_F(AppendBackward, GradientsAsParameters) {
  const std::string body = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 3], f64>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[3, 2], f64>
    %f = builtin.get_parameter() {name = "frozen", stop_gradient = [true]} : () -> v_tensor<[2], f64>
    %unused = builtin.get_parameter() {name = "unused"} : () -> v_tensor<[2], f64>
    %m = nn.matmul(%x, %w) : (v_tensor<[2, 3], f64>, v_tensor<[3, 2], f64>) -> v_tensor<[2, 2], f64>
    %again = builtin.get_parameter() {name = "w"} : () -> v_tensor<[3, 2], f64>
    %o = nn.matmul(%x, %again) : (v_tensor<[2, 3], f64>, v_tensor<[3, 2], f64>) -> v_tensor<[2, 2], f64>
    %p = nn.mul(%m, %o) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
    %l = nn.mul(%p, %f) : (v_tensor<[2, 2], f64>, v_tensor<[2], f64>) -> v_tensor<[2, 2], f64>
  )" + kFetch;
  Program program = Parse(body);
  const auto insert = [&](const char* name, Shape shape) {
    program.parameters().Insert(StrAttribute::Get(context_, name),
                                {.data = RandomTensor(ElementType::kF64, std::move(shape), 3)});
  };
  insert("w", {3, 2});
  insert("frozen", {2});
  insert("unused", {2});
  Program reference = program.Clone();
  PassManager manager({.verify_each = true});
  manager.Add("append_backward{store=parameter}");
  manager.Run(program);
  EXPECT_EQ(program.fetches().size(), 1u);
  EXPECT_EQ(program.parameters().Find("frozen@GRAD"), nullptr);
  EXPECT_EQ(program.parameters().Find("unused@GRAD"), nullptr);
  const NamedValues inputs = {{"x", RandomTensor(ElementType::kF64, {2, 3}, 5)}};
  (void)Interpreter(program).Run(inputs);
  const std::vector<double> actual = ToDoubles(program.parameters().Find("w@GRAD")->data);
  for (size_t k = 0; k < actual.size(); ++k) {
    const auto loss = [&](double by) {
      Program moved = reference.Clone();
      Tensor& w = moved.parameters().Find("w")->data;
      w.mutable_data<double>()[k] += by;
      return Sum(Interpreter(moved).Run(inputs)[0].second);
    };
    EXPECT_NEAR(actual[k], (loss(1e-5) - loss(-1e-5)) / 2e-5, 1e-6) << k;
  }
}

// Constants and masks have gradients where those are asked for alone.
TEST_F(AppendBackward, ConstantsAreNotTrained) {
  const std::string body = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f64>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[2], f64>
    %c = builtin.get_parameter() {name = "c", constant = true} : () -> v_tensor<[2], f64>
    %m = builtin.get_parameter() {name = "mask"} : () -> v_tensor<[2], f64>
    %a = nn.mul(%x, %w) : (v_tensor<[2], f64>, v_tensor<[2], f64>) -> v_tensor<[2], f64>
    %b = nn.mul(%a, %c) : (v_tensor<[2], f64>, v_tensor<[2], f64>) -> v_tensor<[2], f64>
    %l = nn.max(%b, %m) : (v_tensor<[2], f64>, v_tensor<[2], f64>) -> v_tensor<[2], f64>
    nn.fetch(%l) {name = "loss"} : (v_tensor<[2], f64>) -> ()
  )";
  const auto trained = [&](const std::vector<double>& mask, const std::string& passes) {
    Program program = Parse(body);
    const auto insert = [&](const char* name, const std::vector<double>& values) {
      program.parameters().Insert(StrAttribute::Get(context_, name),
                                  {.data = Tensor::Of<double>({2}, values)});
    };
    insert("w", {1, 2});
    insert("c", {3, 4});
    insert("mask", mask);
    PassManager manager({.verify_each = true});
    manager.Add(passes);
    manager.Run(program);
    std::set<std::string> names;
    for (const auto& [name, variable] : program.parameters()) {
      if (variable.is_mutable) names.emplace(name.value());
    }
    names.erase(std::string(kStepCounter));
    return names;
  };
  using Names = std::set<std::string>;
  const std::string passes = "append_backward,sgd";
  EXPECT_EQ(trained({1, -2}, passes), (Names{"w", "mask"}));
  EXPECT_EQ(trained({-HUGE_VAL, 0}, passes), (Names{"w"}));
  EXPECT_EQ(trained({0, std::numeric_limits<float>::lowest()}, passes), (Names{"w"}));
  EXPECT_EQ(trained({0, -65504}, passes), (Names{"w"}));
  EXPECT_EQ(trained({-HUGE_VAL, HUGE_VAL}, passes), (Names{"w", "mask"}));
  EXPECT_EQ(trained({-HUGE_VAL, NAN}, passes), (Names{"w", "mask"}));
  EXPECT_EQ(trained({1, 2}, "append_backward{parameters=[c, w]},sgd"), (Names{"w"}));
}

// ---- what is marked ----

TEST_F(AppendBackward, GradientsAreMarked) {
  const std::string loss =
      kProduct + "%l = nn.tanh(%m) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>\n" + kFetch;
  Program program = Differentiate(loss, "{parameters=[w,x]}");
  std::vector<std::string> marked;
  for (Operation& op : *program.block()) {
    for (size_t i = 0; i < op.num_results(); ++i) {
      const auto name = op.result(i).property("grad_of").dyn_cast<StrAttribute>();
      if (name) marked.emplace_back(name.value());
    }
  }
  std::sort(marked.begin(), marked.end());
  EXPECT_EQ(marked, (std::vector<std::string>{"loss", "w", "x"}));
  for (Operation* fetch : program.fetches()) {
    const auto name = fetch->attribute("grad_of").dyn_cast<StrAttribute>();
    if (fetch == program.fetches()[0]) continue;
    ASSERT_TRUE(name);
    EXPECT_EQ(fetch->operand(0).property("grad_of"), name);
  }
  EXPECT_EQ(Differentiate(loss, "{parameters=[w],store=none}").fetches().size(), 1u);
  EXPECT_EQ(ErrorOf(loss, "{store=fetsh}").id(), "gradient/option");
}

TEST_F(AppendBackward, ThroughScans) {
  ExpectSlopes(kFeeds + R"(
    %h, %ys = cf.scan(%w, %x) {num_scan_inputs = 1, scan_input_directions = [1]} ({
    ^(%s: v_tensor<[3, 2], f64>, %row: v_tensor<[3], f64>):
      %u = nn.matmul(%row, %s) : (v_tensor<[3], f64>, v_tensor<[3, 2], f64>) -> v_tensor<[2], f64>
      %t = nn.tanh(%s) : (v_tensor<[3, 2], f64>) -> v_tensor<[3, 2], f64>
      %n = nn.add(%t, %u) : (v_tensor<[3, 2], f64>, v_tensor<[2], f64>) -> v_tensor<[3, 2], f64>
      cf.yield(%n, %u) : (v_tensor<[3, 2], f64>, v_tensor<[2], f64>) -> ()
    }) : (v_tensor<[3, 2], f64>, v_tensor<[2, 3], f64>) -> (v_tensor<[3, 2], f64>, v_tensor<[2, 2], f64>)
    %p = nn.matmul(%x, %h) : (v_tensor<[2, 3], f64>, v_tensor<[3, 2], f64>) -> v_tensor<[2, 2], f64>
    %l = nn.mul(%p, %ys) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
  )" + kFetch,
               {"x", "w"});
}

// ---- control flow ----

// The branches read what is outside and what is computed there; one gives a value as it is.
const std::string kIf = kProduct + R"(
  %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
  %r, %s = cf.if(%c) ({
    %a = nn.exp(%m) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
    %b = nn.matmul(%x, %w) : (v_tensor<[2, 3], f64>, v_tensor<[3, 2], f64>) -> v_tensor<[2, 2], f64>
    %d = nn.mul(%a, %b) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
    cf.yield(%d, %a) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> ()
  }, {
    cf.yield(%m, %m) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> ()
  }) : (v_tensor<[], bool>) -> (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>)
  %l = nn.mul(%r, %s) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
)" + kFetch;

TEST_F(AppendBackward, ThroughBranches) {
  for (const bool c : {true, false}) ExpectSlopes(kIf, {"x", "w"}, {{"c", Tensor::Scalar(c)}});
}

// Carries two values, one of them unread afterwards, gives a third for each step, counts down.
std::string Loop(const std::string& trips, const std::string& cond) {
  return StrCat(
      kProduct, R"(
    %t = nn.feed() {name = "t"} : () -> v_tensor<[], i64>
    %g = nn.feed() {name = "g"} : () -> v_tensor<[], bool>
    %one = builtin.constant() {value = tensor<[], i64> [1]} : () -> v_tensor<[], i64>
    %zero = builtin.constant() {value = tensor<[], i64> [0]} : () -> v_tensor<[], i64>
    %r, %q, %n, %all = cf.while()",
      trips, ", ", cond, R"(, %m, %m, %t) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %u: v_tensor<[2, 2], f64>, %v: v_tensor<[2, 2], f64>, %k: v_tensor<[], i64>):
      %a = nn.matmul(%x, %w) : (v_tensor<[2, 3], f64>, v_tensor<[3, 2], f64>) -> v_tensor<[2, 2], f64>
      %b = nn.mul(%a, %u) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      %d = nn.tanh(%v) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      %e = nn.add(%b, %d) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      %less = nn.sub(%k, %one) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], i64>
      %more = nn.greater(%less, %zero) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], bool>
      cf.yield(%more, %e, %d, %less, %b) : (v_tensor<[], bool>, v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>, v_tensor<[], i64>, v_tensor<[2, 2], f64>) -> ()
    }) : ()",
      trips == "none" ? "none" : "v_tensor<[], i64>", ", ",
      cond == "none" ? "none" : "v_tensor<[], bool>",
      R"(, v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>, v_tensor<[], i64>) -> (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>, v_tensor<[], i64>, v_tensor<[?, 2, 2], f64>)
    %l = nn.exp(%r) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
    %h = nn.exp(%all) : (v_tensor<[?, 2, 2], f64>) -> v_tensor<[?, 2, 2], f64>
    nn.fetch(%h) {name = "steps"} : (v_tensor<[?, 2, 2], f64>) -> ()
  )",
      kFetch);
}

TEST_F(AppendBackward, ThroughLoops) {
  for (const int64_t t : {0, 1, 4}) {
    for (const bool g : {true, false}) {
      const NamedValues given = {{"t", Tensor::Scalar(t)}, {"g", Tensor::Scalar(g)}};
      for (const std::string& loop : {Loop("%t", "none"), Loop("none", "%g"), Loop("%t", "%g")}) {
        ExpectSlopes(loop, {"x", "w"}, given);
        ExpectSlopes(loop, {"x", "w"}, given, {"loss", "steps"});
      }
    }
  }
}

// A branch within a loop within a branch.
TEST_F(AppendBackward, ThroughNestedRegions) {
  const std::string body = kProduct + R"(
    %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
    %t = builtin.constant() {value = tensor<[], i64> [3]} : () -> v_tensor<[], i64>
    %l = cf.if(%c) ({
      %r = cf.while(%t, none, %m) ({
      ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %u: v_tensor<[2, 2], f64>):
        %one = builtin.constant() {value = tensor<[], i64> [1]} : () -> v_tensor<[], i64>
        %second = nn.equal(%i, %one) : (v_tensor<[], i64>, v_tensor<[], i64>) -> v_tensor<[], bool>
        %y = cf.if(%second) ({
          %n = cf.while(%t, none, %u) ({
          ^(%j: v_tensor<[], i64>, %on: v_tensor<[], bool>, %v: v_tensor<[2, 2], f64>):
            %k = nn.mul(%v, %m) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
            cf.yield(%on, %k) : (v_tensor<[], bool>, v_tensor<[2, 2], f64>) -> ()
          }) : (v_tensor<[], i64>, none, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
          cf.yield(%n) : (v_tensor<[2, 2], f64>) -> ()
        }, {
          %d = nn.tanh(%u) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
          cf.yield(%d) : (v_tensor<[2, 2], f64>) -> ()
        }) : (v_tensor<[], bool>) -> v_tensor<[2, 2], f64>
        cf.yield(%go, %y) : (v_tensor<[], bool>, v_tensor<[2, 2], f64>) -> ()
      }) : (v_tensor<[], i64>, none, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      cf.yield(%r) : (v_tensor<[2, 2], f64>) -> ()
    }, {
      cf.yield(%m) : (v_tensor<[2, 2], f64>) -> ()
    }) : (v_tensor<[], bool>) -> v_tensor<[2, 2], f64>
  )" + kFetch;
  for (const bool c : {true, false}) ExpectSlopes(body, {"x", "w"}, {{"c", Tensor::Scalar(c)}});
}

// x + y added ten times: the gradients are ones and tens, as of ten sums in a row.
TEST_F(AppendBackward, TenSumsInALoop) {
  const std::string body = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 2], f64>
    %y = nn.feed() {name = "y"} : () -> v_tensor<[2, 2], f64>
    %t = builtin.constant() {value = tensor<[], i64> [10]} : () -> v_tensor<[], i64>
    %l = cf.while(%t, none, %x) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %u: v_tensor<[2, 2], f64>):
      %s = nn.add(%u, %y) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      cf.yield(%go, %s) : (v_tensor<[], bool>, v_tensor<[2, 2], f64>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
  )" + kFetch;
  Program program = Differentiate(body, "{parameters=[x,y]}");
  const NamedValues outputs = Interpreter(program).Run(Inputs(program, {}));
  EXPECT_EQ(ToDoubles(Find(outputs, "x@GRAD")->tensor()), std::vector<double>(4, 1));
  EXPECT_EQ(ToDoubles(Find(outputs, "y@GRAD")->tensor()), std::vector<double>(4, 10));
  size_t pushes = 0, pops = 0;
  const std::string text = Print(program);
  for (size_t at = 0; (at = text.find("cf.push(", at)) != std::string::npos; ++at) ++pushes;
  for (size_t at = 0; (at = text.find("cf.pop(", at)) != std::string::npos; ++at) ++pops;
  EXPECT_EQ(pushes, 1u);
  EXPECT_EQ(pops, 1u);
}

TEST_F(AppendBackward, RandomNumbersWithinARegionAreRefused) {
  const std::string body = kProduct + R"(
    %t = builtin.constant() {value = tensor<[], i64> [3]} : () -> v_tensor<[], i64>
    %l = cf.while(%t, none, %m) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %u: v_tensor<[2, 2], f64>):
      %n = nn.random_normal_like(%u) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      %s = nn.mul(%u, %n) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      cf.yield(%go, %s) : (v_tensor<[], bool>, v_tensor<[2, 2], f64>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
  )" + kFetch;
  EXPECT_EQ(ErrorOf(body, "{parameters=[x]}").id(), "gradient/random");
}

// ---- networks ----

TEST_F(AppendBackward, OfAConvolutionalNetwork) {
  const std::string body = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 2, 6, 6], f64>
    %w = nn.feed() {name = "w"} : () -> v_tensor<[4, 2, 3, 3], f64>
    %s = nn.feed() {name = "s"} : () -> v_tensor<[4], f64>
    %t = nn.feed() {name = "t"} : () -> v_tensor<[4], f64>
    %v = nn.feed() {name = "v"} : () -> v_tensor<[36, 3], f64>
    %u = nn.feed() {name = "u"} : () -> v_tensor<[3], f64>
    %labels = builtin.constant() {value = tensor<[2], i64> [2, 0]} : () -> v_tensor<[2], i64>
    %zeros = builtin.constant() {value = tensor<[4], f64> [0.0, 0.0, 0.0, 0.0]} : () -> v_tensor<[4], f64>
    %c = nn.conv(%x, %w) {pads = [1, 1, 1, 1]} : (v_tensor<[2, 2, 6, 6], f64>, v_tensor<[4, 2, 3, 3], f64>) -> v_tensor<[2, 4, 6, 6], f64>
    %n, %rm, %rv = nn.batch_normalization(%c, %s, %t, %zeros, %zeros) {training_mode = true} : (v_tensor<[2, 4, 6, 6], f64>, v_tensor<[4], f64>, v_tensor<[4], f64>, v_tensor<[4], f64>, v_tensor<[4], f64>) -> (v_tensor<[2, 4, 6, 6], f64>, v_tensor<[4], f64>, v_tensor<[4], f64>)
    %r = nn.relu(%n) : (v_tensor<[2, 4, 6, 6], f64>) -> v_tensor<[2, 4, 6, 6], f64>
    %p = nn.max_pool(%r) {kernel_shape = [2, 2], strides = [2, 2]} : (v_tensor<[2, 4, 6, 6], f64>) -> v_tensor<[2, 4, 3, 3], f64>
    %f = nn.flatten(%p) {axis = 1} : (v_tensor<[2, 4, 3, 3], f64>) -> v_tensor<[2, 36], f64>
    %g = nn.gemm(%f, %v, %u) : (v_tensor<[2, 36], f64>, v_tensor<[36, 3], f64>, v_tensor<[3], f64>) -> v_tensor<[2, 3], f64>
    %l = nn.softmax_cross_entropy_loss(%g, %labels) : (v_tensor<[2, 3], f64>, v_tensor<[2], i64>) -> v_tensor<[], f64>
    nn.fetch(%l) {name = "loss"} : (v_tensor<[], f64>) -> ()
  )";
  ExpectSlopes(body, {"x", "w", "s", "t", "v", "u"});
  Program program = Differentiate(body, "{parameters=[x,w,s,t,v,u]}");
  for (Operation* fetch : program.fetches()) {
    std::string name(fetch->attribute("name").cast<StrAttribute>().value());
    if (!name.ends_with("@GRAD")) continue;
    name.resize(name.size() - 5);
    for (Operation* feed : program.feeds()) {
      if (feed->attribute("name").cast<StrAttribute>().value() != name) continue;
      EXPECT_EQ(fetch->operand(0).type(), feed->result(0).type()) << name;
    }
  }
}

// What no window sees is off the padding, off the input, or all that there is but padding.
TEST_F(AppendBackward, OfFiltersOfStridedConvolutions) {
  struct StridedCase {
    const char *x, *w, *attributes, *y;
  };
  const StridedCase cases[] = {
      {"[2, 2, 10, 11]", "[3, 2, 3, 3]", "pads = [1, 1, 1, 1], strides = [2, 2]", "[2, 3, 5, 6]"},
      {"[2, 3, 12, 10]", "[2, 3, 1, 1]", "strides = [3, 2]", "[2, 2, 4, 5]"},
      {"[1, 2, 1, 18]", "[2, 2, 1, 1]", "pads = [3, 0, 0, 0], strides = [5, 1]", "[1, 2, 1, 18]"},
      {"[1, 1, 13, 12]", "[2, 1, 3, 2]", "dilations = [2, 3], strides = [2, 1]", "[1, 2, 5, 9]"}};
  for (const StridedCase& c : cases) {
    SCOPED_TRACE(c.x);
    const auto type = [](const char* shape) { return StrCat("v_tensor<", shape, ", f64>"); };
    const std::string x = type(c.x), w = type(c.w), y = type(c.y);
    ExpectSlopes(StrCat("%x = nn.feed() {name = \"x\"} : () -> ", x,
                        "\n%w = nn.feed() {name = \"w\"} : () -> ", w, "\n%c = nn.conv(%x, %w) {",
                        c.attributes, "} : (", x, ", ", w, ") -> ", y, "\n%q = nn.mul(%c, %c) : (",
                        y, ", ", y, ") -> ", y, "\n%l = nn.reduce_sum(%q) {keepdims = false} : (",
                        y, ") -> v_tensor<[], f64>\n",
                        "nn.fetch(%l) {name = \"loss\"} : (v_tensor<[], f64>) -> ()\n"),
                 {"x", "w"});
  }
}

// Embedding, layer norm, one head of attention, gelu, a residual connection.
TEST_F(AppendBackward, OfATransformerBlock) {
  ExpectSlopes(R"(
    %table = nn.feed() {name = "table"} : () -> v_tensor<[7, 4], f64>
    %wq = nn.feed() {name = "wq"} : () -> v_tensor<[4, 12], f64>
    %scale = nn.feed() {name = "scale"} : () -> v_tensor<[4], f64>
    %bias = nn.feed() {name = "bias"} : () -> v_tensor<[4], f64>
    %wo = nn.feed() {name = "wo"} : () -> v_tensor<[4, 4], f64>
    %ids = builtin.constant() {value = tensor<[2, 3], i64> [1, 5, 1, 0, 6, -1]} : () -> v_tensor<[2, 3], i64>
    %half = builtin.constant() {value = tensor<[], f64> [0.5]} : () -> v_tensor<[], f64>
    %e = nn.gather(%table, %ids) : (v_tensor<[7, 4], f64>, v_tensor<[2, 3], i64>) -> v_tensor<[2, 3, 4], f64>
    %n = nn.layer_normalization(%e, %scale, %bias) : (v_tensor<[2, 3, 4], f64>, v_tensor<[4], f64>, v_tensor<[4], f64>) -> v_tensor<[2, 3, 4], f64>
    %qkv = nn.matmul(%n, %wq) : (v_tensor<[2, 3, 4], f64>, v_tensor<[4, 12], f64>) -> v_tensor<[2, 3, 12], f64>
    %q, %k, %v = nn.split(%qkv) {axis = -1, num_outputs = 3} : (v_tensor<[2, 3, 12], f64>) -> (v_tensor<[2, 3, 4], f64>, v_tensor<[2, 3, 4], f64>, v_tensor<[2, 3, 4], f64>)
    %kt = nn.transpose(%k) {perm = [0, 2, 1]} : (v_tensor<[2, 3, 4], f64>) -> v_tensor<[2, 4, 3], f64>
    %dot = nn.matmul(%q, %kt) : (v_tensor<[2, 3, 4], f64>, v_tensor<[2, 4, 3], f64>) -> v_tensor<[2, 3, 3], f64>
    %scaled = nn.mul(%dot, %half) : (v_tensor<[2, 3, 3], f64>, v_tensor<[], f64>) -> v_tensor<[2, 3, 3], f64>
    %weights = nn.softmax(%scaled) : (v_tensor<[2, 3, 3], f64>) -> v_tensor<[2, 3, 3], f64>
    %a = nn.matmul(%weights, %v) : (v_tensor<[2, 3, 3], f64>, v_tensor<[2, 3, 4], f64>) -> v_tensor<[2, 3, 4], f64>
    %o = nn.matmul(%a, %wo) : (v_tensor<[2, 3, 4], f64>, v_tensor<[4, 4], f64>) -> v_tensor<[2, 3, 4], f64>
    %h = nn.gelu(%o) : (v_tensor<[2, 3, 4], f64>) -> v_tensor<[2, 3, 4], f64>
    %l = nn.add(%h, %e) : (v_tensor<[2, 3, 4], f64>, v_tensor<[2, 3, 4], f64>) -> v_tensor<[2, 3, 4], f64>
    nn.fetch(%l) {name = "loss"} : (v_tensor<[2, 3, 4], f64>) -> ()
  )",
               {"table", "wq", "scale", "bias", "wo"});
}

// One cell of an LSTM in plain operations, run over a sequence by a loop.
TEST_F(AppendBackward, OfARecurrentCell) {
  ExpectSlopes(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[5, 2, 3], f64>
    %w = nn.feed() {name = "w"} : () -> v_tensor<[5, 8], f64>
    %b = nn.feed() {name = "b"} : () -> v_tensor<[8], f64>
    %h0 = nn.feed() {name = "h0"} : () -> v_tensor<[2, 2], f64>
    %t = builtin.constant() {value = tensor<[], i64> [5]} : () -> v_tensor<[], i64>
    %l, %last = cf.while(%t, none, %h0, %h0) ({
    ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %h: v_tensor<[2, 2], f64>, %c: v_tensor<[2, 2], f64>):
      %xt = nn.gather(%x, %i) {axis = 0} : (v_tensor<[5, 2, 3], f64>, v_tensor<[], i64>) -> v_tensor<[2, 3], f64>
      %xh = nn.concat(%xt, %h) {axis = 1} : (v_tensor<[2, 3], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 5], f64>
      %g = nn.gemm(%xh, %w, %b) : (v_tensor<[2, 5], f64>, v_tensor<[5, 8], f64>, v_tensor<[8], f64>) -> v_tensor<[2, 8], f64>
      %g1, %g2, %g3, %g4 = nn.split(%g) {axis = 1, num_outputs = 4} : (v_tensor<[2, 8], f64>) -> (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>)
      %in = nn.sigmoid(%g1) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      %forget = nn.sigmoid(%g2) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      %out = nn.sigmoid(%g3) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      %new = nn.tanh(%g4) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      %kept = nn.mul(%forget, %c) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      %added = nn.mul(%in, %new) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      %c1 = nn.add(%kept, %added) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      %tc = nn.tanh(%c1) : (v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      %h1 = nn.mul(%out, %tc) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
      cf.yield(%go, %h1, %c1) : (v_tensor<[], bool>, v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> ()
    }) : (v_tensor<[], i64>, none, v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>)
  )" + kFetch,
               {"x", "w", "b", "h0"});
}

// A program that writes through a view has a gradient once it has value semantics.
TEST_F(AppendBackward, OfWritesThroughViews) {
  const std::string body = kFeeds + R"(
    %t = builtin.to_tensor(%x) : (v_tensor<[2, 3], f64>) -> tensor<[2, 3], f64>
    %part = nn.view_slice(%t) {starts = [1], ends = [3], axes = [1]} : (tensor<[2, 3], f64>) -> tensor<[2, 2], f64>
    %row = nn.view_select(%w) {axis = 0, index = 1} : (v_tensor<[3, 2], f64>) -> v_tensor<[2], f64>
    %s = nn.mul_(%part, %row) : (tensor<[2, 2], f64>, v_tensor<[2], f64>) -> tensor<[2, 2], f64>
    %first = nn.view_select(%t) {axis = 1, index = 0} : (tensor<[2, 3], f64>) -> tensor<[2], f64>
    %e = nn.exp_(%first) : (tensor<[2], f64>) -> tensor<[2], f64>
    %v = builtin.to_vtensor(%t) : (tensor<[2, 3], f64>) -> v_tensor<[2, 3], f64>
    %l = nn.matmul(%v, %w) : (v_tensor<[2, 3], f64>, v_tensor<[3, 2], f64>) -> v_tensor<[2, 2], f64>
  )" + kFetch;
  Program values = Parse(body);
  PassManager manager;
  manager.Add("maximize_value_semantics");
  manager.Run(values);
  std::string text = Print(values);
  const size_t open = text.find('{') + 1;
  ExpectSlopes(text.substr(open, text.rfind('}') - open), {"x"});
}

// Steps against the gradient fit a product of two matrices to a third.
TEST_F(AppendBackward, StepsAgainstTheGradientLowerTheLoss) {
  const std::string body = kProduct + R"(
    %target = builtin.constant() {value = tensor<[2, 2], f64> [1.0, -2.0, 0.5, 3.0]} : () -> v_tensor<[2, 2], f64>
    %d = nn.sub(%m, %target) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
    %l = nn.mul(%d, %d) : (v_tensor<[2, 2], f64>, v_tensor<[2, 2], f64>) -> v_tensor<[2, 2], f64>
  )" + kFetch;
  Program program = Differentiate(body, "{parameters=[x,w]}");
  Interpreter interpreter(program);
  NamedValues inputs = Inputs(program, {});
  double loss = 0;
  for (int step = 0; step < 500; ++step) {
    const NamedValues outputs = interpreter.Run(inputs);
    loss = Sum(*Find(outputs, "loss"));
    for (auto& [name, value] : inputs) {
      const std::vector<double> slope = ToDoubles(Find(outputs, name + "@GRAD")->tensor());
      const auto data = value.mutable_tensor().mutable_data<double>();
      for (size_t k = 0; k < slope.size(); ++k) data[k] -= 0.05 * slope[k];
    }
  }
  EXPECT_LT(loss, 1e-6);
}

// ---- stop_gradient ----

TEST_F(AppendBackward, StopGradientIsInferredPerResult) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[4], f32>
    %k = builtin.constant() {value = tensor<[4], f32> [1.0, 2.0, 3.0, 4.0]} : () -> v_tensor<[4], f32>
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[4], f32>
    %a = nn.add(%x, %k) : (v_tensor<[4], f32>, v_tensor<[4], f32>) -> v_tensor<[4], f32>
    %b = nn.add(%a, %w) : (v_tensor<[4], f32>, v_tensor<[4], f32>) -> v_tensor<[4], f32>
    %p, %q = nn.split(%b) {num_outputs = 2} : (v_tensor<[4], f32>) -> (v_tensor<[2], f32>, v_tensor<[2], f32>)
    nn.fetch(%q) {name = "y"} : (v_tensor<[2], f32>) -> ()
  )");
  PassManager manager;
  manager.Add("infer_stop_gradient,infer_stop_gradient");
  manager.Run(program);
  std::vector<std::string> marks;
  for (Operation& op : *program.block()) {
    for (size_t i = 0; i < op.num_results(); ++i) {
      const auto stop = op.result(i).property("stop_gradient").cast<BoolAttribute>();
      marks.push_back(StrCat(op.name(), i, stop.value() ? " stops" : ""));
    }
  }
  EXPECT_EQ(marks, (std::vector<std::string>{"nn.feed0 stops", "builtin.constant0 stops",
                                             "builtin.get_parameter0", "nn.add0 stops", "nn.add0",
                                             "nn.split0", "nn.split1"}));
  EXPECT_NE(Print(program).find("stop_gradient = [false, false]"), std::string::npos);
}

}  // namespace
}  // namespace lathe::testing
