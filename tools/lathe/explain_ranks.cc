#include "tools/lathe/explain_ranks.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lathe/support/text.h"
#include "lathe/train/rank_prediction.h"
#include "tools/lathe/limits.h"

namespace lathe::command {
namespace {

constexpr const char* kOption = "--network";

[[noreturn]] void BadNetwork(const std::string& text) {
  throw UsageError(
      StrCat(kOption, " ", text, ": a latency and a bandwidth are expected, such as 20us,10GB/s"));
}

double SecondsOf(std::string_view text, const std::string& whole) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  for (const auto& [unit, seconds] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto number = ParseDouble(text.substr(0, text.size() - unit.size()));
    if (number && *number >= 0) return *number * seconds;
  }
  BadNetwork(whole);
}

train::Network NetworkOf(const std::string& text) {
  const size_t comma = text.find(',');
  if (comma == std::string::npos || !text.ends_with("/s")) BadNetwork(text);
  const std::string_view rate = std::string_view(text).substr(comma + 1);
  return {SecondsOf(std::string_view(text).substr(0, comma), text),
          static_cast<double>(ParseSize(kOption, rate.substr(0, rate.size() - 2)))};
}

double HiddenPercent(const CommunicationTimes& times) {
  return times.seconds > 0 ? 100 * times.hidden() / times.seconds : 100;
}

std::string ToText(const train::StepPrediction& p, const RankOptions& o, int runs) {
  const CommunicationTimes& times = p.communication;
  return fmt::format(
      "a step of {} ranks, one to a machine{}: {:.1f} ms, median of {} runs here\n"
      "reductions {:.1f} ms by {}, {:.0f}% hidden: {:.1f} ms are waited for\n"
      "each rank sends {}\n"
      "each rank holds {} of parameters, {} of states of the optimizer, {} for a step\n",
      o.ranks, o.shard ? ", in shards" : "", p.seconds * 1e3, runs, times.seconds * 1e3, o.network,
      HiddenPercent(times), times.waited * 1e3, HumanBytes(p.sent_bytes),
      HumanBytes(p.memory.parameters), HumanBytes(p.memory.states), HumanBytes(p.memory.step));
}

std::string PredictionToJson(const train::StepPrediction& p, const RankOptions& o, int runs) {
  const nlohmann::ordered_json json = {{"ranks", o.ranks},
                                       {"shard", o.shard},
                                       {"network", o.network},
                                       {"runs", runs},
                                       {"seconds", p.seconds},
                                       {"communication_seconds", p.communication.seconds},
                                       {"hidden_seconds", p.communication.hidden()},
                                       {"sent_bytes", p.sent_bytes},
                                       {"parameter_bytes", p.memory.parameters},
                                       {"state_bytes", p.memory.states},
                                       {"step_bytes", p.memory.step}};
  return json.dump(2) + "\n";
}

}  // namespace

void RankOptions::AddTo(CLI::App& app) {
  CLI::Option* const many = app.add_option(
      "--ranks", ranks, "a training step instead, as so many processes would run it together");
  many->check(CountBetween(1, 1 << 20))->type_name("N");
  CLI::App* group = app.add_option_group("Training");
  group->add_option(kOption, network, "what joins the machines: LATENCY,BANDWIDTH")
      ->type_name("NETWORK")
      ->capture_default_str();
  group->add_flag("--shard", shard, "each keeps its share of the optimizer's states alone");
  recipe.AddTo(*group);
  for (CLI::Option* option : group->get_options()) option->needs(many);
}

void ExplainRanks(const RankOptions& options, const ModelOptions& model, const InputOptions& inputs,
                  const CompileOptions& compile, int runs, bool json) {
  IrContext context;
  const Program program = options.recipe.Load(model, context, 0);
  train::PredictionOptions prediction{.recipe = options.recipe.recipe,
                                      .ranks = options.ranks,
                                      .shard = options.shard,
                                      .network = NetworkOf(options.network),
                                      .compile = compile,
                                      .runs = runs};
  prediction.inputs = [&](const Program& step) { return inputs.Load(model, InputsOf(step)); };
  const train::StepPrediction p = PredictStep(program, prediction);
  Out(json ? PredictionToJson(p, options, runs) : ToText(p, options, runs));
}

}  // namespace lathe::command
