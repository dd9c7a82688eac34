#include "lathe/transform/multi_devices.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "lathe/dialect/builtin/builtin_ops.h"
#include "lathe/dialect/builtin/op_names.h"
#include "lathe/dialect/dist/op_names.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"

namespace lathe {

namespace {

struct Plan {
  std::vector<Place> places;
  std::string loss;
  MultiDevicesStrategy strategy;
  int64_t nranks = 1;
};

std::string_view GradOf(Value value) {
  const auto name = value.property(kGradOf).dyn_cast<StrAttribute>();
  return name ? name.value() : std::string_view();
}

bool HasName(const Operation* op) {
  return op->isa<nn::FeedOp>() || op->isa<nn::FetchOp>() || op->isa<builtin::GetParameterOp>() ||
         op->isa<builtin::SetParameterOp>();
}

/// Copies a program once per place, in place: an op, then its copies, then what joins them.
class Replicator {
 public:
  Replicator(Graph& graph, Plan plan)
      : graph_(graph),
        plan_(std::move(plan)),
        copies_(plan_.places.size()),
        held_(plan_.places.size()) {}

  void Run() {
    std::vector<Operation*> ops;
    for (Operation& op : *graph_.block()) ops.push_back(&op);
    if (plan_.loss.empty()) plan_.loss = OnlyLoss(ops);
    Check(ops);
    for (Operation* op : ops) Replicate(op);
    for (size_t i = moved_.size(); i-- > 0;) moved_[i]->Erase();
    OrderCollectives(graph_);
    ResolveHazards(graph_);
    graph_.program().RefreshMutability();
  }

  int64_t collectives() const { return collectives_; }

 private:
  size_t num_places() const { return plan_.places.size(); }
  IrContext& context() const { return graph_.context(); }

  /// The loss that append_backward has marked: a gradient of an output of the program. Empty if
  /// there is none, or several.
  static std::string OnlyLoss(const std::vector<Operation*>& ops) {
    std::vector<std::string_view> outputs;
    std::set<std::string> losses;
    for (Operation* op : ops) {
      if (auto fetch = op->dyn_cast<nn::FetchOp>()) outputs.push_back(fetch.name());
    }
    for (const Operation* op : ops) {
      for (size_t i = 0; i < op->num_results(); ++i) {
        const std::string_view name = GradOf(op->result(i));
        if (std::find(outputs.begin(), outputs.end(), name) != outputs.end()) losses.emplace(name);
      }
    }
    return losses.size() == 1 ? *losses.begin() : std::string();
  }

  void Check(const std::vector<Operation*>& ops) {
    bool has_loss = plan_.loss.empty();
    std::vector<std::string> names;
    for (const Operation* op : ops) {
      for (size_t i = 0; i < op->num_results(); ++i) {
        const std::string_view name = GradOf(op->result(i));
        if (name.empty()) continue;
        names.emplace_back(name);
        has_loss |= name == plan_.loss;
        if (name != plan_.loss) gradients_.emplace_back(name);
      }
    }
    if (!has_loss) {
      Error error(ErrorCode::kNotFound, "multi/loss",
                  StrCat("no value is marked as the gradient of the loss '", plan_.loss, "'"));
      if (const std::string near = DidYouMean(plan_.loss, names); !near.empty()) error.Hint(near);
      throw error;
    }
    const bool scales =
        plan_.strategy.loss_scale == MultiDevicesStrategy::LossScale::kCoeffNumDevice;
    if (plan_.loss.empty() && scales && !gradients_.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "pass/missing-attr",
                  "loss_var_name not set: gradients cannot be scaled by the number of devices");
    }
  }

  // ---- one op ----

  void Replicate(Operation* op) {
    if (op->isa<builtin::FuncOp>()) return;  // places share code
    after_ = op->next();
    const size_t root = RootOf(op);
    if (root != kEverywhere) return MoveToRoot(op, root);
    SetPlace(op, 0);
    for (size_t p = 1; p < num_places(); ++p) {
      Operation* copy = CopyTo(op, p, true);
      graph_.block()->InsertBefore(after_, copy);
    }
    for (size_t i = 0; i < op->num_results(); ++i) {
      const std::string_view name = GradOf(op->result(i));
      if (name.empty()) continue;
      if (name == plan_.loss) {
        ScaleLoss(op->result(i));
      } else if (plan_.strategy.gradients == MultiDevicesStrategy::Gradients::kReduce) {
        Reduce(op->result(i));
      } else {
        AllReduce(op->result(i));
      }
    }
  }

  Operation* CopyTo(Operation* op, size_t p, bool rename) {
    Operation* copy = Clone(op, copies_[p]);
    SetPlace(copy, p);
    const auto name = op->attribute("name").dyn_cast<StrAttribute>();
    if (!HasName(op) || !name || p == 0 || !rename) return copy;
    const StrAttribute renamed = StrAttribute::Get(context(), StrCat(name.value(), "@", p));
    copy->SetAttribute("name", renamed);
    ParameterMap& parameters = graph_.program().parameters();
    const Variable* held =
        op->isa<nn::FeedOp>() || op->isa<nn::FetchOp>() ? nullptr : parameters.Find(name.value());
    if (held != nullptr && parameters.Find(renamed.value()) == nullptr) {
      parameters.Insert(renamed, {held->data, held->is_mutable});
    }
    return copy;
  }

