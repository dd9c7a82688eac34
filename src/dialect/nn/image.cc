#include "lathe/dialect/nn/image.h"

#include <cmath>
#include <numbers>

#include "lathe/dialect/eval_util.h"
#include "lathe/support/error.h"
#include "lathe/support/size_condition.h"
#include "src/dialect/contents.h"
#include "src/dialect/move.h"
#include "src/dialect/wide.h"

namespace lathe::nn {

using eval::Concrete;
using eval::FailShape;

// ---- col2im ----

namespace {

std::vector<Dim> AttributeOr(const std::optional<std::vector<int64_t>>& given, size_t count,
                             int64_t standard, const char* what) {
  const auto values = given.value_or(std::vector<int64_t>(count, standard));
  if (values.size() == count) return ToDims(values);
  FailShape("shape/col2im",
            StrCat(what, " has ", values.size(), " entries, but ", count, " are expected"));
}

// The geometry of cutting an image into blocks.
struct Blocks {
  std::vector<Dim> image, block, dilations, pads, strides;

  Blocks(Col2imOp op, std::vector<Dim> image_shape, std::vector<Dim> block_shape)
      : image(std::move(image_shape)), block(std::move(block_shape)) {
    const size_t k = image.size();
    if (block.size() != k) {
      FailShape("shape/col2im",
                StrCat("image_shape has ", k, " entries, block_shape ", block.size()));
    }
    dilations = AttributeOr(op.dilations(), k, 1, "dilations");
    pads = AttributeOr(op.pads(), 2 * k, 0, "pads");
    strides = AttributeOr(op.strides(), k, 1, "strides");
  }

  // How many blocks there are along each axis.
  std::vector<Dim> Counts() const {
    std::vector<Dim> counts;
    for (size_t i = 0; i < image.size(); ++i) {
      const Dim reach = dilations[i] * (block[i] - 1) + 1;
      const Dim room = image[i] + pads[i] + pads[image.size() + i] - reach;
      counts.push_back(Max(FloorDiv(room, strides[i]) + 1, 0));
    }
    return counts;
  }
};

SymShape Col2imRule(const SymShape& in, const Blocks& blocks) {
  if (in.ranked && in.rank() != 3) {
    FailShape("shape/col2im",
              StrCat("the input must be [N, C * block, blocks], not of rank ", in.rank()));
  }
  std::vector<Dim> dims(2);
  const Dim size = SymShape(blocks.block).NumElements();
  if (in.ranked) {
    const Dim count = SymShape(blocks.Counts()).NumElements();
    Assume(SizeCondition::Equal(count, in.dims[2]), "shape/col2im", [&] {
      return StrCat("the image has ", count.ToString(), " blocks, the input ",
                    in.dims[2].ToString());
    });
    const auto message = [&] {
      return StrCat("blocks of ", size.ToString(), " elements do not divide ",
                    in.dims[1].ToString(), " rows");
    };
    if (size.IsConstant(0)) FailShape("shape/col2im", message());
    Assume(SizeCondition::Divides(size, in.dims[1]), "shape/col2im", message);
    dims = {in.dims[0], FloorDiv(in.dims[1], size)};
  }
  dims.insert(dims.end(), blocks.image.begin(), blocks.image.end());
  return dims;
}

// Where in an image (one channel) element `offset` of block `at` lies; -1 in the padding.
int64_t PixelOf(const Blocks& blocks, std::span<const int64_t> offset,
                std::span<const int64_t> at) {
  int64_t pixel = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    const int64_t place = at[i] * blocks.strides[i].value() +
                          offset[i] * blocks.dilations[i].value() - blocks.pads[i].value();
    const int64_t extent = blocks.image[i].value();
    if (place < 0 || place >= extent) return -1;
    pixel = pixel * extent + place;
  }
  return pixel;
}

// Pixels of every element of every block, [block elements, blocks].
std::vector<int64_t> Pixels(const Blocks& blocks) {
  const Shape offsets = Concrete(blocks.block);
  const Shape counts = Concrete(blocks.Counts());
  std::vector<int64_t> pixels;
  std::vector<int64_t> offset(offsets.size(), 0);
  std::vector<int64_t> at(counts.size(), 0);
  const int64_t total = NumElements(counts);
  do {
    for (int64_t i = 0; i < total; ++i) {
      pixels.push_back(PixelOf(blocks, offset, at));
      (void)eval::NextIndex(counts, at);
    }
  } while (eval::NextIndex(offsets, offset));
  return pixels;
}

template <class C>
Tensor AddBlocks(const Tensor& x, const Shape& shape, const Blocks& blocks) {
  const auto values = eval::LoadAll<C>(x);
  const auto pixels = Pixels(blocks);
  const auto images = static_cast<size_t>(shape[0] * shape[1]);
  const auto size = static_cast<size_t>(NumElements(std::span(shape).subspan(2)));
  std::vector<C> sums(images * size, C{0});
  for (size_t image = 0; image < images; ++image) {
    for (size_t i = 0; i < pixels.size(); ++i) {
      if (pixels[i] < 0) continue;
      C& sum = sums[image * size + static_cast<size_t>(pixels[i])];
      sum = eval::WrapAdd(sum, values[image * pixels.size() + i]);
    }
  }
  return eval::MakeTensor<C>(x.element_type(), shape, sums);
}

}  // namespace

