#include "lathe/frontend/symbol.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <sstream>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/text_format.h"
#include "python/src/interrupts.h"
#include "python/src/model.h"
#include "python/src/values.h"
#include "python/src/views.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

// A symbol and the context of its ops.
struct SymbolHandle {
  std::shared_ptr<IrContext> context;
  Symbol symbol;

  SymbolHandle With(Symbol other) const { return {context, std::move(other)}; }
};

// Symbols share nodes, which are for one thread at a time; where threads have the interpreter's
// lock, that sees to it.
nb::ft_mutex& Nodes() {
  static nb::ft_mutex mutex;
  return mutex;
}
struct OneThread {
  nb::ft_lock_guard lock{Nodes()};
};
constexpr nb::call_guard<OneThread> kOneThread;

using Attrs = std::map<std::string, std::string>;

SymbolAttrs ListOf(const Attrs& attrs) { return {attrs.begin(), attrs.end()}; }

Symbol Checked(const std::shared_ptr<IrContext>& context, const SymbolHandle& symbol) {
  if (symbol.context == context) return symbol.symbol;
  throw Error(ErrorCode::kInvalidArgument, "symbol/context",
              "symbols from before and after an operator was registered do not go together");
}

// A number takes the element type of what it meets.
Symbol Operand(const std::shared_ptr<IrContext>& context, nb::handle operand) {
  if (nb::isinstance<SymbolHandle>(operand)) {
    return Checked(context, nb::cast<const SymbolHandle&>(operand));
  }
  double number = 0;
  if (!PyBool_Check(operand.ptr()) && nb::try_cast(operand, number)) {
    return Symbol::CreateScalar(*context, number);
  }
  throw Error(ErrorCode::kType, "type/python",
              StrCat("an operand of a symbol is a symbol or a number, not ",
                     nb::cast<std::string>(nb::repr(operand))))
      .Hint("arrays are data of variables: to_program(parameters={...})");
}

SymbolHandle Variable(const std::string& name, const Attrs& attrs) {
  const auto context = SharedContext();
  return {context, Symbol::CreateVariable(*context, name, ListOf(attrs))};
}

std::shared_ptr<IrContext> ContextOf(const nb::list& operands, const nb::dict& named) {
  for (const nb::handle o : operands) {
    if (nb::isinstance<SymbolHandle>(o)) return nb::cast<const SymbolHandle&>(o).context;
  }
  for (const auto& [key, o] : named) {
    if (nb::isinstance<SymbolHandle>(o)) return nb::cast<const SymbolHandle&>(o).context;
  }
  return SharedContext();
}

SymbolHandle Apply(const std::string& op, const nb::list& operands, const nb::dict& named,
                   const Attrs& attrs, const std::string& name) {
  const auto context = ContextOf(operands, named);
  Symbol::Args args;
  for (const nb::handle o : operands) args.push_back(Operand(context, o));
  Symbol::Kwargs kwargs;
  for (const auto& [key, o] : named) {
    kwargs.emplace_back(nb::cast<std::string>(key), Operand(context, o));
  }
  Symbol symbol = Symbol::CreateFunctor(*context, op, ListOf(attrs));
  symbol.Compose(args, kwargs, name);
  return {context, std::move(symbol)};
}

SymbolHandle WithVariables(const SymbolHandle& self, const nb::kwargs& variables) {
  Symbol::Kwargs kwargs;
  for (const auto& [key, o] : variables) {
    kwargs.emplace_back(nb::cast<std::string>(key), Operand(self.context, o));
  }
  return self.With(self.symbol({}, kwargs));
}

SymbolHandle Group(const std::vector<SymbolHandle>& symbols) {
  std::vector<Symbol> all;
  for (const SymbolHandle& s : symbols) all.push_back(Checked(symbols[0].context, s));
  return {symbols.empty() ? SharedContext() : symbols[0].context, Symbol::CreateGroup(all)};
}

