#include "lathe/lower/memory_plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "lathe/dialect/nn/io.h"
#include "lathe/ir/walk.h"
#include "lathe/support/pack_blocks.h"
#include "test/unit/dialect/program_util.h"

namespace lathe {
namespace {

using testing::ValuesOf;

class MemoryPlanTest : public testing::ProgramTest {
 protected:
  /// Result `i` of the op whose location has that name, or the feed of that name.
  Value Named(const Program& program, std::string_view name, size_t i = 0) {
    for (OpWalker w(program.block()); Operation* op = w.Next();) {
      const auto fed = op->attribute("name").dyn_cast<StrAttribute>();
      const bool found = op->location().is_name()
                             ? op->location().name() == name
                             : fed && op->num_results() > 0 && fed.value() == name;
      if (found) return op->result(i);
    }
    ADD_FAILURE() << "no value " << name;
    return Value();
  }

  /// No two storages that are alive at one step share a byte; offsets are aligned; all lie inside.
  static void ExpectSound(const MemoryPlan& plan, size_t alignment = 64) {
    const auto& all = plan.storages();
    for (size_t i = 0; i < all.size(); ++i) {
      const auto& a = all[i];
      if (!a.in_arena || a.bytes == 0) continue;
      EXPECT_EQ(a.offset % alignment, 0u);
      EXPECT_LE(a.offset + a.bytes, plan.peak());
      for (size_t k = i + 1; k < all.size(); ++k) {
        const auto& b = all[k];
        if (!b.in_arena || b.end < a.begin || a.end < b.begin) continue;
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset)
            << "storages " << i << " and " << k;
      }
    }
    EXPECT_LE(plan.lower_bound(), plan.peak());
  }

  /// Runs a program whose tensors live where the plan says, so that a wrong plan destroys data.
  static NamedValues RunInArena(Program& program, const MemoryPlan& plan,
                                const NamedValues& inputs) {
    std::vector<std::byte> arena(plan.peak(), std::byte{0xee});
    std::unordered_map<Value, Tensor> outside;
    NamedValues fetched;
    const auto load = [&](Value v) {
      const uint32_t id = plan.storage_of(v);
      const auto type = v.type().cast<AnyTensorType>();
      const auto& storage = plan.storages().at(id);
      if (!storage.in_arena) {
        const Tensor& held = outside.at(storage.values.front());
        return held.Reshaped(*type.shape().Constants());
      }
      Tensor t(type.element(), *type.shape().Constants());
      std::memcpy(t.mutable_raw(), arena.data() + storage.offset, t.byte_size());
      return t;
    };
    for (Operation& op : *program.block()) {
      std::vector<RtValue> operands;
      for (size_t i = 0; i < op.num_operands(); ++i) {
        operands.emplace_back(op.operand(i) ? RtValue(load(op.operand(i))) : RtValue());
      }
      const auto name = op.attribute("name").dyn_cast<StrAttribute>();
      if (op.isa<nn::FeedOp>()) {
        outside[op.result(0)] = Find(inputs, name.value())->tensor();
        continue;
      }
      if (op.isa<nn::FetchOp>()) {
        fetched.emplace_back(name.value(), operands[0]);
        continue;
      }
      const std::vector<RtValue> results = EvalOp(&op, operands);
      for (size_t i = 0; i < op.num_results(); ++i) {
        const auto& storage = plan.storages().at(plan.storage_of(op.result(i)));
        const Tensor& value = results[i].tensor();
        if (storage.in_arena) {
          std::memcpy(arena.data() + storage.offset, value.raw(), value.byte_size());
        } else if (storage.values.front() == op.result(i)) {
          outside[op.result(i)] = value;
        }
      }
    }
    return fetched;
  }
};

// x(10) + exp(y(1)), then five exps: two inputs, exp(y), and one place for all that follows.
TEST_F(MemoryPlanTest, AChainTakesOnePlace) {
  const Program p = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[10], f32>
    %y = nn.feed() {name = "y"} : () -> v_tensor<[1], f32>
    %e = nn.exp(%y) : (v_tensor<[1], f32>) -> v_tensor<[1], f32>
    %0 = nn.add(%x, %e) : (v_tensor<[10], f32>, v_tensor<[1], f32>) -> v_tensor<[10], f32>
    %1 = nn.exp(%0) : (v_tensor<[10], f32>) -> v_tensor<[10], f32>
    %2 = nn.exp(%1) : (v_tensor<[10], f32>) -> v_tensor<[10], f32>
    %3 = nn.exp(%2) : (v_tensor<[10], f32>) -> v_tensor<[10], f32>
    %4 = nn.exp(%3) : (v_tensor<[10], f32>) -> v_tensor<[10], f32>
    %5 = nn.exp(%4) : (v_tensor<[10], f32>) -> v_tensor<[10], f32>
    nn.fetch(%5) {name = "out"} : (v_tensor<[10], f32>) -> ())");
  const MemoryPlan plan(p);
  std::vector<size_t> bytes;
  for (const auto& s : plan.storages()) bytes.push_back(s.bytes);
  EXPECT_EQ(bytes, (std::vector<size_t>{40, 4, 4, 40}));
  EXPECT_FALSE(plan.storages()[0].in_arena);
  EXPECT_FALSE(plan.storages()[1].in_arena);
  EXPECT_EQ(plan.peak(), 128u);
  EXPECT_EQ(plan.unshared(), 6u * 40 + 4);

