#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lathe/driver/generate.h"
#include "lathe/support/random.h"
#include "src/driver/decoder_run.h"

namespace lathe {

/// Sequences that run together until all of them have ended. The padding is none if their prompts
/// are as long.
class DecoderBatch {
 public:
  /// `sequences` are indices of prompts. References are kept.
  DecoderBatch(const Executable& executable, const DecoderPorts& ports,
               const GenerateOptions& options, Padding padding,
               std::span<const std::vector<int64_t>> prompts, std::span<const size_t> sequences);

  /// Fills in the sequences of `result`, its steps and times; `start` is when the generation began.
  void Run(double start, Generation& result);

 private:
  struct Row {
    std::optional<size_t> sequence;  // nothing: it only fills the batch
    std::vector<int64_t> tokens;     // those of the prompt, too
    RandomStream random;
    bool has_ended;
    int64_t num_new = 0;
  };

  int64_t PaddingBefore(const Row& row, int64_t width) const;
  DecoderStep Columns(int64_t width) const;
  DecoderStep Slice(const DecoderStep& all, int64_t width, int64_t begin, int64_t end) const;
  Tensor RunStep(const DecoderStep& step, Generation& result);
  void ReadPrompts(Generation& result);
  void ReadWhole(Generation& result);
  void ReadLast(Generation& result);
  void TakeLogits(const Tensor& logits, size_t row, int64_t column, int64_t width);
  void Choose(size_t row, Generation& result);
  std::optional<EndReason> WhyEnded(const Row& row, int64_t token) const;
  bool HasRoom(const Row& row) const;
  bool HaveAllEnded() const;
  int64_t LongestRow() const;

  const DecoderPorts& ports_;
  const GenerateOptions& options_;
  const Padding padding_;
  std::vector<Row> rows_;
  std::vector<std::vector<double>> logits_;  // of each row, for its next token
  std::vector<std::vector<int64_t>> masks_;  // of each row, of what is in the cache
  std::optional<DecoderRun> run_;
};

}  // namespace lathe
