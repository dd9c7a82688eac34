#include "lathe/ir/verify.h"

#include "lathe/ir/builder.h"
#include "lathe/ir/op.h"
#include "test/unit/ir/text_util.h"

namespace lathe::testing {
namespace {

constexpr ElementType kFloats[] = {ElementType::kF32, ElementType::kF64};
constexpr TypeSetDef kSets[] = {{"T", kFloats}};
constexpr TypeRule kT{TypeRule::Kind::kVariable, ElementType::kUndefined, 0, nullptr};
constexpr TypeRule kI64{TypeRule::Kind::kElement, ElementType::kI64, 0, nullptr};
constexpr TypeRule kAny{};
constexpr const char* kModes[] = {"floor", "ceil"};

constexpr ValueDef kPairOperands[] = {{.name = "a", .type = kT},
                                      {.name = "b", .type = kT},
                                      {.name = "axes", .type = kI64, .optional = true}};
constexpr ValueDef kPairResults[] = {{.name = "c", .type = kT}};
constexpr AttrDef kPairAttributes[] = {
    {.name = "axis", .kind = AttrKind::kInt, .default_text = "0", .has_min = true, .min = -1},
    {.name = "mode", .kind = AttrKind::kStr, .default_text = "\"floor\"", .one_of = kModes},
    {.name = "perm", .kind = AttrKind::kInts, .optional = true},
};

/// `v.pair(a, b, axes?)`: both of one element type; the result has the shape of `a`.
class PairOp : public Op<PairOp, HasValueSemantics, InferShapeInterface> {
 public:
  using Op::Op;
  static constexpr const char* kName = "v.pair";
  static const OpDef* Def() {
    static constexpr OpDef kDef{.name = kName,
                                .summary = "",
                                .description = "",
                                .type_sets = kSets,
                                .operands = kPairOperands,
                                .results = kPairResults,
                                .attributes = kPairAttributes,
                                .regions = {},
                                .onnx_name = nullptr,
                                .onnx_domain = nullptr,
                                .onnx_since = 0};
    return &kDef;
  }
  static void InferShape(InferShapeContext& c) {
    ++calls;
    if (c.shape(0).ranked && c.shape(0).rank() > 3) c.Fail("shape/rank", "a has too many dims");
    c.SetShape(0, c.shape(0));
  }
  static inline int calls = 0;
};

constexpr ValueDef kRequired[] = {{.name = "x", .type = kAny}};
constexpr AttrDef kKeyAttributes[] = {{.name = "key", .kind = AttrKind::kFloat}};
constexpr RegionDef kOneRegion[] = {{.name = "body"}};

/// `v.hold(x) {key} ({ body })`: a region that ends in `v.end`; sees nothing around it.
class HoldOp : public Op<HoldOp, IsolatedFromAbove, VerifyInterface> {
 public:
  using Op::Op;
  static constexpr const char* kName = "v.hold";
  static const OpDef* Def() {
    static constexpr OpDef kDef{.name = kName,
                                .summary = "",
                                .description = "",
                                .type_sets = {},
                                .operands = kRequired,
                                .results = {},
                                .attributes = kKeyAttributes,
                                .regions = kOneRegion,
                                .onnx_name = nullptr,
                                .onnx_domain = nullptr,
                                .onnx_since = 0};
    return &kDef;
  }
  static void Verify(Operation* op) {
    const Block* body = op->region(0).front();
    if (body != nullptr && body->terminator() != nullptr) return;
    throw Error(ErrorCode::kVerify, "verify/body", "v.hold: the body must end in v.end");
  }
};

class VDialect : public Dialect {
 public:
  static constexpr const char* kName = "v";
  struct Relu {};
  struct Odd {};
  struct View {};
  struct End {};
  struct Shape {};
  explicit VDialect(IrContext& c) : Dialect(c, kName) {
    RegisterOps<PairOp, HoldOp>();
    Add<Relu>("v.relu_", {TypeId::Get<Inplace>()});
    Add<Odd>("v.odd", {TypeId::Get<Inplace>()});
    Add<View>("v.view", {TypeId::Get<ViewLike>()});
    Add<End>("v.end", {TypeId::Get<Terminator>()});
    Add<Shape>("v.same", {TypeId::Get<SameOperandsAndResultShape>()});
  }

 private:
  template <class Id>
  void Add(std::string_view name, std::vector<TypeId> traits) {
    context().RegisterOp(*this, TypeId::Get<Id>(), name, nullptr, {}, std::move(traits));
  }
};

class VerifyTest : public TextTest {
 protected:
  VerifyTest() { context_.LoadDialect<VDialect>(); }