  const MemoryPlan apart(p, {.share = false});
  EXPECT_EQ(apart.storages().size(), 9u);
  EXPECT_EQ(apart.peak(), 128u) << "two places in turn";
  ExpectSound(plan);
  ExpectSound(apart);
}

// A value that is read later keeps its bytes, under each of its shapes.
TEST_F(MemoryPlanTest, WhatIsReadLaterIsNotOverwritten) {
  const Program p = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[4, 2], f32>
    %a = nn.add(%x, %x) : (v_tensor<[4, 2], f32>, v_tensor<[4, 2], f32>) -> v_tensor<[4, 2], f32> loc("a")
    %f = nn.flatten(%a) {axis = 0} : (v_tensor<[4, 2], f32>) -> v_tensor<[1, 8], f32> loc("f")
    %b = nn.add(%f, %f) : (v_tensor<[1, 8], f32>, v_tensor<[1, 8], f32>) -> v_tensor<[1, 8], f32> loc("b")
    %c = nn.add(%b, %f) : (v_tensor<[1, 8], f32>, v_tensor<[1, 8], f32>) -> v_tensor<[1, 8], f32> loc("c")
    %s = nn.reduce_sum(%a) {keepdims = false} : (v_tensor<[4, 2], f32>) -> v_tensor<[], f32> loc("s")
    nn.fetch(%c) {name = "c"} : (v_tensor<[1, 8], f32>) -> ()
    nn.fetch(%s) {name = "s"} : (v_tensor<[], f32>) -> ())");
  const MemoryPlan plan(p);
  const auto id = [&](std::string_view name) { return plan.storage_of(Named(p, name)); };
  EXPECT_EQ(id("f"), id("a")) << "a reshape is not a copy";
  EXPECT_NE(id("b"), id("a")) << "the first add is read later";
  EXPECT_EQ(id("c"), id("b")) << "the second one is not";
  ExpectSound(plan);
}

