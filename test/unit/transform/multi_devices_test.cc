#include "lathe/transform/multi_devices.h"

#include "lathe/pass/pass_manager.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

using testing::ValuesOf;

class MultiDevicesTest : public testing::ProgramTest {
 protected:
  static void Apply(Program& p, std::string_view pass) {
    PassRegistry::Global().Make(pass)->Apply(p);
  }
  /// `fn` sets attributes and options.
  template <class F>
  static void Replicate(Program& p, F&& fn) {
    const std::unique_ptr<Pass> pass = PassRegistry::Global().Make("multi_devices_pass");
    fn(*pass);
    pass->Apply(p);
  }
  static void Replicate(Program& p, int places, std::string_view strategy) {
    Replicate(p, [&](Pass& pass) {
      pass.SetOption("places", StrCat(places));
      pass.SetOption("strategy", strategy);
      pass.SetOption("loss_var_name", "loss");
    });
  }
  static std::vector<const Operation*> Collectives(const Program& p) {
    std::vector<const Operation*> found;
    for (const Operation& op : *p.block()) {
      if (IsCollective(&op)) found.push_back(&op);
    }
    return found;
  }

  /// Linear regression with momentum on w and without on b, by hand-written gradients.
  Program Trainer(int batch) {
    const std::string rows = StrCat("v_tensor<[", batch, ", 1], f32>");
    const std::string in = StrCat("v_tensor<[", batch, ", 2], f32>");
    const std::string w = "v_tensor<[2, 1], f32>";
    const std::string b = "v_tensor<[1], f32>";
    const std::string s = "v_tensor<[], f32>";
    std::string factor;
    AppendDouble(factor, 2.0 / batch);
    Program p = Parse(StrCat(
        "%x = nn.feed() {name = \"x\"} : () -> ", in, "\n%t = nn.feed() {name = \"t\"} : () -> ",
        rows, "\n%w = builtin.get_parameter() {name = \"w\"} : () -> ", w,
        "\n%b = builtin.get_parameter() {name = \"b\"} : () -> ", b,
        "\n%v = builtin.get_parameter() {name = \"v\"} : () -> ", w,
        "\n%y = nn.gemm(%x, %w, %b) : (", in, ", ", w, ", ", b, ") -> ", rows,
        "\n%e = nn.sub(%y, %t) : (", rows, ", ", rows, ") -> ", rows, "\n%q = nn.mul(%e, %e) : (",
        rows, ", ", rows, ") -> ", rows, "\n%l = nn.reduce_mean(%q) {keepdims = false} : (", rows,
        ") -> ", s, "\nnn.fetch(%l) {name = \"loss\"} : (", s, ") -> ()",
        "\n%d = builtin.constant() {value = tensor<[], f32> [", factor,
        "], grad_of = [\"loss\"]} : () -> ", s, "\n%g = nn.mul(%e, %d) : (", rows, ", ", s, ") -> ",
        rows, "\n%gw = nn.gemm(%x, %g) {transA = true, grad_of = [\"w\"]} : (", in, ", ", rows,
        ") -> ", w, "\n%gb = nn.reduce_sum(%g) {keepdims = false, grad_of = [\"bias\"]} : (", rows,
        ") -> ", s, "\n%r = builtin.constant() {value = tensor<[], f32> [0.1]} : () -> ", s,
        "\n%v1 = nn.add(%v, %gw) : (", w, ", ", w, ") -> ", w,
        "\nbuiltin.set_parameter(%v1) {name = \"v\"} : (", w, ") -> ()",
        "\n%u = nn.mul(%v1, %r) : (", w, ", ", s, ") -> ", w, "\n%w1 = nn.sub(%w, %u) : (", w, ", ",
        w, ") -> ", w, "\nbuiltin.set_parameter(%w1) {name = \"w\"} : (", w, ") -> ()",
        "\n%z = nn.mul(%gb, %r) : (", s, ", ", s, ") -> ", s, "\n%b1 = nn.sub(%b, %z) : (", b, ", ",
        s, ") -> ", b, "\nbuiltin.set_parameter(%b1) {name = \"b\"} : (", b, ") -> ()"));
    for (Operation& op : *p.block()) {
      if (op.num_results() == 1 &&
          op.result(0).property(kGradOf) == StrAttribute::Get(context_, "bias")) {
        op.result(0).set_property(kGradOf, StrAttribute::Get(context_, "b"));
      }
    }
    const auto add = [&](const char* name, Shape shape, std::vector<float> values) {
      p.parameters().Insert(StrAttribute::Get(context_, name),
                            {Tensor::Of<float>(std::move(shape), values), false});
    };
    add("w", {2, 1}, {0.5F, -0.25F});
    add("b", {1}, {0.125F});
    add("v", {2, 1}, {0, 0});
    p.RefreshMutability();
    VerifyOrThrow(p);
    return p;
  }

