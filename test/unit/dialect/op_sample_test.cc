#include <iostream>

#include "lathe/dialect/arithmetic.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/dialect.h"
#include "test/unit/dialect/op_sampler.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

constexpr uint64_t kSeed = 20;

// How the extents of the inputs are declared.
enum class Declared { kStatic, kSymbolic, kUnranked };

SymShape DeclareShape(const Shape& shape, Declared how) {
  if (how == Declared::kUnranked) return SymShape::Unranked();
  SymShape result = SymShape::FromConstants(shape);
  if (how == Declared::kStatic) return result;
  for (size_t i = 0; i < shape.size(); ++i) {
    result.dims[i] = Dim::Symbol(StrCat("D", shape[i]));  // equal extents are one symbol
  }
  return result;
}

std::optional<int64_t> ValueOfSymbol(std::string_view name) { return ParseInt(name.substr(1)); }

Type TypeOf(IrContext& context, const RtValue& value, Declared how) {
  if (value.is_tensor()) {
    return VTensorType::Get(context, DeclareShape(value.tensor().shape(), how),
                            value.tensor().element_type());
  }
  const auto wrap = [&](Type inner, bool list) -> Type {
    const std::span<const Type> one(&inner, 1);
    if (list) return ListType::Get(context, one);
    return OptionalType::Get(context, one);
  };
  const Type unranked = VTensorType::Get(context, SymShape::Unranked(), ElementType::kF32);
  if (value.is_absent_optional()) return wrap(unranked, false);
  if (value.list().empty()) return wrap(unranked, true);
  return wrap(TypeOf(context, value.list()[0], Declared::kUnranked), true);
}

class OpSampleTest : public ProgramTest {
 protected:
  OpSampleTest() : sampler_(context_, ReadSampleHints(), kSeed) {}

  // feeds -> the op -> fetches. With `constants`, integer operands are constants.
  Program Build(const OpSample& sample, Declared how, bool constants) {
    Program program(context_);
    Builder b = Builder::AtEnd(program.block());
    ShapeInferencer facts(&program.parameters());
    b.set_facts(&facts);
    std::vector<Value> operands;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      operands.push_back(Operand(b, facts, sample, i, how, constants));
    }
    std::vector<NamedAttribute> attributes;
    for (const auto& [name, value] : sample.attributes) attributes.push_back(b.Named(name, value));
    Operation* op = b.CreateInferred(sample.info, operands, attributes, sample.num_results);
    for (size_t i = 0; i < op->num_results(); ++i) Fetch(b, op->result(i), i);
    return program;
  }

  NamedValues Run(Program& program, const OpSample& sample) {
    NamedValues inputs;
    for (Operation* feed : program.feeds()) {
      const std::string name(feed->attribute("name").cast<StrAttribute>().value());
      inputs.emplace_back(name, sample.inputs[static_cast<size_t>(*ParseInt(name.substr(1)))]);
    }
    return Interpreter(program, {.seed = kSeed}).Run(inputs);
  }

  // What is wrong with one sample; empty if nothing is.
  std::string Check(const OpSample& sample) {
    problems_.clear();
    try {
      CheckAll(sample);
    } catch (const Error& error) {
      problems_.push_back(error.Render());
    }
    return problems_.empty() ? "" : StrCat(sample.label, ": ", problems_[0]);
  }

  void CheckAll(const OpSample& sample) {
    Program plain = Build(sample, Declared::kStatic, false);
    const NamedValues expected = Run(plain, sample);
    CheckTypes(plain, expected);
    Expect(Run(plain, sample) == expected, "two runs differ");
    CheckRoundTrip(plain, sample, expected);
    const std::optional<int64_t> count = CountIn(plain, sample);
    Expect(count && *count >= 0, "the arithmetic of static shapes is unknown");
    for (const Declared how : {Declared::kStatic, Declared::kSymbolic, Declared::kUnranked}) {
      for (const bool constants : {false, true}) {
        Program program = Build(sample, how, constants);
        Expect(Run(program, sample) == expected, "another result with other declared shapes");
        CheckTypes(program, expected);
        Expect(CountIn(program, sample).value_or(*count) == *count,
               "another count of arithmetic with other declared shapes");
      }
    }
  }

  OpSampler sampler_;

 private:
  Value Operand(Builder& b, ShapeInferencer& facts, const OpSample& sample, size_t i, Declared how,
                bool constants) {
    const RtValue& value = sample.inputs[i];
    if (value.is_none()) return {};
    Operation* op = nullptr;
    if (constants && value.is_tensor() && IsInteger(value.tensor().element_type())) {
      op = b.Create("builtin.constant", {},
                    std::vector<NamedAttribute>{b.Named("value", b.Attr(value.tensor()))});
    } else {
      const Type type = TypeOf(context_, value, how);
      op = b.Create("nn.feed", {},
                    std::vector<NamedAttribute>{b.Named("name", b.Attr(StrCat("x", i)))},
                    std::span<const Type>(&type, 1));
    }
    facts.Visit(op);
    const Value made = op->result(0);
    if (i > 0 || !sample.info.HasTrait<Inplace>()) return made;
    return b.Create("builtin.to_tensor", std::span<const Value>(&made, 1))->result(0);
  }

  void Fetch(Builder& b, Value value, size_t i) {
    if (value.type().isa<TensorType>()) {
      value = b.Create("builtin.to_vtensor", std::span<const Value>(&value, 1))->result(0);
    }
    b.Create("nn.fetch", std::span<const Value>(&value, 1),
             std::vector<NamedAttribute>{b.Named("name", b.Attr(StrCat("y", i)))});
  }

  void Expect(bool holds, std::string message) {
    if (!holds) problems_.push_back(std::move(message));
  }

  // What the rule says, evaluated, is what came out.
  void CheckTypes(const Program& program, const NamedValues& outputs) {
    const std::vector<Operation*> fetches = program.fetches();
    Expect(fetches.size() == outputs.size(), "number of outputs");
    for (size_t i = 0; i < fetches.size(); ++i) {
      const auto type = fetches[i]->operand(0).type().dyn_cast<AnyTensorType>();
      if (!type || !outputs[i].second.is_tensor()) continue;
      const Tensor& tensor = outputs[i].second.tensor();
      Expect(type.element() == tensor.element_type() && HasShape(type, tensor.shape()),
             StrCat("result ", i, " is ", tensor.TypeString(), ", inferred ", type.ToString()));
    }
  }

  static std::optional<int64_t> CountIn(const Program& program, const OpSample& sample) {
    for (Operation& op : *program.block()) {
      if (op.info() == sample.info) return ArithmeticOf(&op).Evaluate(ValueOfSymbol);
    }
    return std::nullopt;
  }

  static bool HasShape(AnyTensorType type, const Shape& shape) {
    if (!type.has_rank()) return true;
    if (type.rank() != shape.size()) return false;
    for (size_t d = 0; d < shape.size(); ++d) {
      const std::optional<int64_t> extent = type.dims()[d].Evaluate(ValueOfSymbol);
      if (extent && *extent != shape[d]) return false;
    }
    return true;
  }

  void CheckRoundTrip(const Program& program, const OpSample& sample, const NamedValues& expected) {
    const std::string text = Print(program);
    Program again = ParseProgram(context_, text, {.file_locations = false});
    Expect(Print(again) == text, "printed again it differs");
    std::string why;
    Expect(StructurallyEqual(program.module(), again.module(), true, &why), why);
    Expect(Run(again, sample) == expected, "another result after print and parse");
  }

  std::vector<std::string> problems_;
};