TEST_F(MemoryPlanTest, AReshapeTakesNoStorage) {
  const Program p = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[2, 8], f32>
    %t = nn.transpose(%x) {perm = [1, 0]} : (v_tensor<[2, 8], f32>) -> v_tensor<[8, 2], f32>
    %r = nn.flatten(%t) {axis = 0} : (v_tensor<[8, 2], f32>) -> v_tensor<[1, 16], f32>
    %u = nn.transpose(%r) {perm = [1, 0]} : (v_tensor<[1, 16], f32>) -> v_tensor<[16, 1], f32>
    %v = nn.flatten(%x) {axis = 0} : (v_tensor<[2, 8], f32>) -> v_tensor<[1, 16], f32>
    %w = nn.transpose(%u) {perm = [1, 0]} : (v_tensor<[16, 1], f32>) -> v_tensor<[1, 16], f32>
    nn.fetch(%w) {name = "w"} : (v_tensor<[1, 16], f32>) -> ()
    nn.fetch(%v) {name = "v"} : (v_tensor<[1, 16], f32>) -> ())");
  const MemoryPlan plan(p);
  std::vector<uint32_t> ids;
  std::vector<size_t> offsets;
  for (Operation& op : *p.block()) {
    if (op.num_results() == 0) continue;
    ids.push_back(plan.storage_of(op.result(0)));
    offsets.push_back(plan.storages()[ids.back()].offset);
  }
  EXPECT_EQ(ids, (std::vector<uint32_t>{0, 1, 1, 2, 0, 3}));
  EXPECT_EQ(offsets[5], offsets[1]) << "the bytes of the first transpose are free again";
  EXPECT_EQ(plan.peak(), 128u);
  ExpectSound(plan);
}

/// What may not be overwritten, one case each: the program, and whether `y` may have x's bytes.
struct InPlaceCase {
  const char* name;
  const char* body;
  bool in_place;
};

class InPlace : public MemoryPlanTest, public ::testing::WithParamInterface<InPlaceCase> {};

TEST_P(InPlace, OnlyWhereTheOperandDies) {
  const Program p = Parse(GetParam().body);
  const MemoryPlan plan(p);
  EXPECT_EQ(plan.storage_of(Named(p, "x")) == plan.storage_of(Named(p, "y")), GetParam().in_place);
  ExpectSound(plan);
}

