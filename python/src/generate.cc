#include "lathe/driver/generate.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/interrupts.h"
#include "python/src/model.h"
#include "python/src/timeouts.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

using Prompts = std::vector<std::vector<int64_t>>;

DecoderNames NamesOf(const std::string& ids, const std::string& mask, const std::string& positions,
                     const std::string& logits, const std::string& past,
                     const std::string& present) {
  return {.ids = ids,
          .mask = mask,
          .positions = positions,
          .logits = logits,
          .past = past,
          .present = present};
}

// Calls a function of Python with each token once, though a generation that was interrupted begins
// again.
class TokenReport {
 public:
  TokenReport(nb::handle callback, size_t sequences) : callback_(callback), reported_(sequences) {}

  void Begin() { seen_.assign(reported_.size(), 0); }
  void operator()(size_t sequence, int64_t token) {
    if (seen_[sequence]++ < reported_[sequence]) return;
    const nb::gil_scoped_acquire acquire;
    callback_(sequence, token);
    ++reported_[sequence];
  }

 private:
  nb::handle callback_;
  std::vector<size_t> reported_, seen_;
};

Generation Generate(const Generator& generator, const Prompts& prompts, int64_t max_new_tokens,
                    int64_t max_length, const std::vector<int64_t>& stop, double temperature,
                    int64_t top_k, double top_p, uint64_t seed, const std::string& padding,
                    nb::handle on_token, std::optional<double> timeout, const CancelToken* cancel) {
  TokenReport report(on_token, prompts.size());
  GenerateOptions options{.max_new_tokens = max_new_tokens,
                          .max_length = max_length,
                          .stop = stop,
                          .temperature = temperature,
                          .top_k = top_k,
                          .top_p = top_p,
                          .seed = seed,
                          .padding = PaddingNamed(padding),
                          .cancel = cancel,
                          .timeout_seconds = SecondsOf(timeout)};
  if (!on_token.is_none()) {
    options.on_token = [&](size_t sequence, int64_t token) { report(sequence, token); };
  }
  return WithoutLock([&] {
    report.Begin();
    return generator.Generate(prompts, options);
  });
}

void BindGeneration(nb::module_& m) {
  nb::class_<GeneratedSequence>(m, "GeneratedSequence", "What a prompt was continued with.")
      .def_ro("tokens", &GeneratedSequence::tokens, "Without the prompt.")
      .def_prop_ro(
          "end", [](const GeneratedSequence& s) { return Name(s.reason); },
          "Why it has ended: 'stop', 'max-new-tokens' or 'max-length'.")
      .def("__repr__", [](const GeneratedSequence& s) {
        return StrCat("<lathe.GeneratedSequence of ", s.tokens.size(), " tokens>");
      });
  nb::class_<Generation>(m, "Generation", "What Generator.generate has made of prompts.")
      .def_ro("sequences", &Generation::sequences, "In the order of the prompts.")
      .def_prop_ro(
          "tokens",
          [](const Generation& g) {
            Prompts tokens;
            for (const GeneratedSequence& s : g.sequences) tokens.push_back(s.tokens);
            return tokens;
          },
          "Of each sequence, without the prompt.")
      .def_ro("first_seconds", &Generation::first_seconds, "Until the first token.")
      .def_ro("seconds", &Generation::seconds, "Until the last token.")
      .def_ro("steps", &Generation::steps, "Runs of the model.")
      .def_prop_ro("tokens_per_second", &Generation::tokens_per_second,
                   "Of all sequences together, without the first token of each and the time of "
                   "the prompts.");
}

}  // namespace

void BindGenerator(nb::module_& m) {
  BindGeneration(m);
  m.def(
      "_with_decoder_sizes",
      [](const std::shared_ptr<ProgramHolder>& holder, const std::string& ids,
         const std::string& mask, const std::string& positions, const std::string& logits,
         const std::string& past, const std::string& present) {
        Program program = CloneOf(*holder, Gil::kHeld);
        BindDecoderSizes(program, NamesOf(ids, mask, positions, logits, past, present));
        return std::make_shared<ProgramHolder>(holder->context, std::move(program));
      },
      nb::arg("program"), nb::arg("ids"), nb::arg("mask"), nb::arg("positions"), nb::arg("logits"),
      nb::arg("past"), nb::arg("present"));
  nb::class_<Generator>(m, "Generator")
      .def(
          "__init__",
          [](Generator* self, nb::handle executable, const std::string& ids,
             const std::string& mask, const std::string& positions, const std::string& logits,
             const std::string& past, const std::string& present) {
            new (self) Generator(ExecutableOf(executable),
                                 NamesOf(ids, mask, positions, logits, past, present));
          },
          nb::arg("executable"), nb::kw_only(), nb::arg("ids") = "", nb::arg("mask") = "",
          nb::arg("positions") = "", nb::arg("logits") = "", nb::arg("past") = "",
          nb::arg("present") = "", nb::keep_alive<1, 2>())
      .def_prop_ro("has_cache", &Generator::has_cache,
                   "Whether steps take the keys and values of the steps before.")
      .def_prop_ro("vocabulary", &Generator::vocabulary, "How many tokens there are; 0: not known.")
      .def("_generate", Generate, nb::arg("prompts"), nb::arg("max_new_tokens"),
           nb::arg("max_length"), nb::arg("stop"), nb::arg("temperature"), nb::arg("top_k"),
           nb::arg("top_p"), nb::arg("seed"), nb::arg("padding"), nb::arg("on_token").none(),
           nb::arg("timeout").none(), nb::arg("cancel").none());
}

}  // namespace lathe::python