void Col2imOp::InferShape(InferShapeContext& c) {
  auto image = c.Contents(kImageShape);
  auto block = c.Contents(kBlockShape);
  if (!image || !block) return c.SetShape(kOutput, {});
  const Blocks blocks(Col2imOp(c.op()), std::move(*image), std::move(*block));
  c.SetShape(kOutput, Col2imRule(c.shape(kInput), blocks));
}

void Col2imOp::Eval(EvalContext& c) {
  const Tensor& x = c.input(kInput);
  const Blocks blocks(Col2imOp(c.op()), ToDims(ToInt64s(c.input(kImageShape))),
                      ToDims(ToInt64s(c.input(kBlockShape))));
  const Shape shape = Concrete(Col2imRule(SymShape::FromConstants(x.shape()), blocks));
  (void)Concrete(blocks.Counts());
  Tensor out(x.element_type(), shape);
  if (x.num_elements() != 0 && out.num_elements() != 0) {
    out = eval::VisitWide(x.element_type(), [&]<class C>(std::type_identity<C>) {
      return AddBlocks<C>(x, shape, blocks);
    });
  }
  c.SetOutput(kOutput, std::move(out));
}

// ---- windows ----

namespace {

void InferWindow(InferShapeContext& c, ElementType type) {
  if (!IsFloat(type) && !IsInteger(type)) {
    c.Fail("type/window", StrCat("a window cannot have elements of type ", Name(type)));
  }
  const auto size = c.Contents(0);
  const Dim count = size && size->size() == 1 ? size->front() : Dim();
  if (count.is_constant() && count.value() < 0) {
    c.Fail("shape/negative-dim", StrCat("the size is ", count.value()));
  }
  c.SetShape(0, {count});
}

// f(2 pi n / N) for n = 0 .. size-1. A symmetric window of one element is 1.
void EvalWindow(EvalContext& c, ElementType type, bool periodic, double (*f)(double angle)) {
  Tensor values(ElementType::kF64, Concrete({eval::ScalarInt(c.input(0), "size")}));
  auto out = values.mutable_data<double>();
  const auto period = static_cast<double>(out.size()) - (periodic ? 0 : 1);
  for (size_t n = 0; n < out.size(); ++n) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(n) / period;
    out[n] = period > 0 ? f(angle) : 1;
  }
  c.SetOutput(0, Cast(values, type));
}

double Blackman(double angle) { return 0.42 - 0.5 * std::cos(angle) + 0.08 * std::cos(2 * angle); }
double Hann(double angle) { return 0.5 - 0.5 * std::cos(angle); }
double Hamming(double angle) { return 25.0 / 46.0 - 21.0 / 46.0 * std::cos(angle); }

}  // namespace

void BlackmanWindowOp::InferShape(InferShapeContext& c) {
  InferWindow(c, BlackmanWindowOp(c.op()).output_datatype());
}
void BlackmanWindowOp::Eval(EvalContext& c) {
  const BlackmanWindowOp op(c.op());
  EvalWindow(c, op.output_datatype(), op.periodic(), Blackman);
}

void HannWindowOp::InferShape(InferShapeContext& c) {
  InferWindow(c, HannWindowOp(c.op()).output_datatype());
}
void HannWindowOp::Eval(EvalContext& c) {
  const HannWindowOp op(c.op());
  EvalWindow(c, op.output_datatype(), op.periodic(), Hann);
}

void HammingWindowOp::InferShape(InferShapeContext& c) {
  InferWindow(c, HammingWindowOp(c.op()).output_datatype());
}
void HammingWindowOp::Eval(EvalContext& c) {
  const HammingWindowOp op(c.op());
  EvalWindow(c, op.output_datatype(), op.periodic(), Hamming);
}

}  // namespace lathe::nn