const InPlaceCase kInPlaceCases[] = {
    {"dies", R"(
    %f = nn.feed() {name = "f"} : () -> v_tensor<[4], f32>
    %x = nn.exp(%f) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("x")
    %y = nn.relu(%x) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("y")
    nn.fetch(%y) {name = "o"} : (v_tensor<[4], f32>) -> ())",
     true},
    {"second_operand", R"(
    %f = nn.feed() {name = "f"} : () -> v_tensor<[4], f32>
    %x = nn.exp(%f) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("x")
    %y = nn.sub(%f, %x) : (v_tensor<[4], f32>, v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("y")
    nn.fetch(%y) {name = "o"} : (v_tensor<[4], f32>) -> ())",
     true},
    {"twice_the_same", R"(
    %f = nn.feed() {name = "f"} : () -> v_tensor<[4], f32>
    %x = nn.exp(%f) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("x")
    %y = nn.mul(%x, %x) : (v_tensor<[4], f32>, v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("y")
    nn.fetch(%y) {name = "o"} : (v_tensor<[4], f32>) -> ())",
     true},
    {"read_later", R"(
    %f = nn.feed() {name = "f"} : () -> v_tensor<[4], f32>
    %x = nn.exp(%f) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("x")
    %y = nn.relu(%x) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("y")
    %z = nn.add(%x, %y) : (v_tensor<[4], f32>, v_tensor<[4], f32>) -> v_tensor<[4], f32>
    nn.fetch(%z) {name = "o"} : (v_tensor<[4], f32>) -> ())",
     false},
    {"fetched", R"(
    %f = nn.feed() {name = "f"} : () -> v_tensor<[4], f32>
    %x = nn.exp(%f) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("x")
    nn.fetch(%x) {name = "p"} : (v_tensor<[4], f32>) -> ()
    %y = nn.relu(%x) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("y")
    nn.fetch(%y) {name = "o"} : (v_tensor<[4], f32>) -> ())",
     false},
    {"fed", R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[4], f32>
    %y = nn.relu(%x) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("y")
    nn.fetch(%y) {name = "o"} : (v_tensor<[4], f32>) -> ())",
     false},
    {"constant", R"(
    %x = builtin.constant() {value = tensor<[2], f32> [1.0, 2.0]} : () -> v_tensor<[2], f32> loc("x")
    %y = nn.relu(%x) : (v_tensor<[2], f32>) -> v_tensor<[2], f32> loc("y")
    nn.fetch(%y) {name = "o"} : (v_tensor<[2], f32>) -> ())",
     false},
    {"parameter", R"(
    %x = builtin.get_parameter() {name = "x"} : () -> v_tensor<[4], f32>
    %y = nn.relu(%x) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("y")
    nn.fetch(%y) {name = "o"} : (v_tensor<[4], f32>) -> ())",
     false},
    {"other_width", R"(
    %f = nn.feed() {name = "f"} : () -> v_tensor<[4], f32>
    %x = nn.exp(%f) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("x")
    %y = nn.cast(%x) {to = f16} : (v_tensor<[4], f32>) -> v_tensor<[4], f16> loc("y")
    nn.fetch(%y) {name = "o"} : (v_tensor<[4], f16>) -> ())",
     false},
    {"broadcast", R"(
    %f = nn.feed() {name = "f"} : () -> v_tensor<[4, 1], f32>
    %g = nn.feed() {name = "g"} : () -> v_tensor<[1, 4], f32>
    %x = nn.exp(%f) : (v_tensor<[4, 1], f32>) -> v_tensor<[4, 1], f32> loc("x")
    %y = nn.add(%x, %g) : (v_tensor<[4, 1], f32>, v_tensor<[1, 4], f32>) -> v_tensor<[4, 4], f32> loc("y")
    nn.fetch(%y) {name = "o"} : (v_tensor<[4, 4], f32>) -> ())",
     false},
    {"viewed_under_another_shape", R"(
    %f = nn.feed() {name = "f"} : () -> v_tensor<[1, 1, 4], f32>
    %x = nn.exp(%f) : (v_tensor<[1, 1, 4], f32>) -> v_tensor<[1, 1, 4], f32> loc("x")
    %s = builtin.constant() {value = tensor<[3], i64> [1, 4, 1]} : () -> v_tensor<[3], i64>
    %r = nn.reshape(%x, %s) {allowzero = false} : (v_tensor<[1, 1, 4], f32>, v_tensor<[3], i64>) -> v_tensor<[1, 4, 1], f32>
    %m = nn.reduce_max(%r) {keepdims = false} : (v_tensor<[1, 4, 1], f32>) -> v_tensor<[], f32>
    %y = nn.sub(%x, %m) : (v_tensor<[1, 1, 4], f32>, v_tensor<[], f32>) -> v_tensor<[1, 1, 4], f32> loc("y")
    %z = nn.add(%y, %r) : (v_tensor<[1, 1, 4], f32>, v_tensor<[1, 4, 1], f32>) -> v_tensor<[1, 4, 4], f32>
    nn.fetch(%z) {name = "o"} : (v_tensor<[1, 4, 4], f32>) -> ())",
     false},
    {"unknown_extent", R"(
    %f = nn.feed() {name = "f"} : () -> v_tensor<[?], f32>
    %x = nn.exp(%f) : (v_tensor<[?], f32>) -> v_tensor<[?], f32> loc("x")
    %m = nn.feed() {name = "m"} : () -> v_tensor<[4], f32>
    %y = nn.exp(%m) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("y")
    nn.fetch(%x) {name = "p"} : (v_tensor<[?], f32>) -> ()
    nn.fetch(%y) {name = "o"} : (v_tensor<[4], f32>) -> ())",
     false},
    {"transpose", R"(
    %f = nn.feed() {name = "f"} : () -> v_tensor<[2, 2], f32>
    %x = nn.exp(%f) : (v_tensor<[2, 2], f32>) -> v_tensor<[2, 2], f32> loc("x")
    %y = nn.transpose(%x) {perm = [1, 0]} : (v_tensor<[2, 2], f32>) -> v_tensor<[2, 2], f32> loc("y")
    nn.fetch(%y) {name = "o"} : (v_tensor<[2, 2], f32>) -> ())",
     false},
    {"not_elementwise", R"(
    %f = nn.feed() {name = "f"} : () -> v_tensor<[4], f32>
    %x = nn.exp(%f) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("x")
    %y = nn.softmax(%x) {axis = 0} : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("y")
    nn.fetch(%y) {name = "o"} : (v_tensor<[4], f32>) -> ())",
     false},
    {"read_again_by_the_loop", R"(
    %n = builtin.constant() {value = tensor<[], i64> [3]} : () -> v_tensor<[], i64>
    %f = nn.feed() {name = "f"} : () -> v_tensor<[4], f32>
    %x = nn.exp(%f) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("x")
    %c = builtin.constant() {value = tensor<[], bool> [true]} : () -> v_tensor<[], bool>
    %l = cf.while(%n, %c, %f) ({
      ^(%i: v_tensor<[], i64>, %go: v_tensor<[], bool>, %a: v_tensor<[4], f32>):
      %y = nn.relu(%x) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("y")
      %s = nn.add(%y, %a) : (v_tensor<[4], f32>, v_tensor<[4], f32>) -> v_tensor<[4], f32>
      cf.yield(%go, %s) : (v_tensor<[], bool>, v_tensor<[4], f32>) -> ()
    }) : (v_tensor<[], i64>, v_tensor<[], bool>, v_tensor<[4], f32>) -> v_tensor<[4], f32>
    nn.fetch(%l) {name = "o"} : (v_tensor<[4], f32>) -> ())",
     false},
};
INSTANTIATE_TEST_SUITE_P(Cases, InPlace, ::testing::ValuesIn(kInPlaceCases),
                         [](const auto& c) { return std::string(c.param.name); });

