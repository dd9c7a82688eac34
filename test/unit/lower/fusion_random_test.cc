#include <algorithm>
#include <optional>

#include "src/lower/dataflow.h"
#include "test/unit/lower/random_dag.h"

namespace lathe::testing {
namespace {

std::set<std::string> GroupNames(Program& program, const FusionOptions& options) {
  std::set<std::string> result;
  for (const FusionGroup& group : PlanFusion(program.block(), options).groups) {
    std::string names;
    for (size_t i = 0; i < group.ops.size(); ++i) {
      const Operation* op = group.ops[i];
      names += StrCat(op->name(), "@", op->location().ToString(*op->context()),
                      i == group.anchor ? "* " : " ");
    }
    result.insert(StrCat(names, Name(group.kind)));
  }
  return result;
}

class FusionOfRandomPrograms : public NetTest {};

TEST_F(FusionOfRandomPrograms, IsConvexAndIndependentOfTheOrder) {
  size_t groups = 0, ops = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Net net = RandomDag(context_, seed).Grow(40);
    const FusionOptions options{.max_ops = seed % 3 == 0 ? size_t{6} : size_t{256}};
    const NamedValues inputs = RandomInputs(net.program(), seed);
    const NamedValues expected = Interpreter(net.program()).Run(inputs);
    (void)Groups(net, options);
    const std::set<std::string> names = GroupNames(net.program(), options);
    RandomStream random(seed);
    for (int i = 0; i < 4; ++i) {
      Program other = net.program().Clone();
      Shuffle(other.block(), random);
      ASSERT_TRUE(Verify(other).empty());
      EXPECT_EQ(GroupNames(other, options), names) << Print(other);
    }
    for (const FusionGroup& group : PlanFusion(net.program().block(), options).groups) {
      ++groups;
      ops += group.ops.size();
      EXPECT_LE(group.ops.size(), options.max_ops);
    }
  }
  EXPECT_GT(ops, groups + groups / 2);  // it did fuse
}

// The same groups become the same text, wherever they stand.
TEST_F(FusionOfRandomPrograms, BodiesAreTheSameToo) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Net net = RandomDag(context_, seed).Grow(30);
    RandomStream random(seed);
    std::multiset<std::string> bodies[2];
    for (auto& texts : bodies) {
      Program program = net.program().Clone();
      Shuffle(program.block(), random);
      RunPasses(program, "graph_fuse_partition");
      for (Operation& op : *program.block()) {
        if (op.name() != "builtin.group") continue;
        std::string text;
        for (const Operation& inner : *op.region(0).front()) {
          text += StrCat(inner.name(), " ", inner.location().ToString(context_), "\n");
        }
        texts.insert(text);
      }
    }
    EXPECT_EQ(bodies[0], bodies[1]);
  }
}

// By the definition: what every path from an op to a sink goes through, the nearest of these.
TEST_F(FusionOfRandomPrograms, PostDominators) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Net net = RandomDag(context_, seed).Grow(60);
    const Dataflow flow(net.program().block());
    std::vector<std::set<uint32_t>> through(flow.size());
    for (uint32_t id = flow.size(); id-- > 0;) {
      std::optional<std::set<uint32_t>> common;
      for (const Dataflow::Use& use : flow.uses(id)) {
        ASSERT_GT(use.user, id);
        if (!common) common = through[use.user];
        std::erase_if(*common, [&](uint32_t d) { return through[use.user].count(d) == 0; });
      }
      const uint32_t nearest = common && !common->empty() ? *common->begin() : Dataflow::kNone;
      EXPECT_EQ(flow.post_dominator(id), nearest);
      through[id] = common.value_or(std::set<uint32_t>());
      through[id].insert(id);
    }
  }
}

// A hundred thousand branches from one value to one sum: as many as a group may hold share a loop.
TEST(FusionOfWidePrograms, EveryOpIsInOneGroup) {
  IrContext context;
  LoadAllDialects(context);
  Net net(context);
  const Value x = net.X({4});
  std::vector<Value> branches(100000);
  for (Value& b : branches) b = net.Op("tanh", {x});
  net.Output(net.Op("sum", branches));
  EXPECT_EQ(PlanFusion(net.program().block()).groups.size(), (100000U + 255) / 256 + 1);
  EXPECT_EQ(PlanFusion(net.program().block(), {.max_ops = 200000}).groups.size(), 1U);
}

// Long distances between a value and its last use, twenty thousand times.
TEST(FusionOfDeepPrograms, EveryOpIsInOneGroup) {
  IrContext context;
  LoadAllDialects(context);
  Net net(context);
  Value x = net.X({4});
  std::vector<Value> far;
  for (int i = 0; i < 20000; ++i) {
    far.push_back(x);
    x = net.Op("add", {net.Op("tanh", {x}), far[far.size() / 2]});
  }
  net.Output(x);
  size_t ops = 0;
  for (const FusionGroup& group : PlanFusion(net.program().block()).groups) {
    ops += group.ops.size();
    EXPECT_TRUE(group.ops.size() <= 256U);
  }
  EXPECT_EQ(ops, 40000U);
}

}  // namespace
}  // namespace lathe::testing
