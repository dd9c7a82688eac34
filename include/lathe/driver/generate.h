#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/driver/executable.h"

/// Decoding: a decoder predicts the next token of sequences, which is appended, and so on.
namespace lathe {

/// How a decoder names its inputs and outputs. Empty ones are found by the names that exporters
/// give (docs/generate.md).
struct DecoderNames {
  std::string ids = {};        ///< input, token ids [B, S]
  std::string mask = {};       ///< input, 1 for tokens and 0 for padding [B, P + S]
  std::string positions = {};  ///< input, positions of the ids in their sequences [B, S]
  std::string logits = {};     ///< output [B, S, V], [B, 1, V] or [B, V]
  /// Inputs and outputs of the cache, such as "past_key_values.*" and "present.*": what stands for
  /// the star tells which belong together. The axis of length is found from the types.
  std::string past = {}, present = {};
};

/// Says of the inputs of a decoder what Generator feeds: batch, ids and cache have the same sizes
/// in all of them, and the mask is as long as cache and ids together. Exporters leave sizes open,
/// or name one twice; what is known to be equal is compiled better. Errors: as Generator.
void BindDecoderSizes(Program& program, const DecoderNames& names = {});

/// Where the shorter sequences of a batch are padded.
enum class Padding : uint8_t {
  /// Right if the model has inputs for mask and positions, or no cache; else nowhere.
  kAuto,
  kRight,
  kLeft,
  kNone,  ///< sequences of the same length run together
};

/// "auto", "right", "left" or "none". Errors: generate/option.
Padding PaddingNamed(std::string_view name);

struct GenerateOptions {
  int64_t max_new_tokens = 64;  ///< per sequence, at least 1
  int64_t max_length = 0;       ///< tokens of a sequence, prompt included; 0: no limit
  /// Tokens that end a sequence; they are part of the result.
  std::vector<int64_t> stop = {};
  /// Of the softmax that tokens are drawn from; 0: the likeliest token, the first of equal ones.
  double temperature = 0;
  int64_t top_k = 0;  ///< draws from the k likeliest tokens; 0: from all
  /// Draws from the likeliest tokens whose probabilities (behind top_k) add up to at least this.
  double top_p = 1;
  /// Token n of sequence i is drawn with random number n of stream i of this seed, whatever else is
  /// in the batch.
  uint64_t seed = 0;
  Padding padding = Padding::kAuto;
  /// Called with each token, as soon as it is known; what it throws ends the generation.
  std::function<void(size_t sequence, int64_t token)> on_token = {};
  const CancelToken* cancel = nullptr;
  double timeout_seconds = 0;  ///< of the whole generation; 0: any time
};

/// Why a sequence has ended.
enum class EndReason : uint8_t { kStop, kMaxNewTokens, kMaxLength };
/// "stop", "max-new-tokens", "max-length".
const char* Name(EndReason reason);

struct GeneratedSequence {
  std::vector<int64_t> tokens;  ///< without the prompt
  EndReason reason = EndReason::kMaxNewTokens;
};

struct Generation {
  std::vector<GeneratedSequence> sequences;  ///< in the order of the prompts
  double first_seconds = 0;                  ///< until the first token
  double prompt_seconds = 0;                 ///< in steps that read prompts
  double seconds = 0;                        ///< until the last token
  int64_t steps = 0;                         ///< runs of the model

  int64_t num_tokens() const;
  /// Of all sequences together, without the first token of each and the time of the prompts; 0 if
  /// there are no others.
  double tokens_per_second() const;
};

/// A decoder, as exporters write those of the Llama, Qwen and GPT-2 families: token ids go in, with
/// mask and positions if it asks for them, and logits come out. Key/value caches are outputs that
/// the next step takes as inputs; their bytes stay where they are. A model without a cache runs the
/// whole sequence again for each token.
class Generator {
 public:
  /// Keeps a reference to `executable`. Errors: generate/input (one that is not understood, or is
  /// missing), generate/output, generate/cache (past and present do not fit together, or sizes are
  /// not known).
  explicit Generator(const Executable& executable, DecoderNames names = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  /// Continues each prompt. Any number of threads may call it. Same arguments, same tokens,
  /// whatever the number of threads. Errors: generate/prompt (none, an empty one, one that is too
  /// long), generate/token (one that the model does not know), generate/option, generate/logits
  /// (NaN or infinite), those of runs, run/cancelled, limit/time.
  Generation Generate(std::span<const std::vector<int64_t>> prompts,
                      const GenerateOptions& options = {}) const;

  /// What was found, `past` and `present` as given.
  const DecoderNames& names() const;
  bool has_cache() const;
  int64_t vocabulary() const;  ///< 0: not known

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace lathe