  void SetPlace(Operation* op, size_t p) {
    op->SetAttribute(kPlaceAttr, IntAttribute::Get(context(), static_cast<int64_t>(p)));
  }

  Builder At() const {
    Builder b(context());
    if (after_ != nullptr) {
      b.SetInsertionPoint(after_);
    } else {
      b.SetInsertionPointToEnd(graph_.block());
    }
    return b;
  }

  Value On(Value value, size_t p) const { return p == 0 ? value : copies_[p].Lookup(value); }

  std::vector<Value> OnAll(Value value) const {
    std::vector<Value> all;
    for (size_t p = 0; p < num_places(); ++p) all.push_back(On(value, p));
    return all;
  }

  /// From here on `with[p]` stands for `value` on place p.
  void ReplaceOnAll(Value value, const std::vector<Value>& with, const Operation* but) {
    std::vector<OpOperand> uses;
    for (const OpOperand use : value.uses()) uses.push_back(use);
    for (const OpOperand use : uses) {
      if (use.owner() != but) use.Set(with[0]);
    }
    for (size_t p = 1; p < num_places(); ++p) {
      copies_[p].Map(value, with[p]);    // for operands not yet renamed
      copies_[p].Map(with[0], with[p]);  // for those that read place 0's by now
    }
  }

  // ---- what joins places ----

  Operation* Collective(std::string_view name, const std::vector<Value>& operands, size_t results,
                        std::vector<NamedAttribute> attributes) {
    Builder b = At();
    attributes.push_back(b.Named("nranks", b.Attr(plan_.nranks)));
    const std::vector<Type> types(results, operands[0].type());
    ++collectives_;
    return b.Create(name, operands, attributes, types);
  }

  void AllReduce(Value gradient) {
    Operation* op = Collective(dist::kAllReduce, OnAll(gradient), num_places(), {});
    std::vector<Value> results;
    for (size_t p = 0; p < num_places(); ++p) results.push_back(op->result(p));
    ReplaceOnAll(gradient, results, op);
  }

  /// To the place that holds the fewest elements so far.
  void Reduce(Value gradient) {
    const auto least = std::min_element(held_.begin(), held_.end());
    const auto root = static_cast<size_t>(least - held_.begin());
    const auto type = gradient.type().dyn_cast<AnyTensorType>();
    const auto extents = type ? type.shape().Constants() : std::nullopt;
    *least +=
        extents ? std::accumulate(extents->begin(), extents->end(), int64_t{1}, std::multiplies<>())
                : 1;
    Builder b = At();
    Operation* op = Collective(dist::kReduce, OnAll(gradient), 1,
                               {b.Named("root", b.Attr(static_cast<int64_t>(root)))});
    ReplaceOnAll(gradient, std::vector<Value>(num_places(), op->result(0)), op);
    rooted_[op->result(0)] = root;
  }

  void ScaleLoss(Value gradient) {
    const int64_t total = static_cast<int64_t>(num_places()) * plan_.nranks;
    const bool scales =
        plan_.strategy.loss_scale == MultiDevicesStrategy::LossScale::kCoeffNumDevice;
    if (total == 1 || !scales) return;
    const auto type = gradient.type().cast<AnyTensorType>();
    const Tensor factor =
        Cast(Tensor::Scalar<double>(1.0 / static_cast<double>(total)), type.element());
    std::vector<Value> scaled;
    Operation* first = nullptr;
    for (size_t p = 0; p < num_places(); ++p) {
      Builder b = At();
      const NamedAttribute value = b.Named("value", b.Attr(factor));
      Operation* constant = b.Create(builtin::kConstant, {}, {&value, 1});
      Operation* mul = b.Create(nn::kMul, std::vector<Value>{On(gradient, p), constant->result(0)});
      SetPlace(constant, p);
      SetPlace(mul, p);
      if (p == 0) first = mul;
      scaled.push_back(mul->result(0));
    }
    ReplaceOnAll(gradient, scaled, first);
  }

  // ---- the reduce strategy: what a reduced gradient touches runs on one place ----

  static constexpr size_t kEverywhere = ~size_t{0};

  size_t RootOf(const Operation* op) const {
    size_t root = kEverywhere;
    for (size_t i = 0; i < op->num_operands(); ++i) {
      const auto at = rooted_.find(op->operand(i));
      if (at == rooted_.end() || at->second == root) continue;
      if (root != kEverywhere) {
        throw Error(ErrorCode::kUnsupported, "multi/shared-update",
                    StrCat(op->Describe(), " reads gradients that are reduced to places ", root,
                           " and ", at->second))
            .Hint("use the strategy all_reduce");
      }
      root = at->second;
    }
    return root;
  }

