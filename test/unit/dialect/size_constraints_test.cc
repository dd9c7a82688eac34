#include "lathe/dialect/size_constraints.h"

#include <algorithm>
#include <cstring>
#include <iostream>
#include <set>

#include "lathe/ir/builder.h"
#include "lathe/ir/dialect.h"
#include "test/unit/dialect/op_sampler.h"
#include "test/unit/dialect/program_util.h"

namespace lathe::testing {
namespace {

// A dim per axis of each operand: every operand can have any extents.
std::string SymbolOf(size_t operand, size_t axis) { return StrCat("x", operand, "_", axis); }

// What is wrong depends on values, not only on sizes: targets of a loss, regions of a picture,
// positions, which of three widths a gate has.
bool IsAboutValues(const OpSample& sample, const Error& error) {
  static const std::set<std::string> ids = {"shape/loss-target", "shape/roi", "shape/rotary",
                                            "shape/linear-attention", "shape/reshape-zero"};
  static const std::set<std::string_view> ops = {"nn.slice_scatter"};
  return error.code() != ErrorCode::kShape || ids.contains(error.id()) ||
         ops.contains(sample.info.name());
}

// One op of the table with every extent a symbol, and what its constraints say of sizes.
class AnySizes {
 public:
  AnySizes(IrContext& context, const OpSample& sample, bool constants)
      : context_(context), sample_(sample), constants_(constants), program_(context) {
    Build();
    constraints_ = FindSizeConstraints(program_);
  }

  const OpSample& sample() const { return sample_; }

  bool is_constant(size_t i) const {
    const RtValue& value = sample_.inputs[i];
    return constants_ && value.is_tensor() && IsInteger(value.tensor().element_type());
  }

  // Whether nothing but sizes decides what the results' sizes are.
  bool SizesDecide() const {
    for (size_t i = 0; i < op_->num_results(); ++i) {
      const auto type = op_->result(i).type().dyn_cast<AnyTensorType>();
      if (!type || !type.has_rank()) return false;
      if (std::ranges::any_of(type.dims(), &Dim::is_unknown)) return false;
    }
    return true;
  }

  // The id of a constraint that does not hold, or an empty string.
  std::string Violated(const std::vector<RtValue>& inputs) const {
    const auto lookup = [&](std::string_view name) { return ExtentOf(inputs, name); };
    for (const SizeConstraint& c : constraints_) {
      if (!c.condition.Holds(lookup)) return StrCat(c.error.id(), " ", c.condition.ToString());
    }
    return "";
  }

  // The error of the reference, if any.
  std::optional<Error> Evaluate(const std::vector<RtValue>& inputs) const {
    try {
      const auto results = EvalOp(op_, inputs);
      CheckShapes(inputs, results);
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  }

 private:
  void Build() {
    Builder b = Builder::AtEnd(program_.block());
    ShapeInferencer facts(&program_.parameters());
    b.set_facts(&facts);
    std::vector<Value> operands;
    for (size_t i = 0; i < sample_.inputs.size(); ++i) operands.push_back(Operand(b, facts, i));
    std::vector<NamedAttribute> attributes;
    for (const auto& [name, value] : sample_.attributes) attributes.push_back(b.Named(name, value));
    op_ = b.CreateInferred(sample_.info, operands, attributes, sample_.num_results);
  }

  Value Operand(Builder& b, ShapeInferencer& facts, size_t i) {
    const RtValue& value = sample_.inputs[i];
    if (value.is_none()) return {};
    Operation* op = nullptr;
    if (is_constant(i)) {
      op = b.Create("builtin.constant", {},
                    std::vector<NamedAttribute>{b.Named("value", b.Attr(value.tensor()))});
    } else {
      std::vector<Dim> dims;
      for (size_t a = 0; a < value.tensor().shape().size(); ++a) {
        dims.push_back(Dim::Symbol(SymbolOf(i, a)));
      }
      const Type type = VTensorType::Get(context_, dims, value.tensor().element_type());
      op = b.Create("nn.feed", {},
                    std::vector<NamedAttribute>{b.Named("name", b.Attr(StrCat("x", i)))},
                    std::span<const Type>(&type, 1));
    }
    facts.Visit(op);
    const Value made = op->result(0);
    if (i > 0 || !sample_.info.HasTrait<Inplace>()) return made;
    return b.Create("builtin.to_tensor", std::span<const Value>(&made, 1))->result(0);
  }

  static std::optional<int64_t> ExtentOf(const std::vector<RtValue>& inputs,
                                         std::string_view name) {
    const size_t cut = name.find('_');
    const auto operand = static_cast<size_t>(*ParseInt(name.substr(1, cut - 1)));
    const auto axis = static_cast<size_t>(*ParseInt(name.substr(cut + 1)));
    return inputs[operand].tensor().shape()[axis];
  }

  // What the rule says of the results is what came out.
  void CheckShapes(const std::vector<RtValue>& inputs, const std::vector<RtValue>& results) const {
    for (size_t i = 0; i < results.size(); ++i) {
      const auto type = op_->result(i).type().dyn_cast<AnyTensorType>();
      if (!type || !type.has_rank() || !results[i].is_tensor()) continue;
      const Shape& shape = results[i].tensor().shape();
      bool same = shape.size() == type.rank();
      for (size_t d = 0; same && d < shape.size(); ++d) {
        const auto extent =
            type.dims()[d].Evaluate([&](std::string_view name) { return ExtentOf(inputs, name); });
        same = type.dims()[d].is_unknown() || extent == shape[d];
      }
      if (!same) {
        throw Error(ErrorCode::kShape, "test/other-shape",
                    StrCat("result ", i, " is ", results[i].tensor().TypeString(), ", inferred ",
                           type.ToString()));
      }
    }
  }

  IrContext& context_;
  const OpSample& sample_;
  bool constants_;
  Program program_;
  Operation* op_ = nullptr;
  std::vector<SizeConstraint> constraints_;
};

// The elements again and again.
Tensor Resized(const Tensor& x, const Shape& shape) {
  Tensor result(x.element_type(), shape);
  if (x.num_elements() == 0) return result;
  const Tensor flat = Cast(x, x.element_type());
  std::vector<int64_t> picks(static_cast<size_t>(result.num_elements()));
  for (size_t i = 0; i < picks.size(); ++i) picks[i] = static_cast<int64_t>(i) % x.num_elements();
  if (x.element_type() == ElementType::kString) {
    for (size_t i = 0; i < picks.size(); ++i) {
      result.mutable_data<std::string>()[i] = x.data<std::string>()[static_cast<size_t>(picks[i])];
    }
    return result;
  }
  if (BitWidth(x.element_type()) % 8 != 0) return result;
  const auto size = static_cast<size_t>(BitWidth(x.element_type()) / 8);
  for (size_t i = 0; i < picks.size(); ++i) {
    std::memcpy(result.mutable_raw() + i * size, x.raw() + static_cast<size_t>(picks[i]) * size,
                size);
  }
  return result;
}

class SizeConstraintsTest : public ProgramTest {
 protected:
  SizeConstraintsTest() : sampler_(context_, ReadSampleHints(), 20) {}