Symbol::ListInputOption InputsNamed(const std::string& kind) {
  if (kind == "all") return Symbol::kAll;
  if (kind == "arguments") return Symbol::kReadOnlyArgs;
  if (kind == "states") return Symbol::kAuxiliaryStates;
  throw Error(ErrorCode::kInvalidArgument, "symbol/kind", StrCat("there is no kind '", kind, "'"))
      .Hint("it is 'all', 'arguments' or 'states'");
}

Holder ToProgram(const SymbolHandle& self, const std::map<std::string, std::string>& types,
                 const nb::dict& parameters) {
  SymbolBindings bindings;
  for (const auto& [name, text] : types) {
    bindings.types.emplace_back(name, ParseType(*self.context, text));
  }
  for (const auto& [key, array] : parameters) {
    const auto name = nb::cast<std::string>(key);
    ArrayInput input(array, ElementType::kUndefined, StrCat("parameter '", name, "'"));
    bindings.parameters.emplace_back(name, std::move(input).ToTensor());
  }
  return std::make_shared<ProgramHolder>(self.context, self.symbol.ToProgram(bindings));
}

std::string Printed(const SymbolHandle& self) {
  std::ostringstream text;
  self.symbol.Print(text);
  return text.str();
}

SymbolHandle FromJson(const std::string& text) {
  const auto context = SharedContext();
  return {context, LoadJson(*context, text).symbol};
}

using SymbolClass = nb::class_<SymbolHandle>;

void BindArithmeticOf(SymbolClass& symbol) {
  const auto binary = [&](const char* method, const char* op, bool reflected) {
    const std::string signature =
        StrCat("def ", method, "(self, other: Symbol | float, /) -> Symbol");
    symbol.def(
        method,
        [op, reflected](const SymbolHandle& self, nb::handle other) {
          const Symbol operand = Operand(self.context, other);
          Symbol result = Symbol::CreateFunctor(*self.context, op);
          result.Compose(reflected ? Symbol::Args{operand, self.symbol}
                                   : Symbol::Args{self.symbol, operand});
          return self.With(std::move(result));
        },
        kOneThread, nb::sig(signature.c_str()));
  };
  for (const auto& [name, op] : {std::pair("add", nn::kAdd), std::pair("sub", nn::kSub),
                                 std::pair("mul", nn::kMul), std::pair("truediv", nn::kDiv),
                                 std::pair("pow", nn::kPow), std::pair("matmul", nn::kMatmul)}) {
    binary(StrCat("__", name, "__").c_str(), op, false);
    binary(StrCat("__r", name, "__").c_str(), op, true);
  }
  symbol.def(
      "__neg__", [](const SymbolHandle& self) { return self.With(-self.symbol); }, kOneThread);
}

void BindParts(SymbolClass& symbol) {
  symbol
      .def(
          "__len__", [](const SymbolHandle& self) { return self.symbol.num_outputs(); }, kOneThread)
      .def(
          "__getitem__",
          [](const SymbolHandle& self, int64_t index) {
            const auto count = static_cast<int64_t>(self.symbol.num_outputs());
            if (index < -count || index >= count) throw nb::index_error("there is no such output");
            return self.With(self.symbol[static_cast<size_t>(index < 0 ? index + count : index)]);
          },
          kOneThread, "One output, by number or by name.")
      .def(
          "__getitem__",
          [](const SymbolHandle& self, const std::string& name) {
            return self.With(self.symbol[name]);
          },
          kOneThread)
      .def(
          "list_inputs",
          [](const SymbolHandle& self, const std::string& kind) {
            return self.symbol.ListInputNames(InputsNamed(kind));
          },
          kOneThread, nb::arg("kind") = "all",
          "Names of variables: 'all', 'arguments', or 'states', which some op writes.")
      .def(
          "list_outputs", [](const SymbolHandle& self) { return self.symbol.ListOutputNames(); },
          kOneThread, "Names of outputs.")
      .def_prop_ro(
          "internals",
          [](const SymbolHandle& self) { return self.With(self.symbol.GetInternals()); },
          kOneThread, "Every visible output of every node.")
      .def_prop_ro(
          "children", [](const SymbolHandle& self) { return self.With(self.symbol.GetChildren()); },
          kOneThread, "What the nodes of the outputs read.")
      .def_prop_ro(
          "attributes",
          [](const SymbolHandle& self) { return self.symbol.ListAttrs(Symbol::kShallow); },
          kOneThread, "Of a symbol with one node, as text.")
      .def(
          "set_attributes",
          [](SymbolHandle& self, const Attrs& attrs) { self.symbol.SetAttrs(ListOf(attrs)); },
          kOneThread, nb::arg("attributes"), "Of a symbol with one node, as text.");
}

}  // namespace

