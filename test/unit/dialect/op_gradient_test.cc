// Every op that has a gradient, on sampled inputs in f64, beside central differences.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <set>

#include "lathe/dialect/gradient.h"
#include "lathe/ir/builder.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/random.h"
#include "test/unit/dialect/op_sampler.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

constexpr uint64_t kSeed = 11;

/// Whether the declaration lets the operand have that element type, among others.
bool Takes(const OpInfo& info, size_t operand, ElementType type) {
  const OpDef& def = *info.def();
  const TypeRule& rule = def.operands[std::min(operand, def.operands.size() - 1)].type;
  if (rule.kind == TypeRule::Kind::kAny || rule.kind == TypeRule::Kind::kTensor) return true;
  if (rule.kind != TypeRule::Kind::kVariable) return false;
  const std::span<const ElementType> types = def.type_sets[rule.index].elements;
  return std::find(types.begin(), types.end(), type) != types.end();
}

/// Whether all operands that take f32 take f64, too.
bool TakesDoubles(const OpInfo& info) {
  for (size_t i = 0; i < info.def()->operands.size(); ++i) {
    if (Takes(info, i, ElementType::kF32) && !Takes(info, i, ElementType::kF64)) return false;
  }
  return true;
}

// Whose gradient is on purpose no slope.
bool IsRounded(const OpSample& sample) {
  return std::ranges::any_of(sample.attributes,
                             [](const auto& a) { return a.first == "accuracy_level"; });
}

/// The usual sample, of f32, in another type where the declaration leaves it open. False if it has
/// other floats or none.
bool MakeSample(OpSample& sample, ElementType type) {
  bool any = false;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    RtValue& v = sample.inputs[i];
    if (!v.is_tensor() || !IsFloat(v.tensor().element_type())) continue;
    if (v.tensor().element_type() != ElementType::kF32) return false;
    if (!Takes(sample.info, i, type)) continue;
    v = Cast(v.tensor(), type);
    any = true;
  }
  return any;
}

/// What a pass knows of values.
class Constants : public ValueFacts {
 public:
  explicit Constants(const Program& program) : program_(program) {}
  const Tensor* Constant(Value value) override { return ConstantValue(program_, value); }

 private:
  const Program& program_;
};

class OpGradientTest : public ProgramTest {
 protected:
  enum class Outcome { kRight, kRefused, kOutside, kWrong };

  OpGradientTest() : sampler_(context_, ReadSampleHints(), kSeed) {}

  /// f64 if the op takes it, else f32 and a difference that is larger than its rounding.
  void ChooseType(const OpInfo& info) {
    const bool wide = TakesDoubles(info);
    type_ = wide ? ElementType::kF64 : ElementType::kF32;
    step_ = wide ? 1e-6 : 1e-2;
    tolerance_ = wide ? 1e-5 : 5e-3;
  }

  bool IsTested(const OpSample& sample, size_t i) const {
    const RtValue& value = sample.inputs[i];
    return value.is_tensor() && value.tensor().element_type() == type_ &&
           Takes(sample.info, i, type_);
  }

  Value Constant(Builder& b, const Tensor& t) {
    return b
        .Create("builtin.constant", {}, std::vector<NamedAttribute>{b.Named("value", b.Attr(t))})
        ->result(0);
  }

