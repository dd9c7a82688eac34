#include "lathe/ir/builder.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

class Inference : public ProgramTest {
 protected:
  // Type of output `i` after inference over the whole program.
  std::string Infer(Program& program, size_t i = 0) {
    ShapeInferencer(&program.parameters()).Visit(program);
    VerifyOrThrow(program);
    return program.fetches()[i]->operand(0).type().ToString();
  }
  std::string Infer(std::string_view body) {
    Program program = Parse(body);
    return Infer(program);
  }
};

TEST_F(Inference, ShapesFollowedThroughValues) {
  EXPECT_EQ(Infer(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 4, 5], f32>
    %s = nn.shape(%x) : (v_tensor<[N, 4, 5], f32>) -> v_tensor<[?], i64>
    %zero = builtin.constant() {value = tensor<[1], i64> [0]} : () -> v_tensor<[1], i64>
    %rest = builtin.constant() {value = tensor<[1], i64> [-1]} : () -> v_tensor<[1], i64>
    %n = nn.gather(%s, %zero) : (v_tensor<[?], i64>, v_tensor<[1], i64>) -> v_tensor<[?], i64>
    %two = nn.add(%n, %n) : (v_tensor<[?], i64>, v_tensor<[?], i64>) -> v_tensor<[?], i64>
    %to = nn.concat(%two, %rest) {axis = 0} : (v_tensor<[?], i64>, v_tensor<[1], i64>) -> v_tensor<[?], i64>
    %y = nn.reshape(%x, %to) : (v_tensor<[N, 4, 5], f32>, v_tensor<[?], i64>) -> v_tensor<*, f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<*, f32>) -> ())")
                .substr(0, 13),
            "v_tensor<[2*N");
}

constexpr std::string_view kReshapeByParameter = R"(
  %x = nn.feed() {name = "x"} : () -> v_tensor<[6], f32>
  %to = builtin.get_parameter() {name = "to"} : () -> v_tensor<[2], i64>
  %y = nn.reshape(%x, %to) : (v_tensor<[6], f32>, v_tensor<[2], i64>) -> v_tensor<*, f32>
  nn.fetch(%y) {name = "y"} : (v_tensor<*, f32>) -> ()
)";

TEST_F(Inference, OnlyImmutableParametersAreConstants) {
  const StrAttribute name = StrAttribute::Get(context_, "to");
  const Tensor to = Vec<int64_t>({2, 3}).tensor();
  Program fixed = Parse(kReshapeByParameter);
  fixed.parameters().Set(name, {to, false});
  EXPECT_EQ(Infer(fixed), "v_tensor<[2, 3], f32>");
  Program changing = Parse(kReshapeByParameter);
  changing.parameters().Set(name, {to, true});
  EXPECT_EQ(Infer(changing), "v_tensor<[?, ?], f32>");
}

TEST_F(Inference, SmallComputationsOnConstantsAreEvaluated) {
  EXPECT_EQ(Infer(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[6], f32>
    %a = builtin.constant() {value = tensor<[2], f32> [1.9, 3.2]} : () -> v_tensor<[2], f32>
    %f = nn.floor(%a) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %i = nn.cast(%f) {to = i64} : (v_tensor<[2], f32>) -> v_tensor<[2], i64>
    %one = builtin.constant() {value = tensor<[2], i64> [1, 0]} : () -> v_tensor<[2], i64>
    %to = nn.add(%i, %one) : (v_tensor<[2], i64>, v_tensor<[2], i64>) -> v_tensor<[2], i64>
    %y = nn.reshape(%x, %to) : (v_tensor<[6], f32>, v_tensor<[2], i64>) -> v_tensor<*, f32>
    nn.fetch(%y) {name = "y"} : (v_tensor<*, f32>) -> ())"),
            "v_tensor<[2, 3], f32>");
}

TEST_F(Inference, LoopsByTripCountGiveThatManyPieces) {
  const auto loop = [](std::string_view cond) {
    return StrCat(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 2], f32>
    %go = nn.feed() {name = "go"} : () -> v_tensor<[], bool>
    %n = nn.shape(%x) {start = 0, end = 1} : (v_tensor<[N, 2], f32>) -> v_tensor<[1], i64>
    %all = cf.while(%n, )",
                  cond, R"() ({
      ^(%i: v_tensor<[], i64>, %c: v_tensor<[], bool>):
      cf.yield(%c, %x) : (v_tensor<[], bool>, v_tensor<[N, 2], f32>) -> ()
    }) : (v_tensor<[1], i64>, )",
                  cond == "none" ? "none" : "v_tensor<[], bool>", R"() -> v_tensor<*, f32>
    nn.fetch(%all) {name = "y"} : (v_tensor<*, f32>) -> ())");
  };
  EXPECT_EQ(Infer(loop("none")), "v_tensor<[N, N, 2], f32>");
  EXPECT_EQ(Infer(loop("%go")), "v_tensor<[?, N, 2], f32>");
}

