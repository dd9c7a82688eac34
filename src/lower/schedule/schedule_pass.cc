#include <array>

#include "lathe/dialect/loop/loop.h"
#include "lathe/ir/walk.h"
#include "lathe/lower/schedule.h"
#include "lathe/pass/pass.h"
#include "lathe/support/error.h"

namespace lathe {

namespace {

struct Primitive {
  std::string_view name;
  void (*apply)(Operation* loop, int64_t factor, int64_t columns);
};

constexpr std::array kPrimitives = {
    Primitive{"split", [](Operation* l, int64_t factor, int64_t) { schedule::Split(l, factor); }},
    Primitive{"fuse", [](Operation* l, int64_t, int64_t) { schedule::Fuse(l); }},
    Primitive{"interchange", [](Operation* l, int64_t, int64_t) { schedule::Interchange(l); }},
    Primitive{"tile",
              [](Operation* l, int64_t rows, int64_t columns) {
                schedule::Tile(l, rows, columns == 0 ? rows : columns);
              }},
    Primitive{"unroll", [](Operation* l, int64_t, int64_t) { schedule::Unroll(l); }},
    Primitive{"parallel", [](Operation* l, int64_t, int64_t) { schedule::Parallel(l); }},
    Primitive{"vectorise",
              [](Operation* l, int64_t factor, int64_t) { schedule::Vectorise(l, factor); }},
    Primitive{"vectorise_turned",
              [](Operation* l, int64_t factor, int64_t) {
                schedule::VectoriseTurned(l, static_cast<int>(factor));
              }},
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
    const int64_t number = option_int("loop");
    if (number < 0 || number >= static_cast<int64_t>(loops.size())) {
      throw Error(ErrorCode::kInvalidArgument, "schedule/loop",
                  StrCat("there is no loop ", number, "; the program has ", loops.size()));
    }
    Find(wanted).apply(loops[static_cast<size_t>(number)], option_int("factor"),
                       option_int("columns"));
    MarkChanged();
    Count(wanted);
  }

 private:
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
        "vectorise, vectorise_turned. One whose precondition does not hold is an error that shows "
        "the program with the loop marked. See include/lathe/lower/schedule.h.")
    .Option("do", PassOption::Kind::kString, "", "the primitive")
    .Option("loop", PassOption::Kind::kInt, "0", "which loop, in program order, outer ones first")
    .Option("factor", PassOption::Kind::kInt, "4",
            "iterations of the inner loop, rows of a tile, lanes, bytes of a turned vector")
    .Option("columns", PassOption::Kind::kInt, "0", "of a tile; 0: as many as rows");

}  // namespace lathe
