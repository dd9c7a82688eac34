#include "lathe/driver/generate.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lathe/support/budget.h"
#include "lathe/support/clock.h"
#include "lathe/support/error.h"
#include "src/driver/decoder_batch.h"
#include "src/driver/decoder_ports.h"
#include "src/driver/sampling.h"

namespace lathe {
namespace {

using Prompts = std::span<const std::vector<int64_t>>;

Error PromptError(size_t sequence, const std::string& what) {
  return {ErrorCode::kInvalidArgument, "generate/prompt",
          StrCat("the prompt of sequence ", sequence, " ", what)};
}

void CheckLength(const DecoderPorts& ports, const GenerateOptions& options, size_t sequence,
                 int64_t length) {
  if (length == 0) throw PromptError(sequence, "is empty").Hint("begin with a token of its own");
  if (options.max_length > 0 && length >= options.max_length) {
    throw PromptError(sequence, StrCat("has ", length, " tokens; a length of ", options.max_length,
                                       " leaves no room for new ones"));
  }
  if (const auto most = ports.MaxLength(); most && length > *most) {
    throw PromptError(sequence, StrCat("has ", length, " tokens; the model has room for ", *most));
  }
}

void CheckToken(const DecoderPorts& ports, int64_t token, const std::string& where) {
  const bool is_known = ports.vocabulary == 0 || token < ports.vocabulary;
  if (token >= 0 && is_known) return;
  Error error(ErrorCode::kInvalidArgument, "generate/token",
              StrCat("token ", token, " of ", where, " is not in the vocabulary"));
  if (ports.vocabulary > 0) error.Note(StrCat("it has the tokens 0 to ", ports.vocabulary - 1));
  throw error;
}

void Check(const DecoderPorts& ports, Prompts prompts, const GenerateOptions& options) {
  CheckSampling(options);
  const auto positive = [](const char* name, int64_t value, int64_t least) {
    if (value >= least) return;
    throw Error(ErrorCode::kInvalidArgument, "generate/option", StrCat(name, " is ", value));
  };
  positive("max_new_tokens", options.max_new_tokens, 1);
  positive("max_length", options.max_length, 0);
  if (prompts.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "generate/prompt",
                "a generation needs at least one prompt");
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    CheckLength(ports, options, i, static_cast<int64_t>(prompts[i].size()));
    for (const int64_t token : prompts[i]) CheckToken(ports, token, StrCat("prompt ", i));
  }
  for (const int64_t token : options.stop) CheckToken(ports, token, "the stop tokens");
}

Padding PaddingOf(const DecoderPorts& ports, Padding wanted) {
  if (wanted == Padding::kAuto) {
    const bool knows_rows = ports.Has(DecoderInput::kLastIndices) ||
                            (ports.Has(DecoderInput::kMask) && ports.Has(DecoderInput::kPositions));
    const bool reads_any = ports.num_ids != 1 && (ports.caches.empty() || knows_rows);
    return reads_any && !ports.only_last ? Padding::kRight : Padding::kNone;
  }
  const auto refuse = [](const char* why) {
    throw Error(ErrorCode::kInvalidArgument, "generate/option", StrCat("no padding: ", why));
  };
  if (wanted == Padding::kNone) return wanted;
  if (!ports.caches.empty() && ports.num_ids == 1) refuse("the model takes one id at a time");
  if (wanted == Padding::kRight && ports.only_last) {
    refuse("the model gives logits for the last id alone, which would be one of padding");
  }
  if (wanted == Padding::kLeft && !ports.Has(DecoderInput::kMask)) {
    refuse("the model has no mask");
  }
  return wanted;
}

// Sequences that run together: of one length, unless padding makes them so; as many as fit.
std::vector<std::vector<size_t>> Batches(Prompts prompts, bool padded,
                                         std::optional<int64_t> most) {
  std::vector<std::vector<size_t>> batches;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto fits = [&](const std::vector<size_t>& batch) {
      const bool has_room = !most || std::cmp_less(batch.size(), *most);
      return has_room && (padded || prompts[batch[0]].size() == prompts[i].size());
    };
    const auto at = std::ranges::find_if(batches, fits);
    if (at == batches.end()) {
      batches.push_back({i});
    } else {
      at->push_back(i);
    }
  }
  return batches;
}

constexpr std::pair<const char*, Padding> kPaddings[] = {{"auto", Padding::kAuto},
                                                         {"right", Padding::kRight},
                                                         {"left", Padding::kLeft},
                                                         {"none", Padding::kNone}};

}  // namespace

Padding PaddingNamed(std::string_view name) {
  const auto* found = std::ranges::find(kPaddings, name, &std::pair<const char*, Padding>::first);
  if (found != std::end(kPaddings)) return found->second;
  throw Error(ErrorCode::kInvalidArgument, "generate/option",
              StrCat("a padding '", name, "' is not known"))
      .Hint("auto, right, left or none");
}

const char* Name(EndReason reason) {
  switch (reason) {
    case EndReason::kStop:
      return "stop";
    case EndReason::kMaxLength:
      return "max-length";
    case EndReason::kMaxNewTokens:
      break;
  }
  return "max-new-tokens";
}

int64_t Generation::num_tokens() const {
  size_t sum = 0;
  for (const GeneratedSequence& s : sequences) sum += s.tokens.size();
  return static_cast<int64_t>(sum);
}

double Generation::tokens_per_second() const {
  const int64_t later = num_tokens() - static_cast<int64_t>(sequences.size());
  const double time = seconds - prompt_seconds;
  return later > 0 && time > 0 ? static_cast<double>(later) / time : 0;
}

struct Generator::Impl {
  Impl(const Executable& e, const DecoderNames& names)
      : executable(&e), ports(FindDecoderPorts(e.inputs(), e.outputs(), names)) {}

  Generation Run(Prompts prompts, const GenerateOptions& options) const {
    const double start = SecondsNow();
    const Padding padding = PaddingOf(ports, options.padding);
    Generation result;
    result.sequences.resize(prompts.size());
    for (const auto& batch : Batches(prompts, padding != Padding::kNone, ports.batch)) {
      DecoderBatch(*executable, ports, options, padding, prompts, batch).Run(start, result);
    }
    result.seconds = SecondsNow() - start;
    return result;
  }

  const Executable* executable;
  const DecoderPorts ports;
};

Generator::Generator(const Executable& executable, DecoderNames names)
    : impl_(std::make_unique<const Impl>(executable, names)) {}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

Generation Generator::Generate(Prompts prompts, const GenerateOptions& options) const {
  Check(impl_->ports, prompts, options);
  if (options.cancel == nullptr && options.timeout_seconds <= 0) {
    return impl_->Run(prompts, options);
  }
  return RunUnder({.seconds = options.timeout_seconds, .cancel = options.cancel},
                  [&] { return impl_->Run(prompts, options); });
}

const DecoderNames& Generator::names() const { return impl_->ports.names; }
bool Generator::has_cache() const { return !impl_->ports.caches.empty(); }
int64_t Generator::vocabulary() const { return impl_->ports.vocabulary; }

}  // namespace lathe
