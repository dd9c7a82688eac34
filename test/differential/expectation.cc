#include "test/differential/expectation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <set>
#include <unordered_map>

#include "lathe/dialect/op_kind.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/support/random.h"
#include "test/differential/evaluate.h"
#include "test/differential/excuses.h"

namespace lathe::testing {

namespace {

/// The error of one operation, relative: rounding, and for f32 and f64 that of approximations.
double PrecisionOf(ElementType element) {
  switch (element) {
    case ElementType::kF64:
      return 0x1p-49;
    case ElementType::kF32:
      return 0x1p-21;
    case ElementType::kF16:
      return 0x1p-10;
    case ElementType::kBF16:
      return 0x1p-7;
    default:
      return 0.13;  // 8 bits and less
  }
}

/// Below these, numbers may be flushed or lose bits.
double TinyOf(ElementType element) {
  switch (element) {
    case ElementType::kF64:
      return 1e-300;
    case ElementType::kF16:
      return 1e-6;
    default:
      return 1e-36;
  }
}

double LargestOf(ElementType element) {
  switch (element) {
    case ElementType::kF64:
      return 1e300;
    case ElementType::kF16:
      return 6e4;
    default:
      return 1e38;
  }
}

bool IsReal(const Tensor& t) { return IsFloat(t.element_type()); }

/// Whether all elements are small multiples of 1/64, with room to spare for products and sums.
bool IsCoarse(const Tensor& t) {
  if (!IsReal(t)) return true;
  const double limit = 0.002 / PrecisionOf(t.element_type());
  return std::ranges::all_of(ToDoubles(t), [&](double v) {
    return std::isfinite(v) && std::abs(v) <= limit && std::floor(v * 64) == v * 64;
  });
}

bool Chooses(std::string_view op) {
  static const std::set<std::string_view> kOps = {"abs",       "neg",           "relu",
                                                  "sign",      "floor",         "ceil",
                                                  "round",     "min",           "max",
                                                  "clip",      "where",         "equal",
                                                  "less",      "greater",       "identity",
                                                  "not",       "and",           "or",
                                                  "xor",       "is_nan",        "is_inf",
                                                  "arg_max",   "arg_min",       "top_k",
                                                  "max_pool",  "reduce_max",    "reduce_min",
                                                  "hardmax",   "less_or_equal", "greater_or_equal",
                                                  "threshold", "binarizer",     "dropout",
                                                  "non_zero",  "compress",      "one_hot",
                                                  "unique",    "bit_cast",      "global_max_pool"};
  return op.starts_with("nn.") && kOps.contains(op.substr(3));
}

bool SumsProducts(std::string_view op) {
  static const std::set<std::string_view> kOps = {
      "add", "sub", "mul", "sum", "matmul", "gemm", "conv", "reduce_sum", "cum_sum", "einsum"};
  return op.starts_with("nn.") && kOps.contains(op.substr(3));
}

/// Whether a cast changes a number, unless skip_rounding leaves it out.
bool RoundsToHalf(const Tensor& from, const Tensor& to) {
  const bool half =
      to.element_type() == ElementType::kF16 || to.element_type() == ElementType::kBF16;
  return half && from.element_type() != ElementType::kString && ToDoubles(from) != ToDoubles(to);
}

bool IsExact(const Operation* op, const std::vector<RtValue>& inputs,
             const std::vector<RtValue>& outputs) {
  const auto coarse = [](const RtValue& v) { return !v.is_tensor() || IsCoarse(v.tensor()); };
  const auto real = [](const RtValue& v) { return v.is_tensor() && IsReal(v.tensor()); };
  if (std::ranges::none_of(outputs, real) && std::ranges::none_of(inputs, real)) return true;
  const OpKind kind = KindOf(op);
  if (kind == OpKind::kInjective || Chooses(op->name())) return true;
  if (op->name() == "nn.cast" || op->name() == "nn.cast_like") {
    // One rounding of the same number everywhere; where it comes in is what may differ.
    return !std::ranges::any_of(outputs, real) ||
           (coarse(inputs[0]) && !RoundsToHalf(inputs[0].tensor(), outputs[0].tensor()));
  }
  return SumsProducts(op->name()) && std::ranges::all_of(inputs, coarse) &&
         std::ranges::all_of(outputs, coarse);
}

ElementType Narrower(ElementType a, ElementType b) {
  return PrecisionOf(a) > PrecisionOf(b) ? a : b;
}

/// What `op` computes in, which may be narrower than its operands and results: its `stash_type`;
/// attention rounds scores, with a mask of f32 too, to the type of the queries.
ElementType ComputedIn(const Operation* op, ElementType element) {
  for (const char* name : {"stash_type", "softmax_precision"}) {
    const auto attribute = op->attribute(name).dyn_cast<TypeAttribute>();
    const auto type = attribute ? attribute.value().dyn_cast<ElemType>() : ElemType();
    if (type) element = Narrower(element, type.element());
  }
  if (op->name() != "nn.attention") return element;
  return Narrower(element, op->operand(0).type().cast<AnyTensorType>().element());
}

/// How large the numbers are that cancel within an op: x (1 + erf(x)) is small for a negative x,
/// but what is rounded is 1 + erf(x); a batch norm is x s + t (docs/optimizing.md); a transform
/// sums all elements; a gru has 1 - z for a gate that may be all but 1. One number if it is that of
/// all results.
std::vector<double> Cancelled(const Operation* op, const std::vector<RtValue>& inputs) {
  const auto is_none = [](const RtValue& v) { return !v.is_tensor(); };
  if (op->name() == "nn.gru") return {1};
  if (op->name() == "nn.gelu") return ToDoubles(inputs[0].tensor());
  if (op->name() == "nn.dft" || op->name() == "nn.stft") {
    double most = 0;
    for (const double x : ToDoubles(inputs[0].tensor())) most = std::max(most, std::abs(x));
    return {most};
  }
  if (op->name() != "nn.batch_normalization" || std::ranges::any_of(inputs, is_none)) return {};
  const Shape& shape = inputs[0].tensor().shape();
  std::vector<std::vector<double>> of;
  for (const RtValue& v : inputs) of.push_back(ToDoubles(v.tensor()));
  const size_t channels = of[1].size();
  if (shape.size() < 2 || shape[1] != static_cast<int64_t>(channels) || channels == 0) return {};
  size_t inner = 1;
  for (size_t a = 2; a < shape.size(); ++a) inner *= static_cast<size_t>(shape[a]);
  std::vector<double> sizes = of[0];
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t c = i / inner % channels;
    const double scale = std::abs(of[1][c]) / std::sqrt(of[4][c] + 1e-5);
    sizes[i] = scale * (std::abs(of[0][i]) + std::abs(of[3][c])) + std::abs(of[2][c]);
  }
  return sizes;
}

Tensor Moved(const Tensor& t, double unit, RandomStream& random,
             const std::vector<double>& cancelled = {}) {
  if (!IsReal(t)) return t;
  // What is less than the least f16 may be anything of its size where values stay f32.
  const double least = t.element_type() == ElementType::kF16 ? 0x1p-14 : 0;
  std::vector<double> values = ToDoubles(t);
  for (size_t i = 0; i < values.size(); ++i) {
    double size = std::max(std::abs(values[i]), least);
    if (!cancelled.empty()) size = std::max(size, std::abs(cancelled[i % cancelled.size()]));
    values[i] += size * unit * random.Uniform(-1, 1);
  }
  return Cast(Tensor::Of<double>(t.shape(), values), t.element_type(), false);
}

/// A norm whose sums cancel ends in zero, of a sign that depends on their order; who divides by it
/// sees that.
Tensor WithSomeSignOfZero(const Tensor& t, RandomStream& random) {
  std::vector<double> values = ToDoubles(t);
  for (double& x : values) {
    if (x == 0) x = std::copysign(x, random.Uniform(-1, 1));
  }
  return Cast(Tensor::Of<double>(t.shape(), values), t.element_type(), false);
}

/// The tangent on the other side of a pole that is within the precision of its operand has nothing
/// in common with this one.
Tensor InfiniteNearPoles(const Tensor& tangent, const Tensor& of, double precision) {
  constexpr double kPi = std::numbers::pi;
  std::vector<double> values = ToDoubles(tangent);
  const std::vector<double> operands = ToDoubles(of);
  for (size_t i = 0; i < values.size(); ++i) {
    const double from_pole = std::abs(std::remainder(operands[i] - kPi / 2, kPi));
    if (from_pole <= std::abs(operands[i]) * precision)
      values[i] = std::numeric_limits<double>::infinity();
  }
  return Cast(Tensor::Of<double>(tangent.shape(), values), tangent.element_type(), false);
}

std::string NameOf(const Operation* op) {
  return std::string(op->attribute("name").cast<StrAttribute>().value());
}

/// Evaluates a program inexactly.
class Inexact {
 public:
  Inexact(const Program& program, double scale, uint64_t seed)
      : program_(program), scale_(scale), random_(seed) {}

