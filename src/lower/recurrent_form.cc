#include "src/lower/recurrent_form.h"

#include <algorithm>
#include <cctype>

#include "lathe/dialect/nn/rnn.h"
#include "lathe/support/error.h"
#include "src/lower/compute/fits.h"

namespace lathe::lower {
namespace {

std::string_view TextOf(const Operation* op, std::string_view name) {
  return op->attribute(name).cast<StrAttribute>().value();
}
bool FlagOf(const Operation* op, std::string_view name) {
  const auto flag = op->attribute(name).dyn_cast<BoolAttribute>();
  return flag && flag.value();
}

}  // namespace

bool RecurrentForm::IsResult(size_t result) const {
  return std::ranges::find(results, result) != results.end();
}

std::string RecurrentForm::Read(const Block& function) {
  for (const Operation& o : function) {
    if (o.HasTrait<Terminator>()) continue;
    const bool known = o.name() == nn::RnnOp::kName || o.name() == nn::GruOp::kName ||
                       o.name() == nn::LstmOp::kName;
    if (!known || op != nullptr) return "it is not a recurrent layer alone";
    op = &o;
  }
  if (op == nullptr) return "there is no recurrent layer";
  const Operation* end = function.terminator();
  for (size_t i = 0; i < end->num_operands(); ++i) {
    if (end->operand(i).defining_op() != op) return "an argument is given back";
    results.push_back(end->operand(i).index());
  }
  for (size_t i = 0; i < op->num_operands(); ++i) {
    const Value v = op->operand(i);
    if (!v || v.type().isa<NoneType>()) continue;
    const auto type = v.type().dyn_cast<AnyTensorType>();
    if (!v.is_block_argument() || !type || !type.has_rank()) return "an operand is not an argument";
    const bool of_f32 = type.element() == ElementType::kF32;
    if (i != nn::LstmOp::kSequenceLens && !of_f32)
      return StrCat("elements are ", Name(type.element()));
  }
  const std::string why = ReadOperation();
  return why.empty() ? Misfit() : why;
}

// Loops do not look whether extents agree.
std::string RecurrentForm::Misfit() const {
  Fits fits(*op);
  const auto is = [&](Value v, const std::vector<Dim>& dims) {
    if (v) fits.Same(v, dims);
  };
  const Dim d = directions, rows = gates * hidden;
  is(w, {d, rows, TensorOf(x).dims()[2]});
  is(r, {d, rows, hidden});
  is(bias, {d, rows * 2});
  is(lengths, {batch});
  for (const Value v : {state, cell}) {
    is(v, batch_first ? std::vector<Dim>{batch, d, hidden} : std::vector<Dim>{d, batch, hidden});
  }
  is(peepholes, {d, Dim(hidden) * 3});
  return fits.why();
}

std::string RecurrentForm::ReadOperation() {
  const auto operand = [&](size_t i) {
    const bool present =
        i < op->num_operands() && op->operand(i) && !op->operand(i).type().isa<NoneType>();
    return present ? op->operand(i) : Value();
  };
  x = operand(0), w = operand(1), r = operand(2), bias = operand(3);
  lengths = operand(4), state = operand(5), cell = operand(6), peepholes = operand(7);
  batch_first = FlagOf(op, "layout");
  couples = FlagOf(op, "input_forget");
  linear_first = FlagOf(op, "linear_before_reset");
  reverse = TextOf(op, "direction") == "reverse";
  directions = TextOf(op, "direction") == "bidirectional" ? 2 : 1;
  if (const auto bound = op->attribute("clip").dyn_cast<FloatAttribute>()) clip = bound.value();
  steps = TensorOf(x).dims()[batch_first ? 1 : 0];
  batch = TensorOf(x).dims()[batch_first ? 0 : 1];
  const Dim in = TensorOf(w).dims()[2], out = TensorOf(r).dims()[2];
  if (!in.is_constant() || !out.is_constant()) return "weights are of unknown extents";
  features = in.value();
  hidden = out.value();
  if (features == 0 || hidden == 0) return "there is nothing to multiply";
  if (op->name() == nn::RnnOp::kName) return ReadFunctions({"tanh"});
  kind = op->name() == nn::GruOp::kName ? Kind::kGru : Kind::kLstm;
  gates = kind == Kind::kGru ? 3 : 4;
  if (kind == Kind::kGru) return ReadFunctions({"sigmoid", "tanh"});
  return ReadFunctions({"sigmoid", "tanh", "tanh"});
}

std::string RecurrentForm::ReadFunctions(std::vector<std::string> defaults) {
  std::vector<std::string> names;
  if (const auto given = op->attribute("activations").dyn_cast<ArrayAttribute>()) {
    for (const Attribute name : given.values()) {
      names.emplace_back(name.cast<StrAttribute>().value());
    }
  }
  const size_t count = defaults.size() * static_cast<size_t>(directions);
  while (names.size() < count) names.insert(names.end(), defaults.begin(), defaults.end());
  names.resize(count);
  for (std::string& name : names) {
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (name == "sigmoid") {
      functions.push_back(Function::kSigmoid);
    } else if (name == "tanh") {
      functions.push_back(Function::kTanh);
    } else if (name == "relu") {
      functions.push_back(Function::kRelu);
    } else {
      return StrCat("the activation is ", name);
    }
  }
  return "";
}

}  // namespace lathe::lower
