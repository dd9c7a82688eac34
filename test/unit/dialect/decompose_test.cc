#include <iostream>

#include "lathe/ir/builder.h"
#include "lathe/pass/pass.h"
#include "test/unit/dialect/op_sampler.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

constexpr uint64_t kSeed = 21;

class DecomposeTest : public ProgramTest {
 protected:
  DecomposeTest() : sampler_(context_, ReadSampleHints(), kSeed) {}

  Program Build(const OpSample& sample) {
    Program program(context_);
    Builder b = Builder::AtEnd(program.block());
    ShapeInferencer facts(&program.parameters());
    b.set_facts(&facts);
    std::vector<Value> operands;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      if (sample.inputs[i].is_none()) {
        operands.emplace_back();
        continue;
      }
      const Tensor& t = sample.inputs[i].tensor();
      const Type type =
          VTensorType::Get(context_, SymShape::FromConstants(t.shape()), t.element_type());
      const NamedAttribute name = b.Named("name", b.Attr(StrCat("x", i)));
      operands.push_back(b.Create("nn.feed", {}, {&name, 1}, {&type, 1})->result(0));
    }
    std::vector<NamedAttribute> attributes{b.Named("mark", b.Attr(int64_t{7}))};
    for (const auto& [name, value] : sample.attributes) attributes.push_back(b.Named(name, value));
    Operation* op = b.CreateInferred(sample.info, operands, attributes, sample.num_results);
    for (size_t i = 0; i < op->num_results(); ++i) {
      const Value value = op->result(i);
      const NamedAttribute name = b.Named("name", b.Attr(StrCat("y", i)));
      b.Create("nn.fetch", {&value, 1}, {&name, 1});
    }
    return program;
  }

  NamedValues Run(Program& program, const OpSample& sample) {
    NamedValues inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      if (!sample.inputs[i].is_none()) inputs.emplace_back(StrCat("x", i), sample.inputs[i]);
    }
    return Interpreter(program, {.seed = kSeed}).Run(inputs);
  }

  static double Tolerance(const OpSample& sample) {
    double least = 1e-9;
    for (const RtValue& v : sample.inputs) {
      if (v.is_none() || !IsFloat(v.tensor().element_type())) continue;
      const int bits = static_cast<int>(BitWidth(v.tensor().element_type()));
      least = std::max(least, bits == 16 ? 6e-2 : bits == 32 ? 2e-5 : 1e-9);
    }
    return least;
  }

  // Whether the sample was decomposed; fails if the results are others.
  bool Check(const OpSample& sample) {
    Program program = Build(sample);
    const NamedValues expected = Run(program, sample);
    PassRegistry::Global().Make("decompose")->Apply(program);
    const NamedValues actual = Run(program, sample);
    EXPECT_EQ(expected.size(), actual.size());
    const double tolerance = Tolerance(sample);
    for (size_t i = 0; i < expected.size(); ++i) {
      const Closeness c = AllClose(actual[i].second, expected[i].second, tolerance, tolerance);
      EXPECT_TRUE(c.close) << sample.label << " result " << i << ": " << c.description << "\n"
                           << Print(program);
    }
    bool decomposed = true;
    for (Operation& op : *program.block()) {
      decomposed &= op.info() != sample.info;
      if (op.info() == sample.info || op.num_operands() == 0 || op.name() == "nn.fetch") continue;
      EXPECT_TRUE(op.attribute("mark")) << sample.label << ": " << op.name() << " lost 'mark'";
    }
    return decomposed;
  }

  OpSampler sampler_;
};

TEST_F(DecomposeTest, EveryOpAgreesWithItsEval) {
  size_t ops = 0, samples = 0;
  for (const OpInfo info : context_.ops()) {
    if (info.GetInterface<DecomposeInterface>() == nullptr) continue;
    size_t decomposed = 0;
    for (const OpSample& sample : sampler_.Samples(info)) {
      try {
        decomposed += Check(sample) ? 1 : 0;
      } catch (const Error& error) {
        ADD_FAILURE() << sample.label << ": " << error.Render();
      }
    }
    EXPECT_GT(decomposed, 0U) << info.name();
    samples += decomposed;
    ++ops;
  }
  EXPECT_GE(ops, 35U);
  std::cout << samples << " samples of " << ops << " ops decomposed\n";
}

}  // namespace
}  // namespace lathe::testing
