#include "src/lower/fixed_rows.h"

#include <limits>
#include <span>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/comparison.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/elementwise_unary.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/support/divide.h"
#include "src/dialect/nn/rounded_rows.h"

namespace lathe::lower {
namespace {

constexpr ElementType kF32 = ElementType::kF32, kI32 = ElementType::kI32, kI64 = ElementType::kI64;
// Below 0x7f7f7f, the most that three signed bytes hold, by what a product with a quotient is off.
constexpr double kMostWhole = 8355000;
constexpr double kSignBits = 0x808080;
constexpr double kLeast = 1e-30, kMost = 1e38;

Value AllocOf(LoopBuilder& lb, std::vector<Dim> dims, ElementType element) {
  return lb.Alloc(VTensorType::Get(lb.context(), SymShape(std::move(dims)), element));
}

struct BlockScale {
  Value factor;   // what numbers are multiplied by, to become whole ones; 0 where they are not
  Value scale;    // what these are multiplied by; NaN where a number is not finite
  Value is_fine;  // bool
};

// The numbers of a block, vectors of some lists at a time.
using BlockReader = std::function<std::vector<Value>(const Dim& i)>;

// For the largest number of a block to become `most`. Zero times a number that is none is none.
BlockScale ScaleOf(LoopBuilder& lb, IndexMath& math, const Dim& vectors, int64_t lanes,
                   bool rounded, const BlockReader& read) {
  Builder& b = lb.b();
  const auto number = [&](double v) { return lb.Splat(kF32, v); };
  const Value zeros = lb.Splat(kF32, 0, lanes);
  const Value start[] = {zeros, zeros};
  const auto next = [&](Value i, std::span<const Value> so_far) {
    std::vector<Value> found(so_far.begin(), so_far.end());
    for (const Value x : read(math.Of(i))) {
      const Value both[] = {found[0], nn::AbsOp::Create(b, x).y()};
      found[0] = nn::MaxOp::Create(b, both).y();
      found[1] = nn::AddOp::Create(b, found[1], nn::MulOp::Create(b, x, zeros).c()).c();
    }
    return found;
  };
  const std::vector<Value> found = lb.For(math.At(vectors), start, next);
  const Value size = lb.Reduce("max", found[0]);
  const Value checked = nn::AddOp::Create(b, size, lb.Reduce("add", found[1])).c();
  const double least = rounded ? nn::kLeastRounded : kLeast;
  const double limit = rounded ? std::numeric_limits<double>::infinity() : kMost;
  const Value most = number(rounded ? nn::kMostOfByte : kMostWhole);
  const Value is_large = nn::LessOp::Create(b, number(least), size).c();
  const Value is_finite = nn::LessOp::Create(b, checked, number(limit)).c();
  const Value is_used = nn::AndOp::Create(b, is_finite, is_large).c();
  const Value quotient = nn::DivOp::Create(b, most, size).c();
  const Value is_zero = nn::EqualOp::Create(b, size, number(0)).c();
  const Value has_form = nn::OrOp::Create(b, is_zero, is_large).c();
  return {.factor = nn::WhereOp::Create(b, is_used, quotient, number(0)).output(),
          .scale = nn::DivOp::Create(b, checked, most).c(),
          .is_fine = nn::AndOp::Create(b, is_finite, has_form).c()};
}

Value Whole(LoopBuilder& lb, Value x, Value factor) {
  return nn::RoundOp::Create(lb.b(), nn::MulOp::Create(lb.b(), x, factor).c()).y();
}

}  // namespace

int64_t FixedRows::blocks() const { return CeilDiv(f_.depth, f_.block); }

void FixedRows::Alloc() {
  const Dim numbers(blocks() * listed());
  bytes_ = AllocOf(lb_, {f_.rows, Dim(f_.planes), Dim(f_.apart), numbers}, ElementType::kI8);
  scales_ = AllocOf(lb_, {f_.rows, Dim(blocks())}, kF32);
  if (f_.planes == 1) sums_ = AllocOf(lb_, {f_.rows, Dim(blocks())}, kI32);
}

Value FixedRows::Write(Value memory, const Dim& rows) {
  Alloc();
  const Value none[] = {lb_.Splat(kI64, 0)};
  const auto each_block = [&](Value row, std::span<const Value> carried) {
    return lb_.For(Dim(blocks()), carried, [&](Value block, std::span<const Value> so_far) {
      const Value is_fine = WriteBlock(memory, math_.Of(row), math_.Of(block));
      const Value is_wrong = nn::NotOp::Create(lb_.b(), is_fine).y();
      const Value wrong = nn::CastOp::Create(lb_.b(), is_wrong, {.to = kI64}).output();
      return std::vector<Value>{nn::AddOp::Create(lb_.b(), so_far[0], wrong).c()};
    });
  };
  return lb_.For(math_.At(rows), none, each_block)[0];
}

void FixedRows::WriteRounded(Value memory, const Dim& rows) {
  Alloc();
  math_.For(rows, true, [&](const Dim& row) {
    math_.For(blocks(), false, [&](const Dim& block) { WriteBlock(memory, row, block); });
  });
}

Value FixedRows::Group(const Dim& row, int64_t plane, int64_t list, const Dim& block,
                       const Dim& first) {
  const std::vector<Value> at = math_.At({row, Dim(plane), Dim(list), block * listed() + first});
  return lb_.Load(bytes_, at, loop::kDotGroup);
}

Value FixedRows::Scale(const Dim& row, const Dim& block) {
  return lb_.Load(scales_, math_.At({row, block}));
}

Value FixedRows::Sum(const Dim& row, const Dim& block) {
  return lb_.Load(sums_, math_.At({row, block}));
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
  return lb_.As(f_.apart == 1 ? lb_.Load(memory, at, f_.lanes, live)
                              : lb_.LoadApart(memory, at, f_.lanes, -1, f_.apart, live),
                kF32);
}

// Whether its numbers have this form.
Value FixedRows::WriteBlock(Value memory, const Dim& row, const Dim& block) {
  const auto read = [&](const Dim& i) {
    std::vector<Value> lists;
    for (int64_t list = 0; list < f_.apart; ++list) {
      lists.push_back(Load(memory, row, block, list, i));
    }
    return lists;
  };
  const Dim vectors(listed() / f_.lanes);
  const BlockScale found = ScaleOf(lb_, math_, vectors, f_.lanes, f_.planes == 1, read);
  lb_.Store(scales_, found.scale, math_.At({row, block}));
  const Value sum = WriteBytes(memory, row, block, found.factor);
  if (f_.planes == 1) lb_.Store(sums_, sum, math_.At({row, block}));
  return found.is_fine;
}

// Their sum.
Value FixedRows::WriteBytes(Value memory, const Dim& row, const Dim& block, Value factor) {
  Builder& b = lb_.b();
  const Value none[] = {lb_.Splat(kI32, 0, f_.lanes)};
  const auto next = [&](Value i, std::span<const Value> so_far) {
    const Dim vector = math_.Of(i);
    Value sum = so_far[0];
    for (int64_t list = 0; list < f_.apart; ++list) {
      const Value x = Load(memory, row, block, list, vector);
      const Value whole = nn::CastOp::Create(b, Whole(lb_, x, factor), {.to = kI32}).output();
      StoreBytes(whole, row, list, block * listed() + vector * f_.lanes);
      sum = nn::AddOp::Create(b, sum, whole).c();
    }
    return std::vector<Value>{sum};
  };
  return lb_.Reduce("add", lb_.For(Dim(listed() / f_.lanes), none, next)[0]);
}

// Of several, with the signs of the lower bytes carried to the higher ones: 0x80 more in each
// place, then less.
void FixedRows::StoreBytes(Value whole, const Dim& row, int64_t list, const Dim& place) {
  Builder& b = lb_.b();
  if (f_.planes > 1) {
    const Value signs = lb_.Splat(kI32, kSignBits, f_.lanes);
    whole = nn::AddOp::Create(b, whole, signs).c();
    whole = nn::BitwiseXorOp::Create(b, whole, signs).c();
  }
  for (int64_t plane = 0; plane < f_.planes; ++plane) {
    Value shifted = whole;
    if (plane > 0) {
      const Value places = lb_.Splat(kI32, static_cast<double>(8 * plane), f_.lanes);
      shifted = nn::BitShiftOp::Create(b, whole, places, {.direction = "RIGHT"}).z();
    }
    const Value byte = nn::CastOp::Create(b, shifted, {.to = ElementType::kI8}).output();
    lb_.Store(bytes_, byte, math_.At({row, Dim(plane), Dim(list), place}));
  }
}

Value RoundedRows(LoopBuilder& lb, IndexMath& math, Value memory, const Dim& rows, int64_t depth,
                  int64_t block, int64_t lanes) {
  const Value rounded = AllocOf(lb, {rows, Dim(depth)}, kF32);
  math.For(math.Extent(rows), true, [&](const Dim& row) {
    math.For(CeilDiv(depth, block), false, [&](const Dim& number) {
      const Dim first = math.Name(number * block);
      const Dim count = math.Name(Min(Dim(depth) - first, block));
      const Dim vectors = math.Name(CeilDiv(count, lanes));
      const auto live = [&](const Dim& i) { return math.At(Min(count - i * lanes, lanes)); };
      const auto at = [&](const Dim& i) { return math.At({row, math.Name(first + i * lanes)}); };
      const auto read = [&](const Dim& i) {
        return std::vector<Value>{lb.As(lb.Load(memory, at(i), lanes, live(i)), kF32)};
      };
      const BlockScale found = ScaleOf(lb, math, vectors, lanes, true, read);
      math.For(vectors, false, [&](const Dim& i) {
        const Value whole = Whole(lb, read(i)[0], found.factor);
        const Value x = nn::MulOp::Create(lb.b(), whole, found.scale).c();
        lb.Store(rounded, x, at(i), live(i));
      });
    });
  });
  return rounded;
}

}  // namespace lathe::lower