TEST_F(Inference, FailuresNameTheOpAndItsOperands) {
  Program program = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 3], f32> loc("image")
    %y = nn.add(%x, %x) : (v_tensor<[2, 3], f32>, v_tensor<[2, 3], f32>) -> v_tensor<[2, 3], f32> loc("sum")
    )");
  Operation* feed = program.block()->front();
  feed->result(0).set_type(
      VTensorType::Get(context_, SymShape({Dim(2), Dim(3)}), ElementType::kF32));
  Builder b = Builder::AtEnd(program.block());
  b.set_location(Location::Name(context_, "bad"));
  const Type other = VTensorType::Get(context_, SymShape({Dim(4)}), ElementType::kF32);
  const std::vector<NamedAttribute> name = {b.Named("name", b.Attr(std::string_view("z")))};
  const Value z = b.Create("nn.feed", {}, name, std::span<const Type>(&other, 1))->result(0);
  const std::vector<Value> operands = {feed->result(0), z};
  const Error e = ErrorOf([&] { b.Create("nn.add", operands); });
  EXPECT_EQ(e.id(), "shape/broadcast");
  EXPECT_EQ(e.where(), "'bad'");
  ASSERT_GE(e.notes().size(), 2u);
  EXPECT_NE(e.notes()[0].text.find("v_tensor<[2, 3], f32>   made by 'image'"), std::string::npos)
      << e.Render();
}

// ---- depth ----

// `depth` nested ifs around a negation.
Program NestedIfs(IrContext& context, int depth) {
  Program program(context);
  Builder b = Builder::AtEnd(program.block());
  const Type type = VTensorType::Get(context, SymShape(std::vector<Dim>()), ElementType::kBool);
  const std::span<const Type> types(&type, 1);
  const std::vector<NamedAttribute> name = {b.Named("name", b.Attr(std::string_view("c")))};
  const Value c = b.Create("nn.feed", {}, name, types)->result(0);
  const std::span<const Value> operand(&c, 1);
  for (int i = 0; i < depth; ++i) {
    Operation* op = b.Create("cf.if", operand, {}, types, 2);
    Builder otherwise = Builder::AtEnd(op->region(1).AddBlock());
    otherwise.Create("cf.yield", operand);
    const Value result = op->result(0);
    b.Create(i == 0 ? "builtin.to_vtensor" : "cf.yield", std::span<const Value>(&result, 1), {},
             i == 0 ? types : std::span<const Type>());
    b.SetInsertionPointToEnd(op->region(0).AddBlock());
  }
  b.Create("cf.yield", operand);
  return program;
}

TEST_F(Inference, DeepNestingNeedsNoStack) {
  Program program = NestedIfs(context_, 50000);
  ShapeInferencer(&program.parameters()).Visit(program);
  Interpreter interpreter(program, {.verify = false});
  EXPECT_EQ(ErrorOf([&] { interpreter.Run({{"c", Tensor::Scalar(true)}}); }).id(), "limit/depth");
  EXPECT_EQ(ErrorOf([&] { interpreter.Run({{"c", Tensor::Scalar(false)}}); }).id(), "");
}

TEST_F(Inference, DeepLoopsTakeFewRounds) {
  std::string body =
      "%t = nn.feed() {name = \"t\"} : () -> v_tensor<[], i64>\n"
      "%v0 = nn.feed() {name = \"x\"} : () -> v_tensor<[1, 3], f32>\n";
  const int depth = 60;
  const auto any = "v_tensor<*, f32>";
  for (int i = 0; i < depth; ++i) {
    body +=
        StrCat("%r", i, " = cf.while(%t, none, %v", i, ") ({\n^(%i", i, ": v_tensor<*, i64>, %c", i,
               ": v_tensor<*, bool>, %v", i + 1, ": ", any, "):\n");
  }
  body +=
      StrCat("%y = nn.concat(%v", depth, ", %v", depth, ") {axis = 0} : (", any, ", ", any, ") -> ",
             any, "\ncf.yield(%c", depth - 1, ", %y) : (v_tensor<*, bool>, ", any, ") -> ()\n");
  for (int i = depth - 1; i >= 0; --i) {
    const std::string in = i == 0 ? "v_tensor<[1, 3], f32>" : any;
    body += StrCat("}) : (v_tensor<[], i64>, none, ", in, ") -> ", any, "\n");
    if (i > 0) {
      body += StrCat("cf.yield(%c", i - 1, ", %r", i, ") : (v_tensor<*, bool>, ", any, ") -> ()\n");
    }
  }
  Program program = Parse(body + "nn.fetch(%r0) {name = \"y\"} : (v_tensor<*, f32>) -> ()");
  const std::string type = Infer(program);
  EXPECT_TRUE(type == "v_tensor<*, f32>" || type == "v_tensor<[?, 3], f32>") << type;
}

}  // namespace
}  // namespace lathe::testing
