#include "test/differential/judge.h"

namespace lathe::testing {

namespace {

/// An entry of a new shape that is computed and 0 copies an extent in the interpreter, beside -1,
/// too; what is compiled refuses it.
bool RefusesToCopyExtent(const Error& error) {
  return error.id() == "shape/reshape-zero" || error.id() == "shape/reshape-infer";
}

Verdict JudgeError(const Expectation& wanted, const Error& error) {
  if (error.code() != ErrorCode::kInternal) {
    if (wanted.error()) return {};
    if (wanted.copies_extent() && RefusesToCopyExtent(error))
      return {.excuse = "graph with a computed 0 in a new shape"};
    if (wanted.vague()) return {.excuse = "graph with sizes that nothing tells"};
  }
  return {.finding = StrCat("error ", error.id()), .detail = error.Render()};
}

}  // namespace

Verdict Judge(const Expectation& wanted, const Outcome& got) {
  if (got.error) return JudgeError(wanted, *got.error);
  if (!wanted.error()) {
    const std::string difference = wanted.Difference(got.values);
    if (difference.empty()) return {};
    return {.finding = "differs", .detail = difference};
  }
  if (wanted.excused()) return {.excuse = "graph whose refused op nobody needs"};
  return {.finding = StrCat("accepted ", wanted.error()->id()),
          .detail = StrCat("but for ", wanted.error()->Render())};
}

}  // namespace lathe::testing
