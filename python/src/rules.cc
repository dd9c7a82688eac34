#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "lathe/ir/verify.h"
#include "lathe/pass/rule.h"
#include "python/src/attributes.h"
#include "python/src/interrupts.h"
#include "python/src/lent.h"
#include "python/src/values.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

// What a rule has found, for functions of Python; valid while they run.
class Match {
 public:
  Match(const RuleMatch& match, Holder holder) : match_(&match), holder_(std::move(holder)) {}

  const RuleMatch& get() const {
    const ReadLock lock(*holder_);  // throws if it has ended
    return *match_;
  }
  std::optional<ValueView> value(const std::string& name) const {
    const Value v = get()[name];
    return v ? std::optional(ViewOf(holder_, v)) : std::nullopt;
  }
  OpView root() const { return ViewOf(holder_, get().root()); }
  nb::object constant(const std::string& name) const {
    return ObjectOf(RtValue(get().constant(name)));
  }
  nb::object attribute(const std::string& name) const {
    const Attribute a = get().attribute(name);
    return a ? AttributeObject(a) : nb::none();
  }
  const Holder& holder() const { return holder_; }

 private:
  const RuleMatch* match_;
  Holder holder_;
};

AttrLiteral LiteralOf(nb::handle value, const std::string& name) {
  if (PyBool_Check(value.ptr())) return nb::cast<bool>(value);
  if (PyLong_Check(value.ptr())) return nb::cast<int64_t>(value);
  if (PyFloat_Check(value.ptr())) return nb::cast<double>(value);
  if (PyUnicode_Check(value.ptr())) return nb::cast<std::string>(value);
  std::vector<int64_t> ints;
  if (nb::try_cast(value, ints)) return ints;
  throw Error(ErrorCode::kType, "type/python",
              StrCat("attribute '", name,
                     "' of a pattern is a bool, a number, a str or a list of integers, not ",
                     nb::cast<std::string>(nb::repr(value))));
}

Pat Called(const std::string& op, const std::vector<Pat>& operands, const nb::dict& attributes) {
  Pat pattern = pat::Call(op, operands);
  for (const auto& [key, value] : attributes) {
    const auto name = nb::cast<std::string>(key);
    pattern = pattern.With(name, LiteralOf(value, name));
  }
  return pattern;
}

// `match => function(match)` for a rule of that name; what it gives is for `use`.
template <class Use>
auto CallOnMatch(const std::string& what, const Kept& function, const RuleMatch& match,
                 Rewriter* rewriter, Use use) {
  return CallPython(what, [&] {
    const Lent lent(match.program(), nullptr, rewriter);
    const nb::object result = (*function)(Match(match, lent.holder()));
    return use(result, lent.holder());
  });
}

Value MadeBy(nb::handle result, const Holder& holder, const std::string& what) {
  if (result.is_none()) return {};
  ValueView view;
  if (nb::try_cast(result, view) && view.holder == holder) return view.get().item;
  throw Error(ErrorCode::kType, "python/result",
              StrCat(what, " gave ", nb::cast<std::string>(nb::repr(result)),
                     "; it gives a value of the program, or None"));
}

void Where(Rule& rule, nb::object function) {
  const std::string who = StrCat("a condition of rule '", rule.name(), "'");
  rule.Where(
      [who, kept = Keep(std::move(function))](const RuleMatch& match) {
        return CallOnMatch(who, kept, match, nullptr, [](const nb::object& result, const Holder&) {
          const int truth = PyObject_IsTrue(result.ptr());
          if (truth < 0) throw nb::python_error();
          return truth == 1;
        });
      },
      "the condition of the rule holds");
}

void ReplaceBy(Rule& rule, nb::object function) {
  const std::string who = StrCat("rule '", rule.name(), "'");
  rule.Replace(Rule::Maker(
      [who, kept = Keep(std::move(function))](const RuleMatch& match, Rewriter& rewriter) {
        return CallOnMatch(who, kept, match, &rewriter,
                           [&](const nb::object& result, const Holder& holder) {
                             return MadeBy(result, holder, who);
                           });
      }));
}

// Rules of the library that do not come to an end are bugs; those of users are theirs.
int64_t ApplyTo(Program& program, Pass* pass, const std::vector<Rule>& rules) {
  try {
    return ApplyRules(program, pass, rules);
  } catch (const Error& error) {
    if (error.id() != "pass/no-convergence") throw;
    throw Error(ErrorCode::kInvalidArgument, error.id(), error.message())
        .Hint("what a rule makes must not be what it, or another, finds");
  }
}

// In a pass its program is changed in place; elsewhere a copy takes the place of it.
int64_t Apply(const Holder& holder, const std::vector<Rule>& rules) {
  int64_t count = 0;
  if (holder->lent == nullptr) {
    ChangeCopy(holder, [&](Program& program) {
      count = ApplyTo(program, nullptr, rules);
      VerifyOrThrow(program);
    });
    return count;
  }
  (void)ReadLock(*holder);
  if (holder->rewriter != nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "program/lent", "rules do not apply within a rule");
  }
  WithoutLock([&] { count = ApplyTo(holder->program(), holder->pass, rules); });
  const WriteLock lock(*holder);
  Replaced(*holder);
  return count;
}

