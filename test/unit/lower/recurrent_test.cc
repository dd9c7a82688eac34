#include "lathe/driver/every_way.h"
#include "test/unit/lower/lower_util.h"

namespace lathe::lower {
namespace {

// A layer by the name of its operation; extents may be symbols.
struct Layer {
  std::string op;
  int64_t features, hidden;
  std::string steps = "S", batch = "N";
  std::string attributes = {};
  bool bias = true, lengths = false, states = false, peepholes = false;
};

std::string F32(std::string_view shape) { return StrCat("v_tensor<[", shape, "], f32>"); }

Case CaseOf(const Layer& l) {
  const int64_t gates = l.op == "lstm" ? 4 : l.op == "gru" ? 3 : 1;
  const int64_t d = l.attributes.find("bidirectional") == std::string::npos ? 1 : 2;
  const bool first = l.attributes.find("layout") != std::string::npos;
  const std::string h = StrCat(l.hidden), n = StrCat(gates * l.hidden);
  const std::string outer = first ? l.batch : l.steps, inner = first ? l.steps : l.batch;
  const std::string state =
      first ? F32(StrCat(l.batch, ", ", d, ", ", h)) : F32(StrCat(d, ", ", l.batch, ", ", h));
  Case c;
  std::string operands, types;
  const auto add = [&](bool present, const std::string& type) {
    operands += operands.empty() ? "" : ", ";
    types += types.empty() ? "" : ", ";
    operands += present ? StrCat("%", static_cast<char>('a' + c.arguments.size())) : "none";
    types += present ? type : "none";
    if (present) c.arguments.push_back(type);
  };
  add(true, F32(StrCat(outer, ", ", inner, ", ", l.features)));
  add(true, F32(StrCat(d, ", ", n, ", ", l.features)));
  add(true, F32(StrCat(d, ", ", n, ", ", h)));
  add(l.bias, F32(StrCat(d, ", ", 2 * gates * l.hidden)));
  add(l.lengths, StrCat("v_tensor<[", l.batch, "], i32>"));
  add(l.states, state);
  if (gates == 4) {
    add(l.states, state);
    add(l.peepholes, F32(StrCat(d, ", ", 3 * l.hidden)));
  }
  c.result = first ? F32(StrCat(outer, ", ", inner, ", ", d, ", ", h))
                   : F32(StrCat(outer, ", ", d, ", ", inner, ", ", h));
  c.more.assign(gates == 4 ? 2 : 1, state);
  std::string results = "%r", to = c.result;
  for (size_t i = 0; i < c.more.size(); ++i) {
    results += StrCat(", %r", i + 1);
    to += StrCat(", ", c.more[i]);
  }
  c.body = StrCat(results, " = nn.", l.op, "(", operands, ") {", l.attributes, "} : (", types,
                  ") -> (", to, ")");
  return c;
}

class RecurrentTest : public LowerTest {
 protected:
  void ExpectLayer(const Layer& layer) { Expect(CaseOf(layer), "recurrent", 1e-4); }
  void ExpectPlain(const Layer& layer) {
    SCOPED_TRACE(StrCat(layer.op, " ", layer.attributes));
    Expect(CaseOf(layer), "loops", 1e-5);
  }
};

TEST_F(RecurrentTest, EveryKindOfManySizes) {
  for (const char* op : {"rnn", "gru", "lstm"}) {
    ExpectLayer({op, 3, 5});
    ExpectLayer({op, 7, 16, "3", "2"});
    symbol_ = 1;
    ExpectLayer({op, 4, 19});
    symbol_ = 0;
    ExpectLayer({op, 4, 16});
    symbol_ = 5;
  }
}

TEST_F(RecurrentTest, PackedWeights) {
  constant_ = {false, true, true};
  for (const char* op : {"rnn", "gru", "lstm"}) {
    ExpectLayer({op, 7, 32, "3", "N"});
    ExpectLayer({op, 7, 16, "3", "7", "direction = \"bidirectional\""});
  }
}

TEST_F(RecurrentTest, DirectionsLengthsAndStates) {
  below_ = 5;  // whole sequences and parts of them
  for (const char* op : {"rnn", "gru", "lstm"}) {
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      const std::string attributes = StrCat("direction = \"", direction, "\"");
      ExpectLayer({op, 3, 6, "4", "3", attributes, false, false, true});
      ExpectLayer({op, 3, 6, "4", "3", StrCat(attributes, ", layout = true"), true, false, true});
    }
  }
}

TEST_F(RecurrentTest, Variants) {
  ExpectLayer({"gru", 3, 18, "4", "3", "linear_before_reset = true"});
  ExpectLayer({"gru", 3, 18, "4", "3", "linear_before_reset = true", false});
  ExpectLayer(
      {"lstm", 3, 18, "4", "3", "input_forget = true, clip = 0.5", true, false, true, true});
  ExpectLayer({"rnn", 3, 18, "4", "3", "activations = [\"Relu\"]"});
  ExpectLayer({"lstm", 3, 6, "4", "3", "activations = [\"Tanh\", \"Sigmoid\", \"Relu\"]"});
}

TEST_F(RecurrentTest, OnThreads) { ExpectLayer({"lstm", 8, 192, "2", "1"}); }

// What the strategy does not take, in the order of the definition.
TEST_F(RecurrentTest, PlainLoops) {
  only_ = "loops";
  for (const char* op : {"rnn", "gru", "lstm"}) {
    ExpectPlain({op, 3, 5});
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      const std::string attributes = StrCat("direction = \"", direction, "\"");
      ExpectPlain({op, 3, 6, "12", "3", attributes, true, true, true, true});
      ExpectPlain({op, 3, 6, "12", "3", StrCat(attributes, ", layout = true"), false, true});
    }
    for (const int64_t n : {0, 1}) {
      symbol_ = n;
      ExpectPlain({op, 4, 3});
    }
    symbol_ = 5;
  }
  ExpectPlain({"gru", 3, 4, "4", "3", "linear_before_reset = true, clip = 0.5"});
  ExpectPlain({"lstm", 3, 4, "4", "3", "input_forget = true, clip = 0.5", true, false, true, true});
  only_.clear();
  for (const char* f : {"Affine", "Elu", "HardSigmoid", "LeakyRelu", "ScaledTanh", "Softplus",
                        "Softsign", "ThresholdedRelu"}) {
    ExpectPlain({"rnn", 3, 4, "4", "3",
                 StrCat("activations = [\"", f,
                        "\"], activation_alpha = [0.5], activation_beta = [0.25]")});
  }
}

