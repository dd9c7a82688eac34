#include "src/transform/sharding.h"

#include "lathe/dialect/dist/collective.h"
#include "lathe/dialect/nn/movement.h"
#include "lathe/dialect/nn/shape.h"
#include "src/dialect/nn/grad_util.h"

namespace lathe {

namespace {

// Inference sees no constant operands while a program is built.
Value WithShape(Value x, const Shape& shape) {
  const ElementType element = x.type().cast<AnyTensorType>().element();
  x.set_type(VTensorType::Get(*x.type().context(), SymShape::FromConstants(shape), element));
  return x;
}

Shape ShapeOf(Value x) { return *x.type().cast<AnyTensorType>().shape().Constants(); }

}  // namespace

std::vector<Value> Cut(Builder& b, Value x, std::vector<int64_t> sizes, int64_t axis) {
  if (sizes.size() == 1) return {x};
  const Value each = nn::IntsConstant(b, sizes);
  std::vector<Value> parts =
      nn::SplitOp::Create(b, x, each, sizes.size(), {.axis = axis}).outputs();
  Shape shape = ShapeOf(x);
  for (size_t i = 0; i < parts.size(); ++i) {
    shape[static_cast<size_t>(axis)] = sizes[i];
    WithShape(parts[i], shape);
  }
  return parts;
}

Value Joined(Builder& b, const std::vector<Value>& parts, int64_t axis) {
  if (parts.size() == 1) return parts[0];
  return nn::ConcatOp::Create(b, parts, {.axis = axis}).concat_result();
}

Value InShape(Builder& b, Value x, const Shape& shape) {
  return WithShape(nn::ReshapeOp::Create(b, x, nn::IntsConstant(b, shape)).reshaped(), shape);
}

int64_t ShardSize(int64_t count, int64_t nranks) { return (count + nranks - 1) / nranks; }

Value AsShards(Builder& b, Value x, const Shape& shape, int64_t nranks) {
  const int64_t count = NumElements(shape), size = ShardSize(count, nranks);
  if (const int64_t rest = nranks * size - count; rest > 0) {
    const int64_t pads[] = {0, rest};
    const Value flat = InShape(b, x, {count});
    x = nn::PadOp::Create(b, flat, nn::IntsConstant(b, pads), Value(), Value(), {}).output();
  }
  return InShape(b, x, {nranks, size});
}

Value ShardOfRank(Builder& b, Value x, const Shape& shape, int64_t nranks) {
  const Value rows = AsShards(b, x, shape, nranks);
  const Value mine = dist::ShardOp::Create(b, rows, {.nranks = nranks}).y();
  return InShape(b, mine, {ShardSize(NumElements(shape), nranks)});
}

void ShardGatherer::Add(Builder& b, Value shard, Shape shape) {
  const ElementType element = shard.type().cast<AnyTensorType>().element();
  Bucket& bucket = open_[element];
  const int64_t count = NumElements(shape);
  bucket.bytes += static_cast<int64_t>(StorageBytes(element, static_cast<size_t>(count)));
  bucket.items.push_back({count_++, shard, std::move(shape)});
  if (bucket.bytes < kBucketBytes) return;
  Start(b, std::move(bucket));
  bucket = {};
}

void ShardGatherer::Start(Builder& b, Bucket bucket) {
  std::vector<Value> shards;
  for (const Item& item : bucket.items) shards.push_back(item.shard);
  bucket.started = dist::StartAllGatherOp::Create(b, Joined(b, shards), {.nranks = nranks_}).y();
  started_.push_back(std::move(bucket));
}

std::vector<Value> ShardGatherer::Finish(Builder& b) {
  for (auto& [element, bucket] : open_) {
    if (!bucket.items.empty()) Start(b, std::move(bucket));
  }
  std::vector<Value> whole(count_);
  for (const Bucket& bucket : started_) {
    std::vector<int64_t> sizes;
    int64_t all = 0;
    for (const Item& item : bucket.items) {
      all += sizes.emplace_back(ShardSize(NumElements(item.shape), nranks_));
    }
    const Value gathered = dist::WaitOp::Create(b, bucket.started, {.nranks = nranks_}).y();
    const std::vector<Value> columns = Cut(b, InShape(b, gathered, {nranks_, all}), sizes, 1);
    for (size_t i = 0; i < columns.size(); ++i) {
      const Item& item = bucket.items[i];
      const int64_t count = NumElements(item.shape), rest = nranks_ * sizes[i] - count;
      Value flat = InShape(b, columns[i], {nranks_ * sizes[i]});
      if (rest > 0) flat = Cut(b, flat, {count, rest})[0];
      whole[item.number] = InShape(b, flat, item.shape);
    }
  }
  return whole;
}

}  // namespace lathe
