#include "test/differential/shrink.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "lathe/dialect/shape_inference.h"
#include "lathe/ir/builder.h"
#include "lathe/ir/context.h"
#include "lathe/ir/verify.h"
#include "lathe/ir/walk.h"
#include "lathe/support/error.h"
#include "test/differential/evaluate.h"

namespace lathe::testing {

namespace {

std::vector<Operation*> TopOps(const Program& program) {
  std::vector<Operation*> ops;
  for (Operation& op : *program.block()) ops.push_back(&op);
  return ops;
}

std::string NameOf(const Operation* op) {
  return std::string(op->attribute("name").cast<StrAttribute>().value());
}

Case CopyOf(const Case& trial) { return {trial.program.Clone(), trial.inputs, trial.kinds}; }

std::vector<Operation*> AllOps(const Program& program) {
  std::vector<Operation*> ops;
  for (OpWalker walk(program.block()); Operation* op = walk.Next();) ops.push_back(op);
  return ops;
}

/// Drops what nobody reads, and the values of inputs that are gone.
void Clean(Case& trial) {
  EraseUnusedOps(trial.program);
  std::set<std::string> feeds;
  for (const Operation* feed : trial.program.feeds()) feeds.insert(NameOf(feed));
  for (InputSet& set : trial.inputs) {
    std::erase_if(set.values, [&](const auto& v) { return !feeds.contains(v.first); });
  }
}

/// All that ops compute on a set of inputs, as far as it runs.
std::vector<std::vector<RtValue>> ResultsOf(const Case& trial, const InputSet& set) {
  Program copy = trial.program.Clone();
  const std::vector<Operation*> ops = TopOps(copy);
  std::unordered_map<const Operation*, size_t> places;
  for (size_t i = 0; i < ops.size(); ++i) places[ops[i]] = i;
  std::vector<std::vector<RtValue>> results(ops.size());
  InterpreterOptions options;
  options.verify = false;
  options.max_steps = 100'000;
  options.observer = [&](const RanOp& ran) {
    const auto at = places.find(ran.op);  // those within regions have no place
    if (at != places.end()) results[at->second].assign(ran.outputs.begin(), ran.outputs.end());
  };
  try {
    (void)Interpreter(copy, std::move(options)).Run(set.values);
  } catch (const Error&) {
    return results;  // the rest is empty
  }
  return results;
}

/// Extents that constants and inputs have.
std::set<int64_t> ExtentsOf(const Case& trial) {
  std::set<int64_t> extents;
  for (const auto& [name, value] : trial.inputs[0].values) {
    const Shape& shape = value.tensor().shape();
    extents.insert(shape.begin(), shape.end());
  }
  return extents;
}

class Shrinker {
 public:
  Shrinker(const Case& trial, const Shows& shows, int most)
      : best_(CopyOf(trial)), shows_(shows), left_(most) {}

  Case Run() {
    for (bool smaller = true; smaller && left_ > 0;) {
      smaller = OneInputSet();
      smaller |= DropOutputs();
      smaller |= OpenRegions();
      smaller |= CutValues();
      smaller |= SkipOps();
      smaller |= FixSizes();
      smaller |= ShrinkExtents();
    }
    return std::move(best_);
  }

 private:
  bool Take(Case candidate) {
    if (left_-- <= 0) return false;
    Clean(candidate);
    try {
      if (!Verify(candidate.program).empty() || !shows_(candidate)) return false;
    } catch (const Error&) {
      return false;
    }
    best_ = std::move(candidate);
    return true;
  }

  bool OneInputSet() {
    if (best_.inputs.size() == 1) return false;
    for (const InputSet& set : best_.inputs) {
      if (Take({best_.program.Clone(), {set}, best_.kinds})) return true;
    }
    bool any = false;  // two may be needed: one that goes before
    for (size_t i = best_.inputs.size(); i-- > 0 && best_.inputs.size() > 2;) {
      Case candidate = CopyOf(best_);
      candidate.inputs.erase(candidate.inputs.begin() + static_cast<int64_t>(i));
      any |= Take(std::move(candidate));
    }
    return any;
  }

  bool DropOutputs() {
    bool any = false;
    for (size_t i = best_.program.fetches().size(); i-- > 0;) {
      if (best_.program.fetches().size() == 1) break;
      Case candidate = CopyOf(best_);
      candidate.program.fetches()[i]->Erase();
      any |= Take(std::move(candidate));
    }
    return any;
  }

  /// From the last op on, so that what a cut leaves unused goes at once.
  bool CutValues() {
    bool any = false;
    for (size_t i = TopOps(best_.program).size(); i-- > 0;) {
      if (i >= TopOps(best_.program).size()) continue;
      Case candidate = CopyOf(best_);
      any |= CutAt(candidate, i) && Take(std::move(candidate));
    }
    return any;
  }