// A sequence is no longer than there are steps, which loops would read beyond.
TEST_F(RecurrentTest, LengthsThatAreNone) {
  // Of the strategy, and of plain loops.
  for (const char* f : {"Tanh", "Softsign"}) {
    const Case c =
        CaseOf({"rnn", 3, 4, "S", "2",
                StrCat("direction = \"reverse\", activations = [\"", f, "\"]"), true, true});
    Program program = ParseProgram(context_, ProgramOf(c), {.file_locations = false});
    NamedValues inputs = Inputs(program);
    const EveryWay executable(program, {.threads = 1, .strict = true});
    for (const int32_t length : {6, -1, 1000}) {
      inputs[4].second = Tensor::Of<int32_t>({2}, {5, length});
      EXPECT_THROW(executable.Run(inputs), Error) << length << " " << f;
    }
    inputs[4].second = Tensor::Of<int32_t>({2}, {5, 0});
    executable.Run(inputs);
  }
}

// States of other sequences than there are would be read beyond their end.
// That it is the same one is a condition on the sizes of each run.
TEST_F(RecurrentTest, StatesOfAnotherBatch) {
  Case c = CaseOf({"lstm", 3, 4, "S", "N", "", true, false, true});
  for (std::string& type : c.arguments) {
    if (type == F32("1, N, 4")) type = F32("1, M, 4");
  }
  for (size_t at = c.body.find(": ("); (at = c.body.find("[1, N, 4]", at)) < c.body.find("->");) {
    c.body.replace(at, 9, "[1, M, 4]");
  }
  Expect(c, "recurrent", 1e-5);
}

TEST_F(RecurrentTest, SaysWhyNot) {
  Case c = CaseOf({"rnn", 3, 4, "2", "1", "activations = [\"Softsign\"]"});
  const std::string why = Refusal(c);
  EXPECT_NE(why.find("recurrent: the activation is softsign"), std::string::npos) << why;
}

}  // namespace
}  // namespace lathe::lower
