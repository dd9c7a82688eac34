#include "lathe/support/buffer.h"
#include "lathe/support/random.h"
#include "test/unit/dialect/run_op.h"

// Windows with absurd attributes: each ends in a result or in an Error that says what is wrong.
namespace lathe::test {
namespace {

constexpr int64_t kOdd[] = {
    -1, 0, 1, 1, 2, 3, 7, (int64_t{1} << 31) - 1, int64_t{1} << 31, int64_t{1} << 62, INT64_MIN};

int64_t Odd(RandomStream& r) { return kOdd[r.Int(0, std::size(kOdd) - 1)]; }

std::vector<int64_t> OddList(RandomStream& r, int64_t usual) {
  std::vector<int64_t> list(static_cast<size_t>(r.Int(0, 7) == 0 ? r.Int(0, 5) : usual));
  const bool tame = r.Int(0, 2) != 0;
  for (int64_t& v : list) v = tame ? r.Int(0, 3) : Odd(r);
  return list;
}

Tensor OddTensor(RandomStream& r, int64_t rank) {
  Shape shape(static_cast<size_t>(rank));
  for (int64_t& extent : shape) extent = r.Int(0, 9) == 0 ? 0 : r.Int(1, 5);
  return RandomTensor(ElementType::kF32, shape, 1);
}

void AddOddAttributes(RunOp& op, RandomStream& r, std::initializer_list<const char*> lists) {
  for (const char* name : lists) {
    if (r.Int(0, 1) == 0) continue;
    op.Attr(name, OddList(r, std::string_view(name) == "pads" ? 4 : 2));
  }
  constexpr const char* kAutoPads[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};
  op.Attr("auto_pad", kAutoPads[r.Int(0, 3)]);
}

// Keeps the outputs of valid but large windows out of the way of the machine.
class HostileOps : public ::testing::Test {
 protected:
  HostileOps() : cap_(Buffer::AllocationCap()) { Buffer::SetAllocationCap(size_t{1} << 22); }
  ~HostileOps() override { Buffer::SetAllocationCap(cap_); }

  // Counts results and errors, so that a test can tell that it saw both.
  void Run(RunOp& op) {
    const std::string error = op.EvalError();
    ++(error.empty() ? results_ : errors_);
    EXPECT_FALSE(error.starts_with("internal")) << error;
  }
  void ExpectBoth() const {
    EXPECT_GT(results_, 0);
    EXPECT_GT(errors_, 0);
  }

 private:
  size_t cap_;
  int results_ = 0;
  int errors_ = 0;
};

constexpr uint64_t kRuns = 400;

TEST_F(HostileOps, Pools) {
  for (uint64_t run = 0; run < kRuns; ++run) {
    RandomStream r(run, 1);
    constexpr const char* kPools[] = {"nn.max_pool", "nn.average_pool", "nn.lp_pool"};
    RunOp op(kPools[run % 3]);
    op.In(OddTensor(r, r.Int(0, 9) == 0 ? r.Int(0, 5) : 4));
    op.Attr("kernel_shape", OddList(r, 2)).Attr("ceil_mode", r.Int(0, 1) == 1);
    AddOddAttributes(op, r, {"strides", "dilations", "pads"});
    Run(op);
  }
  ExpectBoth();
}

TEST_F(HostileOps, Convolutions) {
  for (uint64_t run = 0; run < kRuns; ++run) {
    RandomStream r(run, 2);
    const bool transposed = run % 2 == 1;
    RunOp op(transposed ? "nn.conv_transpose" : "nn.conv");
    const int64_t rank = r.Int(0, 9) == 0 ? r.Int(0, 5) : 4;
    Tensor x = OddTensor(r, rank);
    Tensor w = OddTensor(r, r.Int(0, 9) == 0 ? r.Int(0, 5) : rank);
    op.In(std::move(x)).In(std::move(w));
    if (r.Int(0, 3) == 0) op.Attr("group", Odd(r));
    AddOddAttributes(op, r, {"strides", "dilations", "pads"});
    if (transposed && r.Int(0, 2) == 0) op.Attr("output_shape", OddList(r, 2));
    if (transposed && r.Int(0, 2) == 0) op.Attr("output_padding", OddList(r, 2));
    Run(op);
  }
  ExpectBoth();
}

TEST_F(HostileOps, Unpooling) {
  for (uint64_t run = 0; run < kRuns; ++run) {
    RandomStream r(run, 3);
    const Shape shape{1, r.Int(0, 2), r.Int(1, 3), r.Int(1, 3)};
    Tensor indices(ElementType::kI64, shape);
    for (int64_t& at : indices.mutable_data<int64_t>())
      at = r.Int(0, 5) == 0 ? Odd(r) : r.Int(0, 8);
    RunOp op("nn.max_unpool");
    op.In(RandomTensor(ElementType::kF32, shape, 1)).In(std::move(indices));
    if (r.Int(0, 1) == 0) op.Ints(OddList(r, 4));
    op.Attr("kernel_shape", OddList(r, 2));
    if (r.Int(0, 1) == 0) op.Attr("strides", OddList(r, 2));
    if (r.Int(0, 1) == 0) op.Attr("pads", OddList(r, 4));
    Run(op);
  }
  ExpectBoth();
}

}  // namespace
}  // namespace lathe::test