  /// Float inputs -> the op -> the sum of its float results, each element times a number of its
  /// own.
  Program Build(const OpSample& sample, std::vector<Value>& xs, Value& loss) {
    Program program(context_);
    Builder b = Builder::AtEnd(program.block());
    ShapeInferencer facts(&program.parameters());
    b.set_facts(&facts);
    std::vector<Value> operands;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      const RtValue& v = sample.inputs[i];
      operands.push_back(v.is_none() ? Value() : Operand(b, sample, i));
      if (IsTested(sample, i)) xs.push_back(operands.back());
      if (operands.back()) facts.Visit(operands.back().defining_op());
    }
    std::vector<NamedAttribute> attributes;
    for (const auto& [name, value] : sample.attributes) attributes.push_back(b.Named(name, value));
    Operation* op = b.CreateInferred(sample.info, operands, attributes, sample.num_results);
    for (size_t i = 0; i < op->num_results(); ++i) {
      const auto type = op->result(i).type().dyn_cast<AnyTensorType>();
      if (!type || type.element() != type_ || !Wanted(op, i)) continue;
      const Value y = op->result(i);
      const Value shape = b.Create("nn.shape", std::span<const Value>(&y, 1))->result(0);
      const Value sines[] = {Numbered(b, shape, y), y};
      const Value product = type.is_static() ? b.Create("nn.mul", sines)->result(0) : y;
      const Value none[] = {product, Value()};
      const Value sum = b.Create("nn.reduce_sum", std::span<const Value>(none, 1),
                                 std::vector<NamedAttribute>{b.Named("keepdims", b.Attr(false))})
                            ->result(0);
      const Value both[] = {loss, sum};
      loss = loss ? b.Create("nn.add", both)->result(0) : sum;
    }
    return program;
  }

  /// Statistics that are handed on have no gradient.
  static bool Wanted(const Operation* op, size_t i) {
    return i == 0 ||
           (op->name() != "nn.batch_normalization" && op->name() != "nn.layer_normalization");
  }

  Value Operand(Builder& b, const OpSample& sample, size_t i) {
    const Tensor& v = sample.inputs[i].tensor();
    if (!IsTested(sample, i)) return Constant(b, v);
    const Type type = VTensorType::Get(context_, SymShape::FromConstants(v.shape()), type_);
    return b
        .Create("nn.feed", {}, std::vector<NamedAttribute>{b.Named("name", b.Attr(StrCat("x", i)))},
                std::span<const Type>(&type, 1))
        ->result(0);
  }

  /// Numbers that differ from element to element: sin(1), sin(2) ... in that shape.
  Value Numbered(Builder& b, Value shape, Value like) {
    const Tensor two = Cast(Tensor::Of<double>({1}, {2}), type_);
    const Value filled = b.Create("nn.constant_of_shape", std::span<const Value>(&shape, 1),
                                  std::vector<NamedAttribute>{b.Named("value", b.Attr(two))})
                             ->result(0);
    const Value flat_shape = Constant(b, Tensor::Of<int64_t>({1}, {-1}));
    const Value pair[] = {filled, flat_shape};
    const Value flat = b.Create("nn.reshape", pair)->result(0);
    const Value axis[] = {flat, Constant(b, Tensor::Scalar<int64_t>(0))};
    const Value counted = b.Create("nn.cum_sum", axis)->result(0);
    const Value sines = b.Create("nn.sin", std::span<const Value>(&counted, 1))->result(0);
    const Value back[] = {sines, shape};
    const std::vector<NamedAttribute> zeros{b.Named("allowzero", b.Attr(true))};
    const Value numbers = b.Create("nn.reshape", back, zeros)->result(0);
    numbers.set_type(like.type());
    return numbers;
  }

  Tensor Made(const Shape& shape, const std::vector<double>& data) const {
    return Cast(Tensor::Of<double>(shape, data), type_);
  }

  NamedValues Inputs(const OpSample& sample, double shift) {
    NamedValues inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      if (!IsTested(sample, i)) continue;
      std::vector<double> data = ToDoubles(sample.inputs[i].tensor());
      for (double& x : data) x += shift;
      inputs.emplace_back(StrCat("x", i), Made(sample.inputs[i].tensor().shape(), data));
    }
    return inputs;
  }

  static void Fetch(Builder& b, Value value, const std::string& name) {
    b.Create("nn.fetch", std::span<const Value>(&value, 1),
             std::vector<NamedAttribute>{b.Named("name", b.Attr(std::string_view(name)))});
  }

  /// The outcome of the sample in f64; at other inputs where the op is not defined on these.
  Outcome TryBoth(const OpSample& sample, std::string& why) {
    try {
      const Outcome outcome = Check(sample, 0, why);
      return outcome == Outcome::kOutside ? Check(sample, 2, why) : outcome;  // acosh, log ...
    } catch (const Error& e) {
      why = e.Render();
      return Outcome::kWrong;
    }
  }

  /// Compares on the sample's inputs, shifted; outside where the op is not defined there.
  Outcome Check(const OpSample& sample, double shift, std::string& why) {
    std::vector<Value> xs;
    Value loss;
    Program program = Build(sample, xs, loss);
    if (!loss) return Outcome::kRefused;
    Builder b = Builder::AtEnd(program.block());
    Constants facts(program);
    b.set_facts(&facts);
    std::vector<Value> gradients;
    try {
      gradients = BuildGradients(b, loss, xs);
    } catch (const Error& e) {
      why = e.message();
      return Outcome::kRefused;
    }
    Fetch(b, loss, "loss");
    for (size_t i = 0; i < xs.size(); ++i) Fetch(b, gradients[i], StrCat("d", i));
    VerifyOrThrow(program);
    return Compare(sample, program, xs.size(), shift, why);
  }

  Outcome Compare(const OpSample& sample, Program& program, size_t count, double shift,
                  std::string& why) {
    Interpreter interpreter(program, {.verify = false, .seed = kSeed});
    const NamedValues inputs = Inputs(sample, shift);
    const NamedValues outputs = interpreter.Run(inputs);
    const auto loss = [&](const NamedValues& at) {
      return ToDoubles(interpreter.Run(at)[0].second.tensor())[0];
    };
    if (!std::isfinite(loss(inputs))) return Outcome::kOutside;
    // The share that a dropout leaves out is a setting: the mask does not follow it smoothly. Where
    // a resize cuts out its region is one, too.
    if (sample.info.name() == "nn.dropout" || sample.info.name() == "nn.resize") count = 1;
    for (size_t i = 0; i < count; ++i) {
      const std::vector<double> actual = ToDoubles(Find(outputs, StrCat("d", i))->tensor());
      if (Find(outputs, StrCat("d", i))->tensor().shape() != inputs[i].second.tensor().shape()) {
        why = StrCat("gradient ", i, " has another shape");
        return Outcome::kWrong;
      }
      for (size_t k = 0; k < actual.size(); ++k) {
        const auto moved = [&](double by) {
          NamedValues other = inputs;
          const Tensor& at = inputs[i].second.tensor();
          std::vector<double> data = ToDoubles(at);
          data[k] += by;
          other[i].second = Made(at.shape(), data);
          return loss(other);
        };
        const double above = moved(step_), below = moved(-step_);
        const double slope = (above - below) / (2 * step_);
        if (!std::isfinite(slope)) return Outcome::kOutside;
        // Where the function jumps or bends it has no slope.
        const double right = (above - moved(0)) / step_;
        if (std::abs(right - slope) > 0.5 * (1 + std::abs(slope))) continue;
        if (std::abs(actual[k] - slope) <= tolerance_ * (1 + std::abs(slope))) continue;
        why = StrCat("operand ", inputs[i].first, "[", k, "]: ", actual[k], ", not ", slope);
        return Outcome::kWrong;
      }
    }
    return Outcome::kRight;
  }

  OpSampler sampler_;
  ElementType type_ = ElementType::kF64;
  double step_ = 0, tolerance_ = 0;
};

