#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/nn/activation.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/loss.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/norm.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/dialect/nn/order.h"
#include "lathe/dialect/nn/reduce.h"
#include "lathe/dialect/nn/shape.h"
#include "lathe/ir/context.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/pass/pass.h"
#include "lathe/pass/rewriter.h"
#include "lathe/support/error.h"
#include "src/dialect/nn/term.h"

namespace lathe {

namespace {

using nn::Term;

constexpr const char* kLossName = "loss";
constexpr const char* kCorrectName = "correct";

/// What a loss gives: a scalar, and where targets are classes, how many are predicted right.
struct Appended {
  Value loss, correct;
};

/// Makes a loss at the end of the program.
class LossBuilder {
 public:
  LossBuilder(Rewriter& b, std::string target, int64_t class_axis)
      : b_(b), target_(std::move(target)), class_axis_(class_axis) {}

  Appended CrossEntropy(Value scores) {
    const int64_t axis = ClassAxis(scores);
    scores = Wide(Logits(scores, axis));
    SymShape shape = scores.type().cast<AnyTensorType>().shape();
    shape.dims.erase(shape.dims.begin() + axis);
    Value labels = Target(shape, ElementType::kI64, "labels");
    if (const auto classes = ClassesInRows(scores, axis)) {
      scores = Reshaped(scores, {-1, *classes});
      labels = Reshaped(labels, {-1});
    } else {
      scores = ToFront(scores, axis);
    }
    // The loss is the last reader of the scores: their logarithms may lie in their place.
    const Value best = nn::ArgMaxOp::Create(b_, scores, {.axis = 1, .keepdims = false}).reduced();
    const Value correct = Count(nn::EqualOp::Create(b_, best, labels).c());
    const Value loss =
        b_.Create(nn::SoftmaxCrossEntropyLossOp::kName, {{scores, labels, Value()}}, {}, 1)
            ->result(0);
    return {loss, correct};
  }

  /// On logits z and targets t in [0, 1]: the mean of t softplus(-z) + (1 - t) softplus(z), which
  /// cancels nowhere and whose slope at 0 is right.
  Appended BinaryCrossEntropy(Value output) {
    Operation* made_by = output.defining_op();
    if (made_by != nullptr && made_by->isa<nn::SigmoidOp>()) output = made_by->operand(0);
    const Term z = Wide(output), t = TargetLike(z);
    const Term zero = z.Number(0), half = t.Number(0.5), one = t.Number(1);
    const Term loss = t * (zero - z).Call(nn::kSoftplus) + (one - t) * z.Call(nn::kSoftplus);
    const Value says = nn::GreaterOp::Create(b_, z, zero).c();
    const Value truth = nn::GreaterOp::Create(b_, t, half).c();
    return {Mean(loss), Count(nn::EqualOp::Create(b_, says, truth).c())};
  }

  Appended MeanSquare(Value output) {
    const Term x = Wide(output), difference = x - TargetLike(x);
    return {Mean(difference * difference), {}};
  }

  Appended MeanAbsolute(Value output) {
    const Term x = Wide(output);
    return {Mean(Abs(x - TargetLike(x))), {}};
  }

  /// The output is a loss, of one element.
  Appended Itself(Value output) {
    const auto elements = output.type().cast<AnyTensorType>().shape().NumElements();
    if (!elements.IsConstant(1)) {
      throw Error(ErrorCode::kShape, "loss/shape",
                  StrCat("the loss is ", output.type().ToString(), ", not one number"))
          .Hint("let the program take the mean or the sum of it");
    }
    const Value none =
        builtin::ConstantOp::Create(b_, {.value = Tensor::Of<int64_t>({0}, std::vector<int64_t>())})
            .result();
    return {nn::ReshapeOp::Create(b_, Wide(output), none).reshaped(), {}};
  }

 private:
  /// Losses are computed in f32 at least: a mean of many numbers of 16 bits is none of them.
  Term Wide(Value output) {
    const ElementType element = TensorOf(output).element();
    return As(Term(b_, output), BitWidth(element) < 32 ? ElementType::kF32 : element);
  }

