#include "lathe/lower/fusion.h"

#include "test/unit/lower/fusion_util.h"

namespace lathe::testing {
namespace {

class Fusion : public NetTest {
 protected:
  Net net_{context_};
};

// ---- elementwise, injective, reduction ----

TEST_F(Fusion, ElementwiseChainIsOneGroup) {
  const Value x = net_.X({2, 3}), y = net_.X({2, 3});
  net_.Output(net_.Op("exp", {net_.Op("add", {y, x})}));
  EXPECT_EQ(Groups(net_), "add+exp");
  EXPECT_EQ(Groups(net_, {.fuse = false}), "add | exp");
}

TEST_F(Fusion, FlattenBetweenElementwise) {
  const Value x = net_.X({2, 3, 4});
  const Value twice = net_.Op("mul", {x, net_.Scalar(2)});
  net_.Output(net_.Op("add", {net_.Op("flatten", {twice}), net_.Scalar(1)}));
  EXPECT_EQ(Groups(net_), "mul+flatten+add");
}

TEST_F(Fusion, InjectiveIntoReduction) {
  const Value x = net_.X({2, 3, 4});
  const Value y = net_.Op("add", {net_.Op("flatten", {x}), net_.Scalar(1)});
  net_.Output(net_.Op("reduce_sum", {y, net_.Ints({1})}));
  EXPECT_EQ(Groups(net_), "flatten+add+reduce_sum");
}

TEST_F(Fusion, RankZero) {
  const Value x = net_.X({}, ElementType::kI32);
  const Value ten = net_.Constant(Tensor::Scalar<int32_t>(10));
  const Value less =
      net_.Op("cast", {net_.Op("less", {x, ten})}, {net_.Type_("to", ElementType::kI32)});
  net_.Output(net_.Op("min", {less, x}));
  EXPECT_EQ(Groups(net_), "less+cast+min");
}

TEST_F(Fusion, SoftmaxThenCast) {
  const Value s = net_.Op("softmax", {net_.X({2, 5})});
  net_.Output(net_.Op("cast", {s}, {net_.Type_("to", ElementType::kF16)}));
  EXPECT_EQ(Groups(net_), "softmax+cast");
}

TEST_F(Fusion, SoftmaxWrittenOut) {
  const Value x = net_.Op("mul", {net_.X({2, 5}), net_.Scalar(0.5)});
  const Value last = net_.Ints({-1});
  const Value e = net_.Op("exp", {net_.Op("sub", {x, net_.Op("reduce_max", {x, last})})});
  net_.Output(net_.Op("div", {e, net_.Op("reduce_sum", {e, last})}));
  EXPECT_EQ(Groups(net_), "mul+reduce_max+sub+exp+reduce_sum+div");
}

TEST_F(Fusion, LayerNormWrittenOutWithItsResidual) {
  const Value x = net_.Op("add", {net_.X({2, 3, 8}), net_.X({2, 3, 8})});
  const Value last = net_.Ints({2});
  const Value d = net_.Op("sub", {x, net_.Op("reduce_mean", {x, last})});
  const Value v = net_.Op("reduce_mean", {net_.Op("mul", {d, d}), last});
  const Value s = net_.Op("sqrt", {net_.Op("add", {v, net_.Scalar(1e-5F)})});
  const Value n = net_.Op("mul", {net_.Op("div", {d, s}), net_.X({8})});
  net_.Output(net_.Op("add", {n, net_.X({8})}));
  EXPECT_EQ(Groups(net_), "add+reduce_mean+sub+mul+reduce_mean+add+sqrt+div+mul+add");
}

TEST_F(Fusion, ReductionsOfOtherRowsStayApart) {
  const Value x = net_.X({4, 4});
  const Value rows = net_.Op("reduce_sum", {x, net_.Ints({1})});
  const Value columns = net_.Op("reduce_sum", {x, net_.Ints({0})});
  net_.Output(net_.Op("add", {rows, columns}));
  EXPECT_EQ(Groups(net_), "reduce_sum | reduce_sum+add");
}

// Without keepdims the sums would line up with other axes: [4] against the columns of [4, 4].
TEST_F(Fusion, DroppedAxesAreNotBroadcastBack) {
  const Value x = net_.X({4, 4});
  const Value sum = net_.Op("reduce_sum", {x, net_.Ints({1})}, {net_.Bool("keepdims", false)});
  net_.Output(net_.Op("sub", {x, sum}));
  const Value y = net_.X({4, 5});
  const Value mean = net_.Op("reduce_mean", {y, net_.Ints({1})}, {net_.Bool("keepdims", false)});
  net_.Output(net_.Op("sqrt", {mean}));
  EXPECT_EQ(Groups(net_), "reduce_sum | sub | reduce_mean+sqrt");
}

TEST_F(Fusion, ReductionIntoInjectiveStaysApart) {
  const Value x = net_.X({4, 5});
  const Value sum = net_.Op("reduce_sum", {x, net_.Ints({1})});
  net_.Output(net_.Op("exp", {net_.Op("transpose", {sum})}));
  EXPECT_EQ(Groups(net_), "reduce_sum | transpose+exp");
}

TEST_F(Fusion, TransposeBeforeSoftmax) {
  const Value x = net_.Op("transpose", {net_.X({5, 2})});
  const Value last = net_.Ints({-1});
  const Value e = net_.Op("exp", {net_.Op("sub", {x, net_.Op("reduce_max", {x, last})})});
  net_.Output(net_.Op("div", {e, net_.Op("reduce_sum", {e, last})}));
  EXPECT_EQ(Groups(net_), "transpose+reduce_max+sub+exp+reduce_sum+div");
}

// ---- convolutions and products ----

TEST_F(Fusion, EpilogueOfAProduct) {
  const Value m = net_.Op("matmul", {net_.X({4, 8}), net_.X({8, 8})});
  const Value b = net_.Op("add", {m, net_.X({8})});
  const Value s = net_.Op("mul", {net_.Op("sigmoid", {b}), b});
  net_.Output(net_.Op("add", {s, net_.X({4, 8})}));
  EXPECT_EQ(Groups(net_), "matmul+add+sigmoid+mul+add");
}

TEST_F(Fusion, EpilogueThatGrowsStaysApart) {
  const Value m = net_.Op("matmul", {net_.X({1, 8}), net_.X({8, 8})});
  net_.Output(net_.Op("add", {m, net_.X({4, 8})}));
  EXPECT_EQ(Groups(net_), "matmul | add");
}

TEST_F(Fusion, UnknownExtentsOfAnEpilogue) {
  const Value x = net_.Feed({Dim::Unknown(), 8}), w = net_.X({8, 8});
  const Value m = net_.Op("relu", {net_.Op("matmul", {x, w})});
  net_.Output(m);
  net_.Output(net_.Op("add", {net_.Op("matmul", {x, w}), net_.Feed({Dim::Unknown(), 8})}));
  EXPECT_EQ(Groups(net_), "matmul+relu | matmul | add");
}

TEST_F(Fusion, ConvAddFlattenAdd) {
  const Value c = net_.Op("add", {net_.Conv(net_.X({1, 2, 4, 4})), net_.Scalar(1)});
  net_.Output(net_.Op("add", {net_.Op("flatten", {c}), net_.Scalar(1)}));
  EXPECT_EQ(Groups(net_), "conv+add | flatten+add");
}

TEST_F(Fusion, InjectiveOperandGoesBeforeTheConvolution) {
  const Value x = net_.X({1, 2, 4, 4});
  const Value pool = net_.Op("global_average_pool", {x});
  const Value scale = net_.Op("reshape", {pool, net_.Ints({1, 2, 1, 1})});
  net_.Output(net_.Op("add", {net_.Op("mul", {scale, x}), net_.Conv(x)}));
  EXPECT_EQ(Groups(net_), "global_average_pool | conv | reshape+mul+add");
}

// A concat that the convolution reads as well cannot join the sum behind the convolution: a path
// would leave the group and come back.
TEST_F(Fusion, ConcatThatAConvolutionReads) {
  const Value x = net_.X({1, 2, 4, 4});
  const Value c = net_.Op("concat", {x, x}, {net_.Int("axis", 1)});
  net_.Output(net_.Op("add", {c, net_.Conv(c)}));
  EXPECT_EQ(Groups(net_), "concat | conv+add");
}

TEST_F(Fusion, ConcatOfItsOwnJoinsTheSum) {
  const Value x = net_.X({1, 2, 4, 4});
  const Value c = net_.Op("concat", {x, x}, {net_.Int("axis", 1)});
  const Value d = net_.Op("concat", {x, x}, {net_.Int("axis", 1)});
  net_.Output(net_.Op("add", {d, net_.Conv(c)}));
  EXPECT_EQ(Groups(net_), "concat | conv | concat+add");
}

TEST_F(Fusion, LayoutTransformsBesideAConvolution) {
  const Value c = net_.Conv(net_.X({1, 2, 4, 4}));
  const Value there = net_.Op("transpose", {c}, {net_.IntList("perm", {0, 2, 3, 1})});
  const Value back = net_.Op("transpose", {there}, {net_.IntList("perm", {0, 3, 1, 2})});
  net_.Output(net_.Op("relu", {net_.Op("add", {back, net_.Conv(c)})}));
  EXPECT_EQ(Groups(net_), "conv | conv | transpose+transpose+add+relu");
}

TEST_F(Fusion, ConvBatchNormElu) {
  const Value c = net_.Conv(net_.X({1, 2, 4, 4}), 3);
  const Value y = net_.Op("add", {net_.Op("mul", {c, net_.X({2, 1, 1})}), net_.X({2, 1, 1})});
  const Value below = net_.Op("relu", {net_.Op("sub", {net_.Scalar(1), net_.Op("exp", {y})})});
  net_.Output(net_.Op("sub", {net_.Op("relu", {y}), below}));
  EXPECT_EQ(Groups(net_), "conv+mul+add+relu+exp+sub+relu+sub");
}

TEST_F(Fusion, SumOfTwoConvolutionsJoinsTheFirst) {
  const Value x = net_.Op("add", {net_.X({1, 2, 4, 4}), net_.Scalar(1)});
  const Value y = net_.Op("add", {net_.Conv(x), net_.Scalar(1)});
  const Value z = net_.Op("add", {y, net_.Op("add", {net_.Scalar(1), y})});
  net_.Output(net_.Op("add", {net_.Conv(z, 3), net_.Conv(z)}));
  EXPECT_EQ(Groups(net_), "add+conv+add+add+add | conv | conv+add");
  Net other(context_);
  const Value v = other.X({1, 2, 4, 4});
  const Value second = other.Conv(v), first = other.Conv(v, 3);
  other.Output(other.Op("add", {first, second}));
  const FusionPlan plan = PlanFusion(other.program().block());
  ASSERT_EQ(plan.groups.size(), 2U);
  EXPECT_EQ(plan.groups[1].ops[0], first.defining_op());
}

TEST_F(Fusion, PoolUpsampleConcatAdd) {
  const Value x = net_.X({1, 2, 4, 4});
  const Value pool = net_.Op(
      "max_pool", {x}, {net_.IntList("kernel_shape", {2, 2}), net_.IntList("strides", {2, 2})});
  const Value scales = net_.Constant(Tensor::Of<float>({4}, std::vector<float>{1, 1, 2, 2}));
  const Value up = net_.Op("resize", {pool, Value(), scales});
  const Value c = net_.Op("concat", {up, x}, {net_.Int("axis", 1)});
  net_.Output(net_.Op("add", {c, net_.Scalar(1)}));
  EXPECT_EQ(Groups(net_), "max_pool | resize+concat+add");
}

TEST_F(Fusion, InceptionBlocks) {
  Value x = net_.X({1, 2, 4, 4});
  for (int block = 0; block < 2; ++block) {
    const Value a = net_.Op("relu", {net_.Conv(x)}), b = net_.Op("relu", {net_.Conv(x, 3)});
    x = net_.Op("concat", {a, b}, {net_.Int("axis", 1)});
  }
  net_.Output(x);
  EXPECT_EQ(Groups(net_), "conv+relu | conv+relu | concat | conv+relu | conv+relu | concat");
}

TEST_F(Fusion, SplitIntoGates) {
  const Value m = net_.Op("gemm", {net_.X({2, 4}), net_.X({4, 6}), net_.X({6})});
  Operation* parts = net_.Many("split", {m}, {net_.Int("axis", 1), net_.Int("num_outputs", 3)}, 3);
  const Value a = net_.Op("sigmoid", {parts->result(0)}), b = net_.Op("tanh", {parts->result(1)});
  const Value c = net_.Op("exp", {parts->result(2)});
  net_.Output(net_.Op("add", {net_.Op("mul", {a, b}), c}));
  EXPECT_EQ(Groups(net_), "gemm | split+sigmoid+tanh+mul+exp+add");
}

TEST_F(Fusion, SplitThatAProductReads) {
  const Value x = net_.X({2, 8});
  Operation* parts = net_.Many("split", {x}, {net_.Int("axis", 1), net_.Int("num_outputs", 2)}, 2);
  net_.Output(net_.Op("matmul", {parts->result(0), net_.X({4, 4})}));
  net_.Output(net_.Op("exp", {parts->result(1)}));
  EXPECT_EQ(Groups(net_), "split | matmul | exp");
}

TEST_F(Fusion, NestedConcatsEndInAPool) {
  const Value x = net_.Op("squeeze", {net_.X({1, 1, 2, 4, 4}), net_.Ints({0})});
  const auto grow = [&](Value v) {
    return net_.Op("concat", {net_.Op("add", {v, net_.Scalar(1)}), v}, {net_.Int("axis", 1)});
  };
  const Value pool =
      net_.Op("average_pool", {grow(grow(x))}, {net_.IntList("kernel_shape", {2, 2})});
  const Value first = net_.Op("add", {pool, net_.Scalar(1)});
  net_.Output(first);
  net_.Output(net_.Op("add", {first, net_.Scalar(2)}));
  EXPECT_EQ(Groups(net_), "squeeze+add+concat+add+concat | average_pool+add+add");
}

// ---- what is computed where a product or convolution reads it ----

TEST_F(Fusion, BeforeAConvolution) {
  const Value x = net_.Op("relu", {net_.Op("add", {net_.X({1, 2, 4, 4}), net_.X({2, 1, 1})})});
  net_.Output(net_.Op("relu", {net_.Conv(x, 3)}));
  EXPECT_EQ(Groups(net_), "add+relu+conv+relu");
}

TEST_F(Fusion, BeforeAProduct) {
  const Value x = net_.Op("mul", {net_.X({4, 8}), net_.Scalar(2)}), y = net_.X({8, 8});
  net_.Output(net_.Op("tanh", {net_.Op("matmul", {x, net_.Op("exp", {y})})}));
  EXPECT_EQ(Groups(net_), "mul+exp+matmul+tanh");
}

TEST_F(Fusion, BeforeAndAfterAProduct) {
  const Value x = net_.Op("relu", {net_.X({8, 8})});
  net_.Output(net_.Op("add", {x, net_.Op("matmul", {x, net_.X({8, 8})})}));
  EXPECT_EQ(Groups(net_), "relu+matmul+add");
}

TEST_F(Fusion, WhatAnotherReadsIsWritten) {
  const Value x = net_.Op("relu", {net_.X({8, 8})});
  net_.Output(net_.Op("matmul", {x, net_.X({8, 8})}));
  net_.Output(x);
  EXPECT_EQ(Groups(net_), "relu | matmul");
}

TEST_F(Fusion, TransposedMatrices) {
  const Value x = net_.Op("transpose", {net_.X({3, 4, 8})}, {net_.IntList("perm", {1, 0, 2})});
  net_.Output(net_.Op("matmul", {x, net_.X({8, 5})}));
  const Value y = net_.Op("transpose", {net_.X({8, 4, 3})}, {net_.IntList("perm", {2, 1, 0})});
  net_.Output(net_.Op("matmul", {y, net_.X({8, 6})}));
  const Value z = net_.Op("transpose", {net_.X({4, 8, 3})}, {net_.IntList("perm", {2, 0, 1})});
  net_.Output(net_.Op("matmul", {z, net_.X({8, 7})}));
  EXPECT_EQ(Groups(net_), "transpose+matmul | transpose | matmul | transpose | matmul");
}

TEST_F(Fusion, GroupedConvolutionsReadWhatIsWritten) {
  const Value x = net_.Op("relu", {net_.X({1, 4, 4, 4})});
  net_.Output(net_.Op("conv", {x, net_.X({4, 1, 3, 3})}, {net_.Int("group", 4)}));
  EXPECT_EQ(Groups(net_), "relu | conv");
}

// ---- results that are stored elsewhere ----

Value Shuffle(Net& net, Value x, int64_t groups) {
  const auto dims = x.type().cast<AnyTensorType>().dims();
  std::vector<int64_t> whole, split;
  for (const Dim& d : dims) whole.push_back(d.value());
  split = {whole[0], groups, whole[1] / groups, whole[2], whole[3]};
  const Value apart = net.Op("reshape", {x, net.Ints(split)});
  const Value turned = net.Op("transpose", {apart}, {net.IntList("perm", {0, 2, 1, 3, 4})});
  return net.Op("reshape", {turned, net.Ints(whole)});
}

TEST_F(Fusion, ChannelShuffle) {
  const Value c = net_.Op("relu", {net_.Conv(net_.X({1, 6, 4, 4}))});
  net_.Output(net_.Conv(Shuffle(net_, c, 2), 3));
  EXPECT_EQ(Groups(net_), "conv+relu+reshape+transpose+reshape | conv");
}

TEST_F(Fusion, ShuffleOfWhatIsReadElsewhere) {
  const Value c = net_.Op("relu", {net_.Conv(net_.X({1, 6, 4, 4}))});
  net_.Output(Shuffle(net_, c, 2));
  net_.Output(c);
  EXPECT_EQ(Groups(net_), "conv+relu | reshape+transpose+reshape");
}

TEST_F(Fusion, RowsThatWouldBeCutAreWritten) {
  const Value m = net_.Op("matmul", {net_.X({4, 8}), net_.X({8, 12})});
  const Value heads = net_.Op("reshape", {m, net_.Ints({4, 3, 4})});
  net_.Output(net_.Op("transpose", {heads}, {net_.IntList("perm", {1, 0, 2})}));
  net_.Output(net_.Op("transpose", {net_.Op("matmul", {net_.X({4, 8}), net_.X({8, 12})})}));
  const Value stack = net_.Op("matmul", {net_.X({2, 4, 8}), net_.X({8, 12})});
  net_.Output(net_.Op("transpose", {stack}, {net_.IntList("perm", {1, 0, 2})}));
  EXPECT_EQ(Groups(net_), "matmul | reshape+transpose | matmul | transpose | matmul+transpose");
}

// ---- prices ----

const FusionRefusal* FindRefusal(const FusionPlan& plan, FusionObstacle obstacle) {
  for (const FusionRefusal& r : plan.refusals) {
    if (r.obstacle == obstacle) return &r;
  }
  return nullptr;
}

TEST_F(Fusion, WhatIsDearIsNotComputedForEachRow) {
  const Value dear = net_.Op("tanh", {net_.Op("exp", {net_.X({64})})});
  net_.Output(net_.Op("add", {net_.X({1000, 64}), dear}));
  EXPECT_EQ(Groups(net_), "exp+tanh | add");
  const FusionPlan plan = PlanFusion(net_.program().block(), {.explain = true});
  const FusionRefusal* r = FindRefusal(plan, FusionObstacle::kPrice);
  ASSERT_NE(r, nullptr);
  EXPECT_EQ(r->op->name(), "nn.tanh");
  EXPECT_GT(r->together_us, r->apart_us);
  EXPECT_NE(r->ToString().find(" us apart, "), std::string::npos) << r->ToString();
}

TEST_F(Fusion, WhatIsCheapIsComputedForEachRow) {
  const Value cheap = net_.Op("mul", {net_.X({64}), net_.Scalar(2)});
  net_.Output(net_.Op("add", {net_.X({10, 64}), cheap}));
  EXPECT_EQ(Groups(net_), "mul+add");
}

TEST_F(Fusion, WhatIsDearIsNotPackedAgainAndAgain) {
  const Value dear = net_.Op("tanh", {net_.X({64, 64})});
  net_.Output(net_.Op("matmul", {dear, net_.X({64, 512 * 64})}));
  EXPECT_EQ(Groups(net_), "tanh | matmul");
  const Value few = net_.Op("tanh", {net_.X({64, 64})});
  net_.Output(net_.Op("matmul", {few, net_.X({64, 64})}));
  EXPECT_EQ(Groups(net_), "tanh | matmul | tanh+matmul");
}

// ---- groups of which several ops are read ----

TEST_F(Fusion, SumThatIsNormalizedAndKept) {
  const Value x = net_.Op("add", {net_.X({4, 8}), net_.X({4, 8})});
  const Value n = net_.Op("layer_normalization", {x, net_.X({8})});
  net_.Output(net_.Op("add", {x, net_.Op("matmul", {n, net_.X({8, 8})})}));
  EXPECT_EQ(Groups(net_), "add+layer_normalization | matmul+add");
}

TEST_F(Fusion, EpilogueOfWhichTwoAreRead) {
  const Value c = net_.Op("add", {net_.Conv(net_.X({1, 2, 4, 4})), net_.X({1, 2, 4, 4})});
  net_.Output(net_.Op("relu", {c}));
  net_.Output(c);
  EXPECT_EQ(Groups(net_), "conv+add+relu");
}

TEST_F(Fusion, ReadersOfTheSameShareALoop) {
  const Value x = net_.X({4, 8});
  net_.Output(net_.Op("exp", {x}));
  net_.Output(net_.Op("mul", {x, net_.X({8})}));
  net_.Output(net_.Op("reduce_sum", {net_.Op("neg", {x}), net_.Ints({1})}));
  EXPECT_EQ(Groups(net_), "mul+exp | neg+reduce_sum");
}

// exp and mul read x, but the product between them must be done before mul and after exp.
TEST_F(Fusion, PathsThatComeBackKeepGroupsApart) {
  const Value x = net_.X({8, 8}), e = net_.Op("exp", {x});
  net_.Output(net_.Op("mul", {x, net_.Op("cum_sum", {e, net_.Ints({0})})}));
  EXPECT_EQ(Groups(net_), "exp | cum_sum | mul");
  Net other(context_);
  const Value y = other.Op("tanh", {other.X({8, 8})});
  other.Output(other.Op("add", {y, other.Op("cum_sum", {y, other.Ints({0})})}));
  EXPECT_EQ(Groups(other), "tanh | cum_sum | add");
  const FusionPlan plan = PlanFusion(other.program().block(), {.explain = true});
  const FusionRefusal* r = FindRefusal(plan, FusionObstacle::kConvexity);
  ASSERT_NE(r, nullptr);
  EXPECT_EQ(r->op->name(), "nn.tanh");
  EXPECT_EQ(r->into->name(), "nn.add");
}

TEST_F(Fusion, OtherShapesAreOtherLoops) {
  const Value x = net_.Op("exp", {net_.X({8})});
  net_.Output(x);
  net_.Output(net_.Op("add", {x, net_.X({4, 8})}));
  EXPECT_EQ(Groups(net_), "exp | add");
}

// What reads an early result moves behind the group; outputs keep their order.
TEST_F(Fusion, ReadersMoveBehindTheGroup) {
  const Value x = net_.X({4, 8}), e = net_.Op("exp", {x});
  net_.Output(net_.Op("transpose", {e}));
  const Value late = net_.X({4, 8});
  net_.Output(net_.Op("add", {e, late}));
  EXPECT_EQ(Groups(net_), "transpose | exp+add");
  RunPasses(net_.program(), "graph_fuse_partition");
  ASSERT_EQ(net_.program().fetches().size(), 2U);
  EXPECT_EQ(net_.program().fetches()[0]->attribute("name").cast<StrAttribute>().value(), "y0");
}

TEST_F(Fusion, ManyStreamsHaveAPrice) {
  std::vector<Value> sums;
  const Value x = net_.X({512, 512});
  for (int i = 0; i < 20; ++i) net_.Output(net_.Op("add", {x, net_.X({512, 512})}));
  const FusionPlan plan = PlanFusion(net_.program().block());
  EXPECT_GT(plan.groups.size(), 1U);
  EXPECT_LT(plan.groups.size(), 5U);
}

// ---- limits, outputs, markers, constants ----

TEST_F(Fusion, OutputsAreAlwaysWritten) {
  const Value x = net_.X({1, 1, 2, 2});
  const Value scales = net_.Constant(Tensor::Of<float>({4}, std::vector<float>{1, 1, 2, 2}));
  const Value pool = net_.Op("max_pool", {x}, {net_.IntList("kernel_shape", {1, 1})});
  const Value up = net_.Op("resize", {pool, Value(), scales});
  net_.Output(up);
  net_.Output(pool);
  EXPECT_EQ(Groups(net_), "max_pool | resize");
}

TEST_F(Fusion, StopMarker) {
  const Value a = net_.Op("add", {net_.X({2}), net_.X({2})}, {net_.Bool(kFuseStop, true)});
  net_.Output(net_.Op("exp", {a}));
  EXPECT_EQ(Groups(net_), "add | exp");
}

TEST_F(Fusion, LongChainsAreCutAtTheLimit) {
  Value x = net_.X({2});
  for (int i = 0; i < 300; ++i) x = net_.Op("tanh", {x});
  net_.Output(x);
  const FusionPlan plan = PlanFusion(net_.program().block());
  ASSERT_EQ(plan.groups.size(), 2U);
  EXPECT_EQ(plan.groups[0].ops.size(), 256U);
  EXPECT_EQ(plan.groups[1].ops.size(), 44U);
  (void)Groups(net_);
}

Value Diamond(Net& net, Value x) {
  Value a = x, b = x;
  for (int i = 0; i < 5; ++i) {
    a = net.Op("tanh", {a});
    b = net.Op("tanh", {b});
  }
  return net.Op("add", {a, b});
}

TEST_F(Fusion, DiamondsAreNeverCut) {
  net_.Output(Diamond(net_, Diamond(net_, Diamond(net_, net_.X({2})))));
  const std::string five = "tanh+tanh+tanh+tanh+tanh";
  const std::string one = StrCat(five, "+", five, "+add");
  EXPECT_EQ(Groups(net_, {.max_ops = 11}), StrCat(one, " | ", one, " | ", one));
  const std::string cut = StrCat(five, "+", five, " | add");  // the branches share a loop
  EXPECT_EQ(Groups(net_, {.max_ops = 10}), StrCat(cut, " | ", cut, " | ", cut));
}

TEST_F(Fusion, ConstantsOfGather) {
  const Value x = net_.X({4, 2}), indices = net_.Ints({2, 0, 3});
  net_.Output(net_.Op("exp", {net_.Op("gather", {x, indices})}));
  EXPECT_EQ(Groups(net_), "gather+exp");
  for (const bool embed : {false, true}) {
    Program program = net_.program().Clone();
    RunPasses(program, StrCat("graph_fuse_partition{embed_constants=", embed, "}"));
    const Operation* group = program.fetches()[0]->operand(0).defining_op();
    EXPECT_EQ(group->num_operands(), embed ? 1U : 2U);
  }
}

TEST_F(Fusion, GatherByTuples) {
  const Value x = net_.X({4, 2});
  const Value at = net_.Constant(Tensor::Of<int64_t>({2, 2}, std::vector<int64_t>{0, 1, 3, 0}));
  net_.Output(net_.Op("exp", {net_.Op("gather_nd", {net_.Op("neg", {x}), at})}));
  EXPECT_EQ(Groups(net_), "neg+gather_nd+exp");
}

// Sizes that are computed are computed before the loops that they bound.
TEST_F(Fusion, ComputedShapesStayOutside) {
  const Value x = net_.X({4, 2}), n = net_.X({1}, ElementType::kI64);
  const Value shape = net_.Op("sub", {n, n});
  net_.Output(net_.Op("exp", {net_.Op("expand", {x, net_.Op("add", {shape, net_.Ints({1})})})}));
  EXPECT_EQ(Groups(net_), "sub+add | expand+exp");
}

TEST_F(Fusion, RegionsReadWrittenValues) {
  const std::string text = R"(program {
  %c = nn.feed() {name = "c"} : () -> v_tensor<[], bool>
  %x = nn.feed() {name = "x"} : () -> v_tensor<[2], f32>
  %e = nn.exp(%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
  %r = cf.if(%c) ({
    %a = nn.neg(%e) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    %b = nn.exp(%a) : (v_tensor<[2], f32>) -> v_tensor<[2], f32>
    cf.yield(%b) : (v_tensor<[2], f32>) -> ()
  }, {
    cf.yield(%e) : (v_tensor<[2], f32>) -> ()
  }) : (v_tensor<[], bool>) -> v_tensor<[2], f32>
  %s = nn.add(%r, %e) : (v_tensor<[2], f32>, v_tensor<[2], f32>) -> v_tensor<[2], f32>
  nn.fetch(%s) {name = "y"} : (v_tensor<[2], f32>) -> ()
})";
  Program program = ParseProgram(context_, text);
  const NamedValues inputs = {{"c", Tensor::Scalar(true)},
                              {"x", Tensor::Of<float>({2}, std::vector<float>{1, 2})}};
  const NamedValues expected = Interpreter(program).Run(inputs);
  RunPasses(program, "graph_fuse_partition");
  EXPECT_EQ(Interpreter(program).Run(inputs), expected);
  size_t groups = 0;
  for (OpWalker w(program.block()); const Operation* op = w.Next();) {
    groups += op->name() == "builtin.group" ? 1 : 0;
  }
  EXPECT_EQ(groups, 3U);  // exp; neg and exp within the branch; add
}

TEST_F(Fusion, SecondRunChangesNothing) {
  net_.Output(net_.Op("exp", {net_.Op("relu", {net_.Conv(net_.X({1, 2, 4, 4}))})}));
  RunPasses(net_.program(), "graph_fuse_partition");
  const std::string once = Print(net_.program());
  RunPasses(net_.program(), "graph_fuse_partition");
  EXPECT_EQ(Print(net_.program()), once);
}

TEST_F(Fusion, SaysWhyAGroupIsNotLarger) {
  const Value c = net_.Conv(net_.X({1, 2, 4, 4}));
  net_.Output(net_.Op("flatten", {c}));
  const FusionPlan plan = PlanFusion(net_.program().block(), {.explain = true});
  ASSERT_FALSE(plan.refusals.empty());
  EXPECT_EQ(plan.refusals[0].op, c.defining_op());
  EXPECT_EQ(plan.refusals[0].why, "only elementwise ops follow such an op in registers");
  EXPECT_EQ(plan.refusals[0].obstacle, FusionObstacle::kKinds);
  EXPECT_LT(plan.refusals[0].apart_us, 0);
}

}  // namespace
}  // namespace lathe::testing
