#include "src/driver/decoder_batch.h"

#include <algorithm>
#include <utility>

#include "lathe/support/clock.h"
#include "lathe/support/error.h"
#include "src/driver/sampling.h"

namespace lathe {
namespace {

int64_t SizeOf(const std::vector<int64_t>& tokens) { return static_cast<int64_t>(tokens.size()); }

// Of one row of logits, in whatever type.
std::vector<double> LogitsAt(const Tensor& logits, int64_t row) {
  const int64_t vocabulary = logits.dim(-1);
  const size_t bytes = StorageBytes(logits.element_type(), static_cast<size_t>(vocabulary));
  return ToDoubles(
      Tensor::FromBytes(logits.element_type(), {vocabulary},
                        logits.bytes().subspan(static_cast<size_t>(row) * bytes, bytes)));
}

}  // namespace

DecoderBatch::DecoderBatch(const Executable& executable, const DecoderPorts& ports,
                           const GenerateOptions& options, Padding padding,
                           std::span<const std::vector<int64_t>> prompts,
                           std::span<const size_t> sequences)
    : ports_(ports), options_(options), padding_(padding) {
  for (const size_t i : sequences) {
    rows_.push_back({i, prompts[i], RandomStream(options.seed, i), /*has_ended=*/false});
  }
  while (std::cmp_less(rows_.size(), ports.batch.value_or(0))) {
    rows_.push_back({std::nullopt, prompts[sequences[0]], RandomStream(0), /*has_ended=*/true});
  }
  logits_.resize(rows_.size());
  masks_.resize(rows_.size());
  int64_t capacity = LongestRow() + options.max_new_tokens;
  if (options.max_length > 0) capacity = std::min(capacity, options.max_length);
  run_.emplace(executable, ports, static_cast<int64_t>(rows_.size()), capacity);
}

int64_t DecoderBatch::LongestRow() const {
  int64_t longest = 0;
  for (const Row& row : rows_) longest = std::max(longest, SizeOf(row.tokens));
  return longest;
}

int64_t DecoderBatch::PaddingBefore(const Row& row, int64_t width) const {
  return padding_ == Padding::kLeft ? width - SizeOf(row.tokens) : 0;
}

// All tokens of all rows; padding repeats the nearest one.
DecoderStep DecoderBatch::Columns(int64_t width) const {
  DecoderStep step;
  for (const Row& row : rows_) {
    const int64_t before = PaddingBefore(row, width), last = SizeOf(row.tokens) - 1;
    for (int64_t i = -before; i < width - before; ++i) {
      const int64_t position = std::clamp<int64_t>(i, 0, last);
      step.ids.push_back(row.tokens[static_cast<size_t>(position)]);
      step.positions.push_back(position);
      step.mask.push_back(position == i ? 1 : 0);
    }
  }
  return step;
}

DecoderStep DecoderBatch::Slice(const DecoderStep& all, int64_t width, int64_t begin,
                                int64_t end) const {
  DecoderStep part;
  const auto add = [&](std::vector<int64_t>& to, const std::vector<int64_t>& from, int64_t first) {
    for (int64_t row = 0; row < SizeOf(from); row += width) {
      to.insert(to.end(), from.begin() + row + first, from.begin() + row + end);
    }
  };
  add(part.ids, all.ids, begin);
  add(part.positions, all.positions, begin);
  add(part.mask, all.mask, 0);
  return part;
}

Tensor DecoderBatch::RunStep(const DecoderStep& step, Generation& result) {
  ++result.steps;
  return run_->Run(step);
}

void DecoderBatch::TakeLogits(const Tensor& logits, size_t row, int64_t column, int64_t width) {
  const int64_t rows = static_cast<int64_t>(rows_.size()), r = static_cast<int64_t>(row);
  const int64_t given = logits.rank() == 3 ? logits.dim(1) : 1;
  const bool fits = logits.dim(0) == rows && column >= 0 && column < width &&
                    (given == width || (given == 1 && column == width - 1));
  if (!fits) {
    throw Error(ErrorCode::kShape, "generate/output",
                StrCat("the logits are ", logits.TypeString(), " for ", rows, " sequences of ",
                       width, " ids"));
  }
  logits_[row] = LogitsAt(logits, given == width ? r * width + column : r);
}

void DecoderBatch::ReadPrompts(Generation& result) {
  const int64_t width = LongestRow();
  const int64_t part = ports_.num_ids.value_or(width);
  const DecoderStep all = Columns(width);
  Tensor logits;
  for (int64_t begin = 0; begin < width; begin += part) {
    logits = RunStep(Slice(all, width, begin, begin + part), result);
  }
  for (size_t i = 0; i < rows_.size(); ++i) {
    const int64_t last = PaddingBefore(rows_[i], width) + SizeOf(rows_[i].tokens) - 1;
    TakeLogits(logits, i, last - (width - part), part);
    const auto mask = all.mask.begin() + static_cast<int64_t>(i) * width;
    masks_[i].assign(mask, mask + width);
  }
}

void DecoderBatch::ReadLast(Generation& result) {
  DecoderStep step;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const std::vector<int64_t>& tokens = rows_[i].tokens;
    step.ids.push_back(tokens.back());
    step.positions.push_back(SizeOf(tokens) - 1);
    masks_[i].push_back(1);
    step.mask.insert(step.mask.end(), masks_[i].begin(), masks_[i].end());
  }
  const Tensor logits = RunStep(step, result);
  for (size_t i = 0; i < rows_.size(); ++i) TakeLogits(logits, i, 0, 1);
}

