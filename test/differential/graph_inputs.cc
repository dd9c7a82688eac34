#include <algorithm>

#include "lathe/ir/context.h"
#include "lathe/ir/verify.h"
#include "lathe/support/error.h"
#include "lathe/support/repeat.h"
#include "test/differential/evaluate.h"
#include "test/differential/graph_grower.h"

// What a grown graph declares and gives, and what it is run on.
namespace lathe::testing {

namespace {

std::string NameOf(const Operation* feed) {
  return std::string(feed->attribute("name").cast<StrAttribute>().value());
}

}  // namespace

/// Most of what nobody reads is an output; now and then a value that is used, too, or an input, or
/// the same value twice.
void GraphGrower::Outputs() {
  std::vector<Value> outputs;
  for (const Value v : values_) {
    const bool is_feed = v.defining_op()->name() == "nn.feed";
    if (v.use_empty() ? !is_feed || OneIn(10) : OneIn(is_feed ? 20 : 12)) outputs.push_back(v);
  }
  if (outputs.empty()) outputs.push_back(values_.back());
  if (OneIn(12)) outputs.push_back(outputs[Pick(outputs.size())]);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NamedAttribute name = b_->Named("name", b_->Attr(std::string_view(StrCat("y", i))));
    b_->Create("nn.fetch", {&outputs[i], 1}, {&name, 1});
  }
  EraseUnusedOps(*program_);
}

/// The same, with inputs that say less: dims that are unknown, constants that are symbols.
Program GraphGrower::Weakened(const Program& program) {
  Program weak = program.Clone();
  const bool constants_too = OneIn(3);
  for (Operation* feed : weak.feeds()) {
    const auto type = feed->result(0).type().cast<AnyTensorType>();
    SymShape shape = type.shape();
    for (Dim& d : shape.dims) {
      if (!d.is_constant() && OneIn(2)) d = Dim::Unknown();
      if (d.is_constant() && constants_too && OneIn(3))
        d = OneIn(2) ? Dim() : Dim::Symbol(StrCat("A", names_++));
    }
    feed->result(0).set_type(type.With(type.element(), shape));
  }
  try {
    ShapeInferencer(&weak.parameters()).Visit(weak);
    if (Verify(weak).empty()) return weak;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInternal) throw;
  }
  return program.Clone();
}

NamedValues GraphGrower::InputsFor(const Program& program,
                                   const std::vector<Dim::Binding>& binding) {
  NamedValues inputs;
  for (const Operation* op : program.feeds()) {
    const std::string name = NameOf(op);
    const auto feed = std::ranges::find(feeds_, name, &Feed::name);
    Shape shape;
    for (const Dim& d : feed->dims) {
      shape.push_back(std::max<int64_t>(0, d.Evaluate(binding).value_or(1)));
    }
    if (NumElements(shape) > 4 * 6000) return {};
    const bool pattern = feed->data.num_elements() > 0;
    inputs.emplace_back(name, pattern || NumElements(shape) == 0
                                  ? Repeated(feed->data, shape)
                                  : RandomData(feed->data.element_type(), shape, style_, random_));
  }
  return inputs;
}

std::optional<InputSet> GraphGrower::Hostile(const Program& program, const NamedValues& base) {
  std::vector<std::pair<size_t, size_t>> places;
  const std::vector<Operation*> feeds = program.feeds();
  for (size_t i = 0; i < feeds.size(); ++i) {
    const auto dims = feeds[i]->result(0).type().cast<AnyTensorType>().dims();
    for (size_t d = 0; d < dims.size(); ++d) {
      if (!dims[d].is_constant()) places.emplace_back(i, d);
    }
  }
  if (places.empty()) return std::nullopt;
  const auto [at, axis] = places[Pick(places.size())];
  InputSet set{"", base};
  const Tensor& old = base[at].second.tensor();
  Shape shape = old.shape();
  const int64_t before = shape[axis];
  shape[axis] = OneIn(3) ? 2 * before : OneIn(2) ? before + 1 : std::max<int64_t>(before - 1, 0);
  if (shape[axis] == before || (old.num_elements() == 0 && NumElements(shape) > 0))
    return std::nullopt;
  set.values[at].second = Repeated(old, shape);
  set.label = StrCat(base[at].first, " has ", shape[axis], " for ", before, " at axis ", axis);
  return set;
}

/// The same sizes, with other numbers in what decides: a condition, a count, a shape.
std::optional<InputSet> GraphGrower::OtherDecisions(const NamedValues& base) {
  InputSet set{"other numbers", base, true};
  bool any = false;
  for (auto& [name, value] : set.values) {
    if (!std::ranges::find(feeds_, name, &Feed::name)->decides) continue;
    const Tensor& old = value.tensor();
    std::vector<double> numbers = ToDoubles(old);
    for (double& x : numbers) {
      if (!OneIn(2)) continue;
      const bool truth = old.element_type() == ElementType::kBool;
      x = truth ? static_cast<double>(x == 0) : std::max(0.0, x + static_cast<double>(Int(-2, 2)));
      any = true;
    }
    value = lathe::Cast(Tensor::Of<double>(old.shape(), numbers), old.element_type());
  }
  return any ? std::optional(std::move(set)) : std::nullopt;
}

std::vector<InputSet> GraphGrower::Inputs(const Program& program) {
  std::vector<InputSet> sets = {{"", InputsFor(program, symbols_)}};
  const auto with = [&](auto extent_of) {
    std::vector<Dim::Binding> binding = symbols_;
    std::string label;
    for (auto& [name, extent] : binding) {
      extent = extent_of();
      label += StrCat(label.empty() ? "" : ", ", name, " = ", extent);
    }
    NamedValues values = InputsFor(program, binding);
    if (!values.empty()) sets.push_back({label, std::move(values)});
  };
  if (!symbols_.empty()) {
    with([] { return int64_t{1}; });
    with([&] { return std::max<int64_t>(1, Extent()); });
    if (OneIn(3)) with([&] { return OneIn(2) ? int64_t{0} : Extent(); });
  }
  for (int i = 0; i < 2; ++i) {
    if (auto set = OtherDecisions(sets[0].values)) sets.push_back(std::move(*set));
  }
  for (int i = 0; i < 2; ++i) {
    if (auto set = Hostile(program, sets[0].values)) sets.push_back(std::move(*set));
  }
  return sets;
}

}  // namespace lathe::testing
