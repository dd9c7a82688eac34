#include "lathe/lower/schedule.h"

#include <algorithm>
#include <functional>
#include <map>

#include "lathe/dialect/loop/loop.h"
#include "test/unit/lower/loop_text.h"
#include "test/unit/lower/lower_util.h"

namespace lathe::schedule {
namespace {

// An index made of counters that stays within `extent`.
struct Affine {
  std::vector<int64_t> factors;
  int64_t offset = 0;
  int64_t extent = 1;
};

Affine Draw(RandomStream& random, const std::vector<int64_t>& extents) {
  Affine index;
  index.offset = random.Int(0, 2);
  index.extent = index.offset + 1;
  for (const int64_t n : extents) {
    index.factors.push_back(random.Int(0, 2) == 0 ? 0 : random.Int(1, 3));
    index.extent += index.factors.back() * (n - 1);
  }
  return index;
}

// Two stages: %t from %a, element by element, then %r from sums or products of elements of %t.
lower::Case DrawNests(RandomStream& random) {
  LoopText loops;
  const std::vector<int64_t> outer = {random.Int(2, 7), random.Int(2, 7)};
  const bool sums = random.Int(0, 1) == 0;
  std::vector<int64_t> all = outer;
  if (sums) all.push_back(random.Int(2, 4));
  Affine row = Draw(random, all), column = Draw(random, all);
  if (random.Int(0, 2) == 0) row = {{0, 1, 0}, 0, outer[1]}, column = {{1, 0, 0}, 0, outer[0]};
  const std::vector<int64_t> middle = {row.extent, column.extent};
  Affine from = Draw(random, middle);
  if (random.Int(0, 2) == 0) from = {{1, middle[0]}, 0, middle[0] * middle[1]};
  const std::string a = StrCat("v_tensor<[", from.extent, "], f32>");
  const std::string t_dims = StrCat(row.extent, ", ", column.extent);
  const std::string t_type = StrCat("tensor<[", t_dims, "], f32>");
  const bool turned = random.Int(0, 1) == 0;
  const std::string m_dims = StrCat(outer[turned ? 1 : 0], ", ", outer[turned ? 0 : 1]);
  const std::string m_type = StrCat("tensor<[", m_dims, "], f32>");
  const std::string t = loops.Alloc(t_dims), m = loops.Alloc(m_dims);
  loops.For(middle[0], [&](const std::string& i) {
    loops.For(middle[1], [&](const std::string& j) {
      const std::string v = loops.Load("%a", a, {loops.Index({i, j}, from.factors, from.offset)});
      loops.Store(t, t_type, loops.Binary("nn.mul", v, v), {i, j});
    });
  });
  loops.For(outer[0], [&](const std::string& i) {
    loops.For(outer[1], [&](const std::string& j) {
      const auto element = [&](const std::vector<std::string>& at) {
        return loops.Load(t, t_type,
                          {loops.Index(at, row.factors, row.offset),
                           loops.Index(at, column.factors, column.offset)});
      };
      const std::string v =
          sums ? loops.Sum(all[2], [&](const std::string& k) { return element({i, j, k}); })
               : element({i, j});
      if (turned) {
        loops.Store(m, m_type, v, {j, i});
      } else {
        loops.Store(m, m_type, v, {i, j});
      }
    });
  });
  const std::string result = StrCat("v_tensor<[", m_dims, "], f32>");
  loops.text += StrCat("%r = builtin.to_vtensor(", m, ") : (", m_type, ") -> ", result, "\n");
  return {{a}, loops.text, result};
}

std::vector<Operation*> LoopsOf(Operation* function) {
  std::vector<Operation*> loops;
  for (OpWalker w(function); Operation* op = w.Next();) {
    if (op->isa<loop::ForOp>()) loops.push_back(op);
  }
  return loops;
}

struct Primitive {
  const char* name;
  std::function<void(Operation* loop, Operation* other, RandomStream& random)> apply;
};

Value DrawMemory(const Operation* loop, RandomStream& random) {
  const std::vector<Value> memories = MemoriesOf(loop);
  if (memories.empty()) throw Error(ErrorCode::kInvalidArgument, "lower/schedule", "no memory");
  return memories[static_cast<size_t>(random.Int(0, static_cast<int64_t>(memories.size()) - 1))];
}

const std::vector<Primitive>& Primitives() {
  static const std::vector<Primitive> kAll = {
      {"split", [](auto* l, auto*, auto& r) { Split(l, r.Int(1, 4)); }},
      {"fuse", [](auto* l, auto*, auto&) { Fuse(l); }},
      {"interchange", [](auto* l, auto*, auto&) { Interchange(l); }},
      {"tile", [](auto* l, auto*, auto& r) { Tile(l, r.Int(1, 3), r.Int(1, 3)); }},
      {"unroll", [](auto* l, auto*, auto&) { Unroll(l); }},
      {"parallel", [](auto* l, auto*, auto&) { Parallel(l); }},
      {"vectorize", [](auto* l, auto*, auto&) { Vectorize(l, 4); }},
      {"vectorize_turned", [](auto* l, auto*, auto&) { VectorizeTurned(l, 16); }},
      {"cache_read", [](auto* l, auto*, auto& r) { CacheRead(l, DrawMemory(l, r)); }},
      {"cache_write", [](auto* l, auto*, auto& r) { CacheWrite(l, DrawMemory(l, r)); }},
      {"compute_at", [](auto* l, auto* other, auto&) { ComputeAt(l, other); }},
      {"pack",
       [](auto* l, auto*, auto& r) {
         Pack(DrawMemory(l, r), static_cast<size_t>(r.Int(0, 1)), r.Int(1, 4));
       }},
  };
  return kAll;
}

class ScheduleTest : public lower::LowerTest {
 protected:
  Program Parse(const lower::Case& c) {
    return ParseProgram(context_, ProgramOf(c), {.file_locations = false});
  }
  std::map<std::string, int> applied_, refused_;

