#include "src/lower/fixed_rows.h"

#include <vector>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/divide.h"

namespace lathe::lower {
namespace {

constexpr ElementType kF32 = ElementType::kF32, kI32 = ElementType::kI32, kI64 = ElementType::kI64;
// Below 0x7f7f7f, the most that three signed bytes hold, by what a product with a quotient is off.
constexpr double kMostWhole = 8355000;
constexpr double kSignBits = 0x808080;
constexpr double kLeast = 1e-30, kMost = 1e38;

}  // namespace

int64_t FixedRows::blocks() const { return CeilDiv(f_.depth, f_.block); }

Value FixedRows::Write(Value memory, const Dim& rows) {
  const auto alloc = [&](std::vector<Dim> dims, ElementType element) {
    return lb_.Alloc(VTensorType::Get(lb_.context(), SymShape(std::move(dims)), element));
  };
  bytes_ =
      alloc({f_.rows, Dim(kPlanes), Dim(f_.apart), Dim(blocks() * listed())}, ElementType::kI8);
  scales_ = alloc({f_.rows, Dim(blocks())}, kF32);
  const Value none[] = {lb_.Splat(kI64, 0)};
  const auto each_block = [&](Value row, std::span<const Value> carried) {
    return lb_.For(Dim(blocks()), carried, [&](Value block, std::span<const Value> so_far) {
      const Value wrong = WriteBlock(memory, math_.Of(row), math_.Of(block));
      return std::vector<Value>{nn::AddOp::Create(lb_.b(), so_far[0], wrong).c()};
    });
  };
  return lb_.For(math_.At(rows), none, each_block)[0];
}

Value FixedRows::Group(const Dim& row, int64_t plane, int64_t list, const Dim& block,
                       const Dim& first) {
  const std::vector<Value> at = math_.At({row, Dim(plane), Dim(list), block * listed() + first});
  return lb_.Load(bytes_, at, loop::kDotGroup);
}

Value FixedRows::Scale(const Dim& row, const Dim& block) {
  return lb_.Load(scales_, math_.At({row, block}));
}

// Vector number `vector` of a list.
Value FixedRows::Load(Value memory, const Dim& row, const Dim& block, int64_t list,
                      const Dim& vector) {
  const Dim first = math_.Name(block * f_.block + vector * (f_.lanes * f_.apart) + list);
  Value live;
  if (f_.depth % f_.block != 0) {
    const Dim left = CeilDiv(Max(Dim(f_.depth) - first, 0), f_.apart);
    live = math_.At(Min(left, f_.lanes));
  }
  const std::vector<Value> at = math_.At({row, first});
  const Value x = f_.apart == 1 ? lb_.Load(memory, at, f_.lanes, live)
                                : lb_.LoadApart(memory, at, f_.lanes, -1, f_.apart, live);
  return TensorOf(memory).element() == kF32 ? x
                                            : nn::CastOp::Create(lb_.b(), x, {.to = kF32}).output();
}

// Whether it is wrong, as an i64. Zero times a number that is none is none.
Value FixedRows::WriteBlock(Value memory, const Dim& row, const Dim& block) {
  Builder& b = lb_.b();
  const auto number = [&](double v) { return lb_.Splat(kF32, v); };
  const Value zeros = lb_.Splat(kF32, 0, f_.lanes);
  const Value first = nn::AbsOp::Create(b, Load(memory, row, block, 0, 0)).y();
  const std::vector<Value> start{first, zeros};
  const auto most = [&](Value i, std::span<const Value> so_far) {
    std::vector<Value> next(so_far.begin(), so_far.end());
    for (int64_t list = 0; list < f_.apart; ++list) {
      const Value x = Load(memory, row, block, list, math_.Of(i));
      const Value both[] = {next[0], nn::AbsOp::Create(b, x).y()};
      next[0] = nn::MaxOp::Create(b, both).y();
      next[1] = nn::AddOp::Create(b, next[1], nn::MulOp::Create(b, x, zeros).c()).c();
    }
    return next;
  };
  const std::vector<Value> found = lb_.For(Dim(listed() / f_.lanes), start, most);
  const Value size = lb_.Reduce("max", found[0]);
  const Value checked = nn::AddOp::Create(b, size, lb_.Reduce("add", found[1])).c();
  const Value is_zero = nn::EqualOp::Create(b, size, number(0)).c();
  const Value is_large = nn::LessOp::Create(b, number(kLeast), size).c();
  const Value is_fine = nn::AndOp::Create(b, nn::LessOp::Create(b, checked, number(kMost)).c(),
                                          nn::OrOp::Create(b, is_zero, is_large).c())
                            .c();
  const Value quotient = nn::DivOp::Create(b, number(kMostWhole), size).c();
  const Value is_used = nn::AndOp::Create(b, is_fine, is_large).c();
  const Value factor = nn::WhereOp::Create(b, is_used, quotient, number(0)).output();
  const Value scale = nn::DivOp::Create(b, size, number(kMostWhole)).c();
  lb_.Store(scales_, scale, math_.At({row, block}));
  WriteBytes(memory, row, block, factor);
  return nn::CastOp::Create(b, nn::NotOp::Create(b, is_fine).y(), {.to = kI64}).output();
}

// With the signs of the lower bytes carried to the higher ones: 0x80 more in each place, then less.
void FixedRows::WriteBytes(Value memory, const Dim& row, const Dim& block, Value factor) {
  Builder& b = lb_.b();
  const Value signs = lb_.Splat(kI32, kSignBits, f_.lanes);
  math_.For(listed() / f_.lanes, false, [&](const Dim& vector) {
    for (int64_t list = 0; list < f_.apart; ++list) {
      const Value x = Load(memory, row, block, list, vector);
      const Value whole = nn::RoundOp::Create(b, nn::MulOp::Create(b, x, factor).c()).y();
      Value bits = nn::CastOp::Create(b, whole, {.to = kI32}).output();
      bits = nn::AddOp::Create(b, bits, signs).c();
      bits = nn::BitwiseXorOp::Create(b, bits, signs).c();
      for (int64_t plane = 0; plane < kPlanes; ++plane) {
        const Value places = lb_.Splat(kI32, static_cast<double>(8 * plane), f_.lanes);
        const Value shifted = nn::BitShiftOp::Create(b, bits, places, {.direction = "RIGHT"}).z();
        const Value byte = nn::CastOp::Create(b, shifted, {.to = ElementType::kI8}).output();
        const Dim place = block * listed() + vector * f_.lanes;
        lb_.Store(bytes_, byte, math_.At({row, Dim(plane), Dim(list), place}));
      }
    }
  });
}

}  // namespace lathe::lower