void BindSymbol(nb::module_& m) {
  SymbolClass symbol(
      m, "Symbol",
      "A network that is written down before anything is known of its shapes (docs/symbol.md). "
      "Operators of lathe.nn take symbols, and so do Python's.");
  symbol.attr("__array_ufunc__") = nb::none();
  symbol.def_static("_variable", Variable, kOneThread, nb::arg("name"), nb::arg("attributes"))
      .def_static("_apply", Apply, kOneThread, nb::arg("op"), nb::arg("operands"), nb::arg("named"),
                  nb::arg("attributes"), nb::arg("name"),
                  nb::sig("def _apply(op: str, operands: list[typing.Any], named: dict[str, "
                          "typing.Any], attributes: dict[str, str], name: str) -> Symbol"))
      .def_static("group", Group, kOneThread, nb::arg("symbols"),
                  "All outputs of symbols, in order.")
      .def_static("from_json", FromJson, kOneThread, nb::arg("text"),
                  "What to_json has written, or NNVM. Raises ParseError, NotFoundError.")
      .def(
          "to_json", [](const SymbolHandle& self) { return SaveJson(self.symbol); }, kOneThread,
          "In NNVM's format.")
      .def("to_program", ToProgram, kOneThread, nb::kw_only(), nb::arg("types") = Attrs(),
           nb::arg("parameters") = nb::dict(),
           nb::sig("def to_program(self, *, types: collections.abc.Mapping[str, str] = ..., "
                   "parameters: dict[str, typing.Any] = ...) -> Program"),
           "A program: variables with an array are its parameters, states start as zeros, other "
           "variables are inputs of the given types ('v_tensor<[N, 4], f32>'), else of those that "
           "they were made with.")
      .def(
          "assign",
          [](const SymbolHandle& self, nb::handle value) {
            return self.With(Assign(self.symbol, Operand(self.context, value)));
          },
          kOneThread, nb::arg("value"),
          nb::sig("def assign(self, value: Symbol | float) -> Symbol"),
          "Writes into a variable; the result is what it holds afterwards.")
      .def("__call__", WithVariables, kOneThread,
           nb::sig("def __call__(self, **variables: Symbol | float) -> Symbol"),
           "A copy with other symbols for variables, by name.")
      .def(
          "__copy__", [](const SymbolHandle& self) { return self.With(self.symbol.Copy()); },
          kOneThread)
      .def(
          "__getstate__", [](const SymbolHandle& self) { return SaveJson(self.symbol); },
          kOneThread)
      .def("__setstate__",
           [](SymbolHandle& self, const std::string& text) {
             new (&self) SymbolHandle(FromJson(text));
           })
      .def("__str__", Printed, kOneThread)
      .def(
          "__repr__",
          [](const SymbolHandle& self) {
            const auto names = self.symbol.ListOutputNames();
            return StrCat("<lathe.Symbol ", names.size() == 1 ? names[0] : "group", ">");
          },
          kOneThread);
  BindArithmeticOf(symbol);
  BindParts(symbol);
}

}  // namespace lathe::python
