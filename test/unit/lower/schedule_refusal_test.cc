#include <algorithm>
#include <functional>

#include "lathe/dialect/loop/loop.h"
#include "lathe/lower/schedule.h"
#include "test/unit/lower/loop_text.h"
#include "test/unit/lower/lower_util.h"

namespace lathe::schedule {
namespace {

using Apply = std::function<void(const std::vector<Operation*>& loops, Operation* alloc)>;

struct Wrong {
  const char* message;
  std::string body;  // of a program with %x, 8 x 8 elements, %n and %i, integers, and %m, 8 x 8
  Apply apply;
};

const std::string kX = "v_tensor<[8, 8], f32>", kM = "tensor<[8, 8], f32>";

std::string Loops(const std::function<void(LoopText&)>& write) {
  LoopText loops;
  write(loops);
  return loops.text;
}

// Loops over all elements of %m, with those of %x.
void Fill(LoopText& t, int64_t rows = 8) {
  t.For(rows, [&](const std::string& i) {
    t.For(8, [&](const std::string& j) { t.Store("%m", kM, t.Load("%x", kX, {i, j}), {i, j}); });
  });
}

// A loop that reads column 0 of %m and writes column 1 of %o.
void Read(LoopText& t) {
  t.For(8, [&](const std::string& i) {
    t.Store("%o", kM, t.Load("%m", kM, {i, "%zero"}), {i, "%one"});
  });
}

std::string Text(const std::string& body) {
  return StrCat("program {\n%x = nn.feed() {name = \"x\"} : () -> ", kX,
                "\n%n = nn.feed() {name = \"n\"} : () -> ", kI, "\n%m = loop.alloc() : () -> ", kM,
                "\n%o = loop.alloc() : () -> ", kM, "\n%p = loop.alloc() : () -> tensor<[], f32>\n",
                "%zero = builtin.constant() {value = tensor<[], i64> [0]} : () -> ", kI,
                "\n%one = builtin.constant() {value = tensor<[], i64> [1]} : () -> ", kI, "\n",
                body, "%y = builtin.to_vtensor(%o) : (", kM, ") -> ", kX,
                "\nnn.fetch(%y) {name = \"y\"} : (", kX, ") -> ()\n}\n");
}

class RefusalTest : public lower::LowerTest {
 protected:
  // The error names the reason, marks a line, and nothing has changed.
  void Expect(const Wrong& r) {
    Program program = ParseProgram(context_, Text(r.body), {.file_locations = false});
    const std::string before = Print(program);
    std::vector<Operation*> loops;
    std::vector<Operation*> allocs;
    for (OpWalker w(program.module()); Operation* op = w.Next();) {
      if (op->isa<loop::ForOp>()) loops.push_back(op);
      if (op->name() == "loop.alloc") allocs.push_back(op);
    }
    try {
      r.apply(loops, allocs[0]);
      ADD_FAILURE() << "not refused: " << r.message << "\n" << Print(program);
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "lower/schedule");
      EXPECT_EQ(error.message().substr(error.message().find(": ") + 2), r.message) << r.body;
      const std::string shown = error.notes().empty() ? "" : error.notes()[0].text;
      const auto marked = std::count(shown.begin(), shown.end(), '>') > 0 &&
                          shown.find("\n-> ") != std::string::npos;
      EXPECT_TRUE(marked) << r.message << "\n" << shown;
      EXPECT_EQ(shown.find("schedule_refused"), std::string::npos) << shown;
    }
    EXPECT_EQ(Print(program), before);
  }
};

Apply ReadOf(size_t loop) {
  return [loop](const auto& loops, auto*) { CacheRead(loops[loop], MemoriesOf(loops[loop])[0]); };
}
Apply WriteOf(size_t loop) {
  return [loop](const auto& loops, auto* m) { CacheWrite(loops[loop], m->result(0)); };
}
Apply MoveTo(size_t loop) {
  return [loop](const auto& loops, auto*) { ComputeAt(loops[0], loops[loop]); };
}
Apply PackIt(size_t axis = 0, int64_t factor = 4) {
  return [=](const auto&, auto* m) { Pack(m->result(0), axis, factor); };
}

TEST_F(RefusalTest, Caches) {
  const std::string load = StrCat("loop.load(%x, none, %i, %zero) {lanes = 4} : (", kX, ", none, ",
                                  kI, ", ", kI, ") -> v_tensor<[4], f32>\n");
  const auto loop = [&](const std::string& head, const std::string& body) {
    return StrCat("loop.for", head, " ({\n^(%i: ", kI, "):\n", body, "cf.yield()\n})",
                  head.starts_with("(%n)") ? StrCat(" : (", kI, ") -> ()") : "", "\n");
  };
  const std::string read = StrCat("%v = loop.load(%x, none, %i, %zero) : (", kX, ", none, ", kI,
                                  ", ", kI, ") -> ", kF, "\n");
  const Wrong cases[] = {
      {"loop.alloc is not a loop", "", [](const auto&, auto* m) { CacheRead(m, m->result(0)); }},
      {"the loop does not touch that memory", Loops([](LoopText& t) { Fill(t); }),
       [](const auto& l, auto* m) { CacheRead(l[0], m->next()->result(0)); }},
      {"the memory is the loop's own",
       loop("() {extent = 3}", StrCat("%q = loop.alloc() : () -> ", kM, "\n")),
       [](const auto& l, auto*) { CacheRead(l[0], l[0]->region(0).front()->front()->result(0)); }},
      {"loop.gather reaches the memory in another way",
       loop("() {extent = 3}",
            read + StrCat("%k = builtin.constant() {value = tensor<[2], i64> [1, 2]} : () -> "
                          "v_tensor<[2], i64>\n%g = loop.gather(%x, none, %i, %k) : (",
                          kX, ", none, ", kI, ", v_tensor<[2], i64>) -> v_tensor<[2], f32>\n")),
       ReadOf(0)},
      {"some lanes of an access are not live",
       loop("() {extent = 3}", StrCat("%v = loop.load(%x, %i, %i, %zero) {lanes = 4} : (", kX, ", ",
                                      kI, ", ", kI, ", ", kI, ") -> v_tensor<[4], f32>\n")),
       ReadOf(0)},
      {"a loop around an access is not of constant extent", loop("(%n)", read), ReadOf(0)},
      {"a loop around an access never runs", loop("() {extent = 0}", read), ReadOf(0)},
      {"an index is not made of counters of loops",
       loop("() {extent = 3}", StrCat("%k = nn.add(%i, %i) : (", kI, ", ", kI, ") -> ", kI,
                                      "\n%v = loop.load(%x, none, %k, %zero) : (", kX, ", none, ",
                                      kI, ", ", kI, ") -> ", kF, "\n")),
       ReadOf(0)},
      {"how many elements are touched is not constant",
       loop("() {extent = 3}", StrCat("%k = loop.index(%i, %n) {expr = dim<d0 * d1>} : (", kI, ", ",
                                      kI, ") -> ", kI, "\n%v = loop.load(%x, none, %k, %zero) : (",
                                      kX, ", none, ", kI, ", ", kI, ") -> ", kF, "\n")),
       ReadOf(0)},
      {"places that it touches are not a constant distance apart",
       loop("() {extent = 3}", read + StrCat("%w = loop.load(%x, none, %n, %zero) : (", kX,
                                             ", none, ", kI, ", ", kI, ") -> ", kF, "\n")),
       ReadOf(0)},
      {"the memory is one element",
       loop("() {extent = 3}",
            StrCat("%v = loop.load(%p, none) : (tensor<[], f32>, none) -> ", kF, "\n")),
       ReadOf(0)},
      {"what a store gives is used",
       loop("() {extent = 3}",
            StrCat(read, "%s = loop.store_(%m, %v, none, %i, %i) : (", kM, ", ", kF, ", none, ", kI,
                   ", ", kI, ") -> ", kM, "\n%w = loop.load(%s, none, %i, %i) : (", kM, ", none, ",
                   kI, ", ", kI, ") -> ", kF, "\n")),
       WriteOf(0)},
      {"the loop stores in that memory", Loops([](LoopText& t) { Fill(t); }),
       [](const auto& l, auto* m) { CacheRead(l[0], m->result(0)); }},
      {"the loop does not store in that memory", Loops([](LoopText& t) { Read(t); }), WriteOf(0)},
      {"a parallel loop around it stores in that memory",
       loop("() {extent = 3, parallel = true}", Loops([&](LoopText& t) {
              t.For(2, [&](const std::string& j) { t.Load("%m", kM, {"%i", j}); });
              t.Store("%m", kM, t.Load("%x", kX, {"%i", "%zero"}), {"%i", "%one"});
            })),
       [](const auto& l, auto* m) { CacheRead(l[1], m->result(0)); }},
      {"other iterations of a parallel loop may store between the elements that it stores",
       loop("() {extent = 2, parallel = true}", Loops([&](LoopText& t) {
              t.For(3, [&](const std::string& j) {
                const std::string v = t.Load("%x", kX, {"%i", j});
                t.Store("%m", kM, v, {"%zero", t.Index({"%i", j}, {1, 2}, 0)});
              });
            })),
       [](const auto& l, auto* m) { CacheWrite(l[1], m->result(0)); }},
  };
  for (const Wrong& r : cases) Expect(r);
}

TEST_F(RefusalTest, ComputeAt) {
  const auto both = [](const std::function<void(LoopText&)>& producer) {
    return Loops([&](LoopText& t) {
      producer(t);
      Read(t);
    });
  };
  const Wrong cases[] = {
      {"loop.alloc is not a loop", both([](LoopText& t) { Fill(t); }),
       [](const auto& l, auto* m) { ComputeAt(l[0], m); }},
      {"the loops that compute the memory carry values", both([](LoopText& t) {
         t.Sum(3, [&](const std::string& k) { return t.Load("%x", kX, {k, k}); });
       }),
       MoveTo(1)},
      {"the loops store more than once", both([](LoopText& t) {
         t.For(8, [&](const std::string& i) {
           const std::string v = t.Load("%x", kX, {i, i});
           t.Store("%m", kM, v, {i, "%zero"});
           t.Store("%m", kM, v, {i, "%one"});
         });
       }),
       MoveTo(1)},
      {"the loops store nothing",
       both([](LoopText& t) { t.For(8, [&](const std::string& i) { t.Load("%x", kX, {i, i}); }); }),
       MoveTo(1)},
      {"the store is not in the innermost loop", both([](LoopText& t) {
         t.For(8, [&](const std::string& i) {
           t.Index({i}, {1}, 0);
           t.For(8, [&](const std::string& j) {
             t.Store("%m", kM, t.Load("%x", kX, {i, j}), {i, j});
           });
         });
       }),
       MoveTo(2)},
      {"an iteration does not compute the element of its number",
       both([](LoopText& t) { Fill(t, 7); }), MoveTo(2)},
      {"an element is computed more than once",
       both([](LoopText& t) { t.For(3, [&](const std::string&) { Fill(t); }); }), MoveTo(3)},
      {"it is not the function's own memory",
       StrCat("%z = nn.feed() {name = \"z\"} : () -> ", kM, "\n", both([](LoopText& t) {
                t.For(8, [&](const std::string& i) {
                  t.Store("%z", kM, t.Load("%x", kX, {i, i}), {i, i});
                });
              })),
       MoveTo(1)},
      {"the loop is not behind those that compute it", Loops([](LoopText& t) {
         Fill(t);
         Read(t);
       }),
       [](const auto& l, auto*) { ComputeAt(l[0], l[1]); }},
      {"what it is computed from is stored in meanwhile", both([](LoopText& t) {
         t.For(8, [&](const std::string& i) {
           t.For(8, [&](const std::string& j) {
             t.Store("%m", kM, t.Load("%o", kM, {i, j}), {i, j});
           });
         });
       }),
       MoveTo(2)},
      {"loop.load outside of the loop uses the memory",
       both([](LoopText& t) { Fill(t); }) +
           Loops([](LoopText& t) { t.Load("%m", kM, {"%zero", "%one"}); }),
       MoveTo(2)},
      {"the loop stores in that memory", Loops([](LoopText& t) {
         Fill(t);
         t.For(8,
               [&](const std::string& i) { t.Store("%m", kM, t.Load("%x", kX, {i, i}), {i, i}); });
       }),
       MoveTo(2)},
  };
  for (const Wrong& r : cases) Expect(r);
}

TEST_F(RefusalTest, Pack) {
  const std::string fill = Loops([](LoopText& t) { Fill(t); });
  const Wrong cases[] = {
      {"it is not the function's own memory", fill,
       [](const auto& l, auto*) { Pack(MemoriesOf(l[0])[0], 0, 4); }},
      {"there is no axis 2; the rank is 2", fill, PackIt(2)},
      {"the factor is 0", fill, PackIt(0, 0)},
      {"builtin.to_vtensor takes all of it", fill,
       [](const auto&, auto* m) { Pack(m->next()->result(0), 0, 4); }},
      {"an extent of it is asked for",
       fill + StrCat("%d = loop.dim(%m) {axis = 0} : (", kM, ") -> ", kI, "\n"), PackIt()},
      {"there are vectors already",
       StrCat("%v = loop.load(%m, none, %zero, %zero) {lanes = 4} : (", kM, ", none, ", kI, ", ",
              kI, ") -> v_tensor<[4], f32>\n"),
       PackIt()},
      {"what a store gives is used",
       StrCat("%v = loop.load(%x, none, %zero, %zero) : (", kX, ", none, ", kI, ", ", kI, ") -> ",
              kF, "\n%s = loop.store_(%m, %v, none, %zero, %zero) : (", kM, ", ", kF, ", none, ",
              kI, ", ", kI, ") -> ", kM, "\n%w = loop.load(%s, none, %one, %one) : (", kM,
              ", none, ", kI, ", ", kI, ") -> ", kF, "\n"),
       PackIt()},
  };
  for (const Wrong& r : cases) Expect(r);
}

// Whatever reads a memory that other iterations store in.
TEST_F(RefusalTest, Parallel) {
  const std::string store =
      StrCat("%v = loop.load(%x, none, %i, %zero) : (", kX, ", none, ", kI, ", ", kI, ") -> ", kF,
             "\n%s = loop.store_(%m, %v, none, %i, %zero) : (", kM, ", ", kF, ", none, ", kI, ", ",
             kI, ") -> ", kM, "\n");
  const std::string gather = StrCat(
      "%k = builtin.constant() {value = tensor<[2], i64> [1, 2]} : () -> v_tensor<[2], i64>\n",
      "%g = loop.gather(%m, none, %i, %k) : (", kM, ", none, ", kI,
      ", v_tensor<[2], i64>) -> v_tensor<[2], f32>\n");
  const std::string tile =
      StrCat("%t = loop.tile_load(%m, %zero, %zero) {rows = 2, columns = 2} : (", kM, ", ", kI,
             ", ", kI, ") -> v_tensor<[2, 2], f32>\n");
  for (const std::string& read : {gather, tile}) {
    Expect(
        {"an iteration may read what another one stores",
         StrCat("loop.for() {extent = 3} ({\n^(%i: ", kI, "):\n", store, read, "cf.yield()\n})\n"),
         [](const auto& l, auto*) { Parallel(l[0]); }});
  }
}

}  // namespace
}  // namespace lathe::schedule