TEST_F(OpGradientTest, EveryGradientIsTheSlope) {
  size_t ops = 0, samples = 0;
  for (const OpInfo info : context_.ops()) {
    if (info.GetInterface<GradInterface>() == nullptr || info.HasTrait<Inplace>()) continue;
    // One is meant to be another, one has no sample from f64 to f64.
    if (info.name() == "nn.block_gradient" || info.name() == "nn.cast") continue;
    ++ops;
    ChooseType(info);
    size_t right = 0;
    std::string refused;
    for (OpSample& sample : sampler_.Samples(info)) {
      if (!MakeSample(sample, type_)) continue;
      std::string why;
      const Outcome outcome = TryBoth(sample, why);
      if (outcome == Outcome::kWrong) ADD_FAILURE() << sample.label << ": " << why;
      if (outcome == Outcome::kRefused) refused = why;
      right += outcome == Outcome::kRight ? 1 : 0;
    }
    samples += right;
    EXPECT_GT(right, 0u) << info.name() << " has no sample: " << refused;
  }
  std::cout << ops << " ops, " << samples << " samples\n";
  EXPECT_GE(ops, 125u);
}

// Ops without a rule of their own that are made of others.
TEST_F(OpGradientTest, OrThroughTheParts) {
  std::set<std::string> ops;
  for (const OpInfo info : context_.ops()) {
    if (info.GetInterface<GradInterface>() != nullptr || info.HasTrait<Inplace>()) continue;
    if (info.GetInterface<DecomposeInterface>() == nullptr) continue;
    ChooseType(info);
    for (OpSample& sample : sampler_.Samples(info)) {
      std::string why;
      if (!MakeSample(sample, type_)) continue;
      if (IsRounded(sample)) continue;  // GradientTest.StraightThroughRoundedRows
      const Outcome outcome = TryBoth(sample, why);
      if (outcome == Outcome::kWrong) ADD_FAILURE() << sample.label << ": " << why;
      if (outcome == Outcome::kRight) ops.emplace(info.name());
      if (outcome == Outcome::kRefused) std::cout << sample.label << ": " << why << "\n";
    }
  }
  for (const std::string& op : ops) std::cout << op << " ";
  std::cout << "\n";
  for (const char* op : {"nn.swi_glu", "nn.copy", "nn.mean_variance_normalization"}) {
    EXPECT_EQ(ops.count(op), 1u) << op;
  }
}

