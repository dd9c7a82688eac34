// Every op that has a gradient, on sampled inputs in f64, beside central differences.
#include <cmath>
#include <iostream>
#include <set>

#include "lathe/dialect/gradient.h"
#include "lathe/ir/builder.h"
#include "lathe/pass/rewriter.h"
#include "test/unit/dialect/op_sampler.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

constexpr uint64_t kSeed = 11;
constexpr double kStep = 1e-6;

bool IsF64(const RtValue& value) {
  return value.is_tensor() && value.tensor().element_type() == ElementType::kF64;
}

/// The usual sample, of f32, in f64. False if it has other floats or none.
bool MakeDouble(OpSample& sample) {
  bool any = false;
  for (RtValue& v : sample.inputs) {
    if (!v.is_tensor() || !IsFloat(v.tensor().element_type())) continue;
    if (v.tensor().element_type() != ElementType::kF32) return false;
    v = Cast(v.tensor(), ElementType::kF64);
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

  Value Constant(Builder& b, const Tensor& t) {
    return b
        .Create("builtin.constant", {}, std::vector<NamedAttribute>{b.Named("value", b.Attr(t))})
        ->result(0);
  }

  /// f64 inputs -> the op -> the sum of its f64 results, each element times a number of its own.
  Program Build(const OpSample& sample, std::vector<Value>& xs, Value& loss) {
    Program program(context_);
    Builder b = Builder::AtEnd(program.block());
    ShapeInferencer facts(&program.parameters());
    b.set_facts(&facts);
    std::vector<Value> operands;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      const RtValue& v = sample.inputs[i];
      operands.push_back(v.is_none() ? Value() : Operand(b, v, i));
      if (IsF64(v)) xs.push_back(operands.back());
      if (operands.back()) facts.Visit(operands.back().defining_op());
    }
    std::vector<NamedAttribute> attributes;
    for (const auto& [name, value] : sample.attributes) attributes.push_back(b.Named(name, value));
    Operation* op = b.CreateInferred(sample.info, operands, attributes, sample.num_results);
    for (size_t i = 0; i < op->num_results(); ++i) {
      const auto type = op->result(i).type().dyn_cast<AnyTensorType>();
      if (!type || type.element() != ElementType::kF64 || !Wanted(op, i)) continue;
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

  Value Operand(Builder& b, const RtValue& v, size_t i) {
    if (!IsF64(v)) return Constant(b, v.tensor());
    const Type type =
        VTensorType::Get(context_, SymShape::FromConstants(v.tensor().shape()), ElementType::kF64);
    return b
        .Create("nn.feed", {}, std::vector<NamedAttribute>{b.Named("name", b.Attr(StrCat("x", i)))},
                std::span<const Type>(&type, 1))
        ->result(0);
  }

  /// Numbers that differ from element to element: sin(1), sin(2) ... in that shape.
  Value Numbered(Builder& b, Value shape, Value like) {
    const Tensor two = Tensor::Of<double>({1}, {2});
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

  NamedValues Inputs(const OpSample& sample, double shift) {
    NamedValues inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      if (!IsF64(sample.inputs[i])) continue;
      RtValue value = sample.inputs[i];
      const std::span<double> data = value.mutable_tensor().mutable_data<double>();
      for (double& x : data) x += shift;
      inputs.emplace_back(StrCat("x", i), std::move(value));
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
    // The share that a dropout leaves out is a setting: the mask does not follow it smoothly.
    if (sample.info.name() == "nn.dropout") count = 1;
    for (size_t i = 0; i < count; ++i) {
      const std::vector<double> actual = ToDoubles(Find(outputs, StrCat("d", i))->tensor());
      if (Find(outputs, StrCat("d", i))->tensor().shape() != inputs[i].second.tensor().shape()) {
        why = StrCat("gradient ", i, " has another shape");
        return Outcome::kWrong;
      }
      for (size_t k = 0; k < actual.size(); ++k) {
        const auto moved = [&](double by) {
          NamedValues other = inputs;
          other[i].second.mutable_tensor().mutable_data<double>()[k] += by;
          return loss(other);
        };
        const double slope = (moved(kStep) - moved(-kStep)) / (2 * kStep);
        if (!std::isfinite(slope)) return Outcome::kOutside;
        if (std::abs(actual[k] - slope) <= 1e-5 * (1 + std::abs(slope))) continue;
        why = StrCat("operand ", inputs[i].first, "[", k, "]: ", actual[k], ", not ", slope);
        return Outcome::kWrong;
      }
    }
    return Outcome::kRight;
  }

  OpSampler sampler_;
};

TEST_F(OpGradientTest, EveryGradientIsTheSlope) {
  size_t ops = 0, samples = 0;
  for (const OpInfo info : context_.ops()) {
    if (info.GetInterface<GradInterface>() == nullptr || info.HasTrait<Inplace>()) continue;
    // One is meant to be another, one has no sample from f64 to f64.
    if (info.name() == "nn.block_gradient" || info.name() == "nn.cast") continue;
    ++ops;
    size_t right = 0;
    std::string refused;
    for (OpSample& sample : sampler_.Samples(info)) {
      if (!MakeDouble(sample)) continue;
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
  EXPECT_GE(ops, 90u);
}

// Ops without a rule of their own that are made of others.
TEST_F(OpGradientTest, OrThroughTheParts) {
  std::set<std::string> ops;
  for (const OpInfo info : context_.ops()) {
    if (info.GetInterface<GradInterface>() != nullptr || info.HasTrait<Inplace>()) continue;
    if (info.GetInterface<DecomposeInterface>() == nullptr) continue;
    for (OpSample& sample : sampler_.Samples(info)) {
      std::string why;
      if (!MakeDouble(sample)) continue;
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

}  // namespace
}  // namespace lathe::testing
