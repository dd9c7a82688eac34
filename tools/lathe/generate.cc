#include "lathe/driver/generate.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "tools/lathe/runnable.h"

namespace lathe::command {
namespace {

struct GenerateArguments {
  ModelOptions model;
  RunnableOptions runnable;
  DecoderNames names;
  GenerateOptions generate;
  std::vector<std::string> prompts;
  std::string prompt_file, padding = "auto", stop;
  bool interpret = false;
  bool stream = false;
  bool json = false;
};

// "15496, 11 995".
std::vector<int64_t> ReadTokens(std::string_view text, const std::string& where) {
  constexpr std::string_view kBetween = ", \t\r";
  std::vector<int64_t> tokens;
  for (size_t at = text.find_first_not_of(kBetween); at < text.size();
       at = text.find_first_not_of(kBetween, at)) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    int64_t token = 0;
    const auto [stopped, failure] = std::from_chars(text.data() + at, text.data() + end, token);
    if (failure != std::errc() || stopped != text.data() + end) {
      throw Error(ErrorCode::kParse, "generate/prompt",
                  StrCat("'", text.substr(at, end - at), "' is not the number of a token"))
          .At(where)
          .Hint("tokens are numbers, such as 15496,11,995");
    }
    tokens.push_back(token);
    at = end;
  }
  return tokens;
}

std::vector<std::vector<int64_t>> ReadPrompts(const GenerateArguments& o) {
  std::vector<std::vector<int64_t>> prompts;
  for (const std::string& text : o.prompts) prompts.push_back(ReadTokens(text, "--prompt"));
  if (o.prompt_file.empty()) return prompts;
  const std::string text = ReadFile(o.prompt_file);
  size_t line = 0;
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string where = StrCat(o.prompt_file, ":", line + 1);
    prompts.push_back(ReadTokens(std::string_view(text).substr(at, end - at), where));
    at = end + 1;
  }
  return prompts;
}

// Prints tokens as they come: of one sequence on a line, else a line each.
class Stream {
 public:
  Stream(const GenerateArguments& o, size_t sequences) : o_(o), is_one_(sequences == 1) {}

  bool is_on() const { return o_.stream || (is_one_ && !o_.json); }
  void Print(size_t sequence, int64_t token) {
    if (o_.json) {
      Out(nlohmann::ordered_json{{"sequence", sequence}, {"token", token}}.dump() + "\n");
    } else if (is_one_) {
      Out(StrCat(has_begun_ ? " " : "", token));
    } else {
      Out(StrCat(sequence, " ", token, "\n"));
    }
    has_begun_ = true;
    std::fflush(stdout);
  }
  void End() const {
    if (is_on() && is_one_ && !o_.json && has_begun_) Out("\n");
    std::fflush(stdout);  // before words
  }

 private:
  const GenerateArguments& o_;
  const bool is_one_;
  bool has_begun_ = false;
};

void PrintSequences(const Generation& generation) {
  for (const GeneratedSequence& sequence : generation.sequences) {
    std::string line;
    for (const int64_t token : sequence.tokens) line += StrCat(line.empty() ? "" : " ", token);
    Out(line + "\n");
  }
}

std::string GenerationToJson(const GenerateArguments& o, const Generation& g) {
  auto sequences = nlohmann::ordered_json::array();
  for (const GeneratedSequence& sequence : g.sequences) {
    sequences.push_back({{"tokens", sequence.tokens}, {"end", Name(sequence.reason)}});
  }
  const nlohmann::ordered_json json = {
      {"sequences", sequences}, {"tokens", g.num_tokens()},
      {"steps", g.steps},       {"first_ms", g.first_seconds * 1e3},
      {"ms", g.seconds * 1e3},  {"tokens_per_second", g.tokens_per_second()}};
  return json.dump(o.stream ? -1 : 2) + "\n";
}

void PrintRates(const Generation& g) {
  std::string text = fmt::format("{} tokens in {:.1f} ms; the first after {:.1f} ms",
                                 g.num_tokens(), g.seconds * 1e3, g.first_seconds * 1e3);
  const double rate = g.tokens_per_second();
  if (rate > 0) text += fmt::format(", then {:.1f} tokens/s", rate);
  Words(text + "\n");
}

