#include "src/lower/pack.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <set>

#include "lathe/dialect/eval_util.h"
#include "lathe/dialect/loop.h"
#include "lathe/dialect/nn/view.h"
#include "lathe/ir/builder.h"
#include "lathe/lower/lowering.h"
#include "lathe/support/divide.h"
#include "lathe/support/error.h"
#include "src/dialect/move.h"

namespace lathe::lower {

using eval::NextIndex;
using eval::RowMajorStrides;

int64_t PackedLayout::part_begin(size_t i) const {
  int64_t begin = 0;
  for (size_t k = 0; k < i; ++k) {
    const int64_t elements = NumElements(parts[k].shape());
    begin += RoundUp(elements, kPartElements);
  }
  return begin;
}

Shape PackedLayout::shape() const {
  if (!parts.empty()) return {part_begin(parts.size())};
  Shape shape;
  for (const int64_t axis : order) shape.push_back(split[static_cast<size_t>(axis)]);
  return shape;
}

namespace {

// A part of an axis of the tensor, as a range of each axis that it is split into.
struct Piece {
  struct Range {
    int64_t begin, count;
  };
  std::vector<Range> ranges;
};

// Elements [0, extent) of an axis that is split into axes of extents `split`: as many of the first
// one as are whole, then the same of what is left.
std::vector<Piece> PiecesOf(int64_t extent, std::span<const int64_t> split) {
  std::vector<Piece> pieces;
  std::vector<Piece::Range> fixed;
  if (split.empty()) pieces.emplace_back();  // the axis has one place
  for (size_t i = 0; i < split.size() && extent > 0; ++i) {
    int64_t inner = 1;
    for (size_t k = i + 1; k < split.size(); ++k) inner *= split[k];
    const int64_t whole = extent / inner;
    if (whole > 0) {
      Piece& piece = pieces.emplace_back(fixed);
      piece.ranges.push_back({0, whole});
      for (size_t k = i + 1; k < split.size(); ++k) piece.ranges.push_back({0, split[k]});
    }
    fixed.push_back({whole, 1});
    extent %= inner;
  }
  return pieces;
}

// The axes of `split` that each axis of `padded` becomes, as ends; nothing if one is of several.
std::optional<std::vector<size_t>> SplitEnds(const Shape& padded, const Shape& split) {
  std::vector<size_t> ends;
  size_t at = 0;
  for (const int64_t extent : padded) {
    int64_t product = 1;
    while (at < split.size() && product < extent) product *= split[at++];
    if (product != extent) return std::nullopt;
    ends.push_back(at);
  }
  if (ends.empty()) return std::nullopt;
  for (; at < split.size(); ++at) {
    if (split[at] != 1) return std::nullopt;
  }
  ends.back() = at;
  return ends;
}

// Writes each part of the tensor where it belongs; the rest of the result stays zero.
class Packer {
 public:
  Packer(const Tensor& tensor, const PackedLayout& layout, std::span<const size_t> ends,
         Tensor& packed)
      : tensor_(tensor), layout_(layout), packed_(packed) {
    const std::vector<int64_t> strides = RowMajorStrides(tensor.shape());
    size_t begin = 0;
    for (size_t axis = 0; axis < ends.size(); ++axis) {
      const std::span<const int64_t> parts(layout.split.data() + begin, ends[axis] - begin);
      pieces_.push_back(PiecesOf(tensor.shape()[axis], parts));
      int64_t stride = strides[axis];
      from_strides_.resize(ends[axis]);
      for (size_t i = ends[axis]; i-- > begin; stride *= layout.split[i]) {
        from_strides_[i] = stride;
      }
      begin = ends[axis];
    }
  }

  using Done = std::function<void(std::span<const std::byte>)>;

  void Run(const Done& done) {
    for (const Piece& piece : pieces_[0]) {
      for (const Piece& strip : StripsOf(piece)) {
        std::vector<Piece::Range> ranges = strip.ranges;
        CopyAll(ranges, 1);
        if (done) done(BytesOf(strip));
      }
    }
  }

