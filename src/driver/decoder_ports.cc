#include "src/driver/decoder_ports.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lathe/support/error.h"
#include "src/driver/program_ports.h"

namespace lathe {
namespace {

struct KnownName {
  const char* name;
  DecoderInput role;
};

// Of transformers, optimum and torch.onnx, of onnxruntime-genai, and of com.microsoft's operators.
constexpr KnownName kKnownNames[] = {
    {"input_ids", DecoderInput::kIds},
    {"ids", DecoderInput::kIds},
    {"tokens", DecoderInput::kIds},
    {"attention_mask", DecoderInput::kMask},
    {"position_ids", DecoderInput::kPositions},
    {"cache_position", DecoderInput::kCachePositions},
    {"seqlens_k", DecoderInput::kLastIndices},
    {"total_sequence_length", DecoderInput::kTotalLength},
    {"past_sequence_length", DecoderInput::kPastLength},
    {"use_cache_branch", DecoderInput::kUsesCache},
};

constexpr std::array<std::pair<const char*, const char*>, 5> kCachePatterns = {{
    {"past_key_values.*", "present.*"},
    {"past_key_values.*", "present_key_values.*"},
    {"past_key_values_*", "present_key_values_*"},
    {"past_*", "present_*"},
    {"past.*", "present.*"},
}};

// What stands for the star.
std::optional<std::string_view> Match(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  const std::string_view head = pattern.substr(0, star), tail = pattern.substr(star + 1);
  if (name.size() < head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail)) {
    return std::nullopt;
  }
  return name.substr(head.size(), name.size() - head.size() - tail.size());
}

void CheckPattern(const std::string& pattern) {
  if (std::ranges::count(pattern, '*') == 1) return;
  throw Error(ErrorCode::kInvalidArgument, "generate/cache",
              StrCat("the pattern '", pattern, "' is not of one star"))
      .Hint("such as 'past_key_values.*' for inputs and 'present.*' for outputs");
}

bool HasIntegers(const Port& port) {
  return port.element == ElementType::kI64 || port.element == ElementType::kI32;
}

std::string TextOf(const Port& port) { return StrCat("'", port.name, "' ", TypeOf(port)); }

std::optional<int64_t> ConstantOf(const Dim& dim) {
  if (!dim.is_constant()) return std::nullopt;
  return dim.value();
}

class Finder {
 public:
  Finder(const std::vector<Port>& inputs, const std::vector<Port>& outputs,
         const DecoderNames& names)
      : inputs_(inputs), outputs_(outputs) {
    ports_.inputs = inputs_;
    ports_.names = names;
    roles_.resize(inputs_.size());
  }

  DecoderPorts Find() && {
    FindGiven(ports_.names.ids, DecoderInput::kIds);
    FindGiven(ports_.names.mask, DecoderInput::kMask);
    FindGiven(ports_.names.positions, DecoderInput::kPositions);
    FindCaches();
    FindKnown();
    FindIds();
    CheckRoles();
    FindLogits();
    NameAll();
    return std::move(ports_);
  }

 private:
  [[noreturn]] void FailInput(const std::string& what) const {
    Error error(ErrorCode::kInvalidArgument, "generate/input", what);
    for (const Port& port : inputs_) error.Note(StrCat("input ", TextOf(port)));
    throw std::move(error).Hint(
        "name them: DecoderNames{.ids, .mask, .positions, .past, .present}; in the command --ids, "
        "--mask, --positions, --past 'PATTERN*', --present 'PATTERN*'");
  }

  [[noreturn]] void FailCache(const Port& port, const std::string& what) const {
    throw Error(ErrorCode::kInvalidArgument, "generate/cache",
                StrCat("the cache ", TextOf(port), what));
  }

  size_t IndexOf(const std::vector<Port>& ports, std::string_view name) const {
    const auto at = std::ranges::find(ports, name, &Port::name);
    return static_cast<size_t>(at - ports.begin());
  }

  void FindGiven(const std::string& name, DecoderInput role) {
    if (name.empty()) return;
    const size_t i = IndexOf(inputs_, name);
    if (i == inputs_.size()) FailInput(StrCat("the model has no input '", name, "'"));
    roles_[i] = role;
  }

  bool IsGiven(DecoderInput role) const {
    return std::ranges::find(roles_, std::optional(role)) != roles_.end();
  }

