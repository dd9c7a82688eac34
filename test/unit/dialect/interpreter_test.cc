#include "lathe/dialect/interpreter.h"

#include "lathe/ir/builder.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

constexpr std::string_view kAdd = R"(
  %a = nn.feed() {name = "image"} : () -> v_tensor<[N, 2], f32>
  %b = nn.feed() {name = "bias"} : () -> v_tensor<[N], f32>
  %m = builtin.constant() {value = tensor<[2], f32> [10.0, 20.0]} : () -> v_tensor<[2], f32>
  %s = nn.add(%a, %m) : (v_tensor<[N, 2], f32>, v_tensor<[2], f32>) -> v_tensor<[N, 2], f32>
  nn.fetch(%s) {name = "sum"} : (v_tensor<[N, 2], f32>) -> ()
  nn.fetch(%b) {name = "same"} : (v_tensor<[N], f32>) -> ()
)";

RtValue Image() { return Tensor::Of<float>({2, 2}, {1, 2, 3, 4}); }

class InterpreterTest : public ProgramTest {
 protected:
  Error InputError(const NamedValues& inputs) {
    return ErrorOf([&] { Run(kAdd, inputs); });
  }
};

TEST_F(InterpreterTest, RunsInProgramOrder) {
  const NamedValues out = Run(kAdd, {{"bias", Vec<float>({5, 6})}, {"image", Image()}});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].first, "sum");
  EXPECT_EQ(ValuesOf<float>(out[0].second), (std::vector<float>{11, 22, 13, 24}));
  EXPECT_EQ(ValuesOf<float>(*Find(out, "same")), (std::vector<float>{5, 6}));
}

TEST_F(InterpreterTest, WrongName) {
  const Error e = InputError({{"imge", Image()}, {"bias", Vec<float>({5, 6})}});
  EXPECT_EQ(e.id(), "run/input-name");
  EXPECT_EQ(e.message(), "the program has no input 'imge'");
  ASSERT_FALSE(e.hints().empty());
  EXPECT_NE(e.hints()[0].find("'image'"), std::string::npos);
  ASSERT_FALSE(e.notes().empty());
  EXPECT_NE(e.notes()[0].text.find("bias : v_tensor<[N], f32>"), std::string::npos);
}

TEST_F(InterpreterTest, MissingAndRepeatedNames) {
  const Error e = InputError({{"image", Image()}});
  EXPECT_EQ(e.id(), "run/input-missing");
  EXPECT_EQ(e.message(), "input 'bias' is missing; expected v_tensor<[N], f32>");
  EXPECT_EQ(InputError({{"image", Image()}, {"image", Image()}}).id(), "run/input-twice");
}

TEST_F(InterpreterTest, WrongTypes) {
  const Error e = InputError({{"image", Image()}, {"bias", Vec<double>({5, 6})}});
  EXPECT_EQ(e.id(), "run/input-type");
  EXPECT_EQ(e.message(), "input 'bias' is f64[2]; expected v_tensor<[N], f32>");
  EXPECT_EQ(InputError({{"image", Image()}, {"bias", RtValue::OfList({})}}).id(), "run/input-type");
}

TEST_F(InterpreterTest, WrongShapes) {
  Error e = InputError({{"image", Vec<float>({5})}, {"bias", Vec<float>({5, 6})}});
  EXPECT_EQ(e.id(), "run/input-shape");
  EXPECT_EQ(e.message(), "input 'image' has shape [1]; expected [N,2]");
  e = InputError({{"image", Image()}, {"bias", Vec<float>({5, 6, 7})}});
  EXPECT_EQ(e.id(), "run/input-shape");
  EXPECT_EQ(e.message(), "dim N is 2 by input 'image' and 3 by input 'bias'");
}

