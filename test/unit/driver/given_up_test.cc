#include "lathe/dialect/loop/memory.h"
#include "lathe/driver/executable.h"
#include "lathe/driver/explain.h"
#include "lathe/lower/loop_builder.h"
#include "lathe/lower/lowering.h"
#include "lathe/lower/strategy.h"
#include "test/unit/codegen/kernel_util.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

constexpr int64_t kTooLarge = 1 << 20;  // elements of memory in a parallel loop

// Right in the interpreter, but without code.
bool LowerWithoutCode(lower::Lowering& l) {
  lower::LoopBuilder lb(l.body);
  const auto type = l.body->argument(0).type().cast<AnyTensorType>();
  const Value memory = lb.Alloc(type);
  lb.For(type.dims()[0], true, [&](Value i) {
    const Value much =
        lb.Alloc(VTensorType::Get(lb.context(), SymShape({Dim(kTooLarge)}), type.element()));
    lb.Store(much, lb.Load(l.body->argument(0), {&i, 1}), {&i, 1});
    const Value x = lb.Load(much, {&i, 1});
    lb.Store(memory, lb.Elementwise(l.function.front(), {&x, 1}), {&i, 1});
  });
  const Value result = lb.b().Create("builtin.to_vtensor", {&memory, 1})->result(0);
  lb.b().Create(l.function.back()->info(), {&result, 1}, {}, {});
  return true;
}

// nn.sign has such a strategy here.
class GivenUpTest : public testing::ProgramTest {
 protected:
  static void SetUpTestSuite() {
    StrategyRegistry::Global().Register("nn.sign", "cpu", [](const OpCall&) {
      OpStrategy s;
      s.Add({.name = "large", .plevel = 20, .lower = &LowerWithoutCode});
      return s;
    });
  }
  void SetUp() override { codegen::NeedCodeGenerator(); }

  static constexpr const char* kSign = R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[64], f32>
    %y = nn.sign(%x) : (v_tensor<[64], f32>) -> v_tensor<[64], f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<[64], f32>) -> ())";

  // Compiles without a remark, and computes what the interpreter does.
  void ExpectRuns(std::string_view body, int64_t extent) {
    Program program = Parse(body);
    NamedValues inputs;
    uint64_t seed = 1;
    for (const Operation* feed : program.feeds()) {
      const auto type = feed->result(0).type().cast<AnyTensorType>();
      Shape shape;
      for (const Dim& d : type.dims()) shape.push_back(d.is_constant() ? d.value() : extent);
      inputs.emplace_back(feed->attribute("name").cast<StrAttribute>().value(),
                          RandomTensor(type.element(), shape, seed++));
    }
    const Executable executable(program, {.strict = true});
    EXPECT_TRUE(executable.interpreted().empty());
    const NamedValues got = executable.Run(inputs), wanted = Interpreter(program).Run(inputs);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(AllClose(got[i].second, wanted[i].second, 1e-4, 1e-3)) << got[i].first;
    }
  }
};

TEST_F(GivenUpTest, CodeIsMadeOfTheNextStrategy) {
  Program program = Parse(kSign);
  const Executable executable(program);
  ASSERT_EQ(executable.functions().size(), 1U);
  const CompiledFunctionInfo& f = executable.functions()[0];
  EXPECT_EQ(f.strategy, "elementwise");
  ASSERT_EQ(f.remarks.size(), 1U);
  EXPECT_EQ(f.remarks[0].code, "codegen/unsupported");
  EXPECT_EQ(f.remarks[0].strategy, "large");
  const NamedValues inputs = {{"x", RandomTensor(ElementType::kF32, {64}, 1)}};
  EXPECT_EQ(executable.Run(inputs)[0].second.tensor(),
            Interpreter(program).Run(inputs)[0].second.tensor());
}

