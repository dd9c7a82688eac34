#include "lathe/driver/pass_checks.h"

#include <algorithm>
#include <map>

#include "lathe/driver/value_files.h"
#include "lathe/ir/context.h"
#include "lathe/support/error.h"

namespace lathe {

namespace {

std::string NameOf(const Operation* op) {
  return std::string(op->attribute("name").cast<StrAttribute>().value());
}

/// Values by the location of the op that made them and the result's number, first run first.
using Trace = std::vector<std::pair<std::string, RtValue>>;

/// Those that the program still has: a pass may drop an input that nothing reads.
NamedValues Wanted(const Program& program, const NamedValues& inputs) {
  NamedValues wanted;
  for (const Operation* feed : program.feeds()) {
    const std::string name = NameOf(feed);
    if (const RtValue* value = Find(inputs, name)) wanted.emplace_back(name, *value);
  }
  return wanted;
}

NamedValues RunOnce(const Program& program, const NamedValues& inputs, Trace* trace = nullptr) {
  Program copy = program.Clone();
  InterpreterOptions options;
  options.verify = false;
  if (trace != nullptr) {
    options.observer = [&](const RanOp& ran) {
      if (ran.op->location().is_unknown()) return;
      const std::string where = ran.op->location().ToString(program.context());
      for (size_t i = 0; i < ran.outputs.size(); ++i) {
        trace->emplace_back(StrCat(where, " result ", i), ran.outputs[i]);
      }
    };
  }
  return Interpreter(copy, options).Run(Wanted(program, inputs));
}

std::string Difference(const NamedValues& expected, const NamedValues& actual,
                       const NumericOptions& o) {
  if (expected.size() != actual.size()) {
    return StrCat("the program gives ", actual.size(), " outputs, not ", expected.size());
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].first != actual[i].first) {
      return StrCat("output '", actual[i].first, "' stands where '", expected[i].first, "' did");
    }
    const Closeness c = AllClose(actual[i].second, expected[i].second, o.rtol, o.atol);
    if (!c.close) return StrCat("output '", expected[i].first, "': ", c.description);
  }
  return {};
}

/// The first location that both runs visit and where they give different values.
std::string FirstDifferentOp(const Program& expected, const Program& actual,
                             const NamedValues& inputs, const NumericOptions& o) {
  Trace before, after;
  (void)RunOnce(expected, inputs, &before);
  (void)RunOnce(actual, inputs, &after);
  std::map<std::string, const RtValue*> known;
  for (const auto& [where, value] : before) known.emplace(where, &value);
  for (const auto& [where, value] : after) {
    const auto at = known.find(where);
    if (at == known.end()) continue;
    const Closeness c = AllClose(value, *at->second, o.rtol, o.atol);
    if (!c.close) return StrCat(where, ": ", c.description);
  }
  return {};
}

class NumericCheck : public PassInstrumentation {
 public:
  NumericCheck(const Program& original, NumericOptions options) : options_(options) {
    for (int i = 0; i < options.samples; ++i) {
      inputs_.push_back(SampleInputs(original, options, options.seed + static_cast<uint64_t>(i)));
      expected_.push_back(RunOnce(original, inputs_.back()));
    }
    before_ = std::make_unique<Program>(original.Clone());
  }

  void AfterPass(const Pass& pass, Program& program) override {
    if (!pass.changed()) return;
    for (size_t i = 0; i < inputs_.size(); ++i) Check(pass, program, i);
    before_ = std::make_unique<Program>(program.Clone());
  }

 private:
  void Check(const Pass& pass, const Program& program, size_t i) {
    std::string what;
    try {
      what = Difference(expected_[i], RunOnce(program, inputs_[i]), options_);
    } catch (const Error& error) {
      what = StrCat("the program fails: ", error.message());
    }
    if (what.empty()) return;
    Error error(ErrorCode::kVerify, "check/numerics",
                StrCat("pass '", pass.name(), "' changed a result: ", what));
    error.At(StrCat("pass '", pass.name(), "'"));
    std::string op;
    try {
      op = FirstDifferentOp(*before_, program, inputs_[i], options_);
    } catch (const Error&) {
      op.clear();
    }
    if (!op.empty()) error.Note(StrCat("first op that differs: ", op));
    throw error;
  }

  NumericOptions options_;
  std::vector<NamedValues> inputs_;
  std::vector<NamedValues> expected_;
  std::unique_ptr<Program> before_;
};

}  // namespace

namespace {
/// 0 and 1 only: an index of the smallest table, a mask, a flag.
Tensor SmallIntegers(const Tensor& t) {
  std::vector<int64_t> values = ToInt64s(t);
  for (int64_t& v : values) v &= 1;
  return Cast(Tensor::Of<int64_t>(t.shape(), values), t.element_type());
}
}  // namespace

NamedValues SampleInputs(const Program& program, const NumericOptions& options, uint64_t seed) {
  NamedValues inputs;
  uint64_t stream = 0;
  for (Operation* feed : program.feeds()) {
    const Type type = feed->result(0).type();
    std::vector<std::string> symbols;
    if (const auto tensor = type.dyn_cast<AnyTensorType>()) {
      for (const Dim& d : tensor.dims()) d.CollectSymbols(symbols);
    }
    std::vector<Dim::Binding> bindings;
    for (const std::string& s : symbols) bindings.emplace_back(s, options.symbol_extent);
    RtValue value = RandomInput(type, bindings, seed, stream++);
    if (IsInteger(value.tensor().element_type())) value = SmallIntegers(value.tensor());
    inputs.emplace_back(NameOf(feed), std::move(value));
  }
  return inputs;
}

std::shared_ptr<PassInstrumentation> MakeNumericCheck(const Program& original,
                                                      NumericOptions options) {
  return std::make_shared<NumericCheck>(original, options);
}

std::string CompareNumerically(const Program& expected, const Program& actual,
                               const NumericOptions& options) {
  for (int i = 0; i < options.samples; ++i) {
    const NamedValues inputs =
        SampleInputs(expected, options, options.seed + static_cast<uint64_t>(i));
    const NamedValues wanted = RunOnce(expected, inputs);
    const std::string what = Difference(wanted, RunOnce(actual, inputs), options);
    if (!what.empty()) return what;
  }
  return {};
}

BisectResult BisectPasses(const Program& program, const std::string& pipeline,
                          const std::function<bool(const Program&)>& holds,
                          PassManagerOptions options) {
  PassManager all(options);
  all.Add(pipeline);
  std::vector<const Pass*> passes = all.passes();
  std::erase_if(passes, [&](const Pass* pass) {
    const auto& off = options.disabled;
    return std::find(off.begin(), off.end(), pass->name()) != off.end();
  });
  const auto holds_after = [&](int64_t count) {
    options.stop_after = count;
    PassManager manager(options);
    manager.Add(pipeline);
    Program copy = program.Clone();
    try {
      manager.Run(copy);
      return holds(copy);
    } catch (const Error&) {
      return false;
    }
  };
  auto good = int64_t{0};
  auto bad = static_cast<int64_t>(passes.size());
  if (holds_after(bad)) return {-1, {}};
  if (!holds_after(0)) return {0, {}};
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (holds_after(middle) ? good : bad) = middle;
  }
  return {bad, passes[static_cast<size_t>(bad - 1)]->ToText()};
}

}  // namespace lathe
