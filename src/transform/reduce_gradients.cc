#include <algorithm>
#include <map>
#include <set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/dialect/dist/collective.h"
#include "lathe/dialect/nn/cast.h"
#include "lathe/dialect/nn/elementwise_binary.h"
#include "lathe/dialect/nn/io.h"
#include "lathe/ir/context.h"
#include "lathe/ir/walk.h"
#include "lathe/pass/pass.h"
#include "lathe/support/error.h"
#include "lathe/transform/multi_devices.h"
#include "src/transform/gradient_order.h"
#include "src/transform/rank_values.h"
#include "src/transform/sharding.h"

namespace lathe {
namespace {

std::string_view TextOf(Attribute attribute) {
  const auto text = attribute.dyn_cast<StrAttribute>();
  return text ? text.value() : std::string_view();
}

/// Joins the gradients of the ranks that run the program, each on its part of a batch.
class GradientReducer {
 public:
  GradientReducer(Graph& graph, int64_t nranks, int64_t bucket_bytes, bool shard)
      : program_(graph.program()), nranks_(nranks), bucket_bytes_(bucket_bytes), shard_(shard) {}

  /// How many gradients, buckets and statistics there are.
  struct Counts {
    int64_t gradients = 0, buckets = 0, statistics = 0, delayed = 0;
  };
  Counts Run() {
    FindNames();
    ReduceStatistics();  // of what ranks share before gradients are joined
    for (const Value loss : Marked(losses_)) Scale(loss);
    const std::vector<Value> gradients = Marked(parameters_);
    if (gradients.empty() || losses_.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "gradient/missing",
                  "the program has no gradients that could be reduced over ranks")
          .Hint("append_backward makes them: append_backward,reduce_gradients{nranks=2},sgd");
    }
    MoveOutputsToEnd();
    std::vector<TravelingGradient> traveling;
    for (const Value gradient : gradients) {
      if (!IsCollective(gradient.defining_op())) traveling.push_back({gradient, BytesOf(gradient)});
    }
    counts_.delayed = OrderForTravel(program_, traveling);
    for (const TravelingGradient& gradient : traveling) Add(gradient);
    for (auto& [element, bucket] : buckets_) Flush(bucket);
    for (const Started& started : started_) WaitFor(started);
    program_.RefreshMutability();
    return counts_;
  }

 private:
  struct Bucket {
    std::vector<Value> gradients;
    int64_t bytes = 0;
  };

  /// A bucket that travels.
  struct Started {
    std::vector<Value> gradients;
    Value reduced;
  };

  void FindNames() {
    for (Operation& op : *program_.block()) {
      if (auto fetch = op.dyn_cast<nn::FetchOp>()) losses_.emplace(fetch.name());
      if (auto get = op.dyn_cast<builtin::GetParameterOp>()) {
        parameters_.emplace(get.name());
        const auto type = get.value().type().dyn_cast<AnyTensorType>();
        if (const auto shape = type ? type.shape().Constants() : std::nullopt) {
          shapes_.emplace(get.name(), *shape);
        }
      }
      const bool gives = op.num_results() == 0 && op.num_operands() == 1;
      if (gives && op.attribute(kGradOf)) outputs_.push_back(&op);
    }
    std::erase_if(losses_, [&](const std::string& name) {
      return parameters_.contains(name) || Marked({name}).empty();
    });
  }

  /// Values that are marked as gradients of these, in program order.
  std::vector<Value> Marked(const std::set<std::string, std::less<>>& names) const {
    std::vector<Value> values;
    for (Operation& op : *program_.block()) {
      for (size_t i = 0; i < op.num_results(); ++i) {
        const std::string_view name = TextOf(op.result(i).property(kGradOf));
        if (!name.empty() && names.contains(name)) values.push_back(op.result(i));
      }
    }
    return values;
  }

  /// That of its parameter.
  Shape ShapeOf(Value gradient) const {
    const auto at = shapes_.find(TextOf(gradient.property(kGradOf)));
    LATHE_CHECK(at != shapes_.end(), "a gradient of unknown shape");
    return at->second;
  }

