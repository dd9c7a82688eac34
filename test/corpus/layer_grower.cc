#include "test/corpus/layer_grower.h"

#include <algorithm>
#include <cmath>

#include "lathe/ir/context.h"
#include "lathe/support/error.h"

namespace lathe::testing {

Program LayerGrower::Grow(int layers) {
  static constexpr Layer kAny[] = {&LayerGrower::Activation, &LayerGrower::HardSwish,
                                   &LayerGrower::Residual,   &LayerGrower::Nothing,
                                   &LayerGrower::Affine,     &LayerGrower::Reused,
                                   &LayerGrower::Stateful};
  static constexpr Layer kVision[] = {&LayerGrower::Conv,          &LayerGrower::ConvNorm,
                                      &LayerGrower::BatchNorm,     &LayerGrower::Pool,
                                      &LayerGrower::ParallelConvs, &LayerGrower::ChannelsLast};
  static constexpr Layer kText[] = {&LayerGrower::Dense,       &LayerGrower::ParallelDense,
                                    &LayerGrower::LayerNorm,   &LayerGrower::Gelu,
                                    &LayerGrower::Softmax,     &LayerGrower::Attention,
                                    &LayerGrower::SliceAndJoin};
  Program program(context_);
  program_ = &program;
  facts_ = std::make_unique<ShapeInferencer>(&program.parameters());
  b_ = std::make_unique<Builder>(Builder::AtEnd(program.block()));
  b_->set_facts(facts_.get());
  const bool vision = Coin();
  const Shape shape = vision ? Shape{1, 4, 6, 6} : Shape{2, 4, 8};
  const Type type = VTensorType::Get(context_, SymShape::FromConstants(shape), ElementType::kF32);
  const NamedAttribute name = b_->Named("name", b_->Attr(std::string_view("x")));
  values_ = {b_->Create("nn.feed", {}, {&name, 1}, {&type, 1})->result(0)};
  for (int i = 0; i < layers; ++i) {
    const bool any = Pick(3) == 0;
    const Layer layer = any      ? kAny[Pick(std::size(kAny))]
                        : vision ? kVision[Pick(std::size(kVision))]
                                 : kText[Pick(std::size(kText))];
    values_.push_back((this->*layer)(values_.back()));
  }
  size_t outputs = 0;
  for (const Value v : values_) {
    if (!v.use_empty()) continue;
    const NamedAttribute output = b_->Named("name", b_->Attr(StrCat("y", outputs++)));
    b_->Create("nn.fetch", {&v, 1}, {&output, 1});
  }
  return program;
}

// ---- words ----

size_t LayerGrower::Pick(size_t count) {
  return static_cast<size_t>(random_.Int(0, static_cast<int64_t>(count) - 1));
}

Value LayerGrower::Op(std::string_view name, const std::vector<Value>& operands,
                      const Attributes& attributes) {
  b_->set_location(Location::Name(context_, StrCat("n", ops_++)));
  Operation* op = b_->Create(StrCat("nn.", name), operands, attributes);
  facts_->Visit(op);
  return op->result(0);
}

Value LayerGrower::Constant(const Tensor& value) {
  const NamedAttribute named = b_->Named("value", b_->Attr(value));
  Operation* op = b_->Create("builtin.constant", {}, {&named, 1});
  facts_->Visit(op);
  return op->result(0);
}

Value LayerGrower::Scalar(double value) {
  return Constant(Cast(Tensor::Of<double>({}, {value}), ElementType::kF32));
}

Value LayerGrower::Ints(const std::vector<int64_t>& values) {
  return Constant(Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
}

Value LayerGrower::Weights(const Shape& shape, double low, double high) {
  std::vector<double> values(static_cast<size_t>(NumElements(shape)));
  for (double& v : values) v = random_.Uniform(low, high);
  const Tensor data = Cast(Tensor::Of<double>(shape, values), ElementType::kF32);
  if (Coin()) return Constant(data);
  const StrAttribute name = program_->parameters().FreshName(context_, "w");
  program_->parameters().Insert(name, {data, false});
  const Type type = VTensorType::Get(context_, SymShape::FromConstants(shape), ElementType::kF32);
  const NamedAttribute named = b_->Named("name", name);
  return b_->Create("builtin.get_parameter", {}, {&named, 1}, {&type, 1})->result(0);
}

NamedAttribute LayerGrower::List(std::string_view name, const std::vector<int64_t>& values) {
  return b_->Named(name, b_->Attr(std::span<const int64_t>(values)));
}

Value LayerGrower::Either(std::string_view op, Value a, Value b) {
  return Coin() ? Op(op, {a, b}) : Op(op, {b, a});
}

Shape LayerGrower::ShapeOf(Value v) { return *v.type().cast<AnyTensorType>().shape().Constants(); }

// ---- anywhere ----

Value LayerGrower::Activation(Value x) {
  static constexpr const char* kOps[] = {"relu",       "sigmoid",  "tanh",
                                         "leaky_relu", "softplus", "abs"};
  return Op(kOps[Pick(std::size(kOps))], {x});
}

Value LayerGrower::HardSwish(Value x) {
  switch (Pick(3)) {
    case 0:
      return Either("mul", x, Op("sigmoid", {x}));
    case 1:
      return Op("clip", {x, Scalar(0), Scalar(6)});
    default:
      break;
  }
  const Value clipped = Op("clip", {Either("add", x, Scalar(3)), Scalar(0), Scalar(6)});
  return Op("div", {Either("mul", x, clipped), Scalar(6)});
}

Value LayerGrower::Residual(Value x) {
  std::vector<Value> fitting;
  for (const Value v : values_) {
    if (ShapeOf(v) == ShapeOf(x)) fitting.push_back(v);
  }
  return Either("add", x, fitting[Pick(fitting.size())]);
}

Value LayerGrower::Nothing(Value x) {
  const Shape shape = ShapeOf(x);
  const auto axis = static_cast<int64_t>(Pick(shape.size()));
  switch (Pick(5)) {
    case 0:
      return Op("identity", {x});
    case 1:
      return Op("dropout", {x});
    case 2:
      return Op("squeeze", {Op("unsqueeze", {x, Ints({axis})}), Ints({axis})});
    case 3:
      return Either("mul", x, Scalar(1));
    default:
      return Op("reshape", {Op("reshape", {x, Ints({-1})}), Ints(shape)});
  }
}

/// By a number, or by one number for each channel or feature.
Value LayerGrower::Affine(Value x) {
  const Shape shape = ShapeOf(x);
  Shape vector = shape.size() == 4 ? Shape{shape[1], 1, 1} : Shape{shape.back()};
  if (Pick(3) == 0) vector = {};
  const Value c = Weights(vector, Coin() ? 0.25 : -1, 1);
  if (Pick(4) == 0) return Op(Coin() ? "sub" : "div", {x, Weights(vector, 0.5, 2)});
  return Either(Coin() ? "mul" : "add", x, c);
}

/// Two readers of one value: neither side may be taken apart without the other.
Value LayerGrower::Reused(Value x) {
  const Value a = Affine(x);
  return Either("add", Activation(a), a);
}

/// A parameter that the program writes between two reads: it is no constant, and their order
/// counts.
Value LayerGrower::Stateful(Value x) {
  const Shape shape = {ShapeOf(x).back()};
  const StrAttribute name = program_->parameters().FreshName(context_, "state");
  program_->parameters().Insert(name,
                                {RandomTensor(ElementType::kF32, shape, random_.NextU64()), true});
  const NamedAttribute named = b_->Named("name", name);
  const Type type = VTensorType::Get(context_, SymShape::FromConstants(shape), ElementType::kF32);
  const auto read = [&] {
    return b_->Create("builtin.get_parameter", {}, {&named, 1}, {&type, 1})->result(0);
  };
  const Value before = read();
  const Value y = Either("add", x, before);
  const Value next = Op("add", {Op("mul", {before, Scalar(0.5)}), Scalar(1)});
  b_->Create("builtin.set_parameter", {&next, 1}, {&named, 1});
  return Coin() ? Either("mul", y, read()) : y;
}

// ---- pictures ----

Value LayerGrower::Conv(Value x) {
  const int64_t channels = ShapeOf(x)[1];
  const bool depthwise = Pick(4) == 0;
  const int64_t outputs = depthwise ? channels : static_cast<int64_t>(2 + 2 * Pick(3));
  const int64_t kernel = Coin() ? 1 : 3, pad = kernel / 2;
  std::vector<Value> operands = {x, Weights({outputs, depthwise ? 1 : channels, kernel, kernel})};
  if (Coin()) operands.push_back(Weights({outputs}));
  return Op("conv", operands,
            {List("pads", {pad, pad, pad, pad}),
             b_->Named("group", b_->Attr(depthwise ? channels : int64_t{1}))});
}

Value LayerGrower::ConvNorm(Value x) {
  Value y = Conv(x);
  y = Coin() ? BatchNorm(y) : Affine(y);
  if (Coin()) y = Op("relu", {y});
  return Coin() ? Affine(y) : y;
}

Value LayerGrower::BatchNorm(Value x) {
  const Shape c = {ShapeOf(x)[1]};
  return Op("batch_normalization", {x, Weights(c), Weights(c), Weights(c), Weights(c, 0.5, 2)});
}

Value LayerGrower::Pool(Value x) {
  const NamedAttribute kernel = List("kernel_shape", {3, 3}), pads = List("pads", {1, 1, 1, 1});
  if (Coin()) return Op("max_pool", {x}, {kernel, pads});
  return Op("average_pool", {x}, {kernel, pads, b_->Named("count_include_pad", b_->Attr(Coin()))});
}

Value LayerGrower::ParallelConvs(Value x) {
  std::vector<Value> parts;
  for (size_t i = 0; i < 2 + Pick(2); ++i) {
    const int64_t outputs = static_cast<int64_t>(2 + Pick(3));
    std::vector<Value> operands = {x, Weights({outputs, ShapeOf(x)[1], 1, 1})};
    if (Pick(3) != 0) operands.push_back(Weights({outputs}));
    parts.push_back(Op("conv", operands));
    if (Coin()) parts.back() = Op("relu", {parts.back()});
  }
  return Op("concat", parts, {b_->Named("axis", b_->Attr(int64_t{1}))});
}

Value LayerGrower::ChannelsLast(Value x) {
  const Value last = Op("transpose", {x}, {List("perm", {0, 2, 3, 1})});
  return Op("transpose", {Activation(last)}, {List("perm", {0, 3, 1, 2})});
}

// ---- sequences ----

Value LayerGrower::Dense(Value x) {
  const Shape shape = ShapeOf(x);
  const bool flat = Coin();
  Value y = flat ? Op("reshape", {x, Ints({-1, shape.back()})}) : x;
  y = Op("matmul", {y, Weights({shape.back(), 8})});
  if (Pick(4) != 0) y = Either("add", y, Weights({8}));
  if (Coin()) y = Activation(y);
  return flat ? Op("reshape", {y, Ints({shape[0], shape[1], 8})}) : y;
}

Value LayerGrower::ParallelDense(Value x) {
  Value sum;
  for (size_t i = 0; i < 2 + Pick(2); ++i) {
    const Value y = Op("matmul", {x, Weights({ShapeOf(x).back(), 8})});
    sum = sum ? Either("add", sum, y) : y;
  }
  return sum;
}

Value LayerGrower::LayerNorm(Value x) {
  const Value centered = Coin() ? x : Op("sub", {x, Op("reduce_mean", {x, Ints({-1})})});
  const Value square = Coin() ? Op("pow", {centered, Scalar(2)}) : Op("mul", {centered, centered});
  const Value variance = Either("add", Op("reduce_mean", {square, Ints({-1})}), Scalar(1e-5));
  Value y = Coin() ? Op("div", {centered, Op("sqrt", {variance})})
                   : Either("mul", centered, Op("reciprocal", {Op("sqrt", {variance})}));
  if (Pick(4) != 0) y = Either("mul", y, Weights({ShapeOf(x).back()}));
  if (Coin()) y = Either("add", y, Weights({ShapeOf(x).back()}));
  return y;
}

Value LayerGrower::Gelu(Value x) {
  Value inner;
  if (Coin()) {
    inner = Op("erf", {Coin() ? Op("div", {x, Scalar(std::sqrt(2.0))})
                              : Either("mul", x, Scalar(std::sqrt(0.5)))});
  } else {
    const Value cube = Coin() ? Op("pow", {x, Scalar(3)}) : Either("mul", x, Op("mul", {x, x}));
    const Value sum = Either("add", x, Either("mul", cube, Scalar(0.044715)));
    inner = Op("tanh", {Either("mul", sum, Scalar(std::sqrt(2 / M_PI)))});
  }
  const Value gate = Either("add", inner, Scalar(1));
  if (Coin()) return Either("mul", Either("mul", x, Scalar(0.5)), gate);
  return Either("mul", Either("mul", x, gate), Scalar(0.5));
}

Value LayerGrower::Softmax(Value x) {
  const Value shifted = Coin() ? x : Op("sub", {x, Op("reduce_max", {x, Ints({-1})})});
  const Value e = Op("exp", {Op("tanh", {shifted})});
  const Value y = Op("div", {e, Op("reduce_sum", {e, Ints({-1})})});
  return Pick(3) == 0 ? Op("log", {y}) : y;
}

/// [B, S, 8] as two heads: [B, 2, S, 4].
Value LayerGrower::Heads(Value x) {
  const Shape shape = ShapeOf(x);
  const Value split = Op("reshape", {x, Ints({shape[0], shape[1], 2, 4})});
  return Op("transpose", {split}, {List("perm", {0, 2, 1, 3})});
}

Value LayerGrower::Attention(Value x) {
  const auto project = [&] {
    return Heads(Either("add", Op("matmul", {x, Weights({ShapeOf(x).back(), 8})}), Weights({8})));
  };
  const Value q = project(), k = project(), v = project();
  const Value kt = Op("transpose", {k}, {List("perm", {0, 1, 3, 2})});
  Value scores = Op("matmul", {q, kt});
  scores = Coin() ? Op("div", {scores, Scalar(2)}) : Either("mul", scores, Scalar(0.5));
  if (Coin()) scores = Either("add", scores, Weights({1, 1, ShapeOf(x)[1], ShapeOf(x)[1]}, -3, 0));
  const Value weights = Op("softmax", {scores}, {b_->Named("axis", b_->Attr(int64_t{-1}))});
  const Value mixed = Op("transpose", {Op("matmul", {weights, v})}, {List("perm", {0, 2, 1, 3})});
  return Op("reshape", {mixed, Ints({ShapeOf(x)[0], ShapeOf(x)[1], 8})});
}

Value LayerGrower::SliceAndJoin(Value x) {
  const int64_t width = ShapeOf(x).back(), half = width / 2;
  const auto part = [&](int64_t from, int64_t to) {
    return Op("slice", {x, Ints({from}), Ints({to}), Ints({-1})});
  };
  const Value low = part(0, half), high = part(half, width);
  const NamedAttribute axis = b_->Named("axis", b_->Attr(int64_t{-1}));
  switch (Pick(3)) {
    case 0:  // the whole again
      return Op("concat", {low, high}, {axis});
    case 1:  // as rotary embeddings turn it
      return Op("concat", {Op("neg", {high}), low}, {axis});
    default:
      return Op("concat", {Activation(low), high}, {axis});
  }
}

}  // namespace lathe::testing