  // Random primitives on random loops keep what the program computes, in the interpreter after each
  // one, and as code at the end.
  void Run(uint64_t seed) {
    RandomStream random(seed);
    Program program = Parse(DrawNests(random));
    const NamedValues inputs = Inputs(program);
    const Tensor wanted = Interpreter(program).Run(inputs)[0].second.tensor();
    Operation* function = codegen::FirstFunction(program);
    std::string done;
    for (int step = 0; step < 8; ++step) {
      const auto loops = LoopsOf(function);
      if (loops.empty() || loops.size() > 60) break;
      const auto draw = [&]() {
        if (random.Int(0, 2) == 0) return loops[0];
        return loops[static_cast<size_t>(random.Int(0, static_cast<int64_t>(loops.size()) - 1))];
      };
      const size_t which =
          static_cast<size_t>(random.Int(0, static_cast<int64_t>(Primitives().size()) - 1));
      const Primitive& primitive = Primitives()[which];
      const std::string before = Print(program);
      try {
        Operation* loop = draw();
        primitive.apply(loop, draw(), random);
      } catch (const Error& error) {
        ASSERT_STREQ(error.id().c_str(), "lower/schedule") << error.what();
        ASSERT_EQ(Print(program), before) << "refused, but changed: " << primitive.name;
        ++refused_[primitive.name];
        continue;
      }
      ++applied_[primitive.name];
      done += StrCat(" ", primitive.name);
      VerifyOrThrow(program);
      ASSERT_EQ(Interpreter(program).Run(inputs)[0].second.tensor(), wanted)
          << "seed " << seed << " after" << done << "\n"
          << before << Print(program);
    }
    const codegen::CompiledKernel kernel(function->region(0).front(), codegen::Target::Host());
    const Tensor got = kernel.Call({inputs[0].second.tensor()}, {ZeroLike(wanted)})[0];
    ASSERT_EQ(got, wanted) << "code, seed " << seed << " after" << done << Print(program);
  }
};

// A nest stays perfect: its next primitive finds the loops.
TEST_F(ScheduleTest, InterchangeComputesExtentsOutside) {
  LoopText loops;
  const std::string x = "v_tensor<[N, 3, 4], f32>", m = "tensor<[N, 3, 4], f32>";
  const std::string n = "%n0";
  loops.text += StrCat("%n0 = loop.dim(%a) {axis = 0} : (", x, ") -> ", kI,
                       "\n%three = loop.index() {expr = dim<3>} : () -> ", kI,
                       "\n%four = loop.index() {expr = dim<4>} : () -> ", kI,
                       "\n%m = loop.alloc(%n0, %three, %four) : (", kI, ", ", kI, ", ", kI, ") -> ",
                       m, "\n%less = loop.index(%n0) {expr = dim<max(d0 - 1, 0)>} : (", kI, ") -> ",
                       kI, "\nloop.for(%less) ({\n^(%i: ", kI, "):\n");
  loops.For(3, [&](const std::string& j) {
    loops.Store("%m", m, loops.Load("%a", x, {"%i", j, j}), {"%i", j, j});
  });
  loops.text += StrCat("cf.yield()\n}) : (", kI, ") -> ()\n%r = builtin.to_vtensor(%m) : (", m,
                       ") -> ", x, "\n");
  Program program = Parse({{x}, loops.text, x});
  Operation* function = codegen::FirstFunction(program);
  Operation* outer = LoopsOf(function)[0];
  ASSERT_EQ(WhyNotInterchange(outer), "");
  Operation* first = Interchange(outer);
  EXPECT_NE(PerfectlyNested(first), nullptr);
  VerifyOrThrow(program);
}

TEST_F(ScheduleTest, NoLoopIsRefused) {
  EXPECT_EQ(WhyNotFuse(nullptr), "there is no loop");
  EXPECT_EQ(WhyNotInterchange(nullptr), "there is no loop");
  EXPECT_EQ(WhyNotUnroll(nullptr), "there is no loop");
  EXPECT_EQ(WhyNotParallel(nullptr), "there is no loop");
  EXPECT_EQ(WhyNotVectorizeTurned(nullptr), "there is no loop");
}

TEST_F(ScheduleTest, RandomSchedulesKeepWhatIsComputed) {
  for (uint64_t seed = 1; seed <= 100 && !HasFatalFailure(); ++seed) Run(seed);
  for (const Primitive& p : Primitives()) {
    EXPECT_GT(applied_[p.name], 0) << p.name;
    EXPECT_GT(refused_[p.name] + (std::string(p.name) == "split" ? 1 : 0), 0) << p.name;
  }
}

}  // namespace
}  // namespace lathe::schedule