TEST_F(InterpreterTest, ExpressionsOfSymbols) {
  constexpr std::string_view kBody = R"(
    %a = nn.feed() {name = "a"} : () -> v_tensor<[2*N], f32>
    %b = nn.feed() {name = "b"} : () -> v_tensor<[N], f32>
    nn.fetch(%a) {name = "a"} : (v_tensor<[2*N], f32>) -> ()
  )";
  EXPECT_EQ(Run(kBody, {{"a", Vec<float>({1, 2})}, {"b", Vec<float>({1})}}).size(), 1u);
  const Error e =
      ErrorOf([&] { Run(kBody, {{"a", Vec<float>({1, 2, 3})}, {"b", Vec<float>({1})}}); });
  EXPECT_EQ(e.id(), "run/input-shape");
  EXPECT_EQ(e.message(), "dim 2*N of input 'a' is 3; expected 2");
}

// No tensor has an extent that is broadcast(2, 3).
TEST_F(InterpreterTest, ExpressionsWithoutValue) {
  constexpr std::string_view kBody = R"(
    %a = nn.feed() {name = "a"} : () -> v_tensor<[N], f32>
    %b = nn.feed() {name = "b"} : () -> v_tensor<[M], f32>
    %c = nn.feed() {name = "c"} : () -> v_tensor<[broadcast(N, M)], f32>
    nn.fetch(%c) {name = "c"} : (v_tensor<[broadcast(N, M)], f32>) -> ()
  )";
  const auto run = [&](const RtValue& b) {
    return Run(kBody, {{"a", Vec<float>({1, 2})}, {"b", b}, {"c", Vec<float>({1, 2})}});
  };
  EXPECT_EQ(run(Vec<float>({1})).size(), 1u);
  const Error e = ErrorOf([&] { run(Vec<float>({1, 2, 3})); });
  EXPECT_EQ(e.id(), "run/input-shape");
  EXPECT_NE(e.message().find(" of input 'c' has no value"), std::string::npos) << e.message();
  ASSERT_EQ(e.notes().size(), 2u);
}

TEST_F(InterpreterTest, OpWithoutEval) {
  context_.allow_unregistered_ops(true);
  Program program = Parse("%0 = my.op() : () -> v_tensor<[], f32> loc(\"here\")");
  const Error e = ErrorOf([&] { Interpreter(program, {.verify = false}); });
  EXPECT_EQ(e.id(), "run/no-eval");
  EXPECT_EQ(e.where(), "'here'");
}

TEST_F(InterpreterTest, ResultOfAnotherTypeThanDeclared) {
  const Error e = ErrorOf([&] {
    Run(R"(%a = nn.feed() {name = "a"} : () -> v_tensor<[?], f32>
           %b = nn.identity(%a) : (v_tensor<[?], f32>) -> v_tensor<[3], f32>
           nn.fetch(%b) {name = "b"} : (v_tensor<[3], f32>) -> ())",
        {{"a", Vec<float>({1, 2})}}, {.verify = false});
  });
  EXPECT_EQ(e.id(), "run/result-type");
  EXPECT_NE(e.message().find("f32[2] but was declared v_tensor<[3], f32>"), std::string::npos);
}

// ---- what is kept while running ----

std::string Chain(int n) {
  std::string body = "%v0 = nn.feed() {name = \"x\"} : () -> v_tensor<[1000], f32>\n";
  for (int i = 1; i <= n; ++i) {
    body += StrCat("%v", i, " = nn.neg(%v", i - 1,
                   ") : (v_tensor<[1000], f32>) -> v_tensor<[1000], f32>\n");
  }
  return body + StrCat("nn.fetch(%v", n, ") {name = \"y\"} : (v_tensor<[1000], f32>) -> ()");
}

TEST_F(InterpreterTest, ValuesAreDroppedAfterTheirLastUse) {
  const Tensor x(ElementType::kF32, {1000});
  EXPECT_EQ(Run(Chain(100), {{"x", x}}, {.max_bytes = 3 * 4064}).size(), 1u);
  const Error e = ErrorOf([&] { Run(Chain(100), {{"x", x}}, {.max_bytes = 6000}); });
  EXPECT_EQ(e.id(), "limit/memory");
}