  // What the constraints and the reference say of other sizes; empty if they agree.
  std::string Compare(const AnySizes& op, const std::vector<RtValue>& inputs) {
    ++compared_;
    const std::string violated = op.Violated(inputs);
    const std::optional<Error> error = op.Evaluate(inputs);
    if (!violated.empty()) {
      ++refused_;
      return error ? "" : StrCat("refused without need: ", violated);
    }
    if (!error || IsAboutValues(op.sample(), *error) || !op.SizesDecide()) return "";
    return StrCat("not refused: ", error->id(), " ", error->message());
  }

  static std::string Sizes(const std::vector<RtValue>& inputs) {
    std::string text;
    for (const RtValue& v : inputs) {
      text += StrCat(" ", v.is_tensor() ? v.tensor().TypeString() : "-");
    }
    return text;
  }

  // Every operand with another extent along every axis.
  std::string CheckOthers(const OpSample& sample, const AnySizes& op) {
    if (const std::string why = Compare(op, sample.inputs); !why.empty()) {
      return StrCat(why, Sizes(sample.inputs));
    }
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      if (sample.inputs[i].is_none() || op.is_constant(i)) continue;
      const Tensor& x = sample.inputs[i].tensor();
      for (size_t a = 0; a < x.shape().size(); ++a) {
        for (const int64_t extent : {0, 1, 2, 3, 4, 5, 6, 9}) {
          if (extent == x.shape()[a]) continue;
          Shape shape = x.shape();
          shape[a] = extent;
          std::vector<RtValue> inputs = sample.inputs;
          inputs[i] = Resized(x, shape);
          const std::string why = Compare(op, inputs);
          if (!why.empty()) return StrCat(why, Sizes(inputs));
        }
      }
    }
    return "";
  }

  OpSampler sampler_;
  size_t compared_ = 0, refused_ = 0;
};

bool AllTensors(const OpSample& sample) {
  return std::ranges::all_of(sample.inputs,
                             [](const RtValue& v) { return v.is_none() || v.is_tensor(); });
}

TEST_F(SizeConstraintsTest, SayOfEveryOpWhatTheReferenceSays) {
  for (const OpInfo info : context_.ops()) {
    if (!info.name().starts_with("nn.") || !sampler_.ReasonAgainst(info).empty()) continue;
    std::set<std::string> problems;
    for (const OpSample& sample : sampler_.Samples(info)) {
      if (!AllTensors(sample)) continue;
      for (const bool constants : {true, false}) {
        const std::string why = CheckOthers(sample, AnySizes(context_, sample, constants));
        if (!why.empty()) problems.insert(StrCat(sample.label, " ", why));
      }
    }
    if (!problems.empty()) ADD_FAILURE() << *problems.begin();
  }
  std::cout << compared_ << " sets of sizes, " << refused_ << " refused\n";
}

}  // namespace
}  // namespace lathe::testing
