#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lathe/driver/executable.h"
#include "lathe/runtime/constraints.h"
#include "lathe/support/budget.h"
#include "lathe/train/data.h"

namespace lathe::train {

struct FeedOptions {
  std::string target = {};   ///< the input of labels or targets; empty: none
  std::string labels = {};   ///< the array that feeds it; empty: found by name
  bool is_classes = false;   ///< labels are numbers of classes
  int64_t num_classes = -1;  ///< -1: not known
  ImageOptions image = {};   ///< of u8 that feed floats
};

/// Reads samples of a data set as inputs of a program: finds the array of each input, converts
/// element types, gives shapes axes of extent 1, checks labels. The data set must outlive it.
class Feeder {
 public:
  /// Errors: train/array if an input has no array, train/array-type and train/array-shape if it
  /// cannot feed it, or if two arrays give one symbol different sizes.
  Feeder(const DataSet& data, std::span<const Port> inputs, FeedOptions options);

  const DataSet& data() const { return data_; }
  /// What the symbols of the inputs are in a batch of so many samples. Refers to the feeder.
  std::vector<runtime::BoundSymbol> Sizes(int64_t samples) const;
  /// Errors: train/label; those of DataSet::Read.
  NamedValues Read(std::span<const int64_t> rows) const;

 private:
  struct Feed {
    Port port;
    size_t column;
    Shape sample;  ///< as the input has it
  };
  size_t FindColumn(const Port& port) const;
  Feed MakeFeed(const Port& port, size_t column) const;
  void CheckSymbols() const;
  Tensor Convert(const Feed& feed, Tensor array, std::span<const int64_t> rows) const;
  void CheckLabels(const Tensor& labels, std::span<const int64_t> rows) const;

  const DataSet& data_;
  FeedOptions options_;
  std::vector<Port> inputs_;
  std::vector<Feed> feeds_;
};

/// The order in which an epoch goes through samples: a function of its arguments alone.
std::vector<int64_t> SampleOrder(int64_t size, bool shuffle, uint64_t seed, int64_t epoch);

/// Which of the ranks that train together reads a batch: each has a stretch of its samples.
struct RankShare {
  int64_t rank = 0, nranks = 1;
};

struct Batch {
  std::vector<int64_t> rows;  ///< that this rank reads; one more sample if there is none for it
  NamedValues values;
  int64_t samples = 0;  ///< of the batch that are for this rank, 0 or rows.size()
  double weight = 1;    ///< their share of the batch
};

/// Reads batch after batch on a thread of its own, a few ahead. The feeder must outlive it.
class Loader {
 public:
  /// Batches of `batch` samples of `order`, from number `first` on; a last one of fewer samples is
  /// dropped, or not.
  Loader(const Feeder& feeder, std::vector<int64_t> order, int64_t batch, bool drop_last,
         int64_t first = 0, RankShare share = {});
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  /// The next one; nothing at the end. Errors: those of Feeder::Read.
  std::optional<Batch> Next();

 private:
  struct Item {
    Batch batch;
    std::exception_ptr error;
  };
  void Work();
  bool Put(Item item);
  Item ReadBatch(size_t begin, size_t end) const;

  const Feeder& feeder_;
  const std::vector<int64_t> order_;
  const size_t batch_;
  const RankShare share_;
  const size_t num_batches_;
  size_t next_;  // of the reader
  size_t left_;  // for Next
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> ready_;
  bool ends_ = false;
  const Budget* const budget_;
  std::thread thread_;  // last: it uses the rest
};

/// Batches in an epoch.
int64_t NumBatches(int64_t samples, int64_t batch, bool drop_last);

}  // namespace lathe::train