 private:
  void Copy(std::span<const Piece::Range> ranges) {
    eval::View from, to = eval::View::Of(packed_);
    Shape extents;
    for (size_t i = 0; i < layout_.order.size(); ++i) {
      const auto axis = static_cast<size_t>(layout_.order[i]);
      from.strides.push_back(from_strides_[axis]);
      from.Advance(i, ranges[axis].begin);
      to.Advance(i, ranges[axis].begin);
      extents.push_back(ranges[axis].count);
    }
    eval::CopyView(tensor_, from, packed_, to, extents);
  }

  // With ranges for the axes before `axis`, every piece of the others.
  void CopyAll(std::vector<Piece::Range>& ranges, size_t axis) {
    if (axis == pieces_.size()) return Copy(ranges);
    const size_t before = ranges.size();
    for (const Piece& piece : pieces_[axis]) {
      ranges.insert(ranges.end(), piece.ranges.begin(), piece.ranges.end());
      CopyAll(ranges, axis + 1);
      ranges.resize(before);
    }
  }

  // A piece of the outermost axis, cut along the first axis of its split that has several places.
  std::vector<Piece> StripsOf(const Piece& piece) const {
    constexpr int64_t kStripBytes = 8 << 20;
    const auto axis = std::ranges::find_if(piece.ranges, [](const auto& r) { return r.count > 1; });
    if (axis == piece.ranges.end()) return {piece};
    const auto at = static_cast<size_t>(axis - piece.ranges.begin());
    const int64_t bytes = std::max<int64_t>(
        from_strides_[at] * BitWidth(tensor_.element_type()) / 8, 1);  // of one place
    const int64_t places = std::max<int64_t>(kStripBytes / bytes, 1);
    std::vector<Piece> strips;
    for (int64_t begin = 0; begin < axis->count; begin += places) {
      Piece& strip = strips.emplace_back(piece);
      strip.ranges[at] = {axis->begin + begin, std::min(places, axis->count - begin)};
    }
    return strips;
  }

  // From the first to the last element of a strip: nothing else lies between.
  std::span<const std::byte> BytesOf(const Piece& strip) const {
    int64_t begin = 0, last = 0;
    for (size_t i = 0; i < strip.ranges.size(); ++i) {
      begin += strip.ranges[i].begin * from_strides_[i];
      last += (strip.ranges[i].begin + strip.ranges[i].count - 1) * from_strides_[i];
    }
    const int64_t bits = BitWidth(tensor_.element_type());
    const int64_t row = tensor_.num_elements() / std::max<int64_t>(tensor_.shape()[0], 1);
    const auto first = static_cast<size_t>(begin * bits / 8);
    return tensor_.bytes().subspan(first, static_cast<size_t>((last + row) * bits / 8) - first);
  }

  const Tensor& tensor_;
  const PackedLayout& layout_;
  Tensor& packed_;
  std::vector<std::vector<Piece>> pieces_;  // per axis of the tensor
  std::vector<int64_t> from_strides_;       // per axis of the split
};

Tensor Padded(const Tensor& tensor, const Shape& shape) {
  if (tensor.shape() == shape) return tensor;
  Tensor padded(tensor.element_type(), shape);
  eval::CopyView(tensor, eval::View::Of(tensor), padded, eval::View::Of(padded), tensor.shape());
  return padded;
}

// The sums of a layout, of several runs of elements side by side: as many additions of one run wait
// for each other.
class RunSums {
 public:
  static constexpr size_t kRuns = 16;

  explicit RunSums(const PackedLayout& layout)
      : summed_(static_cast<size_t>(layout.summed)), rows_(layout.sums.size() / summed_) {
    for (const double factor : layout.sums) AddFactor(factor);
  }
  size_t rows() const { return rows_.size(); }