void DecoderBatch::ReadWhole(Generation& result) {
  const int64_t width = ports_.num_ids.value_or(LongestRow());
  const Tensor logits = RunStep(Columns(width), result);
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].has_ended) continue;  // a full one is longer than a fixed width
    const int64_t last = PaddingBefore(rows_[i], width) + SizeOf(rows_[i].tokens) - 1;
    TakeLogits(logits, i, last, width);
  }
}

bool DecoderBatch::HasRoom(const Row& row) const {
  const auto most = ports_.MaxLength();
  if (!most) return true;
  return ports_.caches.empty() ? SizeOf(row.tokens) <= *most : run_->past() < *most;
}

std::optional<EndReason> DecoderBatch::WhyEnded(const Row& row, int64_t token) const {
  if (std::ranges::find(options_.stop, token) != options_.stop.end()) return EndReason::kStop;
  if (row.num_new == options_.max_new_tokens) return EndReason::kMaxNewTokens;
  const bool is_full = options_.max_length > 0 && SizeOf(row.tokens) >= options_.max_length;
  if (is_full || !HasRoom(row)) return EndReason::kMaxLength;
  return std::nullopt;
}

// A sequence that has ended keeps the length of the others where they must have the same.
void DecoderBatch::Choose(size_t i, Generation& result) {
  Row& row = rows_[i];
  if (row.has_ended) {
    if (!ports_.caches.empty() || padding_ == Padding::kNone)
      row.tokens.push_back(row.tokens.back());
    return;
  }
  int64_t token = 0;
  try {
    token = ChooseToken(logits_[i], options_, row.random.NextDouble());
  } catch (Error& error) {
    throw error.Note(StrCat("token ", row.num_new, " of sequence ", *row.sequence));
  }
  GeneratedSequence& sequence = result.sequences[*row.sequence];
  row.tokens.push_back(token);
  ++row.num_new;
  sequence.tokens.push_back(token);
  if (const auto why = WhyEnded(row, token)) {
    row.has_ended = true;
    sequence.reason = *why;
  }
  if (options_.on_token) options_.on_token(*row.sequence, token);
}

bool DecoderBatch::HaveAllEnded() const { return std::ranges::all_of(rows_, &Row::has_ended); }

void DecoderBatch::Run(double start, Generation& result) {
  const bool has_cache = !ports_.caches.empty();
  const double begin = SecondsNow();
  if (has_cache) {
    ReadPrompts(result);
  } else {
    ReadWhole(result);
  }
  result.prompt_seconds += SecondsNow() - begin;
  while (true) {
    for (size_t i = 0; i < rows_.size(); ++i) Choose(i, result);
    if (result.first_seconds == 0) result.first_seconds = SecondsNow() - start;
    if (HaveAllEnded()) return;
    if (has_cache) {
      ReadLast(result);
    } else {
      ReadWhole(result);
    }
  }
}

}  // namespace lathe
