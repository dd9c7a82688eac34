#include "lathe/dialect/nn/random.h"

#include <array>

#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/op_names.h"
#include "src/lower/compute/compute.h"
#include "src/lower/compute/scalars.h"

// Random numbers by counters: each element by itself.
namespace lathe::lower {
namespace {

// Numbers of 32 bits as u64, so that their products are whole.
class Words {
 public:
  explicit Words(const ElementOf& c) : c_(c), s_(c.e) {}

  Value Number(uint64_t n) const { return c_.e.lb().Constant(Tensor::Scalar(n)); }
  Value Of(Value i64) const { return s_.Cast(i64, ElementType::kU64); }
  Value Low(Value x) const { return nn::BitwiseAndOp::Create(b(), x, Number(0xffffffff)).c(); }
  Value High(Value x) const { return Shifted(x, 32, "RIGHT"); }
  Value Shifted(Value x, uint64_t bits, std::string_view direction) const {
    return nn::BitShiftOp::Create(b(), x, Number(bits), {.direction = std::string(direction)}).z();
  }
  Value Xor(Value x, Value y) const { return nn::BitwiseXorOp::Create(b(), x, y).c(); }
  const Scalars& s() const { return s_; }

 private:
  Builder& b() const { return c_.e.lb().b(); }
  const ElementOf& c_;
  Scalars s_;
};

// As lathe::Philox; counter and key are words.
std::array<Value, 4> Rounds(const Words& w, std::array<Value, 4> counter,
                            std::array<Value, 2> key) {
  const Scalars& s = w.s();
  for (int round = 0; round < 10; ++round) {
    const Value a = s.Mul(w.Number(0xD2511F53), counter[0]);
    const Value b = s.Mul(w.Number(0xCD9E8D57), counter[2]);
    counter = {w.Xor(w.Xor(w.High(b), counter[1]), key[0]), w.Low(b),
               w.Xor(w.Xor(w.High(a), counter[3]), key[1]), w.Low(a)};
    key = {w.Low(s.Add(key[0], w.Number(0x9E3779B9))), w.Low(s.Add(key[1], w.Number(0xBB67AE85)))};
  }
  return counter;
}

// A block of four words gives two numbers.
Value Philox(const ElementOf& c) {
  const nn::PhiloxOp op(c.op);
  const Words w(c);
  const Scalars& s = w.s();
  const Dim flat = c.e.space().Flatten(c.at, c.ResultDims());
  const Value number = w.Of(c.e.Int(flat * op.stride() + op.offset()));
  const Value block = w.Shifted(number, 1, "RIGHT");
  const Value seed = w.Of(c.Operand(nn::PhiloxOp::kKey, {0}));
  const Value stream = w.Of(c.Operand(nn::PhiloxOp::kKey, {1}));
  const std::array<Value, 4> words = Rounds(
      w, {w.Low(block), w.High(block), w.Low(stream), w.High(stream)}, {w.Low(seed), w.High(seed)});
  const Value is_first =
      s.Equal(nn::BitwiseAndOp::Create(c.e.lb().b(), number, w.Number(1)).c(), w.Number(0));
  const Value low = s.Select(is_first, words[0], words[2]);
  const Value high = s.Select(is_first, words[1], words[3]);
  const Value bits = w.Shifted(s.Add(low, w.Shifted(high, 32, "LEFT")), 11, "RIGHT");
  return s.Mul(s.Cast(bits, ElementType::kF64), s.Number(ElementType::kF64, 0x1p-53));
}

constexpr Compute kRandomComputes[] = {{nn::kPhilox, Philox}};

}  // namespace

std::span<const Compute> RandomComputes() { return kRandomComputes; }

}  // namespace lathe::lower
