#include "src/transform/optimizer/schedule.h"

#include <algorithm>
#include <numbers>
#include <vector>

#include "lathe/support/error.h"

namespace lathe {

namespace {

using Rule = Scalar (*)(const Pass& pass, double rate, const Scalar& step);

struct Schedule {
  std::string name;
  Rule rule;
  const char* count;  ///< the option that has to be positive; null: none
};

double Total(const Pass& pass) { return static_cast<double>(pass.option_int("total_steps")); }

/// From `from` at progress 0 to `to` at progress 1, along half a cosine.
Scalar Anneal(double from, double to, const Scalar& progress) {
  return Scalar(to) + Scalar((from - to) / 2) * (Cos(progress * std::numbers::pi) + 1.0);
}

Scalar Constant(const Pass&, double rate, const Scalar&) { return rate; }

Scalar Steps(const Pass& pass, double rate, const Scalar& step) {
  const auto size = static_cast<double>(pass.option_int("step_size"));
  return Scalar(rate) * Pow(pass.option_float("gamma"), Floor(step / size));
}

Scalar Cosine(const Pass& pass, double rate, const Scalar& step) {
  return Anneal(rate, pass.option_float("min_lr"), Min(step, Total(pass)) / Total(pass));
}

Scalar Linear(const Pass& pass, double rate, const Scalar& step) {
  const double change = pass.option_float("min_lr") - rate;
  return Scalar(rate) + Scalar(change) * (Min(step, Total(pass)) / Total(pass));
}

/// Up from rate / div_factor, then down to that over final_div_factor.
Scalar OneCycle(const Pass& pass, double rate, const Scalar& step) {
  const double first = rate / pass.option_float("div_factor");
  const double last = first / pass.option_float("final_div_factor");
  const double end = Total(pass) - 1;
  const double top = pass.option_float("pct_start") * Total(pass) - 1;
  const Scalar at = Min(step, end);
  const Scalar up = Anneal(first, rate, at / top);
  const Scalar down = Anneal(rate, last, (at - top) / (end - top));
  return IfLess(top, at, down, up);
}

const std::vector<Schedule>& Schedules() {
  static const std::vector<Schedule> kSchedules = {
      {"constant", Constant, nullptr},        {"step", Steps, "step_size"},
      {"cosine", Cosine, "total_steps"},      {"linear", Linear, "total_steps"},
      {"one_cycle", OneCycle, "total_steps"}, {"plateau", Constant, nullptr},
  };
  return kSchedules;
}

[[noreturn]] void Fail(const Pass& pass, std::string message, std::string hint) {
  Error error(ErrorCode::kInvalidArgument, "optimizer/option", std::move(message));
  error.At(StrCat("pass '", pass.name(), "'"));
  if (!hint.empty()) error.Hint(std::move(hint));
  throw error;
}

const Schedule& Find(const Pass& pass) {
  std::vector<std::string> names;
  for (const Schedule& s : Schedules()) {
    if (s.name == pass.option("schedule")) return s;
    names.push_back(s.name);
  }
  std::string near = DidYouMean(pass.option("schedule"), names);
  if (near.empty()) near = "constant, step, cosine, linear, one_cycle and plateau exist";
  Fail(pass, StrCat("there is no schedule '", pass.option("schedule"), "'"), near);
}

}  // namespace

void AddScheduleOptions(PassRegistrar& pass) {
  using Kind = PassOption::Kind;
  pass.Option("schedule", Kind::kString, "constant",
              "constant, step, cosine, linear, one_cycle or plateau")
      .Option("warmup", Kind::kInt, "0", "updates of a linear warm-up before the schedule begins")
      .AtLeast(0)
      .Option("warmup_start", Kind::kFloat, "0.3333333333333333",
              "the factor of the rate that the warm-up begins with")
      .Option("total_steps", Kind::kInt, "0", "updates that cosine, linear and one_cycle take")
      .AtLeast(0)
      .Option("min_lr", Kind::kFloat, "0", "the rate that cosine and linear end with")
      .Option("step_size", Kind::kInt, "0", "step: updates with one rate")
      .AtLeast(0)
      .Option("gamma", Kind::kFloat, "0.1", "step: the factor from one rate to the next")
      .Option("pct_start", Kind::kFloat, "0.3", "one_cycle: the share of steps that goes up")
      .Option("div_factor", Kind::kFloat, "25", "one_cycle: lr over the first rate")
      .Option("final_div_factor", Kind::kFloat, "10000", "one_cycle: the first rate over the last");
}

void CheckSchedule(const Pass& pass) {
  const Schedule& schedule = Find(pass);
  if (schedule.count != nullptr && pass.option_int(schedule.count) == 0) {
    Fail(pass, StrCat("schedule=", schedule.name, " needs ", schedule.count),
         StrCat(pass.name(), "{schedule=", schedule.name, ",", schedule.count, "=1000}"));
  }
  if (schedule.rule != OneCycle) return;
  const double top = pass.option_float("pct_start") * Total(pass) - 1;
  if (top > 0 && top < Total(pass) - 1) return;
  Fail(pass,
       StrCat("one_cycle goes up for ", pass.option("pct_start"), " of ",
              pass.option("total_steps"), " updates: nothing is left for one of its halves"),
       "more total_steps, or pct_start nearer to 0.5");
}

Scalar ScheduledRate(const Pass& pass, const Scalar& step) {
  const double rate = pass.option_float("lr");
  const Rule rule = Find(pass).rule;
  const auto warmup = static_cast<double>(pass.option_int("warmup"));
  if (warmup == 0) return rule(pass, rate, step);
  const double start = pass.option_float("warmup_start");
  const Scalar rising = Scalar(rate) * (Scalar(start) + step * ((1 - start) / warmup));
  return IfLess(step, warmup, rising, rule(pass, rate, step - warmup));
}

}  // namespace lathe