  std::vector<Tensor> Run(const NamedValues& inputs) {
    std::vector<Tensor> outputs;
    const auto one = [&](Operation* op, const std::vector<RtValue>& given) {
      return Evaluate(op, given);
    };
    Evaluator evaluator(program_.parameters(), one, kMostRounds);
    for (Operation& op : *program_.block()) {
      if (op.name() == "nn.feed") {
        evaluator.values[op.result(0)] = *Find(inputs, NameOf(&op));
      } else if (op.name() == "nn.fetch") {
        outputs.push_back(evaluator.values.at(op.operand(0)).tensor());
      } else {
        evaluator.Run(&op);
      }
    }
    return outputs;
  }

 private:
  static constexpr int kMostRounds = 10'000;

  std::vector<RtValue> Evaluate(Operation* op, std::vector<RtValue> inputs) {
    std::vector<RtValue> results = EvalOp(op, inputs);
    if (IsExact(op, inputs, results)) return results;
    const std::vector<RtValue> given = inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].is_tensor() && !NeedsWhole(op, i))
        inputs[i] = Moved(inputs[i].tensor(), UnitOf(op, inputs[i]), random_);
    }
    results = EvalOp(op, inputs);
    for (RtValue& r : results) {
      if (!r.is_tensor()) continue;
      r = Moved(r.tensor(), UnitOf(op, r), random_, Cancelled(op, inputs));
      if (op->name().ends_with("_normalization")) r = WithSomeSignOfZero(r.tensor(), random_);
      if (op->name() == "nn.tan")
        r = InfiniteNearPoles(r.tensor(), given[0].tensor(), UnitOf(op, r) / scale_);
    }
    return results;
  }

  double UnitOf(const Operation* op, const RtValue& value) const {
    return scale_ * PrecisionOf(ComputedIn(op, value.tensor().element_type()));
  }

  const Program& program_;
  double scale_;
  RandomStream random_;
};

