#include "src/dialect/nn/slice.h"
#include "test/unit/dialect/run_op.h"

namespace lathe::test {
namespace {

Tensor Iota(Shape shape) {
  Tensor t(ElementType::kF32, std::move(shape));
  float next = 0;
  for (float& value : t.mutable_data<float>()) value = next++;
  return t;
}

std::vector<float> Sliced(int64_t extent, int64_t start, int64_t end, int64_t step) {
  return FloatsOf(
      RunOp("nn.slice").In(Iota({extent})).Ints({start}).Ints({end}).Ints({0}).Ints({step}).Run());
}

TEST(Slice, ClampsAndCountsBackwards) {
  EXPECT_EQ(Sliced(5, 1, 4, 2), (std::vector<float>{1, 3}));
  EXPECT_EQ(Sliced(5, -3, INT64_MAX, 1), (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(Sliced(5, INT64_MIN, INT64_MAX, 1), (std::vector<float>{0, 1, 2, 3, 4}));
  EXPECT_EQ(Sliced(5, -1, INT64_MIN, -1), (std::vector<float>{4, 3, 2, 1, 0}));
  EXPECT_EQ(Sliced(5, 10, 0, -2), (std::vector<float>{4, 2}));
  EXPECT_EQ(Sliced(5, 3, 1, 1), (std::vector<float>{}));
  EXPECT_EQ(Sliced(5, 1, 4, INT64_MAX), (std::vector<float>{1}));
  EXPECT_EQ(Sliced(5, 4, INT64_MIN, INT64_MIN), (std::vector<float>{4}));
  EXPECT_EQ(Sliced(0, 0, 3, 1), (std::vector<float>{}));
  EXPECT_EQ(Sliced(0, -1, INT64_MIN, -1), (std::vector<float>{}));
}

// What is said of an extent that is a symbol holds for every number.
TEST(Slice, CountsOfASymbol) {
  const Dim n = Dim::Symbol("N");
  std::vector<int64_t> bounds{INT64_MIN, INT64_MAX};
  for (int64_t bound = -6; bound <= 6; ++bound) bounds.push_back(bound);
  for (const int64_t step : {1, 2, 5, -1, -3}) {
    for (const int64_t start : bounds) {
      for (const int64_t end : bounds) {
        const Dim count = nn::SliceCount(n, start, end, step);
        for (int64_t extent = 0; extent < 9; ++extent) {
          const Dim said = count.Substitute([&](std::string_view) { return Dim(extent); });
          EXPECT_EQ(said, Dim(nn::SliceRange(extent, start, end, step).count))
              << count.ToString() << " of " << start << ":" << end << ":" << step;
        }
      }
    }
  }
  // The same of both ends, so that neighbors in a picture are elements of one shape.
  EXPECT_EQ(nn::SliceCount(n, 1, -1, 1), nn::SliceCount(n, 0, -2, 1));
  EXPECT_EQ(nn::SliceCount(n, 2, INT64_MAX, 1), nn::SliceCount(n, 1, -1, 1));
}

TEST(Slice, RefusesWhatCanNotBe) {
  const auto error = [](const std::vector<int64_t>& axes, int64_t step) {
    RunOp op("nn.slice");
    op.In(Iota({2, 3})).Ints({0, 0}).Ints({1, 1}).Ints(axes).Ints({1, step});
    return op.EvalError();
  };
  EXPECT_EQ(error({0, 1}, 0), "shape/slice-step");
  EXPECT_EQ(error({0, 2}, 1), "shape/axis");
  EXPECT_EQ(error({1, -1}, 1), "shape/axis");
  EXPECT_EQ(error({1}, 1), "shape/slice");
}

std::vector<float> Padded(const char* mode, const std::vector<int64_t>& pads) {
  return FloatsOf(RunOp("nn.pad").In(Iota({3})).Ints(pads).Attr("mode", mode).Run());
}

TEST(Pad, FillsByMode) {
  EXPECT_EQ(Padded("constant", {1, 2}), (std::vector<float>{0, 0, 1, 2, 0, 0}));
  EXPECT_EQ(Padded("edge", {1, 2}), (std::vector<float>{0, 0, 1, 2, 2, 2}));
  EXPECT_EQ(Padded("reflect", {2, 2}), (std::vector<float>{2, 1, 0, 1, 2, 1, 0}));
  EXPECT_EQ(Padded("reflect", {5, 0}), (std::vector<float>{1, 0, 1, 2, 1, 0, 1, 2}));
  EXPECT_EQ(Padded("wrap", {2, 4}), (std::vector<float>{1, 2, 0, 1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(Padded("constant", {-1, 1}), (std::vector<float>{1, 2, 0}));
  EXPECT_EQ(Padded("edge", {-1, 1}), (std::vector<float>{1, 2, 2}));
}

TEST(Pad, RefusesWhatCanNotBe) {
  const auto error = [](Shape shape, const char* mode, const std::vector<int64_t>& pads) {
    return RunOp("nn.pad").In(Iota(std::move(shape))).Ints(pads).Attr("mode", mode).EvalError();
  };
  EXPECT_EQ(error({3}, "constant", {-2, -2}), "shape/pad");
  EXPECT_EQ(error({3}, "constant", {INT64_MIN, INT64_MAX}), "shape/pad");
  EXPECT_EQ(error({3}, "constant", {INT64_MAX, INT64_MAX}), "limit/size");
  EXPECT_EQ(error({3}, "constant", {int64_t{1} << 50, 0}), "limit/memory");
  EXPECT_EQ(error({0}, "reflect", {1, 1}), "shape/pad");
  EXPECT_EQ(error({3}, "constant", {1}), "shape/pad");
}

TEST(Concat, JoinsStringsAndPackedElements) {
  const Tensor a = Tensor::Of<std::string>({1}, {std::string("a")});
  const Tensor b = Tensor::Of<std::string>({2}, {std::string("b"), std::string("c")});
  const Tensor joined = RunOp("nn.concat").In(a).In(b).Attr("axis", 0).Run();
  EXPECT_EQ(joined.data<std::string>()[2], "c");
  const Tensor x = Tensor::Of<UInt2>({3}, {UInt2(1), UInt2(2), UInt2(3)});
  const Tensor packed = RunOp("nn.concat").In(x).In(x).Attr("axis", -1).Run();
  EXPECT_EQ(Unpack<UInt2>(packed),
            (std::vector<UInt2>{UInt2(1), UInt2(2), UInt2(3), UInt2(1), UInt2(2), UInt2(3)}));
  EXPECT_EQ(RunOp("nn.concat").In(Iota({2, 3})).In(Iota({2, 4})).Attr("axis", 0).EvalError(),
            "shape/concat");
}

TEST(Split, LastPieceIsSmallerAndSumsAreChecked) {
  const auto pieces = RunOp("nn.split").In(Iota({7})).Attr("num_outputs", 3).Outputs(3).Values();
  EXPECT_EQ(pieces[0].tensor().shape(), (Shape{3}));
  EXPECT_EQ(FloatsOf(pieces[2].tensor()), (std::vector<float>{6}));
  EXPECT_EQ(RunOp("nn.split").In(Iota({6})).Ints({2, 3}).Outputs(2).EvalError(), "shape/split");
  EXPECT_EQ(RunOp("nn.split").In(Iota({6})).Ints({7, -1}).Outputs(2).EvalError(), "shape/split");
  const int64_t big = int64_t{1} << 62;
  EXPECT_EQ(RunOp("nn.split").In(Iota({0})).Ints({big, big, big, big}).Outputs(4).EvalError(),
            "shape/split");
}

TEST(Tile, RepeatsEveryAxis) {
  const Tensor t = RunOp("nn.tile").In(Iota({2, 1})).Ints({2, 2}).Run();
  EXPECT_EQ(t.shape(), (Shape{4, 2}));
  EXPECT_EQ(FloatsOf(t), (std::vector<float>{0, 0, 1, 1, 0, 0, 1, 1}));
}

TEST(Where, BroadcastsAllThree) {
  const Tensor condition = Tensor::Of<bool>({2, 1}, {true, false});
  const Tensor t = RunOp("nn.where").In(condition).Floats({3}, {1, 2, 3}).Floats({}, {9}).Run();
  EXPECT_EQ(FloatsOf(t), (std::vector<float>{1, 2, 3, 9, 9, 9}));
}

TEST(Trilu, FarDiagonalsKeepAllOrNothing) {
  const auto run = [](int64_t k, bool upper) {
    return FloatsOf(RunOp("nn.trilu")
                        .Floats({2, 2}, {1, 2, 3, 4})
                        .In(Tensor::Scalar(k))
                        .Attr("upper", upper)
                        .Run());
  };
  EXPECT_EQ(run(0, true), (std::vector<float>{1, 2, 0, 4}));
  EXPECT_EQ(run(0, false), (std::vector<float>{1, 0, 3, 4}));
  EXPECT_EQ(run(INT64_MAX, true), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(run(INT64_MIN, true), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(run(INT64_MAX, false), (std::vector<float>{1, 2, 3, 4}));
}

TEST(Gather, WrapsNegativeIndicesAndRefusesOthers) {
  const Tensor t = RunOp("nn.gather").In(Iota({3, 2})).Ints({-1, 0}).Run();
  EXPECT_EQ(FloatsOf(t), (std::vector<float>{4, 5, 0, 1}));
  EXPECT_EQ(RunOp("nn.gather").In(Iota({3, 2})).Ints({3}).EvalError(), "run/index");
  EXPECT_EQ(RunOp("nn.gather").In(Iota({3, 2})).Ints({-4}).EvalError(), "run/index");
  EXPECT_EQ(RunOp("nn.gather").In(Iota({0, 2})).Ints({0}).EvalError(), "run/index");
  EXPECT_EQ(RunOp("nn.gather_elements").In(Iota({2})).Ints({INT64_MIN}).EvalError(), "run/index");
  EXPECT_EQ(
      RunOp("nn.gather_nd").In(Iota({2, 2})).In(Tensor::Of<int64_t>({1, 3}, {0, 0, 0})).EvalError(),
      "shape/gather-nd");
}

TEST(Scatter, DuplicatesGoInOrderOrAreCombined) {
  const auto run = [](const char* reduction) {
    RunOp op("nn.scatter_elements");
    op.Floats({3}, {1, 2, 3}).Ints({1, -2, 0}).Floats({3}, {10, 20, 30});
    return FloatsOf(op.Attr("reduction", reduction).Run());
  };
  EXPECT_EQ(run("none"), (std::vector<float>{30, 20, 3}));
  EXPECT_EQ(run("add"), (std::vector<float>{31, 32, 3}));
  EXPECT_EQ(run("mul"), (std::vector<float>{30, 400, 3}));
  EXPECT_EQ(run("max"), (std::vector<float>{30, 20, 3}));
  EXPECT_EQ(run("min"), (std::vector<float>{1, 2, 3}));
  RunOp nd("nn.scatter_nd");
  nd.Floats({3}, {1, 2, 3}).In(Tensor::Of<int64_t>({1, 1}, {5})).Floats({1}, {9});
  EXPECT_EQ(nd.EvalError(), "run/index");
}

TEST(OneHot, IgnoresIndicesOutside) {
  RunOp op("nn.one_hot");
  op.Ints({1, -1, 7, INT64_MIN}).In(Tensor::Scalar<int64_t>(3)).Floats({2}, {0, 1});
  EXPECT_EQ(FloatsOf(op.Run()), (std::vector<float>{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}));
  RunOp wide("nn.one_hot");
  wide.In(Tensor::Of<uint64_t>({1}, {UINT64_MAX}))
      .In(Tensor::Scalar<int64_t>(2))
      .Floats({2}, {0, 1});
  EXPECT_EQ(FloatsOf(wide.Run()), (std::vector<float>{0, 0}));
  RunOp negative("nn.one_hot");
  negative.Ints({0}).In(Tensor::Scalar<int64_t>(-1)).Floats({2}, {0, 1});
  EXPECT_EQ(negative.EvalError(), "shape/negative-dim");
}

// As compiled: a position is wrong whatever is written there.
TEST(TensorScatter, ChecksPositionsOfEmptyUpdates) {
  const auto error = [](int64_t position, const char* mode, Shape update) {
    RunOp op("nn.tensor_scatter");
    op.Floats({1, 3, 0}, {}).In(Tensor(ElementType::kF32, std::move(update))).Ints({position});
    return op.Attr("mode", mode).Attr("axis", int64_t{1}).EvalError();
  };
  EXPECT_EQ(error(1, "linear", {1, 2, 0}), "");
  EXPECT_EQ(error(2, "linear", {1, 2, 0}), "run/index");
  EXPECT_EQ(error(-1, "linear", {1, 2, 0}), "run/index");
  EXPECT_EQ(error(3, "linear", {1, 0, 0}), "");
  EXPECT_EQ(error(5, "circular", {1, 2, 0}), "");
  EXPECT_EQ(error(-1, "circular", {1, 2, 0}), "run/index");
}

TEST(RotaryEmbedding, ChecksPositionsOfEmptyInputs) {
  const auto error = [](int64_t heads, int64_t position) {
    RunOp op("nn.rotary_embedding");
    op.In(Tensor(ElementType::kF32, {1, heads, 1, 2})).Floats({2, 1}, {1, 1});
    return op.Floats({2, 1}, {0, 0}).In(Tensor::Of<int64_t>({1, 1}, {position})).EvalError();
  };
  for (const int64_t heads : {0, 2}) {
    EXPECT_EQ(error(heads, 1), "");
    EXPECT_EQ(error(heads, 2), "shape/rotary");
    EXPECT_EQ(error(heads, -1), "shape/rotary");
  }
}

TEST(Sequence, InsertsAtTheEndAndChecksPositions) {
  const RtValue list = RtValue::OfList({Iota({1}), Iota({2})});
  const auto longer = RunOp("nn.sequence_insert").InValue(list).In(Iota({3})).Values()[0];
  EXPECT_EQ(longer.list().back().tensor().shape(), (Shape{3}));
  const auto error = [&](int64_t position) {
    return RunOp("nn.sequence_insert")
        .InValue(list)
        .In(Iota({3}))
        .In(Tensor::Scalar(position))
        .EvalError();
  };
  EXPECT_EQ(error(2), "");
  EXPECT_EQ(error(-2), "");
  EXPECT_EQ(error(3), "run/index");
  EXPECT_EQ(error(-3), "run/index");
  EXPECT_EQ(RunOp("nn.sequence_erase").InValue(RtValue::OfList({})).EvalError(), "run/index");
  EXPECT_EQ(
      RunOp("nn.concat_from_sequence").InValue(RtValue::OfList({})).Attr("axis", 0).EvalError(),
      "run/empty-sequence");
  EXPECT_EQ(RunOp("nn.split_to_sequence").In(Iota({4})).In(Tensor::Scalar<int64_t>(0)).EvalError(),
            "shape/split");
}

}  // namespace
}  // namespace lathe::test