TEST_F(GivenUpTest, StrictIsAnError) {
  const Program program = Parse(kSign);
  const Error error = ErrorOf([&] { const Executable executable(program, {.strict = true}); });
  EXPECT_EQ(error.id(), lower::kGivenUp);
  EXPECT_EQ(error.code(), ErrorCode::kInternal);
  ASSERT_FALSE(error.notes().empty());
  EXPECT_NE(error.notes()[0].text.find("builtin.func"), std::string::npos);
}

TEST_F(GivenUpTest, ExplainShowsRemarks) {
  const Explanation e = Explain(Parse(kSign), {});
  ASSERT_EQ(e.functions.size(), 1U);
  ASSERT_EQ(e.functions[0].info.remarks.size(), 1U);
  EXPECT_EQ(e.functions[0].info.remarks[0].ToString().substr(0, 42),
            "large was given up (codegen/unsupported): ");
}

TEST_F(GivenUpTest, ConcatOfAHundredSymbols) {
  std::string feeds, operands, types, extent;
  for (int i = 0; i < 100; ++i) {
    const std::string t = StrCat("v_tensor<[N", i, ", 8], f32>");
    feeds += StrCat("%x", i, " = nn.feed() {name = \"x", i, "\"} : () -> ", t, "\n");
    operands += StrCat(i == 0 ? "" : ", ", "%x", i);
    types += StrCat(i == 0 ? "" : ", ", t);
    extent += StrCat(i == 0 ? "" : " + ", "N", i);
  }
  const std::string y = StrCat("v_tensor<[", extent, ", 8], f32>");
  ExpectRuns(StrCat(feeds, "%y = nn.concat(", operands, ") {axis = 0} : (", types, ") -> ", y,
                    "\n%z = nn.relu(%y) : (", y, ") -> ", y, "\nnn.fetch(%z) {name = \"z\"} : (", y,
                    ") -> ()"),
             3);
}

// Nobody reads an element of a concat of concats by asking all of their operands.
TEST_F(GivenUpTest, ConcatsOfConcats) {
  std::string body = "%y0 = nn.feed() {name = \"x\"} : () -> v_tensor<[N, 6], f32>\n";
  std::string dim = "N";
  for (int i = 0; i < 12; ++i) {
    const std::string from = StrCat("v_tensor<[", dim, ", 6], f32>");
    const std::string next = StrCat("v_tensor<[", dim, " + N, 6], f32>");
    const std::string from_y = StrCat("%y", i);
    body += StrCat("%y", i + 1, " = nn.concat(", from_y, ", %y0) {axis = 0} : (", from,
                   ", v_tensor<[N, 6], f32>) -> ", next, "\n");
    dim = StrCat(i + 2, "*N");
  }
  body += StrCat("%z = nn.relu(%y12) : (v_tensor<[13*N, 6], f32>) -> v_tensor<[13*N, 6], f32>\n",
                 "nn.fetch(%z) {name = \"z\"} : (v_tensor<[13*N, 6], f32>) -> ()");
  ExpectRuns(body, 3);
}

// The part of the input that a tile of positions reads is large.
TEST_F(GivenUpTest, ConvWithALongKernel) {
  for (const int64_t length : {1024, 5000}) {
    const std::string w = StrCat("v_tensor<[2, 1, ", length, "], f32>");
    const std::string out = StrCat("max(floordiv(L - ", length, ", 64) + 1, 0)");
    ExpectRuns(StrCat("%x = nn.feed() {name = \"x\"} : () -> v_tensor<[1, 1, L], f32>\n",
                      "%w = nn.feed() {name = \"w\"} : () -> ", w,
                      "\n%y = nn.conv(%x, %w) {strides = [64]} : (v_tensor<[1, 1, L], f32>, ", w,
                      ") -> v_tensor<[1, 2, ", out, "], f32>\n",
                      "nn.fetch(%y) {name = \"y\"} : (v_tensor<[1, 2, ", out, "], f32>) -> ()"),
               9000);
  }
}

}  // namespace
}  // namespace lathe