bool Overflowed(const RanOp& ran) {
  const auto large = [](const RtValue& v) -> int64_t {
    if (!v.is_tensor() || !IsReal(v.tensor())) return 0;
    const double limit = LargestOf(v.tensor().element_type());
    return std::ranges::count_if(ToDoubles(v.tensor()),
                                 [&](double x) { return std::abs(x) >= limit; });
  };
  // What is cast is not rounded where values stay f32.
  if (ran.op->name() == "nn.cast") return large(ran.outputs[0]) > large(ran.inputs[0]);
  const auto is_large = [&](const RtValue& v) { return large(v) > 0; };
  return std::ranges::any_of(ran.outputs, is_large) && std::ranges::none_of(ran.inputs, is_large);
}

/// Whether what multiplies zeros is not finite: zero times that is NaN, and who skips the padding
/// of a picture or of a window, zero sines, or an axis that a resize keeps, does not see it. A
/// batch norm as x s + t is inf - inf.
bool MayMissNan(const RanOp& ran) {
  static const std::set<std::string_view> kOps = {"nn.stft", "nn.dft", "nn.batch_normalization",
                                                  "nn.resize"};
  const std::string_view op = ran.op->name();
  if (op.find("conv") == std::string_view::npos && !kOps.contains(op)) return false;
  return std::ranges::any_of(ran.inputs, [](const RtValue& v) {
    return v.is_tensor() && IsReal(v.tensor()) &&
           !std::ranges::all_of(ToDoubles(v.tensor()), [](double x) { return std::isfinite(x); });
  });
}

/// Whether a product that vanishes has factors that overflow in another order: inf times 0.
bool MayOverflowElsewhere(const RanOp& ran) {
  if (ran.op->name() != "nn.reduce_prod" || !IsReal(ran.outputs[0].tensor())) return false;
  const ElementType element = ran.outputs[0].tensor().element_type();
  const std::vector<double> results = ToDoubles(ran.outputs[0].tensor());
  const double tiny = TinyOf(element);
  if (std::ranges::none_of(results, [&](double y) { return std::abs(y) <= tiny; })) return false;
  double size = 0;
  for (const double x : ToDoubles(ran.inputs[0].tensor()))
    size += std::log2(std::max(1.0, std::abs(x)));
  return size >= std::log2(LargestOf(element));
}