  void MoveToRoot(Operation* op, size_t root) {
    if (op->isa<builtin::SetParameterOp>() && IsTrained(op)) return Share(op, root);
    for (size_t i = 0; i < op->num_results(); ++i) rooted_[op->result(i)] = root;
    if (root == 0) return SetPlace(op, 0);
    graph_.block()->InsertBefore(after_, CopyTo(op, root, !op->isa<nn::FetchOp>()));
    moved_.push_back(op);
  }

  bool IsTrained(const Operation* set) const {
    const std::string_view name = set->attribute("name").cast<StrAttribute>().value();
    return std::find(gradients_.begin(), gradients_.end(), name) != gradients_.end();
  }

  /// The new parameter goes from the root to all.
  void Share(Operation* set, size_t root) {
    const Value value = On(set->operand(0), root);
    Builder b = At();
    after_ = set;  // the collective comes before the writes
    Operation* op = Collective(dist::kBroadcast, {value}, num_places(),
                               {b.Named("root", b.Attr(static_cast<int64_t>(root)))});
    after_ = set->next();
    SetPlace(set, 0);
    set->set_operand(0, op->result(0));
    for (size_t p = 1; p < num_places(); ++p) {
      copies_[p].Map(op->result(0), op->result(p));
      graph_.block()->InsertBefore(after_, CopyTo(set, p, true));
    }
  }

  Graph& graph_;
  Plan plan_;
  std::vector<IrMapping> copies_;  // of place 0's values; none for place 0
  std::vector<int64_t> held_;      // elements of gradients reduced to each place
  std::vector<std::string> gradients_;
  std::unordered_map<Value, size_t> rooted_;  // look-up only
  std::vector<Operation*> moved_;             // originals whose one copy runs elsewhere
  Operation* after_ = nullptr;                // where the next op goes
  int64_t collectives_ = 0;
};

}  // namespace

class MultiDevicesPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const Plan plan = MakePlan();
    Replicator replicator(graph, plan);
    replicator.Run();
    MarkChanged();
    Count("places", static_cast<int64_t>(plan.places.size()));
    Count("collectives", replicator.collectives());
  }

 private:
  Plan MakePlan() const {
    Plan plan;
    const int64_t count = option_int("places");
    if (Has("places")) {
      plan.places = Get<std::vector<Place>>("places");
    } else {
      for (int64_t i = 0; i < count; ++i) plan.places.push_back({"cpu", i});
    }
    if (plan.places.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "pass/missing-attr", "places not set")
          .At("pass 'multi_devices_pass'")
          .Hint("set the pass attribute `places`, or the option places=2");
    }
    plan.loss = Has("loss_var_name") ? Get<std::string>("loss_var_name") : option("loss_var_name");
    plan.nranks = Has("nranks") ? Get<int64_t>("nranks") : option_int("nranks");
    plan.strategy = Has("strategy") ? Get<MultiDevicesStrategy>("strategy") : StrategyFromOptions();
    return plan;
  }

  MultiDevicesStrategy StrategyFromOptions() const {
    const bool all = OneOf("strategy", "all_reduce", "reduce");
    const bool mean = OneOf("loss_scale", "mean", "sum");
    return {all ? MultiDevicesStrategy::Gradients::kAllReduce
                : MultiDevicesStrategy::Gradients::kReduce,
            mean ? MultiDevicesStrategy::LossScale::kCoeffNumDevice
                 : MultiDevicesStrategy::LossScale::kOne};
  }

  bool OneOf(const char* name, std::string_view yes, std::string_view no) const {
    const std::string& text = option(name);
    if (text == yes || text == no) return text == yes;
    throw Error(ErrorCode::kInvalidArgument, "pass/option",
                StrCat("option '", name, "' is ", yes, " or ", no, ", not ", text))
        .At("pass 'multi_devices_pass'");
  }
};

REGISTER_PASS(multi_devices_pass, MultiDevicesPass)
    .Doc("copies a program once per place and joins the copies by collectives")
    .Details(
        "Pass attributes: places (std::vector<Place>), loss_var_name, strategy "
        "(MultiDevicesStrategy), nranks; the options say the same in text. Place 0 keeps the names "
        "of "
        "inputs, outputs and parameters, place i appends @i. A value with the property grad_of = "
        "<parameter> is reduced over the places, that of the loss scaled by their number. Every op "
        "gets its `place`, collectives excepted; they wait for one another, and writes of "
        "parameters "
        "for the readers of the old value.")
    .Option("places", PassOption::Kind::kInt, "0", "how many, unless the attribute `places` is set")
    .AtLeast(0)
    .Option("loss_var_name", PassOption::Kind::kString, "",
            "the loss, as property grad_of names it; empty: the output that append_backward marks")
    .Option("strategy", PassOption::Kind::kString, "all_reduce",
            "all_reduce; reduce: each parameter is updated on one place and sent to the others")
    .Option("loss_scale", PassOption::Kind::kString, "mean", "mean over all places, or sum")
    .Option("nranks", PassOption::Kind::kInt, "1", "processes that run the program together")
    .AtLeast(1);

}  // namespace lathe
