#include "src/driver/decoder_run.h"

#include <algorithm>
#include <numeric>

#include "lathe/support/error.h"

namespace lathe {
namespace {

constexpr size_t kNoCache = ~size_t{0};

Tensor Numbers(ElementType element, Shape shape, const std::vector<int64_t>& values) {
  return Cast(Tensor::Of<int64_t>(std::move(shape), values), element);
}

Shape CacheShape(const CachePort& port, int64_t batch, int64_t length) {
  Shape shape = port.shape;
  shape[port.batch_axis] = batch;
  shape[port.length_axis] = length;
  return shape;
}

}  // namespace

DecoderRun::DecoderRun(const Executable& executable, const DecoderPorts& ports, int64_t batch,
                       int64_t capacity)
    : executable_(executable),
      ports_(ports),
      batch_(batch),
      cache_of_output_(executable.outputs().size(), kNoCache),
      others_(executable.outputs().size()) {
  for (const CachePort& port : ports.caches) {
    cache_of_output_[port.output] = caches_.size();
    const int64_t length = port.length.value_or(port.is_written ? capacity : 0);
    Tensor now(port.element, CacheShape(port, batch, length));
    caches_.push_back({.now = now, .own = now.buffer(), .next = {}});
  }
}

Tensor DecoderRun::Mask(const DecoderStep& step, int64_t total) const {
  const int64_t length = ports_.mask_length.value_or(total);
  std::vector<int64_t> mask;
  for (int64_t b = 0; b < batch_; ++b) {
    const auto row = step.mask.begin() + b * total;
    mask.insert(mask.end(), row, row + total);
    mask.resize(static_cast<size_t>((b + 1) * length), 0);
  }
  const size_t i = static_cast<size_t>(std::ranges::find(ports_.roles, DecoderInput::kMask) -
                                       ports_.roles.begin());
  return Numbers(ports_.inputs[i].element, {batch_, length}, mask);
}

// `length` is S.
Tensor DecoderRun::Feed(size_t input, const DecoderStep& step, int64_t length) const {
  const ElementType element = ports_.inputs[input].element;
  const int64_t total = past_ + length;
  const Shape one(ports_.inputs[input].dims.size(), 1);
  std::vector<int64_t> values;
  switch (ports_.roles[input]) {
    case DecoderInput::kIds:
      return Numbers(element, {batch_, length}, step.ids);
    case DecoderInput::kMask:
      return Mask(step, total);
    case DecoderInput::kPositions:
      return Numbers(element, {batch_, length}, step.positions);
    case DecoderInput::kCachePositions:
      values.resize(static_cast<size_t>(length));
      std::iota(values.begin(), values.end(), past_);
      return Numbers(element, {length}, values);
    case DecoderInput::kLastIndices:
      for (int64_t b = 0; b < batch_; ++b) {
        const auto row = step.mask.begin() + b * total;
        values.push_back(std::accumulate(row, row + total, int64_t{-1}));
      }
      return Numbers(element, {batch_}, values);
    case DecoderInput::kTotalLength:
      return Numbers(element, one, {total});
    case DecoderInput::kPastLength:
      return Numbers(element, one, {past_});
    case DecoderInput::kUsesCache:
      return Numbers(element, one, {past_ > 0 ? 1 : 0});
    case DecoderInput::kPast:
      break;
  }
  const auto port = std::ranges::find(ports_.caches, input, &CachePort::input);
  return caches_[static_cast<size_t>(port - ports_.caches.begin())].now;
}

std::vector<Tensor> DecoderRun::Inputs(const DecoderStep& step, int64_t length) const {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < ports_.roles.size(); ++i) inputs.push_back(Feed(i, step, length));
  return inputs;
}

// A cache that grows gets half as much again, so that few steps allocate.
runtime::OutputView DecoderRun::Room(size_t output, std::span<const int64_t> shape,
                                     uint64_t bytes) {
  const size_t i = cache_of_output_[output];
  if (i == kNoCache) {
    const ElementType element = executable_.outputs()[output].element;
    if (!std::ranges::equal(others_[output].shape(), shape) || !others_[output].is_defined()) {
      others_[output] = Tensor(element, Shape(shape.begin(), shape.end()));
    }
    return {others_[output].mutable_raw(), others_[output].byte_size()};
  }
  Cache& cache = caches_[i];
  if (cache.next == nullptr || cache.next->size() < bytes) {
    const bool grows = !ports_.caches[i].is_written;
    cache.next = Buffer::Allocate(grows ? bytes + bytes / 2 : bytes);
  }
  others_[output] =
      Tensor::FromBuffer(ports_.caches[i].element, Shape(shape.begin(), shape.end()), cache.next);
  return {cache.next->mutable_data(), bytes};
}

Tensor DecoderRun::RunPlan(const std::vector<Tensor>& inputs) {
  std::vector<runtime::InputView> views;
  for (const Tensor& t : inputs) views.push_back({t.element_type(), t.raw(), t.shape()});
  executable_.executor()->RunInto(
      views, [this](size_t output, std::span<const int64_t> shape, uint64_t bytes) {
        return Room(output, shape, bytes);
      });
  for (size_t i = 0; i < caches_.size(); ++i) {
    caches_[i].now = std::exchange(others_[ports_.caches[i].output], {});
    std::swap(caches_[i].own, caches_[i].next);
  }
  return others_[ports_.logits];
}

Tensor DecoderRun::RunByName(const std::vector<Tensor>& inputs) {
  NamedValues values;
  for (size_t i = 0; i < inputs.size(); ++i) values.emplace_back(ports_.inputs[i].name, inputs[i]);
  NamedValues outputs = executable_.Run(values);
  for (size_t i = 0; i < caches_.size(); ++i) {
    caches_[i].now = std::move(outputs[ports_.caches[i].output].second.mutable_tensor());
  }
  return outputs[ports_.logits].second.tensor();
}

void DecoderRun::CheckCaches(int64_t total) const {
  for (size_t i = 0; i < caches_.size(); ++i) {
    const CachePort& port = ports_.caches[i];
    const int64_t length = caches_[i].now.dim(static_cast<int64_t>(port.length_axis));
    if (port.is_written || length == total) continue;
    throw Error(ErrorCode::kShape, "generate/cache",
                StrCat("output '", executable_.outputs()[port.output].name, "' is ",
                       caches_[i].now.TypeString(), " for ", total, " ids"))
        .Hint("a cache grows on the axis behind the heads by the ids of each step");
  }
}

Tensor DecoderRun::Run(const DecoderStep& step) {
  const int64_t length = static_cast<int64_t>(step.ids.size()) / batch_;
  const std::vector<Tensor> inputs = Inputs(step, length);
  Tensor logits;
  try {
    logits = executable_.executor() != nullptr ? RunPlan(inputs) : RunByName(inputs);
  } catch (Error& error) {
    if (error.code() == ErrorCode::kLimit) throw;
    error.Note(StrCat("in a step of ", length, " ids behind ", past_, ", for ", batch_,
                      batch_ == 1 ? " sequence" : " sequences"));
    error.Hint("does the model know as many positions? A limit of length ends sequences before");
    throw;
  }
  if (!ports_.caches.empty()) past_ += length;
  CheckCaches(past_);
  return logits;
}

}  // namespace lathe