/// Whether squares overflow within a norm of numbers that do not: their sum is in f32, or in f64.
bool MayOverflowWithin(const RanOp& ran) {
  static const std::set<std::string_view> kOps = {"nn.reduce_l2", "nn.lp_pool",
                                                  "nn.global_lp_pool"};
  const std::string_view op = ran.op->name();
  if (!op.ends_with("_normalization") && !kOps.contains(op)) return false;
  const Tensor& x = ran.inputs[0].tensor();
  if (!IsReal(x)) return false;
  double sum = 0;
  for (const double v : ToDoubles(x)) sum += std::isfinite(v) ? v * v : 0;
  return sum >=
         LargestOf(x.element_type() == ElementType::kF64 ? ElementType::kF64 : ElementType::kF32);
}

/// Whether a loop without a round gave rows whose sizes nothing tells: 0, which may be anything.
bool MakesRowsUp(const RanOp& ran) {
  if (ran.op->name() != "cf.while" && ran.op->name() != "cf.scan") return false;
  const int64_t least = ran.op->name() == "cf.scan" ? 1 : 2;  // a loop in what is compiled
  return std::ranges::any_of(ran.outputs, [least](const RtValue& v) {
    return v.is_tensor() && std::ranges::count(v.tensor().shape(), 0) >= least;
  });
}

/// Whether an op's result can jump where a real operand moves a little.
bool Jumps(const RanOp& ran) {
  static const std::set<std::string_view> kOps = {"nn.floor", "nn.ceil",   "nn.round",
                                                  "nn.sign",  "nn.where",  "nn.thresholded_relu",
                                                  "nn.mod",   "nn.shrink", "nn.hardmax"};
  const auto real = [](const RtValue& v) { return v.is_tensor() && IsReal(v.tensor()); };
  return kOps.contains(ran.op->name()) ||
         (std::ranges::any_of(ran.inputs, real) && !std::ranges::all_of(ran.outputs, real));
}

/// Whether a new shape that is computed has an entry of 0, which copies an extent.
bool CopiesExtent(const RanOp& ran) {
  if (ran.op->name() != "nn.reshape") return false;
  const Operation* shape = ran.op->operand(1).defining_op();
  if (shape != nullptr && shape->name() == "builtin.constant") return false;
  const auto allow = ran.op->attribute("allowzero").dyn_cast<BoolAttribute>();
  return !(allow && allow.value()) && std::ranges::count(ToDoubles(ran.inputs[1].tensor()), 0) > 0;
}

/// Gives each operation a place of its own, by which errors name it.
std::unordered_map<std::string, const Operation*> NumberOps(Program& program) {
  IrContext& context = program.context();
  std::unordered_map<std::string, const Operation*> ops;
  for (OpWalker walk(program.block()); Operation* op = walk.Next();) {
    op->set_location(Location::Name(context, StrCat("operation ", ops.size())));
    ops.emplace(op->location().ToString(context), op);
  }
  return ops;
}

const Operation* FindOp(const std::unordered_map<std::string, const Operation*>& ops,
                        const std::string& where) {
  const auto found = ops.find(where);
  return found == ops.end() ? nullptr : found->second;
}

}  // namespace

Expectation::Expectation(const Program& program, const NamedValues& inputs, uint64_t seed) {
  Program copy = program.Clone();
  const auto ops = NumberOps(copy);
  InterpreterOptions options;
  options.max_bytes = uint64_t{1} << 28;
  options.max_steps = 100'000;
  OpSet unsure, made_up;
  options.observer = [&](const RanOp& ran) {
    copies_extent_ = copies_extent_ || CopiesExtent(ran);
    if (MakesRowsUp(ran)) made_up.insert(ran.op);
    if (ran.op->num_operands() == 0) return;
    if (Overflowed(ran) || MayMissNan(ran) || MayOverflowElsewhere(ran) || MayOverflowWithin(ran))
      unsure.insert(ran.op);
    jumps_ = jumps_ || Jumps(ran);
  };
  try {
    values_ = Interpreter(copy, std::move(options)).Run(inputs);
  } catch (const Error& e) {
    error_ = e;
    const Operation* refused = FindOp(ops, e.where());
    excused_ = MayBeAccepted(copy, refused, e) || IsBehind(made_up, refused);
    return;
  }
  unsure_ = OutputsBehind(copy, unsure);
  vague_ = OutputsBehind(copy, made_up);
  try {
    Measure(copy, inputs, seed);
  } catch (const Error&) {  // with other numbers it is refused
    unsure_.assign(values_.size(), true);
  }
}