TEST_F(MemoryPlanTest, InPlaceOpsAndViewsShareWhatTheyWrite) {
  const Program p = Parse(R"(
    %f = nn.feed() {name = "f"} : () -> v_tensor<[2, 2], f32>
    %t = builtin.to_tensor(%f) : (v_tensor<[2, 2], f32>) -> tensor<[2, 2], f32> loc("t")
    %v = nn.view_select(%t) {axis = 0, index = 1} : (tensor<[2, 2], f32>) -> tensor<[2], f32> loc("v")
    %w = nn.relu_(%v) : (tensor<[2], f32>) -> tensor<[2], f32> loc("w")
    %u = builtin.to_vtensor(%t) : (tensor<[2, 2], f32>) -> v_tensor<[2, 2], f32> loc("u")
    nn.fetch(%u) {name = "o"} : (v_tensor<[2, 2], f32>) -> ())");
  const MemoryPlan plan(p);
  const uint32_t t = plan.storage_of(Named(p, "t"));
  EXPECT_EQ(plan.storage_of(Named(p, "v")), t);
  EXPECT_EQ(plan.storage_of(Named(p, "w")), t);
  EXPECT_NE(plan.storage_of(Named(p, "u")), t) << "a copy";
  EXPECT_EQ(plan.storages()[t].bytes, 16u);
  ExpectSound(plan);
}

// The parameter is set before its old value is read for the last time.
TEST_F(MemoryPlanTest, AParameterThatIsSetIsCopied) {
  const Program p = Parse(R"(
    %w = builtin.get_parameter() {name = "w"} : () -> v_tensor<[4], f32>
    %n = nn.exp(%w) : (v_tensor<[4], f32>) -> v_tensor<[4], f32>
    builtin.set_parameter(%n) {name = "w"} : (v_tensor<[4], f32>) -> ()
    nn.fetch(%w) {name = "old"} : (v_tensor<[4], f32>) -> ())");
  const MemoryPlan plan(p);
  EXPECT_TRUE(plan.storages()[plan.storage_of(Named(p, "w"))].in_arena);
  ExpectSound(plan);
}