// ---- several ops ----

/// Ops with a gradient that take one or two tensors of f64 and nothing else that is required.
std::vector<OpInfo> SimpleOps(IrContext& context) {
  std::vector<OpInfo> ops;
  for (const OpInfo info : context.ops()) {
    if (info.GetInterface<GradInterface>() == nullptr || info.HasTrait<Inplace>() ||
        info.HasTrait<Random>() || info.name() == "nn.block_gradient") {
      continue;
    }
    const OpDef& def = *info.def();
    size_t required = 0;
    bool simple = !def.operands.empty() && !def.operands.back().variadic;
    for (size_t i = 0; i < def.operands.size(); ++i) {
      if (def.operands[i].optional) continue;
      ++required;
      simple = simple && Takes(info, i, ElementType::kF64);
    }
    for (const AttrDef& a : def.attributes) simple = simple && (a.optional || a.default_text);
    if (simple && required >= 1 && required <= 2) ops.push_back(info);
  }
  return ops;
}

class RandomGradientTest : public OpGradientTest {
 protected:
  static constexpr int64_t kMostElements = 40;

  /// A program that computes some of these of inputs x0, x1, x2 [2, 3]; its loss, or null.
  Value Grow(Program& program, RandomStream& random, std::vector<Value>& xs) {
    const std::vector<OpInfo> ops = SimpleOps(context_);
    Builder b = Builder::AtEnd(program.block());
    const Type type = VTensorType::Get(context_, SymShape{2, 3}, ElementType::kF64);
    std::vector<Value> values;
    for (int i = 0; i < 3; ++i) {
      const NamedAttribute name[] = {b.Named("name", b.Attr(StrCat("x", i)))};
      values.push_back(b.Create("nn.feed", {}, name, {&type, 1})->result(0));
    }
    xs = values;
    for (int tries = 0; tries < 200 && values.size() < 12; ++tries) {
      const OpInfo info = ops[random.NextU64() % ops.size()];
      std::vector<Value> operands;
      for (const ValueDef& def : info.def()->operands) {
        if (!def.optional) operands.push_back(values[random.NextU64() % values.size()]);
      }
      if (const Value made = Try(b, info, operands)) values.push_back(made);
    }
    for (size_t i = xs.size(); i < values.size(); ++i) Fetch(b, values[i], StrCat("v", i));
    Value loss;
    for (const Value v : values) {
      if (!v.has_one_use()) continue;  // read by others than its output
      const Value bounded = b.Create("nn.tanh", {&v, 1})->result(0);
      const Value sum = b.Create("nn.reduce_sum", {&bounded, 1},
                                 std::vector<NamedAttribute>{b.Named("keepdims", b.Attr(false))})
                            ->result(0);
      const Value both[] = {loss, sum};
      loss = loss ? b.Create("nn.add", both)->result(0) : sum;
    }
    return loss;
  }

  /// Whether all that was computed is so small that differences tell slopes.
  static bool IsTame(const NamedValues& outputs) {
    for (const auto& [name, value] : outputs) {
      if (!name.starts_with("v")) continue;
      for (const double v : ToDoubles(value.tensor())) {
        if (!(std::abs(v) < 100)) return false;
      }
    }
    return true;
  }

  static Value Try(Builder& b, OpInfo info, const std::vector<Value>& operands) {
    Operation* op = nullptr;
    try {
      op = b.CreateInferred(info, operands, {}, 1);
    } catch (const Error&) {
      return {};
    }
    const auto type = op->result(0).type().dyn_cast<AnyTensorType>();
    if (type && type.is_static() && type.element() == ElementType::kF64 &&
        NumElements(*type.shape().Constants()) <= kMostElements) {
      return op->result(0);
    }
    op->Erase();
    return {};
  }
};

