#include <array>
#include <functional>

#include "lathe/dialect/loop/loop.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/schedule.h"
#include "lathe/pass/pass.h"
#include "lathe/support/error.h"

namespace lathe {

namespace {

// What a primitive is applied to.
struct Arguments {
  Operation* loop;
  int64_t factor;
  int64_t columns;
  int64_t axis;
  std::function<Value()> memory;   // of those that the loop touches
  std::function<Operation*()> at;  // another loop
};

struct Primitive {
  std::string_view name;
  void (*apply)(const Arguments& a);
};

constexpr std::array kPrimitives = {
    Primitive{"split", [](const Arguments& a) { schedule::Split(a.loop, a.factor); }},
    Primitive{"fuse", [](const Arguments& a) { schedule::Fuse(a.loop); }},
    Primitive{"interchange", [](const Arguments& a) { schedule::Interchange(a.loop); }},
    Primitive{"tile",
              [](const Arguments& a) {
                schedule::Tile(a.loop, a.factor, a.columns == 0 ? a.factor : a.columns);
              }},
    Primitive{"unroll", [](const Arguments& a) { schedule::Unroll(a.loop); }},
    Primitive{"parallel", [](const Arguments& a) { schedule::Parallel(a.loop); }},
    Primitive{"vectorize", [](const Arguments& a) { schedule::Vectorize(a.loop, a.factor); }},
    Primitive{
        "vectorize_turned",
        [](const Arguments& a) { schedule::VectorizeTurned(a.loop, static_cast<int>(a.factor)); }},
    Primitive{"cache_read", [](const Arguments& a) { schedule::CacheRead(a.loop, a.memory()); }},
    Primitive{"cache_write", [](const Arguments& a) { schedule::CacheWrite(a.loop, a.memory()); }},
    Primitive{"compute_at", [](const Arguments& a) { schedule::ComputeAt(a.loop, a.at()); }},
    Primitive{"pack",
              [](const Arguments& a) {
                schedule::Pack(a.memory(), static_cast<size_t>(a.axis), a.factor);
              }},
    Primitive{"tensorize", [](const Arguments& a) { schedule::Tensorize(a.loop); }},
};

}  // namespace

/// One primitive of a schedule, applied to one loop.
class SchedulePass : public Pass {
 protected:
  void ApplyImpl(Graph& graph) override {
    std::vector<Operation*> loops;
    for (OpWalker w(graph.program().module()); Operation* op = w.Next();) {
      if (op->isa<loop::ForOp>()) loops.push_back(op);
    }
    const std::string& wanted = option("do");
    Arguments arguments{Numbered(loops, "loop"),
                        option_int("factor"),
                        option_int("columns"),
                        option_int("axis"),
                        {},
                        {}};
    arguments.memory = [&]() { return Numbered(schedule::MemoriesOf(arguments.loop), "memory"); };
    arguments.at = [&]() { return Numbered(loops, "at", "loop"); };
    Find(wanted).apply(arguments);
    MarkChanged();
    Count(wanted);
  }

 private:
  // The one of the number that an option gives.
  template <class T>
  T Numbered(const std::vector<T>& all, const char* option, const char* what = nullptr) const {
    const int64_t number = option_int(option);
    if (what == nullptr) what = option;
    if (number >= 0 && number < static_cast<int64_t>(all.size())) {
      return all[static_cast<size_t>(number)];
    }
    throw Error(ErrorCode::kInvalidArgument, StrCat("schedule/", what),
                StrCat("there is no ", what, " ", number, "; there are ", all.size()));
  }

  static const Primitive& Find(const std::string& wanted) {
    std::vector<std::string_view> names;
    for (const Primitive& p : kPrimitives) {
      if (p.name == wanted) return p;
      names.push_back(p.name);
    }
    Error error(ErrorCode::kInvalidArgument, "schedule/primitive",
                StrCat("there is no primitive '", wanted, "'"));
    if (const std::string hint = DidYouMean(wanted, names); !hint.empty()) error.Hint(hint);
    throw std::move(error);
  }
};

REGISTER_PASS(schedule, SchedulePass)
    .Doc("transforms one loop of a lowered program: split, fuse, interchange, tile, unroll, ...")
    .Details(
        "Primitives keep what is computed: split, fuse, interchange, tile, unroll, parallel, "
        "vectorize, vectorize_turned, cache_read, cache_write, compute_at, pack, tensorize. One "
        "whose precondition does not hold is an error that shows the program with the loop marked. "
        "See include/lathe/lower/schedule.h.")
    .Option("do", PassOption::Kind::kString, "", "the primitive")
    .Option("loop", PassOption::Kind::kInt, "0", "which loop, in program order, outer ones first")
    .Option("factor", PassOption::Kind::kInt, "4",
            "iterations of the inner loop, rows of a tile, lanes, bytes of a turned vector")
    .Option("memory", PassOption::Kind::kInt, "0",
            "which memory outside of the loop that it touches, in order of the first access")
    .Option("axis", PassOption::Kind::kInt, "0", "of the memory, to pack")
    .Option("at", PassOption::Kind::kInt, "0", "the loop that computes what this one did")
    .Option("columns", PassOption::Kind::kInt, "0", "of a tile; 0: as many as rows");

}  // namespace lathe