int RunGenerate(GenerateArguments& o) {
  o.generate.padding = PaddingNamed(o.padding);
  o.generate.stop = ReadTokens(o.stop, "--stop");
  if (o.prompts.empty() && o.prompt_file.empty()) {
    throw UsageError("--prompt or --prompt-file is needed", "such as --prompt 15496,11,995");
  }
  o.runnable.compile.machine_code = !o.interpret;
  o.runnable.prepare = [&](Program& program) { BindDecoderSizes(program, o.names); };
  const Runnable runnable(o.model, o.runnable);
  if (runnable.executable() == nullptr) {
    throw UsageError("this build generates no code", "--interpret needs none");
  }
  const std::vector<std::vector<int64_t>> prompts = ReadPrompts(o);
  Stream stream(o, prompts.size());
  if (stream.is_on()) {
    o.generate.on_token = [&](size_t sequence, int64_t token) { stream.Print(sequence, token); };
  }
  try {
    const Generator generator(*runnable.executable(), o.names);
    const Generation generation = generator.Generate(prompts, o.generate);
    if (!stream.is_on() && !o.json) PrintSequences(generation);
    if (o.json) Out(GenerationToJson(o, generation));
    stream.End();
    PrintRates(generation);
  } catch (Error& error) {
    stream.End();
    if (error.where().empty()) error.At(o.model.path);
    throw;
  }
  return kFine;
}

void AddSampling(CLI::App& app, GenerateArguments& o) {
  app.add_option("--max-new-tokens,-n", o.generate.max_new_tokens, "of each sequence")
      ->check(CountBetween(1, kMostRows))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-length", o.generate.max_length,
                 "of a sequence with its prompt, such as the positions that the model knows")
      ->check(CountBetween(1, kMostRows))
      ->type_name("N");
  app.add_option("--stop", o.stop, "tokens that end a sequence")->type_name("ID,...");
  app.add_option("--temperature", o.generate.temperature,
                 "of what tokens are drawn from; 0: the likeliest is taken")
      ->capture_default_str();
  app.add_option("--top-k", o.generate.top_k, "draw from the K likeliest tokens")
      ->check(CountBetween(1, kMostRows))
      ->type_name("K");
  app.add_option("--top-p", o.generate.top_p,
                 "draw from the likeliest tokens that have this probability together")
      ->type_name("P");
  app.add_option("--seed", o.generate.seed, "of what is drawn")->capture_default_str();
}

void AddNames(CLI::App& app, DecoderNames& names) {
  app.add_option("--ids", names.ids, "input of the token ids")->type_name("NAME");
  app.add_option("--mask", names.mask, "input that tells tokens from padding")->type_name("NAME");
  app.add_option("--positions", names.positions, "input of the positions")->type_name("NAME");
  app.add_option("--logits", names.logits, "output of the logits")->type_name("NAME");
  CLI::Option* past =
      app.add_option("--past", names.past, "inputs of the cache, such as 'past_key_values.*'")
          ->type_name("PATTERN");
  CLI::Option* present =
      app.add_option("--present", names.present, "outputs of the cache, such as 'present.*'")
          ->type_name("PATTERN");
  past->needs(present);
  present->needs(past);
}

}  // namespace

Run AddGenerate(CLI::App& app) {
  auto o = std::make_shared<GenerateArguments>();
  o->model.AddTo(app, "a decoder (.onnx, .lathe) or an executable of one (.lx, .json)");
  app.add_option("--prompt", o->prompts, "token ids of a sequence to continue")
      ->allow_extra_args(false)
      ->type_name("ID,...");
  app.add_option("--prompt-file", o->prompt_file, "a sequence in each line; -: standard input")
      ->type_name("FILE");
  AddSampling(app, *o);
  app.add_option("--padding", o->padding,
                 "of shorter prompts: right, left, none: those as long as others run together")
      ->check(CLI::IsMember({"auto", "right", "left", "none"}))
      ->capture_default_str();
  AddNames(app, o->names);
  app.add_flag("--interpret", o->interpret, "run by the interpreter instead of compiled");
  AddCompileOptions(app, o->runnable.compile);
  app.add_flag("--stream", o->stream, "print each token of several sequences as it comes");
  app.add_flag("--json", o->json, "machine-readable output");
  return [o] { return RunGenerate(*o); };
}

}  // namespace lathe::command