Rule MakeRule(const std::string& name, const Pat& source, nb::handle result, nb::handle where,
              int benefit, bool any_extents) {
  Rule rule(name, benefit);
  rule.Match(source);
  if (!where.is_none()) Where(rule, nb::borrow(where));
  if (any_extents) rule.AnyExtents();
  if (nb::isinstance<Pat>(result)) {
    rule.Replace(nb::cast<Pat>(result));
  } else {
    ReplaceBy(rule, nb::borrow(result));
  }
  return rule;
}

void BindPattern(nb::module_& m) {
  nb::class_<Pat>(m, "Pattern",
                  "What a rule looks for, or makes: operators of lathe.nn applied to patterns.")
      .def("named", &Pat::As, nb::arg("name"), "Binds the value; one name is one value.")
      .def("carry", &Pat::Carry, nb::arg("attribute"), nb::arg("name") = "",
           "Source: the attribute may be any, and is remembered. Result: it gets what is "
           "remembered.")
      .def("any_attributes", &Pat::AnyAttributes,
           "Attributes that are not mentioned may have any value; else they have their defaults.")
      .def("shared", &Pat::Shared, "The value may be used elsewhere, too; then it stays.")
      .def("result", &Pat::Result, nb::arg("index"), "Another result than the first.")
      .def_static("_call", Called, nb::arg("op"), nb::arg("operands"), nb::arg("attributes"),
                  nb::sig("def _call(op: str, operands: collections.abc.Sequence[Pattern], "
                          "attributes: dict[str, typing.Any]) -> Pattern"))
      .def_static("var", pat::Var, nb::arg("name"), "Any value.")
      .def_static("maybe", pat::Maybe, nb::arg("name"), "Any value, or an absent operand.")
      .def_static("absent", pat::Absent, "An absent operand.")
      .def_static("const", pat::Const, nb::arg("name"),
                  "Any constant or weight; see Match.constant.")
      .def_static("scalar", nb::overload_cast<std::string>(pat::Scalar), nb::arg("name"),
                  "Any constant of one element; see Match.scalar.")
      .def_static("number", nb::overload_cast<double>(pat::Scalar), nb::arg("value"),
                  "A constant of one element near this number.")
      .def_static("either", pat::Either, nb::arg("patterns"), "The first of these that fits.")
      .def("__repr__", [](const Pat&) { return "<lathe.Pattern>"; });
}

}  // namespace

void BindRules(nb::module_& m) {
  BindPattern(m);
  nb::class_<Match>(m, "Match", "What a rule has found; valid while its function runs.")
      .def("__getitem__", &Match::value, "The value of that name; None if it is absent.")
      .def_prop_ro("root", &Match::root, "The operation that is replaced.")
      .def_prop_ro("program", &Match::holder, "Where operations are built.")
      .def(
          "scalar", [](const Match& m_, const std::string& name) { return m_.get().scalar(name); },
          nb::arg("name"), "Of a constant of one element.")
      .def(
          "ints", [](const Match& m_, const std::string& name) { return m_.get().ints(name); },
          nb::arg("name"), "Elements of a constant of integers.")
      .def("constant", &Match::constant, nb::arg("name"),
           nb::sig("def constant(self, name: str) -> numpy.typing.NDArray[typing.Any]"),
           "The constant as an array.")
      .def("attribute", &Match::attribute, nb::arg("name"),
           nb::sig("def attribute(self, name: str) -> typing.Any"),
           "What Pattern.carry has remembered; None if it was absent.");
  nb::class_<Rule>(m, "Rule", "A rewrite: what is found, when, and what takes its place.")
      .def(
          "__init__",
          [](Rule* self, const std::string& name, const Pat& source, nb::handle result,
             nb::handle where, int benefit, bool any_extents) {
            new (self) Rule(MakeRule(name, source, result, where, benefit, any_extents));
          },
          nb::arg("name"), nb::arg("source"), nb::arg("result"), nb::kw_only(),
          nb::arg("where").none() = nb::none(), nb::arg("benefit") = 1,
          nb::arg("any_extents") = false,
          nb::sig("def __init__(self, name: str, source: Pattern, result: Pattern | "
                  "collections.abc.Callable[[Match], Value | None], *, where: "
                  "collections.abc.Callable[[Match], bool] | None = None, benefit: int = 1, "
                  "any_extents: bool = False) -> None"),
          "result: a pattern, or a function that builds it, or gives None: after all not. where: a "
          "further condition. benefit: of two rules that fit, the higher one is taken. "
          "any_extents: the result may have sizes that are not known to be those of the source.")
      .def_prop_ro("name", [](const Rule& rule) { return rule.name(); })
      .def_static("_apply", Apply, nb::arg("program"), nb::arg("rules"))
      .def("__repr__", [](const Rule& rule) { return StrCat("<lathe.Rule ", rule.name(), ">"); });
}

}  // namespace lathe::python