// A function runs at each of its calls, when other things are alive than where it stands.
TEST_F(MemoryPlanTest, AFunctionIsNoPartOfItsCallersPlan) {
  const Program p = Parse(R"(
    builtin.func() {name = "twice"} ({
      ^(%a: v_tensor<[4], f32>):
      %e = nn.exp(%a) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("inner")
      builtin.return(%e) : (v_tensor<[4], f32>) -> ()
    }) : () -> ()
    %x = nn.feed() {name = "x"} : () -> v_tensor<[4], f32>
    %y = nn.neg(%x) : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("y")
    %z = builtin.call(%y) {callee = "twice"} : (v_tensor<[4], f32>) -> v_tensor<[4], f32> loc("z")
    nn.fetch(%z) {name = "o"} : (v_tensor<[4], f32>) -> ())");
  const MemoryPlan plan(p);
  EXPECT_EQ(plan.storage_of(Named(p, "inner")), MemoryPlan::kNone);
  EXPECT_NE(plan.storage_of(Named(p, "z")), plan.storage_of(Named(p, "y")));
  EXPECT_EQ(plan.peak(), 128u);
  ExpectSound(plan);
}

TEST_F(MemoryPlanTest, SymbolsGetTheirSizes) {
  const Program p = Parse(R"(
    %x = nn.feed() {name = "x"} : () -> v_tensor<[N, 3], f64>
    %y = nn.exp(%x) : (v_tensor<[N, 3], f64>) -> v_tensor<[N, 3], f64> loc("y")
    nn.fetch(%y) {name = "o"} : (v_tensor<[N, 3], f64>) -> ())");
  EXPECT_EQ(MemoryPlan(p).dynamic().size(), 2u);
  const MemoryPlan plan(p, {.symbols = {{"N", 7}}});
  EXPECT_TRUE(plan.dynamic().empty());
  EXPECT_EQ(plan.storages()[plan.storage_of(Named(p, "y"))].bytes, 7u * 3 * 8);
  EXPECT_EQ(MemoryPlan(p, {.symbols = {{"N", 0}}}).peak(), 0u);
  const Error error = ErrorOf([&] { MemoryPlan(p, {.symbols = {{"M", 7}}}); });
  EXPECT_EQ(error.id(), "memory/symbol");
}

TEST_F(MemoryPlanTest, ADifferentRuleForWritingInPlace) {
  const Program p = Parse(kInPlaceCases[0].body);
  const MemoryPlan plan(p, {.in_place = [](const Operation*, size_t) { return false; }});
  EXPECT_NE(plan.storage_of(Named(p, "x")), plan.storage_of(Named(p, "y")));
}

// ---- random programs: the plan is sound, small, and keeps what the program computes ----

/// Straight-line programs of mixed element types with reads far back, reshapes and broadcasts.
std::string RandomProgram(uint32_t seed, int ops) {
  std::mt19937 random(seed);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const char* elements[] = {"f32", "i8", "f64"};
  const char* shapes[] = {"[4, 6]", "[6, 4]", "[1, 24]", "[4, 1]", "[]"};
  struct Made {
    int id;
    size_t element, shape;
  };
  std::string text;
  std::vector<Made> made;
  const auto type = [&](const Made& m) {
    return StrCat("v_tensor<", shapes[m.shape], ", ", elements[m.element], ">");
  };
  for (size_t e = 0; e < 3; ++e) {
    for (size_t s = 0; s < 4; ++s) {
      made.push_back({static_cast<int>(made.size()), e, s});
      text += StrCat("%", made.back().id, " = nn.feed() {name = \"x", made.back().id,
                     "\"} : () -> ", type(made.back()), "\n");
    }
  }
  for (int i = 0; i < ops; ++i) {
    // Mostly something recent, so that values die.
    const Made a = pick(4) == 0 ? made[pick(made.size())]
                                : made[made.size() - 1 - pick(std::min<size_t>(6, made.size()))];
    Made r{static_cast<int>(made.size()), a.element, a.shape};
    std::string op;
    switch (pick(6)) {
      case 0:
        op = StrCat("nn.neg(%", a.id, ") : (", type(a), ")");
        break;
      case 1: {
        if (a.shape > 2) continue;
        r.shape = 2;
        op = StrCat("nn.flatten(%", a.id, ") {axis = 0} : (", type(a), ")");
        break;
      }
      case 2: {
        if (a.shape > 1) continue;
        r.shape = 1 - a.shape;
        op = StrCat("nn.transpose(%", a.id, ") {perm = [1, 0]} : (", type(a), ")");
        break;
      }
      case 3: {
        r.element = pick(3);
        op = StrCat("nn.cast(%", a.id, ") {to = ", elements[r.element], "} : (", type(a), ")");
        break;
      }
      default: {
        const Made b = made[pick(made.size())];
        if (b.element != a.element || (b.shape != a.shape && (a.shape != 0 || b.shape != 3))) {
          continue;
        }
        op = StrCat(pick(2) == 0 ? "nn.sub(%" : "nn.mul(%", a.id, ", %", b.id, ") : (", type(a),
                    ", ", type(b), ")");
        break;
      }
    }
    made.push_back(r);
    text += StrCat("%", r.id, " = ", op, " -> ", type(r), "\n");
  }
  for (int i = 0; i < 3; ++i) {
    const Made& m = made[made.size() - 1 - pick(made.size() / 2)];
    text += StrCat("nn.fetch(%", m.id, ") {name = \"o", i, "\"} : (", type(m), ") -> ()\n");
  }
  return text;
}