  /// Of up to kRuns runs.
  void Compute(std::span<const float> runs, std::span<float> sums) {
    const size_t count = runs.size() / summed_;
    elements_.assign(summed_, Lane{});
    for (size_t run = 0; run < count; ++run) {
      for (size_t i = 0; i < summed_; ++i) elements_[i][run] = runs[run * summed_ + i];
    }
    for (size_t row = 0; row < rows(); ++row) {
      Lane sum{};
      for (const auto& [element, factor] : rows_[row]) {
        for (size_t run = 0; run < kRuns; ++run) sum[run] += factor * elements_[element][run];
      }
      for (size_t run = 0; run < count; ++run) {
        sums[run * rows() + row] = static_cast<float>(sum[run]);
      }
    }
  }

 private:
  using Lane = std::array<double, kRuns>;
  struct Term {
    size_t element;
    double factor;
  };

  // Factors of zero are left out: they would make NaN of infinities.
  void AddFactor(double factor) {
    const size_t at = next_++;
    if (factor != 0) rows_[at / summed_].push_back({at % summed_, factor});
  }

  size_t summed_, next_ = 0;
  std::vector<std::vector<Term>> rows_;
  std::vector<Lane> elements_;  // per place in a run
};

Tensor SumsOf(const Tensor& tensor, const PackedLayout& layout) {
  RunSums sums(layout);
  Shape shape = tensor.shape();
  for (int64_t gone = 1; gone < layout.summed; shape.pop_back()) gone *= shape.back();
  shape.push_back(static_cast<int64_t>(sums.rows()));
  Tensor result(ElementType::kF32, shape);
  std::span<const float> elements = tensor.data<float>();
  std::span<float> out = result.mutable_data<float>();
  const size_t block = RunSums::kRuns * static_cast<size_t>(layout.summed);
  while (!out.empty()) {
    const size_t taken = std::min(block, elements.size());
    const size_t made = std::min(RunSums::kRuns * sums.rows(), out.size());
    sums.Compute(elements.first(taken), out.first(made));
    elements = elements.subspan(taken);
    out = out.subspan(made);
  }
  return result;
}

Tensor Narrowed(const Tensor& tensor) {
  Tensor narrow(ElementType::kBF16, tensor.shape());
  std::ranges::transform(tensor.data<float>(), narrow.mutable_data<BFloat16>().begin(),
                         &loop::Narrow);
  return narrow;
}

void PackParts(const Tensor& tensor, const PackedLayout& layout, Tensor& packed) {
  for (size_t i = 0; i < layout.parts.size(); ++i) {
    const Tensor part = Pack(tensor, layout.parts[i]);
    const int64_t from = layout.part_begin(i) * BitWidth(part.element_type()) / 8;
    std::ranges::copy(part.bytes(), static_cast<std::byte*>(packed.mutable_raw()) + from);
  }
}

}  // namespace

void PackInto(const Tensor& tensor, const PackedLayout& layout, Tensor& packed,
              const Packer::Done& done) {
  if (layout.element != ElementType::kUndefined) {
    PackedLayout rest = layout;
    rest.element = ElementType::kUndefined;
    return PackInto(Narrowed(tensor), rest, packed);
  }
  if (!layout.parts.empty()) return PackParts(tensor, layout, packed);
  if (!layout.sums.empty()) {
    PackedLayout rest = layout;
    rest.sums.clear();
    return PackInto(SumsOf(tensor, layout), rest, packed);
  }
  if (const auto ends = SplitEnds(layout.padded, layout.split)) {
    return Packer(tensor, layout, *ends, packed).Run(done);
  }
  const Tensor split = Padded(tensor, layout.padded).Reshaped(layout.split);
  const std::vector<int64_t> strides = RowMajorStrides(layout.split);
  eval::View from;
  for (const int64_t axis : layout.order) {
    from.strides.push_back(strides[static_cast<size_t>(axis)]);
  }
  eval::CopyView(split, from, packed, eval::View::Of(packed), packed.shape());
}

Tensor Pack(const Tensor& tensor, const PackedLayout& layout) {
  Tensor packed(layout.element_of(tensor.element_type()), layout.shape());
  PackInto(tensor, layout, packed);
  return packed;
}

Type PackedType(AnyTensorType type, const PackedLayout& layout) {
  return VTensorType::Get(*type.context(), SymShape::FromConstants(layout.shape()),
                          layout.element_of(type.element()));
}

bool IsSameOrder(const PackedLayout& a, const PackedLayout& b) {
  return a.padded == b.padded && a.split == b.split && a.order == b.order && a.sums == b.sums &&
         a.summed == b.summed && a.element == b.element &&
         std::ranges::equal(a.parts, b.parts, &IsSameOrder);
}

bool Lowering::IsConstant(Value v) const {
  return v.is_block_argument() && v.index() < constant.size() && constant[v.index()];
}

Value Lowering::Pack(PackedLayout layout) {
  const Value argument = body->argument(layout.argument);
  argument.set_type(PackedType(argument.type().cast<AnyTensorType>(), layout));
  packed.push_back(std::move(layout));
  return argument;
}

namespace {

PackedLayout AsItIs(AnyTensorType type, size_t argument) {
  PackedLayout layout;
  layout.argument = argument;
  layout.padded = layout.split = *type.shape().Constants();
  layout.order.resize(layout.split.size());
  std::iota(layout.order.begin(), layout.order.end(), 0);
  return layout;
}

PackedLayout LayoutOf(const Lowering& variant, size_t argument) {
  for (const PackedLayout& layout : variant.packed) {
    if (layout.argument == argument) return layout;
  }
  return AsItIs(variant.function.argument(argument).type().cast<AnyTensorType>(), argument);
}

// The variant reads part i instead of the argument.
void ReadPart(Lowering& variant, const PackedLayout& all, size_t i) {
  const Value argument = variant.body->argument(all.argument);
  std::vector<OpOperand> uses;
  for (const OpOperand use : argument.uses()) uses.push_back(use);
  argument.set_type(PackedType(argument.type().cast<AnyTensorType>(), all));
  const Shape shape = all.parts[i].shape();
  const int64_t begin = all.part_begin(i), end = begin + NumElements(shape);
  Builder b = Builder::Before(variant.body->front());
  const Value slice = nn::ViewSliceOp::Create(b, argument, {.starts = {begin}, .ends = {end}}).y();
  const Value part = nn::ViewReshapeOp::Create(b, slice, {.shape = shape}).y();
  for (const OpOperand use : uses) use.Set(part);
  std::erase_if(variant.packed, [&](const auto& l) { return l.argument == all.argument; });
  variant.packed.push_back(all);
}

}  // namespace

void ShareArguments(const Block& function, std::span<Lowering* const> variants) {
  for (size_t a = 0; a < function.num_arguments(); ++a) {
    const auto packs = [&](const Lowering* variant) {
      return std::ranges::count(variant->packed, a, &PackedLayout::argument) > 0;
    };
    if (std::ranges::none_of(variants, packs)) continue;
    PackedLayout all;
    all.argument = a;
    std::vector<size_t> part_of;
    std::set<ElementType> elements;
    for (const Lowering* variant : variants) {
      const PackedLayout own = LayoutOf(*variant, a);
      elements.insert(own.element);
      const auto same = std::ranges::find(all.parts, own);
      part_of.push_back(static_cast<size_t>(same - all.parts.begin()));
      if (same == all.parts.end()) all.parts.push_back(own);
    }
    if (all.parts.size() < 2) continue;
    LATHE_CHECK(elements.size() == 1, "variants read argument ", a, " as different types");
    all.element = *elements.begin();
    for (PackedLayout& part : all.parts) part.element = ElementType::kUndefined;
    for (size_t i = 0; i < variants.size(); ++i) ReadPart(*variants[i], all, part_of[i]);
  }
}

}  // namespace lathe::lower
