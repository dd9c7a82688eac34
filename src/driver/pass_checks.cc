#include "lathe/driver/pass_checks.h"

#include <algorithm>
#include <map>

#include "lathe/driver/value_files.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "src/driver/first_difference.h"

namespace lathe {

namespace {

std::string NameOf(const Operation* op) {
  return std::string(op->attribute("name").cast<StrAttribute>().value());
}

using Outcome = NumericReference::Outcome;

Outcome RunOnce(const Program& program, const NamedValues& inputs) {
  Program copy = program.Clone();
  InterpreterOptions options;
  options.verify = false;
  Outcome outcome;
  outcome.outputs = Interpreter(copy, options).Run(WantedInputs(program, inputs));
  for (const ParameterMap::Entry& e : copy.parameters()) {
    const Variable* before = program.parameters().Find(e.name.value());
    const Tensor& data = e.variable.data;
    const bool same =
        before != nullptr && (before->data.raw() == data.raw() || before->data == data);
    outcome.parameters.push_back({std::string(e.name.value()), data, !same});
  }
  return outcome;
}

/// What one run set and the other did not, or to another value. Parameters that only the other
/// program has are its own affair.
std::string ParameterDifference(const Outcome& expected, const Outcome& actual,
                                const NumericOptions& o) {
  std::map<std::string_view, const Outcome::Parameter*> by_name;
  for (const Outcome::Parameter& p : actual.parameters) by_name[p.name] = &p;
  for (const Outcome::Parameter& p : expected.parameters) {
    const auto at = by_name.find(p.name);
    const bool set = at != by_name.end() && at->second->set;
    if (p.set && !set) return StrCat("parameter '", p.name, "' is not set any more");
    if (!set) continue;
    const Closeness c = AllClose(RtValue(at->second->data), RtValue(p.data), *o.rtol, *o.atol);
    if (!c.close) return StrCat("parameter '", p.name, "': ", c.description);
  }
  return {};
}

std::string OutputDifference(const NamedValues& expected, const NamedValues& actual,
                             const NumericOptions& o) {
  if (expected.size() != actual.size()) {
    return StrCat("the program gives ", actual.size(), " outputs, not ", expected.size());
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].first != actual[i].first) {
      return StrCat("output '", actual[i].first, "' stands where '", expected[i].first, "' did");
    }
    const Closeness c = AllClose(actual[i].second, expected[i].second, *o.rtol, *o.atol);
    if (!c.close) return StrCat("output '", expected[i].first, "': ", c.description);
  }
  return {};
}

std::string DifferenceOf(const Outcome& expected, const Outcome& actual, const NumericOptions& o) {
  const std::string outputs = OutputDifference(expected.outputs, actual.outputs, o);
  return outputs.empty() ? ParameterDifference(expected, actual, o) : outputs;
}

/// The options with tolerances in place.
NumericOptions Resolved(NumericOptions options, const Program& program) {
  const Tolerance tolerance = ToleranceOf(program);
  if (!options.rtol) options.rtol = tolerance.rtol;
  if (!options.atol) options.atol = tolerance.atol;
  return options;
}

bool SameParameters(const ParameterMap& a, const ParameterMap& b) {
  if (a.size() != b.size()) return false;
  return std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
    const Tensor &s = x.variable.data, &t = y.variable.data;
    if (x.name != y.name || x.variable.is_mutable != y.variable.is_mutable) return false;
    return (s.raw() != nullptr && s.raw() == t.raw() && s.shape() == t.shape()) || s == t;
  });
}

/// Whether `after` is `before` to the last attribute and weight.
bool IsUnchanged(const Program& before, const Program& after) {
  return StructurallyEqual(before.module(), after.module(), true) &&
         SameParameters(before.parameters(), after.parameters());
}

/// A pass that changes the program and does not say so leaves stale analyses behind and slips
/// through checks that ask it.
void CheckHonesty(const Pass& pass, const Program& before, const Program& after) {
  if (pass.changed() || IsUnchanged(before, after)) return;
  throw Error(ErrorCode::kVerify, "check/unmarked-change",
              StrCat("pass '", pass.name(), "' changed the program and did not say so"))
      .Hint("change it through a Rewriter, or call MarkChanged()");
}

class ChangeCheck : public PassInstrumentation {
 public:
  void BeforePass(const Pass&, Program& program) override {
    before_ = std::make_unique<Program>(program.Clone());
  }
  void AfterPass(const Pass& pass, Program& program) override {
    CheckHonesty(pass, *before_, program);
  }

 private:
  std::unique_ptr<Program> before_;
};

