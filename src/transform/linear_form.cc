#include "src/transform/linear_form.h"

#include <algorithm>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/pass/rewriter.h"
#include "src/transform/slices.h"
#include "src/transform/trailing_axes.h"

namespace lathe {

namespace {

std::optional<int64_t> LastExtent(Value value) {
  const auto type = value.type().dyn_cast<AnyTensorType>();
  if (!type || !type.has_rank() || type.rank() == 0) return std::nullopt;
  const Dim& last = type.dims().back();
  return last.is_constant() ? std::optional(last.value()) : std::nullopt;
}

class Reader {
 public:
  Reader(const Program& program, int64_t width) : program_(program) {
    form_.width = width;
    form_.bias.assign(static_cast<size_t>(width), 0.0);
  }

  /// Adds the columns of `value` from `begin` on; false: it is no linear form.
  bool Read(Value value, int64_t begin) {
    constexpr size_t kMaxParts = 256;  // a gate has a handful
    todo_ = {{value, begin}};
    for (size_t i = 0; i < todo_.size(); ++i) {
      const Part part = todo_[i];
      if (todo_.size() > kMaxParts || !ReadPart(part)) return false;
    }
    return true;
  }
  LinearForm Take() { return std::move(form_); }

 private:
  struct Part {
    Value value;
    int64_t begin;  ///< first column
  };

  bool ReadPart(const Part& part) {
    if (const Tensor* constant = ConstantValue(program_, part.value)) {
      return AddConstant(*constant, part.begin);
    }
    const Operation* op = part.value.defining_op();
    if (op == nullptr || RankOf(part.value) != 2) return false;
    if (op->name() == nn::kAdd) return PushOperand(op, 0, part) && PushOperand(op, 1, part);
    if (op->name() == nn::kMatmul) return AddMatmul(op, part);
    if (op->name() == nn::kGemm) return AddGemm(op, part);
    const std::optional<SliceOf> slice = AsSlice(program_, part.value);
    if (!slice || slice->axis != 1 || slice->step != 1) return false;
    todo_.push_back({slice->whole, slice->begin + part.begin});
    return true;
  }

  /// Operands have the columns of the sum, or are constants of one element.
  bool PushOperand(const Operation* op, size_t i, const Part& part) {
    const Value operand = op->operand(i);
    const Tensor* constant = ConstantValue(program_, operand);
    const bool scalar = constant != nullptr && constant->num_elements() == 1;
    if (!scalar && LastExtent(operand) != LastExtent(op->result(0))) return false;
    todo_.push_back({operand, part.begin});
    return true;
  }

  bool AddConstant(const Tensor& constant, int64_t begin) {
    const int64_t count = constant.num_elements();
    if (!IsFloat(constant.element_type())) return false;
    const std::vector<double> values = ToDoubles(constant);
    const bool row =
        constant.rank() >= 1 && constant.dim(-1) == count && begin + form_.width <= count;
    if (!row && count != 1) return false;
    for (size_t i = 0; i < form_.bias.size(); ++i) {
      form_.bias[i] += values[row ? static_cast<size_t>(begin) + i : 0];
    }
    return true;
  }

  bool AddMatmul(const Operation* op, const Part& part) {
    if (Flag(op, "transpose_x")) return false;
    return AddProduct(op->operand(0), op->operand(1), Flag(op, "transpose_y"), part.begin);
  }

  bool AddGemm(const Operation* op, const Part& part) {
    const auto is_one = [&](const char* name) {
      const auto number = op->attribute(name).dyn_cast<FloatAttribute>();
      return number && number.value() == 1;
    };
    if (Flag(op, "transA") || !is_one("alpha") || !is_one("beta")) return false;
    if (op->num_operands() > 2 && op->operand(2) && !PushOperand(op, 2, part)) return false;
    return AddProduct(op->operand(0), op->operand(1), Flag(op, "transB"), part.begin);
  }

  bool AddProduct(Value x, Value weight, bool transposed, int64_t begin) {
    const Tensor* w = ConstantValue(program_, weight);
    if (w == nullptr || w->rank() != 2 || RankOf(x) != 2 || !IsFloat(w->element_type())) {
      return false;
    }
    const int64_t rows = w->dim(transposed ? 1 : 0), columns = w->dim(transposed ? 0 : 1);
    if (begin + form_.width > columns) return false;
    const std::vector<double> all = ToDoubles(*w);
    std::vector<double> part(static_cast<size_t>(rows * form_.width));
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < form_.width; ++j) {
        const int64_t from = transposed ? (begin + j) * rows + i : i * columns + begin + j;
        part[static_cast<size_t>(i * form_.width + j)] = all[static_cast<size_t>(from)];
      }
    }
    return AddTerms(x, rows, part);
  }

  /// A concatenated input makes a term of each of its parts.
  bool AddTerms(Value x, int64_t rows, const std::vector<double>& w) {
    const Operation* op = x.defining_op();
    const auto axis = op == nullptr || op->name() != nn::kConcat
                          ? IntAttribute()
                          : op->attribute("axis").dyn_cast<IntAttribute>();
    if (!axis || AxisFromFront(axis.value(), x) != 1) {
      AddTerm(x, rows, w);
      return true;
    }
    auto at = w.begin();
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const std::optional<int64_t> extent = LastExtent(op->operand(i));
      if (!extent || w.end() - at < *extent * form_.width) return false;
      AddTerm(op->operand(i), *extent, {at, at + *extent * form_.width});
      at += *extent * form_.width;
    }
    return true;
  }

  void AddTerm(Value x, int64_t rows, std::vector<double> w) {
    for (LinearTerm& term : form_.terms) {
      if (term.x != x) continue;
      std::transform(w.begin(), w.end(), term.w.begin(), term.w.begin(), std::plus<>());
      return;
    }
    form_.terms.push_back({x, rows, std::move(w)});
  }

  static bool Flag(const Operation* op, const char* name) {
    const auto flag = op->attribute(name).dyn_cast<BoolAttribute>();
    return flag && flag.value();
  }

  const Program& program_;
  LinearForm form_;
  std::vector<Part> todo_;
};

}  // namespace

const LinearTerm* LinearForm::Of(Value x) const {
  for (const LinearTerm& term : terms) {
    if (term.x == x) return &term;
  }
  return nullptr;
}

std::optional<LinearForm> AsLinearForm(const Program& program, Value value, int64_t begin,
                                       int64_t width) {
  const std::optional<int64_t> extent = LastExtent(value);
  if (!extent || RankOf(value) != 2 || width < 1 || begin + width > *extent) return std::nullopt;
  Reader reader(program, width);
  if (!reader.Read(value, begin)) return std::nullopt;
  return reader.Take();
}

}  // namespace lathe