  /// Rows [first, first + count) of a fixed data set, other ones at each step.
  static NamedValues Batch(int step, int first, int count, const std::string& suffix) {
    Tensor x(ElementType::kF32, {count, 2});
    Tensor t(ElementType::kF32, {count, 1});
    for (int i = 0; i < count; ++i) {
      const auto row = static_cast<float>((first + i) * 7 % 5 + step) / 4;
      x.mutable_data<float>()[static_cast<size_t>(2 * i)] = row;
      x.mutable_data<float>()[static_cast<size_t>(2 * i + 1)] = 1 - row * row / 2;
      t.mutable_data<float>()[static_cast<size_t>(i)] = 3 * row - 1;
    }
    return {{"x" + suffix, x}, {"t" + suffix, t}};
  }
  static std::string Suffix(int place) { return place == 0 ? "" : StrCat("@", place); }
};

// The same numbers as one device computes on the whole batch, on every place.
TEST_F(MultiDevicesTest, ReplicasLearnWhatOneDeviceLearns) {
  constexpr int kBatch = 8;
  for (const int places : {1, 2, 4}) {
    for (const char* strategy : {"all_reduce", "reduce"}) {
      SCOPED_TRACE(StrCat(strategy, " on ", places));
      Program one = Trainer(kBatch);
      Program many = Trainer(kBatch / places);
      Replicate(many, places, strategy);
      Apply(many, "multi_devices_check_pass");
      Interpreter run_one(one);
      Interpreter run_many(many);
      for (int step = 0; step < 4; ++step) {
        const NamedValues whole = run_one.Run(Batch(step, 0, kBatch, ""));
        NamedValues inputs;
        for (int p = 0; p < places; ++p) {
          for (auto& i : Batch(step, p * kBatch / places, kBatch / places, Suffix(p))) {
            inputs.push_back(i);
          }
        }
        const NamedValues parts = run_many.Run(inputs);
        double mean = 0;
        for (int p = 0; p < places; ++p) {
          mean += ValuesOf<float>(*Find(parts, "loss" + Suffix(p)))[0] / places;
        }
        EXPECT_NEAR(mean, ValuesOf<float>(*Find(whole, "loss"))[0], 1e-4);
      }
      for (const char* name : {"w", "b"}) {
        for (int p = 0; p < places; ++p) {
          const Variable* copy = many.parameters().Find(name + Suffix(p));
          ASSERT_NE(copy, nullptr);
          EXPECT_TRUE(AllClose(copy->data, one.parameters().Find(name)->data, 1e-4, 1e-5));
          EXPECT_TRUE(copy->is_mutable);
        }
      }
    }
  }
}

TEST_F(MultiDevicesTest, AllReduceJoinsEachGradientOnce) {
  Program p = Trainer(4);
  Replicate(p, 3, "all_reduce");
  const auto collectives = Collectives(p);
  ASSERT_EQ(collectives.size(), 2u);
  for (const Operation* c : collectives) {
    EXPECT_EQ(c->name(), "dist.all_reduce");
    EXPECT_EQ(c->num_operands(), 3u);
    EXPECT_EQ(c->num_results(), 3u);
  }
  for (const Operation& op : *p.block()) {
    if (!IsCollective(&op) && op.name() != "builtin.token_of" && op.name() != "builtin.depend") {
      EXPECT_TRUE(op.attribute(kPlaceAttr)) << op.name();
    }
  }
}

