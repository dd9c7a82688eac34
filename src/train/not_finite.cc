#include <algorithm>
#include <cmath>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/ir/context.h"
#include "lathe/ir/traits.h"
#include "lathe/pass/pass_manager.h"
#include "lathe/support/error.h"
#include "src/train/step_runner.h"

namespace lathe::train {
namespace {

// Of the first element that is not finite; -1 if all are.
int64_t FirstNotFinite(const Tensor& tensor) {
  if (!IsFloat(tensor.element_type())) return -1;
  if (tensor.element_type() == ElementType::kF32) {
    const auto values = tensor.data<float>();
    const auto at = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
    return at == values.end() ? -1 : at - values.begin();
  }
  const std::vector<double> values = ToDoubles(tensor);
  const auto at = std::ranges::find_if(values, [](double v) { return !std::isfinite(v); });
  return at == values.end() ? -1 : at - values.begin();
}

bool HoldsFinite(const RtValue& value) {
  return !value.is_tensor() || FirstNotFinite(value.tensor()) < 0;
}

std::string IndexText(int64_t element, const Shape& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t a = shape.size(); a-- > 0;) {
    index[a] = element % shape[a];
    element /= shape[a];
  }
  return ShapeToString(index);
}

std::string ElementText(const Tensor& tensor) {
  const int64_t at = FirstNotFinite(tensor);
  const double value = ToDoubles(tensor)[static_cast<size_t>(at)];
  return StrCat(std::isnan(value) ? "nan"
                : value > 0       ? "inf"
                                  : "-inf",
                " at ", IndexText(at, tensor.shape()), " of ", tensor.TypeString());
}

// Watches a run for values that are not finite: what comes from outside, and the first that is
// computed of finite ones.
class Watch {
 public:
  void Look(const RanOp& ran) {
    const bool is_constant = ran.op->HasTrait<ConstantLike>();
    if (!found_.what.empty() || is_constant || !std::ranges::all_of(ran.inputs, &HoldsFinite))
      return;
    for (const RtValue& value : ran.outputs) {
      if (HoldsFinite(value)) continue;
      NotFinite& to = IsSource(ran.op) ? given_ : found_;
      if (to.what.empty()) to = Describe(ran.op, value.tensor());
    }
  }

  NotFinite result() const { return found_.what.empty() ? given_ : found_; }

 private:
  static bool IsSource(const Operation* op) {
    return op->isa<nn::FeedOp>() || op->isa<builtin::GetParameterOp>();
  }
  static NotFinite Describe(const Operation* op, const Tensor& value) {
    std::string where;
    if (!op->location().is_unknown()) where = op->location().ToString(*op->context());
    const std::string name =
        IsSource(op) ? std::string(op->attribute("name").cast<StrAttribute>().value()) : "";
    const std::string text = ElementText(value);
    if (op->isa<nn::FeedOp>()) return {StrCat("the data for '", name, "' have ", text), where};
    if (IsSource(op)) return {StrCat("parameter '", name, "' has ", text), where};
    return {StrCat(op->name(), " makes ", text, ", of finite operands"), where};
  }

  NotFinite found_, given_;
};

}  // namespace

bool IsFinite(const Tensor& tensor) { return FirstNotFinite(tensor) < 0; }

NotFinite FindNotFinite(const Program& step, const StepState& state, const NamedValues& inputs,
                        uint64_t seed) {
  Program program = step.Clone();
  PassManager manager;  // as compilation does first, so that the masks are those of the step
  manager.Add(StrCat("random_state{seed=", static_cast<int64_t>(seed), "}"));
  manager.Run(program);
  for (const auto& [name, tensor] : state) {
    if (Variable* variable = program.parameters().Find(name)) variable->data = tensor;
  }
  Watch watch;
  InterpreterOptions options{.verify = false};
  options.observer = [&](const RanOp& ran) { watch.Look(ran); };
  (void)Interpreter(program, std::move(options)).Run(inputs);
  return watch.result();
}

}  // namespace lathe::train