NamedValues RandomInputs(const Program& program, uint32_t seed) {
  std::mt19937 random(seed);
  NamedValues inputs;
  for (Operation* feed : program.feeds()) {
    const auto type = feed->result(0).type().cast<AnyTensorType>();
    Tensor t(ElementType::kF32, *type.shape().Constants());
    for (float& v : t.mutable_data<float>()) v = static_cast<float>(random() % 200) - 100;
    inputs.emplace_back(feed->attribute("name").cast<StrAttribute>().value(),
                        Cast(t, type.element()));
  }
  return inputs;
}

TEST_F(MemoryPlanTest, RandomProgramsRunInTheirArena) {
  size_t shared = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Program p = Parse(RandomProgram(seed, 80));
    const MemoryPlan plan(p, {.alignment = seed % 2 == 0 ? size_t{64} : size_t{8}});
    ExpectSound(plan, seed % 2 == 0 ? 64 : 8);
    for (const auto& s : plan.storages()) shared += s.values.size() - 1;
    const NamedValues inputs = RandomInputs(p, seed);
    const NamedValues expected = Interpreter(p).Run(inputs);
    const NamedValues got = RunInArena(p, plan, inputs);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].second.tensor(), expected[i].second.tensor());
    }
  }
  EXPECT_GT(shared, 500u) << "the test would not test sharing";
}

// ---- packing ----

TEST(PackBlocksTest, RandomBlocksStayNearTheBound) {
  std::mt19937 random(7);
  size_t worst = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<MemoryBlock> blocks;
    for (uint32_t i = 0; i < 300; ++i) {
      const uint32_t length = random() % 10 == 0 ? random() % 100 : random() % 4;
      blocks.push_back({size_t{1} << (random() % 12), i, i + length});
    }
    const size_t bound = MaxLiveBytes(blocks, 16);
    const size_t peak = PackBlocks(blocks, 16);
    ASSERT_GE(peak, bound);
    worst = std::max(worst, peak * 1000 / bound);
    for (size_t i = 0; i < blocks.size(); ++i) {
      for (size_t k = i + 1; k < blocks.size() && blocks[k].begin <= blocks[i].end; ++k) {
        const MemoryBlock& a = blocks[i];
        const MemoryBlock& b = blocks[k];
        ASSERT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
      }
    }
  }
  EXPECT_LE(worst, 1100u);
}

TEST(PackBlocksTest, ManyLongLivesAreStillQuick) {
  std::vector<MemoryBlock> blocks;
  for (uint32_t i = 0; i < 100'000; ++i) blocks.push_back({64 + i % 7 * 64, i, 200'000});
  const size_t bound = MaxLiveBytes(blocks, 64);
  EXPECT_EQ(PackBlocks(blocks, 64), bound) << "all are alive at the end";
}

TEST(PackBlocksTest, ALongChainTakesTwoPlaces) {
  std::vector<MemoryBlock> blocks;
  for (uint32_t i = 0; i < 200'000; ++i) blocks.push_back({100, i, i + 1});
  EXPECT_EQ(PackBlocks(blocks, 64), 256u);
}

}  // namespace
}  // namespace lathe