  int64_t ClassAxis(Value scores) const {
    const auto rank = static_cast<int64_t>(scores.type().cast<AnyTensorType>().rank());
    const int64_t axis = class_axis_ < 0 ? class_axis_ + rank : class_axis_;
    if (rank >= 2 && axis >= 1 && axis < rank) return axis;
    throw Error(ErrorCode::kShape, "loss/shape",
                StrCat("cross_entropy of ", scores.type().ToString(), " with classes on axis ",
                       class_axis_))
        .Hint(
            "scores have shape [N, C] or [N, C, ...]; class_axis says which axis has the classes");
  }

  /// What a softmax at the end is computed from: the loss has its own.
  static Value Logits(Value scores, int64_t axis) {
    Operation* op = scores.defining_op();
    if (op == nullptr) return scores;
    std::optional<int64_t> over;
    if (const auto softmax = op->dyn_cast<nn::SoftmaxOp>()) over = softmax.axis();
    if (const auto log = op->dyn_cast<nn::LogSoftmaxOp>()) over = log.axis();
    if (!over) return scores;
    const auto rank = static_cast<int64_t>(scores.type().cast<AnyTensorType>().rank());
    return (*over < 0 ? *over + rank : *over) == axis ? op->operand(0) : scores;
  }

  /// How many classes there are, if they are the rows of a stack of matrices: these need no
  /// transposition to be those of one.
  static std::optional<int64_t> ClassesInRows(Value scores, int64_t axis) {
    const auto type = scores.type().cast<AnyTensorType>();
    const Dim classes = type.dims().back();
    const bool in_rows = axis > 1 && axis + 1 == static_cast<int64_t>(type.rank());
    if (!in_rows || !classes.is_constant() || classes.value() == 0) return std::nullopt;
    return classes.value();
  }

  Value Reshaped(Value x, const std::vector<int64_t>& shape) {
    const auto rank = static_cast<int64_t>(shape.size());
    const Value extents =
        builtin::ConstantOp::Create(b_, {.value = Tensor::Of<int64_t>({rank}, shape)}).result();
    return nn::ReshapeOp::Create(b_, x, extents).reshaped();
  }

  /// The classes on axis 1.
  Value ToFront(Value scores, int64_t axis) {
    if (axis == 1) return scores;
    std::vector<int64_t> order(scores.type().cast<AnyTensorType>().rank());
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin() + 1, order.begin() + axis, order.begin() + axis + 1);
    return nn::TransposeOp::Create(b_, scores, {.perm = order}).transposed();
  }

  Value Target(const SymShape& shape, ElementType element, const char* usual_name) {
    const std::string name = target_.empty() ? usual_name : target_;
    for (Operation* feed : b_.program().feeds()) {
      if (nn::FeedOp(feed).name() != name) continue;
      throw Error(ErrorCode::kInvalidArgument, "loss/target",
                  StrCat("the program has an input '", name, "' already"))
          .Hint("name the input of the targets otherwise: target=NAME");
    }
    const Type type = VTensorType::Get(b_.context(), shape, element);
    return nn::FeedOp::Create(b_, {&type, 1}, {.name = name}).value();
  }

  Term TargetLike(Value output) {
    const auto type = output.type().cast<AnyTensorType>();
    return {b_, Target(type.shape(), type.element(), "targets")};
  }

  Value Mean(Term x) {
    return nn::ReduceMeanOp::Create(b_, x, Value(), {.keepdims = false}).reduced();
  }

  /// How many are true, as f64: exact.
  Value Count(Value truth) {
    const Value ones = nn::CastOp::Create(b_, truth, {.to = ElementType::kF64}).output();
    return nn::ReduceSumOp::Create(b_, ones, Value(), {.keepdims = false}).reduced();
  }