// Also those that an operation would collect before it makes a tensor of them.
TEST_F(InterpreterTest, HugeResultsOfKnownShapeAreRefusedBeforeTheyAreMade) {
  const Error e = ErrorOf([&] {
    Run(R"(%a = nn.feed() {name = "a"} : () -> v_tensor<[3, 3], f32>
           %p = builtin.constant() {value = tensor<[4], i64> [0, 1099511627776, 0, 0]} : () -> v_tensor<[4], i64>
           %b = nn.pad(%a, %p) {mode = "edge"} : (v_tensor<[3, 3], f32>, v_tensor<[4], i64>) -> v_tensor<[3, 1099511627779], f32>
           nn.fetch(%b) {name = "b"} : (v_tensor<[3, 1099511627779], f32>) -> ())",
        {{"a", Tensor(ElementType::kF32, {3, 3})}}, {.max_bytes = 1 << 30});
  });
  EXPECT_EQ(e.id(), "limit/memory");
  EXPECT_NE(e.message().find("takes"), std::string::npos) << e.message();
}

TEST_F(InterpreterTest, HugeResultsAreRefusedBeforeTheyAreMade) {
  const Error e = ErrorOf([&] {
    Run(R"(%a = nn.feed() {name = "a"} : () -> v_tensor<[], f32>
           %s = nn.feed() {name = "s"} : () -> v_tensor<[2], i64>
           %b = nn.expand(%a, %s) : (v_tensor<[], f32>, v_tensor<[2], i64>) -> v_tensor<[?, ?], f32>
           nn.fetch(%b) {name = "b"} : (v_tensor<[?, ?], f32>) -> ())",
        {{"a", Tensor::Scalar<float>(1)}, {"s", Vec<int64_t>({1 << 20, 1 << 12})}},
        {.max_bytes = 1 << 30});
  });
  EXPECT_EQ(e.id(), "limit/memory");
}

TEST_F(InterpreterTest, ObserverSeesEveryOp) {
  std::vector<std::string> names;
  InterpreterOptions options;
  options.observer = [&](const RanOp& ran) {
    EXPECT_EQ(ran.step, names.size());
    names.emplace_back(ran.op->name());
  };
  Run(kAdd, {{"bias", Vec<float>({5, 6})}, {"image", Image()}}, std::move(options));
  EXPECT_EQ(names, (std::vector<std::string>{"nn.feed", "nn.feed", "builtin.constant", "nn.add",
                                             "nn.fetch", "nn.fetch"}));
}

TEST_F(InterpreterTest, PackedTensorsPassThrough) {
  const Tensor x = Tensor::Of<Int4>({3}, {Int4(-8), Int4(7), Int4(1)});
  const NamedValues out = Run(R"(
    %a = nn.feed() {name = "a"} : () -> v_tensor<[3], i4>
    %b = nn.identity(%a) : (v_tensor<[3], i4>) -> v_tensor<[3], i4>
    nn.fetch(%b) {name = "b"} : (v_tensor<[3], i4>) -> ())",
                              {{"a", x}});
  EXPECT_EQ(out[0].second.tensor(), x);
}

// ---- mutable tensors ----

// Writes one element of 1 MB, and reads it.
constexpr const char* kStore = R"(
    %i = builtin.constant() {value = tensor<[], i64> [2]} : () -> v_tensor<[], i64>
    %v = builtin.constant() {value = tensor<[], f32> [9.0]} : () -> v_tensor<[], f32>
    %m = loop.alloc() : () -> tensor<[262144], f32>
    %s = loop.store_(%m, %v, none, %i) : (tensor<[262144], f32>, v_tensor<[], f32>, none, v_tensor<[], i64>) -> tensor<[262144], f32>
    %r = loop.load(%m, none, %i) : (tensor<[262144], f32>, none, v_tensor<[], i64>) -> v_tensor<[], f32>
    nn.fetch(%r) {name = "r"} : (v_tensor<[], f32>) -> ())";

TEST_F(InterpreterTest, WhatIsWrittenIsNotCopied) {
  const NamedValues out = Run(kStore, {}, {.max_bytes = 3 << 19});
  EXPECT_EQ(ValuesOf<float>(out[0].second), (std::vector<float>{9}));
}

