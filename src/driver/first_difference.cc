#include "src/driver/first_difference.h"

#include <algorithm>
#include <unordered_map>

#include "lathe/ir/context.h"
#include "lathe/support/error.h"

namespace lathe {

namespace {

/// What stood at one place last: the last of several ops made there gives the result, and the last
/// turn of a loop what leaves it.
struct Visit {
  Location location;
  uint64_t step = 0;
  std::string op;
  std::vector<RtValue> results;
};

class Visits {
 public:
  void Add(const RanOp& ran) {
    const Location location = ran.op->location();
    if (location.is_unknown() || ran.outputs.empty()) return;
    Visit& visit = by_place_[location.bits()];
    visit = {location, ran.step, ran.op->Describe(), {ran.outputs.begin(), ran.outputs.end()}};
  }
  const Visit* Find(Location location) const {
    const auto at = by_place_.find(location.bits());
    return at == by_place_.end() ? nullptr : &at->second;
  }
  std::vector<const Visit*> InOrder() const {
    std::vector<const Visit*> all;
    for (const auto& [place, visit] : by_place_) all.push_back(&visit);
    std::sort(all.begin(), all.end(), [](auto* a, auto* b) { return a->step < b->step; });
    return all;
  }

 private:
  std::unordered_map<uint64_t, Visit> by_place_;
};

Visits Trace(const Program& program, const NamedValues& inputs) {
  Visits visits;
  Program copy = program.Clone();
  InterpreterOptions options;
  options.verify = false;
  options.observer = [&](const RanOp& ran) { visits.Add(ran); };
  try {
    (void)Interpreter(copy, options).Run(WantedInputs(program, inputs));
  } catch (const Error&) {
    return visits;  // a program that a pass has broken may stop on its way
  }
  return visits;
}

bool SameType(const RtValue& a, const RtValue& b) {
  return a.is_tensor() && b.is_tensor() && a.tensor().element_type() == b.tensor().element_type() &&
         a.tensor().shape() == b.tensor().shape();
}

/// Why result `i` is none of the values known for its place; empty if it is, or none is comparable.
std::string Compare(const Visit& actual, size_t i, const std::vector<const Visit*>& known,
                    double rtol, double atol) {
  std::string why;
  for (const Visit* visit : known) {
    for (const RtValue& expected : visit->results) {
      if (!SameType(actual.results[i], expected)) continue;
      const Closeness c = AllClose(actual.results[i], expected, rtol, atol);
      if (c.close) return {};
      if (why.empty()) why = c.description;
    }
  }
  return why;
}

}  // namespace

NamedValues WantedInputs(const Program& program, const NamedValues& inputs) {
  NamedValues wanted;
  for (const Operation* feed : program.feeds()) {
    const std::string_view name = feed->attribute("name").cast<StrAttribute>().value();
    if (const RtValue* value = Find(inputs, name)) wanted.emplace_back(name, *value);
  }
  return wanted;
}

std::string FirstDifferentOp(const Program& expected, const Program& actual,
                             const NamedValues& inputs, double rtol, double atol) {
  const Visits before = Trace(expected, inputs), after = Trace(actual, inputs);
  for (const Visit* visit : after.InOrder()) {
    std::vector<const Visit*> known;
    if (const Visit* same = before.Find(visit->location)) known.push_back(same);
    if (known.empty() && visit->location.is_fused()) {
      for (const Location part : visit->location.parts()) {
        if (const Visit* found = before.Find(part)) known.push_back(found);
      }
    }
    for (size_t i = 0; i < visit->results.size(); ++i) {
      const std::string why = Compare(*visit, i, known, rtol, atol);
      if (!why.empty()) return StrCat(visit->op, ", result ", i, ": ", why);
    }
  }
  return {};
}

}  // namespace lathe
