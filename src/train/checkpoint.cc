#include "src/train/checkpoint.h"

#include <algorithm>
#include <bit>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/safetensors.h"

namespace lathe::train {
namespace {

constexpr const char* kFormat = "lathe.checkpoint.1";

Error CheckpointError(const std::string& path, std::string message) {
  return Error(ErrorCode::kInvalidArgument, "train/checkpoint", std::move(message)).At(path);
}

using Metadata = std::vector<std::pair<std::string, std::string>>;

// Numbers by name, in one order for writing and reading.
template <class Visit>
void VisitNumbers(Checkpoint& c, const Visit& visit) {
  visit("epoch", c.position.epoch);
  visit("batch", c.position.batch);
  visit("step", c.position.step);
  visit("epoch.loss", c.position.sums.loss);
  visit("epoch.correct", c.position.sums.correct);
  visit("epoch.predictions", c.position.sums.predictions);
  visit("epoch.samples", c.position.sums.samples);
  visit("run.seed", c.run.seed);
  visit("run.batch", c.run.batch);
  visit("run.shuffle", c.run.shuffle);
  visit("run.drop_last", c.run.drop_last);
}

// The bits, so that sums go on exactly.
uint64_t ToBits(double value) { return std::bit_cast<uint64_t>(value); }
uint64_t ToBits(int64_t value) { return static_cast<uint64_t>(value); }
uint64_t ToBits(uint64_t value) { return value; }
uint64_t ToBits(bool value) { return value ? 1 : 0; }
void FromBits(uint64_t bits, double& value) { value = std::bit_cast<double>(bits); }
void FromBits(uint64_t bits, int64_t& value) { value = static_cast<int64_t>(bits); }
void FromBits(uint64_t bits, uint64_t& value) { value = bits; }
void FromBits(uint64_t bits, bool& value) { value = bits != 0; }

std::string Find(const Metadata& metadata, std::string_view key, const std::string& path) {
  const auto at = std::ranges::find(metadata, key, &Metadata::value_type::first);
  if (at != metadata.end()) return at->second;
  throw CheckpointError(path, StrCat("this checkpoint has no '", key, "'"));
}

}  // namespace

void WriteCheckpoint(const std::string& path, const Checkpoint& checkpoint) {
  SafeTensors file{checkpoint.parameters, {{"format", kFormat}, {"model", checkpoint.run.model}}};
  Checkpoint copy{checkpoint.run, checkpoint.position, {}};
  VisitNumbers(copy, [&](const char* name, const auto& value) {
    file.metadata.emplace_back(name, StrCat(ToBits(value)));
  });
  std::ranges::sort(file.metadata);
  WriteSafeTensors(path, file);
}

Checkpoint ReadCheckpoint(const std::string& path) {
  SafeTensors file = ReadSafeTensors(path);
  const auto format = std::ranges::find(file.metadata, "format", &Metadata::value_type::first);
  if (format == file.metadata.end() || format->second != kFormat) {
    throw CheckpointError(path, "this file is not a checkpoint of a training")
        .Hint("`lathe train --checkpoint FOLDER` writes one");
  }
  Checkpoint checkpoint;
  checkpoint.run.model = Find(file.metadata, "model", path);
  VisitNumbers(checkpoint, [&](const char* name, auto& value) {
    const auto bits = ParseUint(Find(file.metadata, name, path));
    if (!bits) throw CheckpointError(path, StrCat("'", name, "' of this checkpoint is no number"));
    FromBits(*bits, value);
  });
  for (auto& [name, tensor] : file.tensors) {
    checkpoint.parameters.emplace_back(name, tensor.Clone());  // the file may be replaced
  }
  return checkpoint;
}

void CheckSameRun(const RunIdentity& saved, const RunIdentity& now, const std::string& path) {
  if (saved.model != now.model) {
    throw CheckpointError(path, "this checkpoint is of another model")
        .Hint("resume with the model file that the training was started with");
  }
  const auto differs = [&](const char* what, auto was, auto is) {
    if (was == is) return;
    throw CheckpointError(
        path, StrCat("this checkpoint is of a training with ", what, " ", was, ", not ", is))
        .Hint(StrCat("a training that goes on has the same ", what));
  };
  differs("seed", saved.seed, now.seed);
  differs("batch", saved.batch, now.batch);
  differs("shuffle", saved.shuffle, now.shuffle);
  differs("drop_last", saved.drop_last, now.drop_last);
}

}  // namespace lathe::train