  void FindKnown() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (roles_[i]) continue;
      const auto* known = std::ranges::find(kKnownNames, inputs_[i].name, &KnownName::name);
      if (known != std::end(kKnownNames) && !IsGiven(known->role)) roles_[i] = known->role;
    }
  }

  // What is left may be the one input that ids fit.
  void FindIds() {
    if (IsGiven(DecoderInput::kIds)) return;
    std::vector<size_t> fitting;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!roles_[i] && HasIntegers(inputs_[i]) && inputs_[i].dims.size() == 2)
        fitting.push_back(i);
    }
    if (fitting.size() != 1) FailInput("which input takes the token ids is not clear");
    roles_[fitting[0]] = DecoderInput::kIds;
  }

  static size_t RankOf(DecoderInput role, size_t rank) {
    switch (role) {
      case DecoderInput::kIds:
      case DecoderInput::kMask:
      case DecoderInput::kPositions:
        return 2;
      case DecoderInput::kTotalLength:
      case DecoderInput::kPastLength:
        return rank == 0 ? 0 : 1;
      case DecoderInput::kPast:
        return rank;
      default:
        return 1;
    }
  }

  void CheckRoles() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Port& port = inputs_[i];
      if (!roles_[i]) FailInput(StrCat("what input '", port.name, "' is for is not known"));
      const DecoderInput role = *roles_[i];
      if (port.element == ElementType::kUndefined || port.element == ElementType::kString ||
          port.dims.size() != RankOf(role, port.dims.size())) {
        FailInput(StrCat("input ", TextOf(port), " is not of the rank or type that it would need"));
      }
      if (role == DecoderInput::kIds) {
        TakeBatch(port.dims[0]);
        ports_.num_ids = ConstantOf(port.dims[1]);
      }
      if (role == DecoderInput::kMask) ports_.mask_length = ConstantOf(port.dims[1]);
      ports_.roles.push_back(role);
    }
    if (!ports_.caches.empty() && ports_.num_ids.value_or(1) != 1) {
      FailInput(StrCat("a decoder with a cache takes one id or any number, not ", *ports_.num_ids));
    }
  }

  void TakeBatch(const Dim& dim) {
    if (!dim.is_constant()) return;
    if (ports_.batch && *ports_.batch != dim.value()) {
      FailInput(StrCat("sizes of batches differ: ", *ports_.batch, " and ", dim.value()));
    }
    ports_.batch = dim.value();
  }

  void FindCaches() {
    DecoderNames& names = ports_.names;
    if (!names.past.empty() || !names.present.empty()) {
      for (std::string* pattern : {&names.past, &names.present}) CheckPattern(*pattern);
      FindCachesOf(names.past, names.present);
      if (!ports_.caches.empty()) return;
      FailInput(StrCat("no input fits '", names.past, "'"));
    }
    for (const auto& [past, present] : kCachePatterns) {
      if (!HasPair(past, present)) continue;
      names.past = past;
      names.present = present;
      return FindCachesOf(past, present);
    }
  }

  bool HasPair(std::string_view past, std::string_view present) const {
    return std::ranges::any_of(inputs_, [&](const Port& port) {
      const auto star = port.dims.size() < 3 ? std::nullopt : Match(past, port.name);
      return star && std::ranges::any_of(outputs_, [&](const Port& output) {
               return Match(present, output.name) == star;
             });
    });
  }

  void FindCachesOf(const std::string& past, const std::string& present) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto star = inputs_[i].dims.size() < 3 ? std::nullopt : Match(past, inputs_[i].name);
      if (!star || roles_[i]) continue;
      const auto fits = [&](const Port& output) { return Match(present, output.name) == star; };
      const auto at = std::ranges::find_if(outputs_, fits);
      if (at == outputs_.end()) {
        FailCache(inputs_[i], StrCat(" has no output: '", present, "' with '", *star, "'"));
      }
      roles_[i] = DecoderInput::kPast;
      ports_.caches.push_back(CacheOf(i, static_cast<size_t>(at - outputs_.begin())));
    }
  }

  // An output may say more of the shape than the input does.
  CachePort CacheOf(size_t input, size_t output) {
    const Port& past = inputs_[input];
    const Port& present = outputs_[output];
    if (past.element != present.element || past.dims.size() != present.dims.size()) {
      FailCache(past, StrCat(" is given back as ", TextOf(present)));
    }
    CachePort cache{.input = input, .output = output, .element = past.element};
    cache.batch_axis = past.dims.size() == 5 ? 1 : 0;  // keys and values in one
    cache.length_axis = LengthAxis(past, present, cache.batch_axis);
    for (size_t i = 0; i < past.dims.size(); ++i) {
      const Dim& dim = past.dims[i].is_constant() ? past.dims[i] : present.dims[i];
      const bool is_open = i == cache.batch_axis || i == cache.length_axis;
      if (!is_open && !dim.is_constant()) {
        FailCache(past, StrCat(" has no known size on axis ", i));
      }
      cache.shape.push_back(is_open ? 0 : dim.value());
    }
    TakeBatch(past.dims[cache.batch_axis]);
    cache.length = ConstantOf(past.dims[cache.length_axis]);
    cache.is_written = IsWritten(past.dims[cache.length_axis], present.dims[cache.length_axis]);
    if (cache.length && !cache.is_written) {
      FailCache(past, StrCat(" of fixed length becomes ", TextOf(present)));
    }
    return cache;
  }

  // The one axis behind that of the batch whose size is open; else where it usually is.
  size_t LengthAxis(const Port& past, const Port& present, size_t batch_axis) const {
    std::vector<size_t> open;
    for (size_t i = batch_axis + 1; i < past.dims.size(); ++i) {
      if (!past.dims[i].is_constant() && !present.dims[i].is_constant()) open.push_back(i);
    }
    if (open.size() == 1) return open[0];
    return past.dims.size() == 3 ? 1 : past.dims.size() - 2;
  }

  // Whether an output is as long as a long input: not P + S, but, say, max(P, T).
  static bool IsWritten(const Dim& past, const Dim& present) {
    constexpr int64_t kLong = 1000, kShort = 3;
    if (!past.is_constant() && !past.is_symbol()) return false;
    if (past.is_constant() && present.is_unknown()) return true;
    const auto size = present.Evaluate([&](std::string_view symbol) {
      const bool is_past = past.is_symbol() && symbol == past.symbol_name();
      return std::optional<int64_t>(is_past ? kLong : kShort);
    });
    return size == (past.is_constant() ? past.value() : kLong);
  }

  bool IsPresent(size_t output) const {
    return std::ranges::find(ports_.caches, output, &CachePort::output) != ports_.caches.end();
  }

  size_t LogitsIndex() const {
    if (!ports_.names.logits.empty()) return IndexOf(outputs_, ports_.names.logits);
    if (const size_t i = IndexOf(outputs_, "logits"); i < outputs_.size()) return i;
    std::vector<size_t> left;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!IsPresent(i)) left.push_back(i);
    }
    return left.size() == 1 ? left[0] : outputs_.size();
  }

  void FindLogits() {
    const size_t i = LogitsIndex();
    const bool is_there = i < outputs_.size();
    const size_t rank = is_there ? outputs_[i].dims.size() : 0;
    if (!is_there || (rank != 2 && rank != 3) || IsPresent(i)) {
      Error error(ErrorCode::kInvalidArgument, "generate/output",
                  is_there ? StrCat("the output ", TextOf(outputs_[i]), " cannot be logits")
                           : "which output has the logits is not clear");
      for (const Port& port : outputs_) error.Note(StrCat("output ", TextOf(port)));
      throw std::move(error).Hint("name it: DecoderNames::logits; in the command --logits NAME");
    }
    ports_.logits = i;
    ports_.vocabulary = ConstantOf(outputs_[i].dims.back()).value_or(0);
    ports_.only_last = rank == 2 || (outputs_[i].dims[1].IsConstant(1) && ports_.num_ids != 1);
  }

  std::string NameOf(DecoderInput role) const {
    const auto at = std::ranges::find(ports_.roles, role);
    return at == ports_.roles.end() ? ""
                                    : inputs_[static_cast<size_t>(at - ports_.roles.begin())].name;
  }

  void NameAll() {
    ports_.names.ids = NameOf(DecoderInput::kIds);
    ports_.names.mask = NameOf(DecoderInput::kMask);
    ports_.names.positions = NameOf(DecoderInput::kPositions);
    ports_.names.logits = outputs_[ports_.logits].name;
  }

  const std::vector<Port>& inputs_;
  const std::vector<Port>& outputs_;
  std::vector<std::optional<DecoderInput>> roles_;
  DecoderPorts ports_;
};

}  // namespace

bool DecoderPorts::Has(DecoderInput role) const {
  return std::ranges::find(roles, role) != roles.end();
}

std::optional<int64_t> DecoderPorts::MaxLength() const {
  std::optional<int64_t> most = mask_length;
  if (caches.empty() && num_ids) most = std::min(most.value_or(*num_ids), *num_ids);
  for (const CachePort& cache : caches) {
    if (cache.length) most = std::min(most.value_or(*cache.length), *cache.length);
  }
  return most;
}

bool DecoderPorts::has_written_cache() const {
  return std::ranges::any_of(caches, &CachePort::is_written);
}

DecoderPorts FindDecoderPorts(const std::vector<Port>& inputs, const std::vector<Port>& outputs,
                              const DecoderNames& names) {
  return Finder(inputs, outputs, names).Find();
}

}  // namespace lathe
