#include <algorithm>
#include <numeric>

#include "lathe/support/error.h"
#include "lathe/support/random.h"
#include "src/train/batches.h"

namespace lathe::train {

namespace {
constexpr size_t kAhead = 2;  // batches that wait
}  // namespace

std::vector<int64_t> SampleOrder(int64_t size, bool shuffle, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!shuffle) return order;
  RandomStream random(seed, static_cast<uint64_t>(epoch));
  for (size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1],
              order[static_cast<size_t>(random.Int(0, static_cast<int64_t>(left) - 1))]);
  }
  return order;
}

int64_t NumBatches(int64_t samples, int64_t batch, bool drop_last) {
  return (samples + (drop_last ? 0 : batch - 1)) / batch;
}

Loader::Loader(const Feeder& feeder, std::vector<int64_t> order, int64_t batch, bool drop_last,
               int64_t first, RankShare share)
    : feeder_(feeder),
      order_(std::move(order)),
      batch_(static_cast<size_t>(batch)),
      share_(share),
      num_batches_(
          static_cast<size_t>(NumBatches(static_cast<int64_t>(order_.size()), batch, drop_last))),
      next_(std::min(static_cast<size_t>(first), num_batches_)),
      left_(num_batches_ - next_),
      budget_(Budget::Current()),
      thread_([this] { Work(); }) {}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Loader::Item Loader::ReadBatch(size_t begin, size_t end) const {
  Item item;
  const auto whole = static_cast<int64_t>(end - begin);
  const int64_t from = whole * share_.rank / share_.nranks;
  const int64_t to = whole * (share_.rank + 1) / share_.nranks;
  const auto rows = order_.begin() + static_cast<std::ptrdiff_t>(begin);
  item.batch.samples = to - from;
  item.batch.weight = static_cast<double>(to - from) / static_cast<double>(whole);
  try {
    // A rank for which nothing is left takes part with a sample that does not count.
    item.batch.rows.assign(rows + from, rows + std::max(to, from + 1));
    item.batch.values = feeder_.Read(item.batch.rows);
  } catch (...) {
    item.error = std::current_exception();
  }
  return item;
}

void Loader::Work() {
  const Budget::Share share(budget_);
  for (; next_ < num_batches_; ++next_) {
    Item item = ReadBatch(next_ * batch_, std::min((next_ + 1) * batch_, order_.size()));
    const bool is_last = item.error != nullptr;
    if (!Put(std::move(item)) || is_last) return;
  }
}

bool Loader::Put(Item item) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ends_ || ready_.size() < kAhead; });
  if (ends_) return false;
  ready_.push_back(std::move(item));
  changed_.notify_all();
  return true;
}

std::optional<Batch> Loader::Next() {
  if (left_ == 0) return std::nullopt;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty(); });
  Item item = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  if (item.error != nullptr) {
    left_ = 0;
    std::rethrow_exception(item.error);
  }
  --left_;
  return std::move(item.batch);
}

std::optional<int64_t> FixedBatch(std::span<const Port> inputs) {
  for (const Port& port : inputs) {
    if (!port.dims.empty() && port.dims[0].is_constant()) return port.dims[0].value();
  }
  return std::nullopt;
}

void ForEachBatch(const DataSet& data, std::span<const Port> inputs, int64_t samples,
                  const ImageOptions& image, const std::function<void(const NamedValues&)>& use) {
  const int64_t batch = std::max<int64_t>(FixedBatch(inputs).value_or(1), 1);
  const int64_t size = samples > 0 ? std::min(samples, data.size()) : data.size();
  if (size < batch) {
    throw Error(ErrorCode::kInvalidArgument, "train/batch",
                StrCat("the model takes ", batch, " samples at a time, there are only ", size))
        .At(data.Describe());
  }
  const Feeder feeder(data, inputs, {.image = image});
  Loader loader(feeder, SampleOrder(size, /*shuffle=*/false, 0, 0), batch, /*drop_last=*/true);
  while (const auto next = loader.Next()) use(next->values);
}

}  // namespace lathe::train