  Rewriter& b_;
  std::string target_;
  int64_t class_axis_;
};

struct Kind {
  std::string_view name;
  Appended (LossBuilder::*make)(Value output);
};
constexpr std::array<Kind, 5> kKinds = {{
    {"cross_entropy", &LossBuilder::CrossEntropy},
    {"binary_cross_entropy", &LossBuilder::BinaryCrossEntropy},
    {"mse", &LossBuilder::MeanSquare},
    {"l1", &LossBuilder::MeanAbsolute},
    {"output", &LossBuilder::Itself},
}};

class AppendLossPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    Program& program = graph.program();
    const Kind& kind = FindKind(option("kind"));
    const std::vector<Operation*> fetches = program.fetches();
    const Value output = Output(fetches);
    Rewriter rewriter(program, this);
    rewriter.SetInsertionPointToEnd(program.block());
    LossBuilder builder(rewriter, option("target"), option_int("class_axis"));
    const Appended appended = (builder.*kind.make)(output);
    for (Operation* fetch : fetches) {
      const Value fetched = fetch->operand(0);
      rewriter.Erase(fetch);
      Operation* made_by = fetched.defining_op();
      const bool unused = made_by != nullptr && fetched.use_empty();
      if (unused && IsRemovableWhenUnused(made_by)) rewriter.EraseDead(made_by);
    }
    nn::FetchOp::Create(rewriter, appended.loss, {.name = kLossName});
    if (appended.correct) nn::FetchOp::Create(rewriter, appended.correct, {.name = kCorrectName});
  }

 private:
  static const Kind& FindKind(const std::string& name) {
    const auto at = std::ranges::find(kKinds, std::string_view(name), &Kind::name);
    if (at != kKinds.end()) return *at;
    std::vector<std::string_view> names;
    for (const Kind& kind : kKinds) names.push_back(kind.name);
    Error error(ErrorCode::kNotFound, "loss/kind", StrCat("there is no loss '", name, "'"));
    if (const std::string near = DidYouMean(name, names); !near.empty()) error.Hint(near);
    throw std::move(error.Hint(
        "the losses are cross_entropy, binary_cross_entropy, mse, l1, and the name of an output"));
  }

  Value Output(const std::vector<Operation*>& fetches) const {
    const std::string& name = option("output");
    std::vector<std::string> names;
    for (Operation* fetch : fetches) names.emplace_back(nn::FetchOp(fetch).name());
    if (name.empty() && fetches.size() != 1) {
      throw Error(ErrorCode::kInvalidArgument, "loss/output",
                  StrCat("the program has ", fetches.size(), " outputs"))
          .Hint("say which the loss is of: output=NAME");
    }
    const auto at = name.empty() ? names.begin() : std::ranges::find(names, name);
    if (at == names.end()) {
      throw Error(ErrorCode::kNotFound, "loss/output",
                  StrCat("the program has no output '", name, "'"))
          .Hint(DidYouMean(name, names));
    }
    return Checked(*at, fetches[static_cast<size_t>(at - names.begin())]->operand(0));
  }

  static Value Checked(const std::string& name, Value output) {
    const auto type = output.type().dyn_cast<AnyTensorType>();
    if (type && IsFloat(type.element()) && BitWidth(type.element()) >= 16 && type.has_rank()) {
      return output;
    }
    throw Error(ErrorCode::kType, "loss/type",
                StrCat("output '", name, "' is ", output.type().ToString(),
                       "; a loss is of a tensor of floats of 16 bits or more, of known rank"));
  }
};

REGISTER_PASS(append_loss, AppendLossPass)
    .Doc("appends a loss, which replaces the outputs of the program")
    .Details(
        "The outputs become `loss`, a scalar, and for classes `correct`, how many are predicted "
        "right (f64). The mean over all elements: `cross_entropy` of scores [N, C, ...] and labels "
        "i64 [N, ...]; `binary_cross_entropy` of logits and targets in [0, 1]; `mse` and `l1` of "
        "an output and targets of its shape. A softmax over the classes, or a sigmoid, at the end "
        "of the program is looked through: the loss is computed from what it reads, in f32 where "
        "that "
        "is of 16 bits. `output`: the "
        "output is the loss.")
    .Option("kind", PassOption::Kind::kString, "cross_entropy",
            "cross_entropy, binary_cross_entropy, mse, l1 or output")
    .Option("output", PassOption::Kind::kString, "", "of which output; empty: the only one")
    .Option("target", PassOption::Kind::kString, "",
            "name of the input of labels or targets; empty: labels for classes, else targets")
    .Option("class_axis", PassOption::Kind::kInt, "1", "axis of the classes of cross_entropy");

}  // namespace

}  // namespace lathe