TEST_F(InterpreterTest, ObserverSeesWhatIsWrittenAsItWas) {
  std::vector<float> seen;
  Run(kStore, {}, {.observer = [&](const RanOp& ran) {
        if (ran.op->name() != "loop.store_") return;
        for (const RtValue& value : {ran.inputs[0], ran.outputs[0]}) {
          seen.push_back(value.tensor().data<float>()[2]);
        }
      }});
  EXPECT_EQ(seen, (std::vector<float>{0, 9}));
}

TEST_F(InterpreterTest, InPlaceWritesAreSeenByLaterReaders) {
  const NamedValues out = Run(R"(
    %a = nn.feed() {name = "a"} : () -> v_tensor<[2], f32>
    %m = builtin.to_tensor(%a) : (v_tensor<[2], f32>) -> tensor<[2], f32>
    %before = builtin.to_vtensor(%m) : (tensor<[2], f32>) -> v_tensor<[2], f32>
    %r = nn.relu_(%m) : (tensor<[2], f32>) -> tensor<[2], f32>
    %after = builtin.to_vtensor(%m) : (tensor<[2], f32>) -> v_tensor<[2], f32>
    nn.fetch(%before) {name = "before"} : (v_tensor<[2], f32>) -> ()
    nn.fetch(%after) {name = "after"} : (v_tensor<[2], f32>) -> ()
    nn.fetch(%a) {name = "a"} : (v_tensor<[2], f32>) -> ())",
                              {{"a", Vec<float>({-1, 2})}});
  EXPECT_EQ(ValuesOf<float>(out[0].second), (std::vector<float>{-1, 2}));
  EXPECT_EQ(ValuesOf<float>(out[1].second), (std::vector<float>{0, 2}));
  EXPECT_EQ(ValuesOf<float>(out[2].second), (std::vector<float>{-1, 2}));
}

// ---- parameters ----

TEST_F(InterpreterTest, ParametersAreReadAndSet) {
  Program program = Parse(R"(
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[2], f32>
    %t = nn.add(%w, %w) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
    builtin.set_parameter(%t) {name = "w"} : (v_tensor<[2], f32>) -> ()
    nn.fetch(%w) {name = "old"} : (v_tensor<[2], f32>) -> ())");
  program.parameters().Set(StrAttribute::Get(context_, "w"), {Vec<float>({1, 2}).tensor()});
  Interpreter interpreter(program);
  EXPECT_EQ(ValuesOf<float>(interpreter.Run({})[0].second), (std::vector<float>{1, 2}));
  EXPECT_EQ(ValuesOf<float>(interpreter.Run({})[0].second), (std::vector<float>{2, 4}));
  EXPECT_EQ(ValuesOf<float>(program.parameters().Find("w")->data), (std::vector<float>{4, 8}));
}

TEST_F(InterpreterTest, MissingParameter) {
  Program program = Parse(R"(
    %w = builtin.get_parameter() {name = "weigth"} : () -> v_tensor<[2], f32>
    nn.fetch(%w) {name = "w"} : (v_tensor<[2], f32>) -> ())");
  program.parameters().Set(StrAttribute::Get(context_, "weight"), {Vec<float>({1, 2}).tensor()});
  const Error e = ErrorOf([&] { Interpreter(program, {.verify = false}).Run({}); });
  EXPECT_EQ(e.id(), "parameter/missing");
  ASSERT_FALSE(e.hints().empty());
  EXPECT_NE(e.hints()[0].find("'weight'"), std::string::npos);
}

TEST_F(InterpreterTest, StartupMovesItsParametersToTheMainProgram) {
  Program startup = Parse(R"(
    %c = builtin.constant() {value = tensor<[2], f32> [1.0, 2.0]} : () -> v_tensor<[2], f32>
    builtin.set_parameter(%c) {name = "w"} : (v_tensor<[2], f32>) -> ())");
  Program main = Parse(R"(
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[2], f32>
    nn.fetch(%w) {name = "w"} : (v_tensor<[2], f32>) -> ())");
  RunStartup(startup, main, {.verify = false});
  EXPECT_TRUE(startup.parameters().empty());
  EXPECT_FALSE(main.parameters().Find("w")->is_mutable);
  EXPECT_EQ(ValuesOf<float>(Interpreter(main).Run({})[0].second), (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace lathe::testing