  // ---- means over the batch ----

  /// The share of the batch that this rank has, in an element type.
  Value Weight(ElementType element) {
    if (!weight_) {
      Builder b(program_.context());
      b.SetInsertionPoint(program_.block()->front());
      const Type type =
          VTensorType::Get(program_.context(), SymShape::FromConstants(Shape{}), ElementType::kF64);
      weight_ = nn::FeedOp::Create(b, {&type, 1}, {.name = kRankWeight}).value();
    }
    Value& cast = weights_[element];
    if (!cast) {
      Builder b = Builder::After(weight_.defining_op());
      cast = nn::CastOp::Create(b, weight_, {.to = element}).output();
    }
    return cast;
  }

  Value Weighted(Builder& b, Value value) {
    const ElementType element = value.type().cast<AnyTensorType>().element();
    return nn::MulOp::Create(b, value, Weight(element)).c();
  }

  /// Gradients are linear in that of the loss.
  void Scale(Value seed) {
    Builder b = Builder::After(seed.defining_op());
    std::vector<OpOperand> uses;
    for (const OpOperand use : seed.uses()) uses.push_back(use);
    const Value scaled = Weighted(b, seed);
    for (const OpOperand use : uses) use.Set(scaled);
  }

  /// What the program sets besides, such as means of a batch normalization.
  void ReduceStatistics() {
    const RankValues values(program_);
    for (Operation& op : *program_.block()) {
      auto set = op.dyn_cast<builtin::SetParameterOp>();
      if (!set || op.attribute(kGradOf) || !values.MayDiffer(set.value())) continue;
      const auto type = set.value().type().dyn_cast<AnyTensorType>();
      if (!type || !IsFloat(type.element())) {
        throw Error(ErrorCode::kUnsupported, "reduce/state",
                    StrCat("parameter '", set.name(),
                           "' is set to integers that ranks compute of "
                           "their own data: they have no mean"));
      }
      Builder b = Builder::Before(&op);
      const Value part = Weighted(b, set.value());
      op.set_operand(0, dist::AllReduceOp::Create(b, {{part}}, 1, {.nranks = nranks_}).ys()[0]);
      ++counts_.statistics;
    }
  }

  // ---- buckets ----

  /// Behind all buckets.
  void MoveOutputsToEnd() {
    for (Operation* op : outputs_) op->MoveToEnd(program_.block());
  }

  int64_t BytesOf(Value gradient) const {
    const ElementType element = gradient.type().cast<AnyTensorType>().element();
    const int64_t count = NumElements(ShapeOf(gradient));
    return static_cast<int64_t>(StorageBytes(element, static_cast<size_t>(count)));
  }

  void Add(const TravelingGradient& gradient) {
    Bucket& bucket = buckets_[gradient.value.type().cast<AnyTensorType>().element()];
    bucket.gradients.push_back(gradient.value);
    bucket.bytes += gradient.bytes;
    ++counts_.gradients;
    if (bucket.bytes >= bucket_bytes_) Flush(bucket);
  }

  /// As soon as the last one of them is computed: it travels while the others are.
  void Flush(Bucket& bucket) {
    if (bucket.gradients.empty()) return;
    Builder b = Builder::After(bucket.gradients.back().defining_op());
    std::vector<Value> parts;
    for (const Value gradient : bucket.gradients) {
      parts.push_back(shard_ ? AsShards(b, gradient, ShapeOf(gradient), nranks_)
                             : InShape(b, gradient, {NumElements(ShapeOf(gradient))}));
    }
    const Value all = Joined(b, parts, shard_ ? 1 : 0);
    const Value reduced = shard_
                              ? dist::StartReduceScatterOp::Create(b, all, {.nranks = nranks_}).y()
                              : dist::StartAllReduceOp::Create(b, all, {.nranks = nranks_}).y();
    started_.push_back({std::move(bucket.gradients), reduced});
    ++counts_.buckets;
    bucket = {};
  }