TEST_F(RandomGradientTest, AreTheSlopesWhereTheseAreSmooth) {
  size_t compared = 0;
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    RandomStream random(seed);
    Program program(context_);
    std::vector<Value> xs;
    const Value loss = Grow(program, random, xs);
    if (!loss) continue;
    Builder b = Builder::AtEnd(program.block());
    std::set<std::string> ops;
    for (const Operation& op : *program.block()) ops.emplace(op.name());
    std::vector<Value> gradients;
    try {
      gradients = BuildGradients(b, loss, xs);
    } catch (const Error& e) {
      EXPECT_TRUE(e.id().starts_with("gradient/")) << e.Render();
      continue;
    }
    Fetch(b, loss, "loss");
    for (size_t i = 0; i < xs.size(); ++i) Fetch(b, gradients[i], StrCat("d", i));
    VerifyOrThrow(program);
    Interpreter interpreter(program, {.verify = false});
    NamedValues inputs;
    for (uint64_t i = 0; i < 3; ++i) {
      inputs.emplace_back(StrCat("x", i), RandomTensor(ElementType::kF64, {2, 3}, seed, i));
    }
    const auto run = [&](size_t i, size_t k, double by) {
      NamedValues at = inputs;
      at[i].second.mutable_tensor().mutable_data<double>()[k] += by;
      return interpreter.Run(at);
    };
    const auto loss_at = [&](size_t i, size_t k, double by) {
      return ToDoubles(Find(run(i, k, by), "loss")->tensor())[0];
    };
    const NamedValues outputs = run(0, 0, 0);
    if (!IsTame(outputs)) continue;
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<double> actual = ToDoubles(Find(outputs, StrCat("d", i))->tensor());
      for (size_t k = 0; k < actual.size(); ++k) {
        const double near = (loss_at(i, k, 1e-6) - loss_at(i, k, -1e-6)) / 2e-6;
        const double far = (loss_at(i, k, 2e-6) - loss_at(i, k, -2e-6)) / 4e-6;
        const double right = (loss_at(i, k, 1e-6) - loss_at(i, k, 0)) / 1e-6;
        const double scale = 1 + std::abs(near);
        if (!(std::abs(near - far) < 1e-6 * scale && std::abs(near - right) < 1e-4 * scale))
          continue;
        EXPECT_NEAR(actual[k], near, 1e-5 * scale) << "seed " << seed << "\n" << Print(program);
        ++compared;
        seen.insert(ops.begin(), ops.end());
      }
    }
    if (HasFailure()) break;
  }
  std::cout << compared << " slopes, " << seen.size() << " ops\n";
  EXPECT_GE(compared, 500u);
  EXPECT_GE(seen.size(), 40u);
}

// docs/gradients.md names all operations without a gradient, with reasons, and no others.
TEST_F(OpGradientTest, TheListOfOpsWithoutIsTrue) {
  std::ifstream page(LATHE_SOURCE_DIR "/docs/gradients.md");
  std::set<std::string> listed, expected;
  bool within = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) within = line == "## Operations without a gradient";
    for (size_t at = 0;
         within && line.starts_with("| ") && (at = line.find('`', at)) != line.npos;) {
      const size_t end = line.find('`', at + 1);
      ASSERT_NE(end, line.npos) << line;
      const std::string name = line.substr(at + 1, end - at - 1);
      if (name.find('.') != name.npos) {
        EXPECT_TRUE(listed.insert(name).second) << name;
      }
      at = end + 1;
    }
  }
  for (const OpInfo info : context_.ops()) {
    const std::string name(info.name());
    const bool has = info.GetInterface<GradInterface>() != nullptr ||
                     info.GetInterface<DecomposeInterface>() != nullptr || name == "cf.if" ||
                     name == "cf.while";
    if (!has && !info.HasTrait<Inplace>() && !name.starts_with("loop.")) expected.insert(name);
  }
  for (const std::string& name : expected)
    EXPECT_EQ(listed.count(name), 1u) << name << " is missing";
  for (const std::string& name : listed) EXPECT_EQ(expected.count(name), 1u) << name << " has one";
}

}  // namespace
}  // namespace lathe::testing
