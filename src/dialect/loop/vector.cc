#include "lathe/dialect/loop/vector.h"

#include <bit>
#include <cmath>
#include <optional>

#include "lathe/dialect/loop.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/error.h"
#include "src/dialect/move.h"

namespace lathe::loop {
namespace {

// The lanes of operand `i`, a vector of a power of two of them; nothing if that is not known yet.
std::optional<int64_t> LanesOf(InferShapeContext& c, size_t i) {
  const SymShape shape = c.shape(i);
  if (!shape.ranked || (shape.rank() == 1 && !shape.dims[0].is_constant())) return std::nullopt;
  if (shape.rank() != 1 || !std::has_single_bit(static_cast<uint64_t>(shape.dims[0].value()))) {
    c.Fail("loop/lanes", StrCat("operand ", i, " is not a vector of a power of two lanes"));
  }
  return shape.dims[0].value();
}

// Of all operands together, each as long as the others.
SymShape LanesTakingTurns(InferShapeContext& c) {
  std::optional<Dim> lanes;
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    const SymShape shape = c.shape(i);
    if (!shape.ranked) continue;
    if (shape.rank() != 1 || (lanes && !(*lanes == shape.dims[0]))) {
      c.Fail("loop/lanes", StrCat("operand ", i, " is not a vector as long as the others"));
    }
    lanes = shape.dims[0];
  }
  if (c.num_inputs() == 0) c.Fail("loop/lanes", "there is no vector");
  const Dim parts = static_cast<int64_t>(c.num_inputs());
  return SymShape(std::vector<Dim>{lanes ? *lanes * parts : Dim()});
}

int32_t WrappingSum(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

BFloat16 UpperHalf(float x) {
  return BFloat16::FromBits(static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
}

}  // namespace

void TransposeOp::InferShape(InferShapeContext& c) {
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    const auto lanes = LanesOf(c, i);
    if (lanes && *lanes != static_cast<int64_t>(c.num_inputs())) {
      c.Fail("loop/lanes", StrCat(c.num_inputs(), " rows of ", *lanes, " lanes are not a square"));
    }
  }
  for (size_t i = 0; i < c.num_outputs(); ++i) c.SetShape(i, c.shape(0));
}

void TransposeOp::Eval(EvalContext& c) {
  const auto n = static_cast<int64_t>(c.num_inputs());
  for (int64_t column = 0; column < static_cast<int64_t>(c.num_outputs()); ++column) {
    Tensor value(c.input(0).element_type(), Shape{n});
    for (int64_t row = 0; row < n; ++row) {
      eval::ElementMover(c.input(static_cast<size_t>(row)), value).Copy(row, column);
    }
    c.SetOutput(static_cast<size_t>(column), std::move(value));
  }
}

void InterleaveOp::InferShape(InferShapeContext& c) { c.SetShape(kY, LanesTakingTurns(c)); }

void InterleaveOp::Eval(EvalContext& c) {
  const auto n = static_cast<int64_t>(c.num_inputs());
  const int64_t lanes = c.input(0).num_elements();
  Tensor value(c.input(0).element_type(), Shape{n * lanes});
  for (int64_t part = 0; part < n; ++part) {
    const eval::ElementMover mover(c.input(static_cast<size_t>(part)), value);
    for (int64_t i = 0; i < lanes; ++i) mover.Copy(i * n + part, i);
  }
  c.SetOutput(kY, std::move(value));
}

BFloat16 Narrow(float x) {
  const BFloat16 narrow(x);
  const bool overflows = std::isfinite(x) && !std::isfinite(static_cast<float>(narrow));
  return overflows ? BFloat16::FromBits(std::signbit(x) ? 0xff7f : 0x7f7f) : narrow;
}

void NarrowOp::InferShape(InferShapeContext& c) {
  const SymShape first = c.shape(0);
  const bool may_be_scalar = c.num_inputs() == 1 && (!first.ranked || first.rank() == 0);
  c.SetShape(kY, may_be_scalar ? first : LanesTakingTurns(c));
}

void NarrowOp::Eval(EvalContext& c) {
  const size_t n = c.num_inputs();
  const auto lanes = static_cast<size_t>(c.input(0).num_elements());
  const Shape shape = c.input(0).rank() == 0 ? Shape{} : Shape{static_cast<int64_t>(n * lanes)};
  Tensor value(ElementType::kBF16, shape);
  const auto out = value.mutable_data<BFloat16>();
  const bool cut = NarrowOp(c.op()).cut();
  for (size_t part = 0; part < n; ++part) {
    const auto x = c.input(part).data<float>();
    for (size_t i = 0; i < lanes; ++i) out[i * n + part] = cut ? UpperHalf(x[i]) : Narrow(x[i]);
  }
  c.SetOutput(kY, std::move(value));
}

void DotPairsOp::InferShape(InferShapeContext& c) {
  const auto a = LanesOf(c, kA), b = LanesOf(c, kB), sums = LanesOf(c, kC);
  const bool fits = !b || ((!a || *a == 2 || *a == *b) && (!sums || *b == *sums * 2));
  if (!fits) c.Fail("loop/lanes", "pairs are not as many as the sums");
  const DotPairsOp op(c.op());
  const bool is_exact = TensorOf(op.a()).element() == ElementType::kI16;
  if (TensorOf(op.c()).element() != (is_exact ? ElementType::kI32 : ElementType::kF32)) {
    c.Fail("loop/sums", "sums of bf16 are f32, those of i16 are i32");
  }
  c.SetShape(kY, c.shape(kC));
}

void DotPairsOp::Eval(EvalContext& c) {
  Tensor value = c.input(kC);
  const auto add = [&]<class T>(auto sums, std::span<const T> a, std::span<const T> b,
                                const auto& plus_product) {
    for (size_t i = 0; i < sums.size(); ++i) {
      for (const size_t k : {2 * i + 1, 2 * i}) {
        sums[i] = plus_product(sums[i], a[k % a.size()], b[k]);
      }
    }
  };
  if (c.input(kA).element_type() == ElementType::kI16) {
    add(value.mutable_data<int32_t>(), c.input(kA).data<int16_t>(), c.input(kB).data<int16_t>(),
        [](int32_t sum, int32_t a, int32_t b) { return WrappingSum(sum, a * b); });
  } else {
    add(value.mutable_data<float>(), c.input(kA).data<BFloat16>(), c.input(kB).data<BFloat16>(),
        [](float sum, BFloat16 a, BFloat16 b) {
          return std::fma(static_cast<float>(a), static_cast<float>(b), sum);
        });
  }
  c.SetOutput(kY, std::move(value));
}

void DotOp::InferShape(InferShapeContext& c) {
  const auto a = LanesOf(c, kA), b = LanesOf(c, kB), sums = LanesOf(c, kC);
  const auto is_one = [&](const auto& lanes) { return !lanes || *lanes == kDotGroup; };
  const auto is_all = [&](const auto& lanes) {
    return !lanes || !sums || *lanes == *sums * kDotGroup;
  };
  const bool fits = (is_all(a) && (is_one(b) || is_all(b))) || (is_one(a) && is_all(b));
  if (!fits) c.Fail("loop/lanes", "groups of four bytes are not as many as the sums");
  c.SetShape(kY, c.shape(kC));
}

void DotOp::Eval(EvalContext& c) {
  const auto a = c.input(kA).data<uint8_t>();
  const auto b = c.input(kB).data<int8_t>();
  Tensor value = c.input(kC);
  const auto sums = value.mutable_data<int32_t>();
  for (size_t i = 0; i < sums.size() * kDotGroup; ++i) {
    int32_t& sum = sums[i / kDotGroup];
    sum = WrappingSum(sum, a[i % a.size()] * b[i % b.size()]);
  }
  c.SetOutput(kY, std::move(value));
}

}  // namespace lathe::loop