// w has two elements and goes to place 0, so b goes to place 1; both come back by broadcast.
TEST_F(MultiDevicesTest, ReduceUpdatesEachParameterOnOnePlace) {
  Program p = Trainer(4);
  Replicate(p, 2, "reduce");
  std::vector<std::string> seen;
  for (const Operation* c : Collectives(p)) {
    seen.push_back(StrCat(c->name(), " ", c->attribute("root").ToString()));
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"dist.reduce 0", "dist.reduce 1", "dist.broadcast 0",
                                            "dist.broadcast 1"}));
  int64_t writes_of_v = 0;
  for (const Operation& op : *p.block()) {
    if (op.name() != "builtin.set_parameter") continue;
    writes_of_v += op.attribute("name").cast<StrAttribute>().value().starts_with("v") ? 1 : 0;
  }
  EXPECT_EQ(writes_of_v, 1) << "a state stays where its parameter is updated";
}

TEST_F(MultiDevicesTest, PassAttributesSayWhatOptionsSay) {
  Program p = Trainer(4);
  Replicate(p, [](Pass& pass) {
    pass.Set("places", std::vector<Place>{{"cpu", 0}, {"cpu", 1}});
    pass.Set<std::string>("loss_var_name", "loss");
    pass.Set("strategy", MultiDevicesStrategy{MultiDevicesStrategy::Gradients::kAllReduce,
                                              MultiDevicesStrategy::LossScale::kOne});
    pass.Set<int64_t>("nranks", 2);
  });
  EXPECT_EQ(Collectives(p)[0]->attribute("nranks").ToString(), "2");
  Apply(p, "multi_devices_check_pass");
  NamedValues inputs = Batch(0, 0, 4, "");
  for (auto& i : Batch(0, 0, 4, "@1")) inputs.push_back(i);
  EXPECT_EQ(ErrorOf([&] { Interpreter(p).Run(inputs); }).id(), "run/ranks");
}

TEST_F(MultiDevicesTest, MisuseIsSaidClearly) {
  Program p = Trainer(4);
  const auto error = [&](auto&& fn) { return ErrorOf([&] { Replicate(p, fn); }); };
  EXPECT_EQ(error([](Pass&) {}).message(), "places not set");
  const Error loss = error([](Pass& pass) {
    pass.SetOption("places", "2");
    pass.SetOption("loss_var_name", "los");
  });
  EXPECT_EQ(loss.id(), "multi/loss");
  EXPECT_NE(loss.Render().find("did you mean 'loss'?"), std::string::npos);
  EXPECT_EQ(error([](Pass& pass) {
              pass.SetOption("places", "2");
              pass.SetOption("strategy", "gossip");
            }).id(),
            "pass/option");
  EXPECT_TRUE(StructurallyEqual(p.module(), Trainer(4).module()));
}

// A norm over all gradients lies on no one place.
TEST_F(MultiDevicesTest, ReduceRefusesUpdatesThatShareGradients) {
  const char* body = R"(
    %a = builtin.get_parameter() {name = "a"} : () -> v_tensor<[2], f32>
    %b = builtin.get_parameter() {name = "b"} : () -> v_tensor<[2], f32>
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
    %ga = nn.exp(%x) {grad_of = ["a"]} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %gb = nn.neg(%x) {grad_of = ["b"]} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %n = nn.add(%ga, %gb) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %c = nn.sub(%a, %n) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    builtin.set_parameter(%c) {name = "a"} : (v_tensor<[2], f32>) -> ())";
  const auto run = [&](const char* strategy) {
    Program p = Parse(body);
    Replicate(p, [&](Pass& pass) {
      pass.SetOption("places", "2");
      pass.SetOption("strategy", strategy);
      pass.SetOption("loss_scale", "sum");
    });
  };
  EXPECT_EQ(ErrorOf([&] { run("reduce"); }).id(), "multi/shared-update");
  EXPECT_EQ(ErrorOf([&] { run("all_reduce"); }).id(), "");
}