  std::vector<Error> ErrorsOf(std::string_view body, const VerifyOptions& options = {}) {
    const Program program =
        ParseProgram(context_, StrCat("program {\n", body, "\n}"), {.file_name = "v.lathe"});
    return Verify(program, options);
  }
  /// All errors, as `id: message`, one per line.
  std::string Verified(std::string_view body) {
    std::string out;
    for (const Error& e : ErrorsOf(body)) out += StrCat(e.id(), ": ", e.message(), "\n");
    return out;
  }
};

TEST_F(VerifyTest, AcceptsWhatIsRight) {
  EXPECT_EQ(Verified(R"(
    %a = t.a() : () -> v_tensor<[2, N], f32>
    %i = t.i() : () -> v_tensor<[1], i64>
    %b = v.pair(%a, %a, %i) : (v_tensor<[2, N], f32>, v_tensor<[2, N], f32>, v_tensor<[1], i64>) -> v_tensor<[2, N], f32>
    %c = v.pair(%b, %a) : (v_tensor<[2, N], f32>, v_tensor<[2, N], f32>) -> v_tensor<*, f32>
    v.hold(%a) {key = 1.0} ({ ^(%x: f32): t.use(%x) v.end() }) : (v_tensor<[2, N], f32>) -> ()
    t.hold() ({ t.use(%c) ({ t.use(%c) }) })
  )"),
            "");
}

TEST_F(VerifyTest, CountsAndTypesOfOperands) {
  EXPECT_EQ(Verified("%a = v.pair() : () -> f32"),
            "verify/operands: v.pair: has 0 operands; expected 2 to 3\n");
  EXPECT_EQ(Verified(R"(
    %a = t.a() : () -> v_tensor<[2], i32>
    %b = v.pair(%a, %a) : (v_tensor<[2], i32>, v_tensor<[2], i32>) -> v_tensor<[2], i32>)"),
            "verify/type: v.pair: operand 0 ('a') must be a tensor of type T: f32 or f64; it is "
            "v_tensor<[2], i32>\n");
  EXPECT_EQ(Verified(R"(
    %a, %b = t.a() : () -> (v_tensor<[2], f32>, v_tensor<[2], f64>)
    %c = v.pair(%a, %b) : (v_tensor<[2], f32>, v_tensor<[2], f64>) -> v_tensor<[2], f32>)"),
            "verify/type-variable: v.pair: operand 1 ('b') is v_tensor<[2], f64>, but operand 0 "
            "('a') makes T f32\n");
  EXPECT_EQ(Verified(R"(
    %a = t.a() : () -> v_tensor<[2], f32>
    %c = v.pair(none, %a) : (none, v_tensor<[2], f32>) -> v_tensor<[2], f32>)"),
            "verify/operands: v.pair: operand 0 ('a') is absent, but is not optional\n");
  EXPECT_EQ(Verified("%a = t.a() : () -> f32\n v.hold(%a) {key = 1.0}"),
            "verify/regions: v.hold: has 0 regions; expected 1\n");
}

TEST_F(VerifyTest, Attributes) {
  auto pair = [](std::string_view attributes) {
    return StrCat("%a = t.a() : () -> v_tensor<[2], f32>\n%b = v.pair(%a, %a) ", attributes,
                  " : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>");
  };
  EXPECT_EQ(Verified(pair("{axis = -1, mode = \"ceil\", other = none, perm = [1, 0]}")), "");
  EXPECT_EQ(Verified(pair("{Axis = 1}")),
            "verify/attribute: v.pair: attribute 'Axis' is not declared\n");
  EXPECT_EQ(Verified(pair("{axi = 1}")),
            "verify/attribute: v.pair: attribute 'axi' is not declared\n");
  EXPECT_EQ(ErrorsOf(pair("{prem = [1, 0]}"))[0].hints()[0], "did you mean 'perm'?");
  EXPECT_EQ(Verified(pair("{my.axi = 1, callstack = \"a.py\"}")), "");
  EXPECT_EQ(Verified(pair("{axis = -2}")),
            "verify/attribute: v.pair: attribute 'axis' is -2; it must be at least -1\n");
  EXPECT_EQ(Verified(pair("{axis = 0.5}")),
            "verify/attribute: v.pair: attribute 'axis' must be an integer; it is 0.5\n");
  EXPECT_EQ(Verified(pair("{perm = [1, true]}")),
            "verify/attribute: v.pair: attribute 'perm' must be a list of integers; it is [1, "
            "true]\n");
  const std::vector<Error> errors = ErrorsOf(pair("{mode = \"flor\"}"));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].message(),
            "v.pair: attribute 'mode' is \"flor\"; expected one of \"floor\", \"ceil\"");
  ASSERT_EQ(errors[0].hints().size(), 1u);
  EXPECT_EQ(errors[0].hints()[0], "did you mean 'floor'?");
  EXPECT_EQ(errors[0].where(), "v.lathe:3:1");
  EXPECT_EQ(Verified("%a = t.a() : () -> f32\n v.hold(%a) {kex = 1.0} ({ v.end() })"),
            "verify/attribute: v.hold: attribute 'key' is missing: a float\n");
}