class NumericCheck : public PassInstrumentation {
 public:
  NumericCheck(const Program& original, const NumericOptions& options)
      : reference_(original, options), before_(std::make_unique<Program>(original.Clone())) {}

  void AfterPass(const Pass& pass, Program& program) override {
    CheckHonesty(pass, *before_, program);
    if (!pass.changed()) return;
    const std::string what = reference_.Difference(program);
    if (!what.empty()) Fail(pass, program, what);
    before_ = std::make_unique<Program>(program.Clone());
  }

 private:
  void Fail(const Pass& pass, const Program& program, const std::string& what) const {
    Error error(ErrorCode::kVerify, "check/numerics",
                StrCat("pass '", pass.name(), "' changed a result: ", what));
    error.At(StrCat("pass '", pass.name(), "'"));
    const std::string op = reference_.FirstOp(*before_, program);
    if (!op.empty()) error.Note(StrCat("first op that differs: ", op));
    throw error;
  }

  NumericReference reference_;
  std::unique_ptr<Program> before_;
};

}  // namespace

Tolerance ToleranceOf(const Program& program, Precision precision) {
  static constexpr Tolerance kF32{1e-3, 1e-5}, kF16{1e-2, 1e-2}, kBF16{5e-2, 5e-2}, kF8{0.25, 0.25};
  Tolerance widest = precision >= Precision::kBf16 ? kBF16 : kF32;
  for (OpWalker w(program.module()); const Operation* op = w.Next();) {
    for (size_t i = 0; i < op->num_results(); ++i) {
      const auto type = op->result(i).type().dyn_cast<AnyTensorType>();
      if (!type || !IsFloat(type.element())) continue;
      const Tolerance& here = type.element() == ElementType::kF16    ? kF16
                              : type.element() == ElementType::kBF16 ? kBF16
                              : BitWidth(type.element()) <= 8        ? kF8
                                                                     : kF32;
      if (here.rtol > widest.rtol) widest = here;
    }
  }
  return widest;
}

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
    inputs.emplace_back(NameOf(feed), RandomInput(type, bindings, seed, stream++));
  }
  return inputs;
}

std::shared_ptr<PassInstrumentation> MakeNumericCheck(const Program& original,
                                                      NumericOptions options) {
  return std::make_shared<NumericCheck>(original, options);
}

std::shared_ptr<PassInstrumentation> MakeChangeCheck() { return std::make_shared<ChangeCheck>(); }

NumericReference::NumericReference(const Program& original, NumericOptions options,
                                   NamedValues inputs)
    : options_(Resolved(options, original)) {
  if (!inputs.empty()) inputs_.push_back(std::move(inputs));
  for (int i = 0; i < options_.samples && inputs_.size() < static_cast<size_t>(options_.samples);
       ++i) {
    inputs_.push_back(SampleInputs(original, options_, options_.seed + static_cast<uint64_t>(i)));
  }
  for (const NamedValues& sample : inputs_) expected_.push_back(RunOnce(original, sample));
}

std::string NumericReference::Difference(const Program& actual) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    std::string what;
    try {
      what = DifferenceOf(expected_[i], RunOnce(actual, inputs_[i]), options_);
    } catch (const Error& error) {
      what = StrCat("the program fails: ", error.message());
    }
    if (!what.empty()) return what;
  }
  return {};
}

std::string NumericReference::FirstOp(const Program& before, const Program& actual) const {
  for (const NamedValues& sample : inputs_) {
    std::string op = FirstDifferentOp(before, actual, sample, *options_.rtol, *options_.atol);
    if (!op.empty()) return op;
  }
  return {};
}

std::string CompareNumerically(const Program& expected, const Program& actual,
                               const NumericOptions& options) {
  return NumericReference(expected, options).Difference(actual);
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
  std::string thrown;  // by the shortest beginning that fails so far
  const auto holds_after = [&](int64_t count) {
    std::string now;
    options.stop_after = count;
    PassManager manager(options);
    manager.Add(pipeline);
    Program copy = program.Clone();
    bool fine = false;
    try {
      manager.Run(copy);
      fine = holds(copy);
    } catch (const Error& error) {
      now = error.Render();
    }
    if (!fine) thrown = now;
    return fine;
  };
  auto good = int64_t{0};
  auto bad = static_cast<int64_t>(passes.size());
  if (holds_after(bad)) return {-1, {}, {}};
  if (!holds_after(0)) return {0, {}, thrown};
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (holds_after(middle) ? good : bad) = middle;
  }
  return {bad, passes[static_cast<size_t>(bad - 1)]->ToText(), thrown};
}

}  // namespace lathe