  /// Behind the backward pass, before whoever reads the gradients.
  void WaitFor(const Started& started) {
    Builder b = outputs_.empty() ? Builder::AtEnd(program_.block()) : Builder::Before(outputs_[0]);
    Value all = dist::WaitOp::Create(b, started.reduced, {.part = shard_, .nranks = nranks_}).y();
    std::vector<Shape> shapes;
    std::vector<int64_t> sizes;
    int64_t count = 0;
    for (const Value gradient : started.gradients) {
      Shape shape = ShapeOf(gradient);
      if (shard_) shape = {ShardSize(NumElements(shape), nranks_)};
      count += sizes.emplace_back(NumElements(shape));
      shapes.push_back(std::move(shape));
    }
    if (shard_) all = InShape(b, all, {count});
    const std::vector<Value> parts = Cut(b, all, sizes);
    for (size_t i = 0; i < parts.size(); ++i) {
      Replace(started.gradients[i], InShape(b, parts[i], shapes[i]));
    }
  }

  /// For those who are given it.
  void Replace(Value gradient, Value result) const {
    if (shard_) result.set_property(kShards, IntAttribute::Get(program_.context(), nranks_));
    result.set_property(kGradOf, gradient.property(kGradOf));
    gradient.set_property(kGradOf, Attribute());
    std::vector<OpOperand> uses;
    for (const OpOperand use : gradient.uses()) uses.push_back(use);
    for (const OpOperand use : uses) {
      if (use.owner()->attribute(kGradOf)) use.Set(result);
    }
  }

  Program& program_;
  const int64_t nranks_, bucket_bytes_;
  const bool shard_;
  std::set<std::string, std::less<>> losses_, parameters_;
  std::map<std::string, Shape, std::less<>> shapes_;  // of parameters
  std::vector<Operation*> outputs_;                   // that give gradients to the caller
  Value weight_;
  std::map<ElementType, Value> weights_;
  std::map<ElementType, Bucket> buckets_;
  std::vector<Started> started_;
  Counts counts_;
};

class ReduceGradientsPass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    const auto counts = GradientReducer(graph, option_int("nranks"), option_int("bucket_bytes"),
                                        option_bool("shard"))
                            .Run();
    Count("gradients", counts.gradients);
    Count("buckets", counts.buckets);
    Count("statistics", counts.statistics);
    Count("operations behind the largest gradient", counts.delayed);
    MarkChanged();
  }
};

REGISTER_PASS(reduce_gradients, ReduceGradientsPass)
    .Doc("reduces gradients over the ranks that train a program together")
    .Details(
        "Behind append_backward and before an optimizer. Each rank runs the program on its part "
        "of a batch and feeds the share that this is as the new input `rank@weight`, one f64; the "
        "loss is a mean over samples, so the sum of the gradients is that of the whole batch. "
        "Gradients "
        "travel in buckets (dist.start_all_reduce), each as soon as its last one is computed, in "
        "the order in which the backward pass makes them, and while it goes on: dist.wait stands "
        "behind it. Should a large one be the last, as that of a table of embeddings is, gradients "
        "of other parameters are computed behind it. What else the program sets to what ranks "
        "compute of their own data, such as statistics of batch normalizations, becomes the mean "
        "by the same weights. With "
        "`shard` each rank gets of each gradient as many elements as any other "
        "(dist.start_reduce_scatter), keeps the states of the optimizer for these, and gives the "
        "others what it has made of the parameters. Source: Rajbhandari et al., ZeRO, 2020, whose "
        "stages 1 and 2 this is.")
    .Option("nranks", PassOption::Kind::kInt, "2", "ranks that run the program together")
    .AtLeast(1)
    .Option("bucket_bytes", PassOption::Kind::kInt, StrCat(kBucketBytes),
            "a bucket is sent once it holds as much")
    .AtLeast(1)
    .Option("shard", PassOption::Kind::kBool, "false",
            "each rank gets a shard of the gradients, which the optimizer then updates alone");

}  // namespace
}  // namespace lathe