void Expectation::Measure(const Program& program, const NamedValues& inputs, uint64_t seed) {
  for (const auto& [name, value] : values_) {
    const Tensor& t = value.tensor();
    tolerance_.emplace_back(static_cast<size_t>(t.num_elements()), 0.0);
  }
  // Where two numbers meet, each run jumps or not, as chance will have it: more of them.
  for (int run = 0; run < (jumps_ ? 16 : 4); ++run) {
    const std::vector<Tensor> moved = Inexact(program, run % 2 == 0 ? 1 : 4, seed++).Run(inputs);
    for (size_t i = 0; i < moved.size(); ++i) Widen(i, moved[i]);
  }
}

void Expectation::Widen(size_t output, const Tensor& other) {
  const Tensor& t = values_[output].second.tensor();
  std::vector<double>& tolerance = tolerance_[output];
  if (t.element_type() == ElementType::kString || IsComplex(t.element_type())) return;
  if (other.shape() != t.shape()) {
    std::ranges::fill(tolerance, -1);
    other_sizes_ = true;
    return;
  }
  const std::vector<double> a = ToDoubles(t), b = ToDoubles(other);
  const bool real = IsReal(t);
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double moved = std::abs(a[i] - b[i]);
    if (tolerance[i] < 0 || a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    tolerance[i] = real && std::isfinite(moved) ? std::max(tolerance[i], 4 * moved) : -1;
    if (std::isfinite(moved)) most = std::max(most, moved);
  }
  for (double& x : tolerance) {
    if (real && x >= 0) x = std::max(x, 2 * most);
  }
}

namespace {

/// The same text, or numbers that were rounded another way before they became text.
bool SaysSame(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto x = ParseDouble(a), y = ParseDouble(b);
  return x && y && std::abs(*x - *y) <= 1e-2 * std::abs(*y) + 1e-5;
}

}  // namespace

std::string Expectation::Difference(const NamedValues& got) const {
  if (got.size() != values_.size()) return StrCat(got.size(), " outputs for ", values_.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const auto& [name, value] = values_[i];
    if (vague_[i]) continue;
    if (!got[i].second.is_tensor()) return StrCat("output ", name, " is not a tensor");
    const Tensor &t = value.tensor(), &g = got[i].second.tensor();
    if (other_sizes_ && g.element_type() == t.element_type() && g.shape() != t.shape()) continue;
    if (g.shape() != t.shape() || g.element_type() != t.element_type()) {
      return StrCat("output ", name, " is ", g.TypeString(), " for ", t.TypeString());
    }
    if (unsure_[i]) continue;
    if (t.element_type() == ElementType::kString) {
      const auto differs =
          std::ranges::mismatch(g.data<std::string>(), t.data<std::string>(), SaysSame);
      if (differs.in1 == g.data<std::string>().end()) continue;
      return StrCat("output ", name, ": ", Quote(*differs.in1), " for ", Quote(*differs.in2));
    }
    if (IsComplex(t.element_type())) {
      const Closeness close = AllClose(g, t, 1e-4, 1e-5);
      if (!close) return StrCat("output ", name, ": ", close.description);
      continue;
    }
    const std::vector<double> a = ToDoubles(t), b = ToDoubles(g);
    // Norms of integers are computed in f64, so those above 2^53 have its precision.
    const double relative = IsReal(t) ? 2 * PrecisionOf(t.element_type()) : 0x1p-50;
    for (size_t at = 0; at < a.size(); ++at) {
      const double tolerance = tolerance_[i][at];
      if (tolerance < 0 || a[at] == b[at] || (std::isnan(a[at]) && std::isnan(b[at]))) continue;
      const double allowed = tolerance + relative * std::abs(a[at]) + TinyOf(t.element_type());
      if (std::isfinite(a[at]) && std::abs(a[at] - b[at]) <= allowed) continue;
      // No digit is certain of what was divided by something that may be 0.
      if (!std::isfinite(b[at]) && allowed > std::max(std::abs(a[at]), 1.0)) continue;
      return StrCat("output ", name, " ", t.TypeString(), " at ", at, ": ", b[at], " for ", a[at],
                    ", allowed ", allowed);
    }
  }
  return "";
}

}  // namespace lathe::testing