TEST_F(MultiDevicesTest, PlacesShareFunctions) {
  Program p = Parse(R"(
    builtin.func() {name = "f"} ({
      ^(%a: v_tensor<[2], f32>):
      %e = nn.exp(%a) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
      builtin.return(%e) : (v_tensor<[2], f32>) -> ()
    }) : () -> ()
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
    %z = builtin.call(%x) {callee = "f"} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    nn.fetch(%z) {name = "o"} : (v_tensor<[2], f32>) -> ())");
  Replicate(p, [](Pass& pass) { pass.SetOption("places", "2"); });
  Apply(p, "multi_devices_check_pass");
  const NamedValues out = Interpreter(p).Run(
      {{"x", testing::Vec<float>({0, 0})}, {"x@1", testing::Vec<float>({1, 0})}});
  EXPECT_EQ(ValuesOf<float>(*Find(out, "o"))[0], 1.0F);
  EXPECT_GT(ValuesOf<float>(*Find(out, "o@1"))[0], 2.5F);
}

// ---- hazards and order ----

// a is read, then written: the write waits for the reader. b is read by nothing.
TEST_F(MultiDevicesTest, AWriteWaitsForTheReadersOfTheOldValue) {
  Program p = Parse(R"(
    %a = builtin.get_parameter() {name = "a"} : () -> v_tensor<[2], f32>
    %s = nn.exp(%a) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %c = nn.feed() {name = "c"} : () -> v_tensor<[2], f32>
    %d = nn.neg(%c) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    builtin.set_parameter(%d) {name = "a"} : (v_tensor<[2], f32>) -> ()
    builtin.set_parameter(%c) {name = "b"} : (v_tensor<[2], f32>) -> ()
    nn.fetch(%s) {name = "s"} : (v_tensor<[2], f32>) -> ())");
  Graph graph(p);
  EXPECT_EQ(ResolveHazards(graph), 1);
  VerifyOrThrow(p);
  std::vector<Node> tokens;
  for (const Node& n : graph.Nodes()) {
    if (n.IsCtrlVar()) tokens.push_back(n);
  }
  ASSERT_EQ(tokens.size(), 1u);
  Operation* depend = tokens[0].outputs()[0].op();
  EXPECT_EQ(depend->result(0).uses().begin().operator*().owner()->attribute("name").ToString(),
            "\"a\"");
  EXPECT_EQ(tokens[0].inputs()[0].op()->operand(0).defining_op()->name(), "nn.exp");
  EXPECT_EQ(ResolveHazards(graph), 0) << "it waits already";
}

// The write depends on the reader, or comes first: nothing has to be said.
TEST_F(MultiDevicesTest, WritesThatAreOrderedNeedNoToken) {
  Program p = Parse(R"(
    %c = nn.feed() {name = "c"} : () -> v_tensor<[2], f32>
    builtin.set_parameter(%c) {name = "a"} : (v_tensor<[2], f32>) -> ()
    %a = builtin.get_parameter() {name = "a"} : () -> v_tensor<[2], f32>
    %s = nn.exp(%a) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    builtin.set_parameter(%s) {name = "a"} : (v_tensor<[2], f32>) -> ())");
  Graph graph(p);
  EXPECT_EQ(ResolveHazards(graph), 0);
}

TEST_F(MultiDevicesTest, SequentialExecutionLeavesOneOrder) {
  Program p = Trainer(2);
  std::vector<const Operation*> before;
  for (const Operation& op : *p.block()) {
    if (op.num_operands() > 0 && op.num_results() > 0) before.push_back(&op);
  }
  Apply(p, "sequential_execution");
  Graph graph(p);
  std::vector<OwningOp> ops = graph.ReleaseNodes();
  while (!ops.empty()) {  // put in the other way round, the tokens bring it back
    p.block()->PushBack(ops.back().release());
    ops.pop_back();
  }
  graph.SortTopologically();
  std::vector<const Operation*> after;
  for (const Operation& op : *p.block()) {
    const bool is_token = op.name() == "builtin.token_of" || op.name() == "builtin.depend";
    if (op.num_operands() > 0 && op.num_results() > 0 && !is_token) after.push_back(&op);
  }
  EXPECT_EQ(after, before);
}

// ---- the check ----