  /// Makes the results of op `i` inputs.
  bool CutAt(Case& candidate, size_t i) const {
    Operation* op = TopOps(candidate.program)[i];
    if (op->num_operands() == 0 || op->num_results() == 0) return false;
    for (InputSet& set : candidate.inputs) {
      const std::vector<RtValue> values = ResultsOf(best_, set)[i];
      const auto is_tensor = [](const RtValue& v) { return v.is_tensor(); };
      if (values.size() != op->num_results() || !std::ranges::all_of(values, is_tensor))
        return false;
      for (size_t r = 0; r < values.size(); ++r) set.values.emplace_back(CutName(i, r), values[r]);
    }
    for (size_t r = 0; r < op->num_results(); ++r) {
      Builder b = Builder::Before(op);
      const NamedAttribute named = b.Named("name", b.Attr(std::string_view(CutName(i, r))));
      const Type type = op->result(r).type();
      op->result(r).ReplaceAllUsesWith(b.Create("nn.feed", {}, {&named, 1}, {&type, 1})->result(0));
    }
    return true;
  }

  std::string CutName(size_t i, size_t r) const { return StrCat("cut_", i, "_", r, "_", left_); }

  /// An operand for the result, where both are of one type.
  bool SkipOps() {
    bool any = false;
    for (size_t i = AllOps(best_.program).size(); i-- > 0;) {
      for (size_t o = 0; i < AllOps(best_.program).size(); ++o) {
        Case candidate = CopyOf(best_);
        Operation* op = AllOps(candidate.program)[i];
        if (o >= op->num_operands() || op->num_results() != 1) break;
        const Value operand = op->operand(o);
        if (!operand || operand.type() != op->result(0).type()) continue;
        op->result(0).ReplaceAllUsesWith(operand);
        if (Take(std::move(candidate))) {
          any = true;
          break;
        }
      }
    }
    return any;
  }

  /// One region in the place of an `if`.
  bool OpenRegions() {
    bool any = false;
    for (size_t i = AllOps(best_.program).size(); i-- > 0;) {
      for (size_t r = 0; r < 2 && i < AllOps(best_.program).size(); ++r) {
        if (AllOps(best_.program)[i]->name() != "cf.if") break;
        Case candidate = CopyOf(best_);
        Operation* op = AllOps(candidate.program)[i];
        Block& block = *op->region(r).front();
        while (block.front() != block.back()) block.front()->MoveBefore(op);
        for (size_t k = 0; k < op->num_results(); ++k)
          op->result(k).ReplaceAllUsesWith(block.back()->operand(k));
        any |= Take(std::move(candidate));
      }
    }
    return any;
  }

  /// Declares the sizes at hand.
  bool FixSizes() {
    if (best_.inputs.size() > 1) return false;
    bool any = false;
    for (const Operation* feed : best_.program.feeds()) {
      if (feed->result(0).type().cast<AnyTensorType>().is_static()) continue;
      Case candidate = CopyOf(best_);
      const std::string name = NameOf(feed);
      const Shape& shape = Find(candidate.inputs[0].values, name)->tensor().shape();
      try {
        SpecializeShapes(candidate.program, {.inputs = {{name, shape}}});
      } catch (const Error&) {
        continue;
      }
      if (Take(std::move(candidate))) return true;  // `feed` is gone
    }
    return any;
  }

  bool ShrinkExtents() {
    if (best_.inputs.size() > 1) return false;
    bool any = false;
    for (const int64_t extent : ExtentsOf(best_)) {
      for (const int64_t smaller : {int64_t{1}, int64_t{2}, extent / 2, extent - 1}) {
        if (smaller < 1 || smaller >= extent) continue;
        if (WithExtent(extent, smaller)) {
          any = true;
          break;
        }
      }
    }
    return any;
  }

  bool WithExtent(int64_t extent, int64_t smaller) {
    Case candidate = CopyOf(best_);
    const auto shrunk = [&](const Tensor& t) {
      Shape shape = t.shape();
      std::ranges::replace(shape, extent, smaller);
      return Repeated(t, shape);
    };
    for (auto& [name, value] : candidate.inputs[0].values) value = shrunk(value.tensor());
    for (auto& entry : candidate.program.parameters()) {
      entry.variable.data = shrunk(entry.variable.data);
    }
    for (Operation* op : TopOps(candidate.program)) {
      if (op->num_operands() != 0) continue;
      const auto type = op->result(0).type().cast<AnyTensorType>();
      if (op->name() == "builtin.constant") continue;  // shapes and axes are constants, too
      SymShape shape = type.shape();
      for (Dim& d : shape.dims) {
        if (d.IsConstant(extent)) d = smaller;
      }
      op->result(0).set_type(type.With(type.element(), shape));
    }
    try {
      ShapeInferencer(&candidate.program.parameters()).Visit(candidate.program);
    } catch (const Error&) {
      return false;
    }
    return Take(std::move(candidate));
  }

  Case best_;
  const Shows& shows_;
  int left_;
};

}  // namespace

Case ShrinkCase(const Case& trial, const Shows& shows, int most) {
  return Shrinker(trial, shows, most).Run();
}

}  // namespace lathe::testing