// ---- ops that the test has to find ----

constexpr ElementType kFloats[] = {ElementType::kF32, ElementType::kF64};
constexpr TypeSetDef kTypes[] = {{"T", kFloats}};
constexpr ValueDef kOperands[] = {{"x",
                                   {TypeRule::Kind::kVariable, ElementType::kUndefined, 0, nullptr},
                                   false,
                                   false,
                                   false,
                                   0,
                                   ""}};
constexpr OpDef MakeDef(const char* name) {
  return {name, "", "", kTypes, kOperands, kOperands, {}, {}, nullptr, "", 0};
}

// Says that the result has the shape of the operand, and gives another one.
class WrongShapeOp
    : public Op<WrongShapeOp, HasValueSemantics, InferShapeInterface, EvalInterface> {
 public:
  using Op::Op;
  static constexpr const char* kName = "t.wrong_shape";
  static const OpDef* Def() {
    static constexpr OpDef kDef = MakeDef(kName);
    return &kDef;
  }
  static void InferShape(InferShapeContext& c) { c.SetShape(0, c.shape(0)); }
  static void Eval(EvalContext& c) {
    c.SetOutput(0, c.input(0).Reshaped({c.input(0).num_elements()}));
  }
};

class NoEvalOp : public Op<NoEvalOp, HasValueSemantics, InferShapeInterface> {
 public:
  using Op::Op;
  static constexpr const char* kName = "t.no_eval";
  static const OpDef* Def() {
    static constexpr OpDef kDef = MakeDef(kName);
    return &kDef;
  }
  static void InferShape(InferShapeContext& c) { c.SetShape(0, c.shape(0)); }
};

class WrongDialect : public Dialect {
 public:
  static constexpr const char* kName = "t";
  explicit WrongDialect(IrContext& context) : Dialect(context, kName) {
    RegisterOps<WrongShapeOp, NoEvalOp>();
  }
};

TEST_F(OpSampleTest, WrongOpsAreFound) {
  context_.LoadDialect<WrongDialect>();
  for (const auto& [name, message] :
       {std::pair("t.wrong_shape", "was declared"), std::pair("t.no_eval", "has no Eval")}) {
    const std::vector<OpSample> samples = sampler_.Samples(context_.FindOp(name));
    ASSERT_FALSE(samples.empty());
    EXPECT_NE(Check(samples[0]).find(message), std::string::npos) << Check(samples[0]);
  }
}

TEST_F(OpSampleTest, EveryOpAgreesWithItsShapeRule) {
  size_t samples = 0, ops = 0;
  for (const OpInfo info : context_.ops()) {
    if (!sampler_.ReasonAgainst(info).empty()) continue;
    ++ops;
    for (const OpSample& sample : sampler_.Samples(info)) {
      ++samples;
      const std::string problem = Check(sample);
      if (problem.empty()) continue;
      ADD_FAILURE() << problem;
      break;  // one failing sample of an op says enough
    }
  }
  std::cout << samples << " samples of " << ops << " ops\n";
}

TEST_F(OpSampleTest, EveryOpIsCoveredOrSaysWhyNot) {
  for (const OpInfo info : context_.ops()) {
    const std::string reason = sampler_.ReasonAgainst(info);
    if (!reason.empty()) {
      std::cout << info.name() << ": " << reason << "\n";
      continue;
    }
    EXPECT_FALSE(sampler_.Samples(info).empty()) << info.name();
  }
}

}  // namespace
}  // namespace lathe::testing