constexpr const char* kTwoCollectives = R"(
  %0 = nn.feed() {name = "a"} : () -> v_tensor<[2], f32>
  %1 = nn.feed() {name = "b"} : () -> v_tensor<[2], f32>
  %2, %3 = dist.all_reduce(%0, %1) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> (v_tensor<[2], f32>, v_tensor<[2], f32>) loc("first")
  %4, %5 = dist.all_reduce(%1, %0) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> (v_tensor<[2], f32>, v_tensor<[2], f32>) loc("second")
  nn.fetch(%2) {name = "y"} : (v_tensor<[2], f32>) -> ()
  nn.fetch(%5) {name = "z"} : (v_tensor<[2], f32>) -> ())";

TEST_F(MultiDevicesTest, CollectivesInNoOrderAreRefused) {
  Program p = Parse(kTwoCollectives);
  const Error error = ErrorOf([&] { Apply(p, "multi_devices_check_pass"); });
  EXPECT_EQ(error.id(), "multi/collective-order");
  EXPECT_NE(error.message().find("'first'"), std::string::npos);
  EXPECT_NE(error.message().find("'second'"), std::string::npos);
  Apply(p, "all_reduce_deps");
  Apply(p, "multi_devices_check_pass");
}

TEST_F(MultiDevicesTest, AnOpReadsItsOwnPlace) {
  Program p = Parse(R"(
    %0 = nn.feed() {name = "a", place = 0} : () -> v_tensor<[2], f32>
    %1 = nn.exp(%0) {place = 1} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    nn.fetch(%1) {name = "y", place = 1} : (v_tensor<[2], f32>) -> ())");
  EXPECT_EQ(ErrorOf([&] { Apply(p, "multi_devices_check_pass"); }).id(), "multi/place");
}

TEST_F(MultiDevicesTest, WhatCanNeverBecomeReadyIsNamed) {
  Program p = Parse(R"(
    %0 = nn.feed() {name = "a"} : () -> v_tensor<[2], f32>
    %1 = nn.exp(%0) : (v_tensor<[2], f32>) -> v_tensor<[2], f32> loc("e")
    %2 = nn.neg(%1) : (v_tensor<[2], f32>) -> v_tensor<[2], f32> loc("n")
    nn.fetch(%2) {name = "y"} : (v_tensor<[2], f32>) -> ())");
  Operation* exp = p.block()->front()->next();
  exp->set_operand(0, exp->next()->result(0));
  const Error error = ErrorOf([&] { Apply(p, "multi_devices_check_pass"); });
  EXPECT_EQ(error.id(), "multi/stuck");
  ASSERT_EQ(error.notes().size(), 2u);
  EXPECT_NE(error.notes()[0].text.find("'e'"), std::string::npos);
  exp->set_operand(0, p.block()->front()->result(0));
  Apply(p, "multi_devices_check_pass");
}

// What an all-reduce gives is the same everywhere; what was fed, or is left of the gradients, is
// not.
TEST_F(MultiDevicesTest, ACollectiveMayNotDependOnWhatRanksDecideApart) {
  const auto id = [&](const char* condition, const char* collective) {
    Program p = Parse(StrCat(R"(
      %a = nn.feed() {name = "a"} : () -> v_tensor<[2], f32>
      %f = nn.feed() {name = "f"} : () -> v_tensor<[], f32>
      %z = builtin.constant() {value = tensor<[], f32> [0.0]} : () -> v_tensor<[], f32>
      %s = dist.all_reduce(%f) : (v_tensor<[], f32>) -> v_tensor<[], f32>
      %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[], f32>
      %c = nn.greater()",
                             condition,
                             R"(, %z) : (v_tensor<[], f32>, v_tensor<[], f32>) -> v_tensor<[], bool>
      %y = cf.if(%c) ({
        %r = )",
                             collective, R"((%a) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
        cf.yield(%r) : (v_tensor<[2], f32>) -> ()
      }, {
        cf.yield(%a) : (v_tensor<[2], f32>) -> ()
      }) : (v_tensor<[], bool>) -> v_tensor<[2], f32>
      nn.fetch(%y) {name = "y"} : (v_tensor<[2], f32>) -> ())"));
    Apply(p, "all_reduce_deps");
    return ErrorOf([&] { Apply(p, "multi_devices_check_pass"); }).id();
  };
  EXPECT_EQ(id("%f", "dist.all_reduce"), "multi/conditional-collective");
  EXPECT_EQ(id("%f", "nn.exp"), "");
  EXPECT_EQ(id("%s", "dist.all_reduce"), "");
  EXPECT_EQ(id("%w", "dist.all_reduce"), "");
}