TEST_F(VerifyTest, InferredTypes) {
  EXPECT_EQ(Verified(R"(
    %a = t.a() : () -> v_tensor<[2], f32>
    %b = v.pair(%a, %a) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[3], f32>)"),
            "verify/inferred: v.pair: result 0 is declared as v_tensor<[3], f32>, but its operands "
            "and attributes make it v_tensor<[2], f32>\n");
  const std::vector<Error> errors = ErrorsOf(R"(
    %a = t.a() : () -> v_tensor<[2, 2, 2, 2], f32>
    %b = v.pair(%a, %a) : (v_tensor<[2, 2, 2, 2], f32>, v_tensor<[2, 2, 2, 2], f32>) -> v_tensor<*, f32> loc("p"))",
                                             {.after = "my-pass"});
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].id(), "shape/rank");
  EXPECT_EQ(errors[0].where(), "'p'");
  EXPECT_NE(errors[0].Render().find("found after pass 'my-pass'"), std::string::npos);
}

TEST_F(VerifyTest, SignaturesAreCheckedOnce) {
  std::string body = "%a = t.a() : () -> v_tensor<[2], f32>\n";
  for (int i = 0; i < 50; ++i) {
    body += StrCat("%b", i, " = v.pair(%a, %a) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> ",
                   "v_tensor<[2], f32>\n");
  }
  PairOp::calls = 0;
  EXPECT_EQ(Verified(body), "");
  EXPECT_EQ(PairOp::calls, 1);
}

TEST_F(VerifyTest, Traits) {
  EXPECT_EQ(Verified("%a = t.a() : () -> tensor<[2], f32>\n"
                     "%b = v.relu_(%a) : (tensor<[2], f32>) -> tensor<[2], f32>"),
            "");
  EXPECT_EQ(Verified("%a = t.a() : () -> v_tensor<[2], f32>\n"
                     "%b = v.relu_(%a) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>"),
            "verify/inplace: v.relu_: operand 0 is written, but v_tensor<[2], f32> is immutable\n");
  EXPECT_EQ(Verified("%a = t.a() : () -> tensor<[2], f32>\n"
                     "%b = v.relu_(%a) : (tensor<[2], f32>) -> tensor<[3], f32>"),
            "verify/inplace: v.relu_: result 0 is operand 0 written, but has type tensor<[3], f32> "
            "instead of tensor<[2], f32>\n");
  EXPECT_EQ(Verified("%a = t.a() : () -> tensor<[2], f32>\n"
                     "%b = v.odd(%a) : (tensor<[2], f32>) -> tensor<[2], f32>"),
            "verify/inplace: v.odd: an in-place operation has a name that ends in '_'\n");
  EXPECT_EQ(Verified("%a = t.a() : () -> tensor<[2], f32>\n"
                     "%b = v.view(%a) : (tensor<[2], f32>) -> v_tensor<[2], f32>"),
            "verify/view: v.view: a view of tensor<[2], f32> cannot be a v_tensor<[2], f32>\n");
  EXPECT_EQ(Verified("%a = t.a() : () -> tensor<[2], f32>\n"
                     "%b = v.same(%a) : (tensor<[2], f32>) -> v_tensor<[N], i32>"),
            "");
  EXPECT_EQ(Verified("%a = t.a() : () -> tensor<[2], f32>\n"
                     "%b = v.same(%a) : (tensor<[2], f32>) -> v_tensor<[3], f32>"),
            "verify/same: v.same: its operands and results have one shape, but tensor<[2], f32> "
            "and v_tensor<[3], f32> differ\n");
}