// The condition is shared in the first round, and what each rank has fed afterwards.
TEST_F(MultiDevicesTest, ALoopOfCollectivesGoesOnByWhatRanksShare) {
  const auto id = [&](const char* next) {
    Program p =
        Parse(StrCat(R"(
      %f = nn.feed() {name = "f"} : () -> v_tensor<[], f32>
      %n = builtin.constant() {value = tensor<[], i64> [3]} : () -> v_tensor<[], i64>
      %t = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
      %y = cf.while(%n, %t, %f) ({
        ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>, %x: v_tensor<[], f32>):
        %r = dist.all_reduce(%x) : (v_tensor<[], f32>) -> v_tensor<[], f32>
        %l = nn.less()",
                     next, R"(, %f) : (v_tensor<[], f32>, v_tensor<[], f32>) -> v_tensor<[], bool>
        %k = nn.less(%r, %r) : (v_tensor<[], f32>, v_tensor<[], f32>) -> v_tensor<[], bool>
        cf.yield()",
                     std::string_view(next) == "%r" ? "%k" : "%l",
                     R"(, %x) : (v_tensor<[], bool>, v_tensor<[], f32>) -> ()
      }) : (v_tensor<[], i64>, v_tensor<[], bool>, v_tensor<[], f32>) -> v_tensor<[], f32>
      nn.fetch(%y) {name = "y"} : (v_tensor<[], f32>) -> ())"));
    return ErrorOf([&] { Apply(p, "multi_devices_check_pass"); }).id();
  };
  EXPECT_EQ(id("%x"), "multi/conditional-collective");
  EXPECT_EQ(id("%r"), "");
}

TEST_F(MultiDevicesTest, TrainingApartIsAnError) {
  const auto check = [&](Program& p, const char* nranks) {
    return ErrorOf([&] {
      const auto pass = PassRegistry::Global().Make("multi_devices_check_pass");
      pass->SetOption("nranks", nranks);
      pass->Apply(p);
    });
  };
  Program p = Trainer(2);
  EXPECT_EQ(check(p, "1").id(), "");
  const Error error = check(p, "2");
  EXPECT_EQ(error.id(), "multi/not-reduced");
  EXPECT_NE(error.message().find("'w'"), std::string::npos);
  // Replicas whose gradients nothing marks: no collective joins them.
  Program unmarked = Trainer(2);
  for (Operation& op : *unmarked.block()) {
    for (size_t i = 0; i < op.num_results(); ++i) op.result(i).set_property(kGradOf, Attribute());
  }
  Replicate(unmarked, [](Pass& pass) { pass.SetOption("places", "2"); });
  EXPECT_TRUE(Collectives(unmarked).empty());
  EXPECT_EQ(check(unmarked, "1").id(), "multi/not-reduced");
}

TEST_F(MultiDevicesTest, TheLossIsFoundByItsMark) {
  Program named = Trainer(4), found = Trainer(4);
  Replicate(named, 2, "all_reduce");
  Replicate(found, [](Pass& pass) { pass.SetOption("places", "2"); });
  EXPECT_TRUE(StructurallyEqual(named.module(), found.module()));
  EXPECT_EQ(Collectives(found).size(), 2u);
}

TEST_F(MultiDevicesTest, CollectivesAreChecked) {
  const auto id = [&](const char* op) {
    return ErrorOf([&] {
             Program p =
                 Parse(StrCat("%0 = nn.feed() {name = \"a\"} : () -> v_tensor<[2], f32>\n", op));
             VerifyOrThrow(p);
           })
        .id();
  };
  EXPECT_EQ(id("%1 = dist.all_reduce(%0, %0) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> "
               "v_tensor<[2], f32>"),
            "verify/collective");
  EXPECT_EQ(id("%1 = dist.reduce(%0) {root = 1} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>"),
            "verify/collective");
  EXPECT_EQ(id("%1 = dist.broadcast(%0) {root = 1} : (v_tensor<[2], f32>) -> v_tensor<[2], f32>"),
            "verify/collective");
}

}  // namespace
}  // namespace lathe