TEST_F(VerifyTest, Dominance) {
  Program program = ParseProgram(context_, R"(program {
    %a = t.a() : () -> f32
    %b = t.b(%a) : (f32) -> f32
    t.hold() ({
      %c = t.c(%b) : (f32) -> f32
    })
    t.d(%b)
  })");
  EXPECT_TRUE(Verify(program).empty());
  Operation* a = program.block()->front();
  Operation* b = a->next();
  Operation* hold = b->next();
  Operation* c = hold->region(0).front()->front();
  Operation* d = hold->next();

  b->MoveBefore(a);
  EXPECT_EQ(Verify(program).at(0).message(), "t.b: operand 0 is used before it is defined");
  a->MoveBefore(b);
  c->set_operand(0, c->result(0));
  EXPECT_EQ(Verify(program).at(0).message(), "t.c: operand 0 is a result of the operation itself");
  c->set_operand(0, b->result(0));
  d->set_operand(0, c->result(0));
  EXPECT_EQ(Verify(program).at(0).message(),
            "t.d: operand 0 is defined in a block that its user is not in");
  d->set_operand(0, b->result(0));
  EXPECT_TRUE(Verify(program).empty());
  b->MoveToEnd(program.block());
  EXPECT_EQ(Verify(program).size(), 2u);
  EXPECT_EQ(Verify(c).at(0).message(), "t.c: operand 0 is used before it is defined");
}

TEST_F(VerifyTest, IsolatedRegionsSeeNothing) {
  EXPECT_EQ(Verified("%a = t.a() : () -> f32\n v.hold(%a) {key = 1.0} ({ t.use(%a) v.end() })"),
            "verify/dominance: t.use: operand 0 is defined outside an operation whose regions see "
            "nothing around them\n");
}

TEST_F(VerifyTest, OwnRulesAndTerminators) {
  EXPECT_EQ(Verified("%a = t.a() : () -> f32\n v.hold(%a) {key = 1.0} ({ t.x() })"),
            "verify/body: v.hold: the body must end in v.end\n");
  EXPECT_EQ(Verified("v.end()\n t.x()"),
            "verify/terminator: v.end: it ends its block, but operations follow\n");
}

TEST_F(VerifyTest, BrokenUseLists) {
  Program program = ParseProgram(context_, "program { %a = t.a() : () -> f32 t.b(%a) t.c(%a) }");
  Operation* b = program.block()->front()->next();
  detail::OpOperandImpl* slot = b->op_operand(0).impl();
  uintptr_t* const back = slot->back;
  uintptr_t elsewhere = 0;
  slot->back = &elsewhere;
  EXPECT_EQ(Verify(program).at(0).id(), "verify/use-list");
  slot->back = back;
  EXPECT_TRUE(Verify(program).empty());
}

TEST_F(VerifyTest, Parameters) {
  Program program = ParseProgram(context_, R"(program {
    %a = builtin.get_parameter() {name = "fc.w"} : () -> v_tensor<[2, N], f32>
  })");
  EXPECT_TRUE(Verify(program).empty()) << "a structure without weights";
  program.parameters().Insert(StrAttribute::Get(context_, "fc.w_0"), {});
  std::vector<Error> errors = Verify(program);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].message(), "builtin.get_parameter: the program has no parameter 'fc.w'");
  EXPECT_EQ(errors[0].hints().at(0), "did you mean 'fc.w_0'?");
  const StrAttribute name = StrAttribute::Get(context_, "fc.w");
  program.parameters().Set(name, {Tensor(ElementType::kF32, {2, 3})});
  EXPECT_TRUE(Verify(program).empty());
  program.parameters().Set(name, {Tensor(ElementType::kF32, {3, 3})});
  EXPECT_EQ(Verify(program).at(0).id(), "verify/parameter");
}

TEST_F(VerifyTest, ManyErrorsInProgramOrder) {
  std::string body = "%a = t.a() : () -> f32\n";
  for (int i = 0; i < 50; ++i) body += StrCat("v.end() loc(\"e", i, "\")\n");
  body += "t.last()";
  const std::vector<Error> errors = ErrorsOf(body);
  ASSERT_EQ(errors.size(), 20u);
  EXPECT_EQ(errors[0].where(), "'e0'");
  EXPECT_EQ(errors[19].where(), "'e19'");
  Program program = ParseProgram(context_, StrCat("program {", body, "}"));
  try {
    VerifyOrThrow(program);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.others.size(), 19u);
  }
}

}  // namespace
}  // namespace lathe::testing
