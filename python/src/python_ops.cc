#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "lathe/dialect/all.h"
#include "lathe/dialect/op_kind.h"
#include "lathe/dialect/op_support.h"
#include "lathe/ir/dialect.h"
#include "lathe/ir/op_error.h"
#include "lathe/ir/traits.h"
#include "python/src/attributes.h"
#include "python/src/lent.h"
#include "python/src/ports.h"
#include "python/src/values.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

// An operator that Python declares; what its declaration points at. Never freed: contexts do not
// say when they no longer need it.
struct PythonOp : OpDef {
  PythonOp() : OpDef{} {}
  std::deque<std::string> texts;
  std::vector<ValueDef> values_in, values_out;
  std::vector<AttrDef> all_attributes;
  Kept evaluate, infer;  // `infer` may be null

  const char* Text(std::string text) { return texts.emplace_back(std::move(text)).c_str(); }
};

struct Registered {
  std::mutex mutex;
  std::map<std::string, const PythonOp*> ops;
};
Registered& TheRegistered() {
  static auto* registered = new Registered;
  return *registered;
}

const PythonOp& OpOf(const Operation* op) {
  return static_cast<const PythonOp&>(*op->info().def());
}

nb::dict AttributesOf(const Operation* op) {
  nb::dict dict;
  for (const AttrDef& def : OpOf(op).attributes) {
    const Attribute a = op->attribute(def.name);
    dict[def.name] = a ? AttributeObject(a) : nb::none();
  }
  return dict;
}

// Absent operands at the end, which an operation need not have, are None, too.
void FillUp(nb::list& operands, const Operation* op) {
  const std::span<const ValueDef> all = OpOf(op).operands;
  const size_t fixed = all.size() - (!all.empty() && all.back().variadic ? 1 : 0);
  while (operands.size() < fixed) operands.append(nb::none());
}

// ---- evaluation ----

std::vector<nb::object> ListOf(nb::object result, size_t count, const Operation* op) {
  if (count == 1 && !PyTuple_Check(result.ptr())) return {std::move(result)};
  std::vector<nb::object> all;
  if (PyTuple_Check(result.ptr()) || PyList_Check(result.ptr())) {
    for (const nb::handle item : result) all.push_back(nb::borrow(item));
  }
  if (all.size() == count) return all;
  throw ErrorAt(op, "python/result",
                StrCat("its function gives ", nb::cast<std::string>(nb::repr(result.type())),
                       "; it has ", count, " results"))
      .Hint("a tuple has one for each");
}

RtValue ResultOf(nb::handle object, const Operation* op, size_t i) {
  const auto type = op->result(i).type().dyn_cast<AnyTensorType>();
  const ElementType declared = type ? type.element() : ElementType::kUndefined;
  RtValue value =
      ValueOf(object, declared, false, StrCat("result ", i, " of ", std::string(op->name())));
  if (!type || !value.is_tensor()) return value;
  const Tensor& tensor = value.tensor();
  bool fits = tensor.element_type() == declared || declared == ElementType::kUndefined;
  if (type.has_rank()) {
    fits = fits && type.rank() == tensor.shape().size();
    for (size_t axis = 0; fits && axis < type.rank(); ++axis) {
      const Dim& dim = type.dims()[axis];
      fits = !dim.is_constant() || dim.value() == tensor.shape()[axis];
    }
  }
  if (fits) return value;
  throw ErrorAt(op, "python/result",
                StrCat("its function gives ", tensor.TypeString(),
                       " where the shape function says ", type.ToString()));
}

void Eval(EvalContext& c) {
  Operation* op = c.op();
  CallPython(StrCat("operator '", op->name(), "'"), [&] {
    nb::list operands;
    for (const RtValue& value : c.inputs()) operands.append(ObjectOf(value));
    FillUp(operands, op);
    const nb::dict attributes = AttributesOf(op);
    nb::object result = (*OpOf(op).evaluate)(*operands, **attributes);
    const std::vector<nb::object> results = ListOf(std::move(result), c.num_outputs(), op);
    for (size_t i = 0; i < results.size(); ++i) {
      c.SetOutputValue(i, ResultOf(results[i], op, i));
    }
  });
}

// ---- shapes ----

// The type of a tensor, as shape functions see it.
struct Spec {
  ElementType element = ElementType::kUndefined;
  std::optional<std::vector<Dim>> dims;
};

nb::object DimArgument(const Dim& dim) {
  return dim.is_constant() ? nb::object(nb::int_(dim.value())) : nb::cast(dim);
}

nb::object ShapeArgument(const Spec& spec) {
  if (!spec.dims) return nb::none();
  nb::list shape;
  for (const Dim& dim : *spec.dims) shape.append(DimArgument(dim));
  return nb::tuple(shape);
}

Dim DimFrom(nb::handle object) {
  if (object.is_none()) return Dim::Unknown();
  if (nb::isinstance<Dim>(object)) return nb::cast<Dim>(object);
  if (PyUnicode_Check(object.ptr())) return Dim::Parse(nb::cast<std::string>(object));
  return Dim(nb::cast<int64_t>(object));
}

std::optional<std::vector<Dim>> DimsFrom(nb::handle shape) {
  if (shape.is_none()) return std::nullopt;
  std::vector<Dim> dims;
  for (const nb::handle item : nb::borrow<nb::iterable>(shape)) dims.push_back(DimFrom(item));
  return dims;
}

nb::list SpecsOf(const InferShapeContext& c) {
  nb::list specs;
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    if (!c.HasInput(i)) {
      specs.append(nb::none());
      continue;
    }
    const SymShape shape = c.shape(i);
    specs.append(Spec{c.element(i), shape.ranked ? std::optional(shape.dims) : std::nullopt});
  }
  return specs;
}

void SetSpec(InferShapeContext& c, size_t i, nb::handle object) {
  if (!nb::isinstance<Spec>(object)) {
    throw ErrorAt(c.op(), "python/result",
                  StrCat("its shape function gives ", nb::cast<std::string>(nb::repr(object)),
                         ", which is not a lathe.Spec"));
  }
  const Spec& spec = nb::cast<const Spec&>(object);
  c.SetTensor(i, spec.element, spec.dims ? SymShape(*spec.dims) : SymShape::Unranked());
}

void InferShape(InferShapeContext& c) {
  const PythonOp& op = OpOf(c.op());
  if (op.infer == nullptr) return InferBroadcastShape(c);  // elements from elements
  CallPython(StrCat("shape function of operator '", op.name, "'"), [&] {
    nb::list specs = SpecsOf(c);
    FillUp(specs, c.op());
    const nb::dict attributes = AttributesOf(c.op());
    nb::object result = (*op.infer)(*specs, **attributes);
    const std::vector<nb::object> results = ListOf(std::move(result), c.num_outputs(), c.op());
    for (size_t i = 0; i < results.size(); ++i) SetSpec(c, i, results[i]);
  });
}

// ---- registration ----

using OperandEntry = std::tuple<std::string, bool, bool>;  // name, optional, variadic
// name, kind as Describe has it, default as text or nothing
using AttributeEntry = std::tuple<std::string, std::string, std::optional<std::string>>;

AttrKind KindNamed(const std::string& text) {
  for (int i = 0; i <= static_cast<int>(AttrKind::kAny); ++i) {
    if (text == Describe(static_cast<AttrKind>(i))) return static_cast<AttrKind>(i);
  }
  LATHE_CHECK(false, "no kind of attributes is ", text);
}

TypeRule RuleFor(bool elementwise) {
  if (elementwise) return {.kind = TypeRule::Kind::kVariable, .index = 0};
  return {.kind = TypeRule::Kind::kTensor};
}

std::span<const ElementType> AllElements() {
  static const std::vector<ElementType> all = [] {
    std::vector<ElementType> elements;
    for (int i = 0; i < 256; ++i) {
      const auto element = static_cast<ElementType>(i);
      if (ParseElementType(Name(element)) == element) elements.push_back(element);
    }
    return elements;
  }();
  return all;
}

struct Declaration {
  std::string name, summary, onnx_domain, onnx_name;
  std::vector<OperandEntry> operands;
  std::vector<AttributeEntry> attributes;
  size_t num_results;
};

const PythonOp* Declare(const Declaration& d, nb::object evaluate, nb::object infer) {
  auto* op = new PythonOp;
  const bool elementwise = infer.is_none();
  op->name = op->Text(d.name);
  op->summary = op->Text(d.summary);
  op->description = "";
  if (elementwise) {
    static const TypeSetDef set{"T", AllElements()};
    op->type_sets = {&set, 1};
  }
  for (const auto& [name, optional, variadic] : d.operands) {
    op->values_in.push_back({.name = op->Text(name),
                             .type = RuleFor(elementwise),
                             .optional = optional,
                             .variadic = variadic});
  }
  for (size_t i = 0; i < d.num_results; ++i) {
    op->values_out.push_back({.name = op->Text(StrCat("result", i)), .type = RuleFor(elementwise)});
  }
  for (const auto& [name, kind, text] : d.attributes) {
    op->all_attributes.push_back(
        {.name = op->Text(name),
         .kind = KindNamed(kind),
         .optional = text.has_value() && text->empty(),
         .default_text = text && !text->empty() ? op->Text(*text) : nullptr});
  }
  op->operands = op->values_in;
  op->results = op->values_out;
  op->attributes = op->all_attributes;
  if (!d.onnx_name.empty()) {
    op->onnx_name = op->Text(d.onnx_name);
    op->onnx_domain = op->Text(d.onnx_domain);
    op->onnx_since = 1;
  }
  op->evaluate = Keep(std::move(evaluate));
  op->infer = KeepSome(infer);
  return op;
}

void RegisterOp(const Declaration& d, nb::object evaluate, nb::object infer) {
  static const std::shared_ptr<IrContext> built_in = [] {
    auto context = std::make_shared<IrContext>();
    LoadAllDialects(*context);
    return context;
  }();
  const std::string dialect = d.name.substr(0, d.name.find('.'));
  if (built_in->FindDialect(dialect) != nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "python/dialect",
                StrCat("'", dialect, "' is a dialect of Lathe"))
        .Hint(StrCat("choose another name than '", d.name, "'"));
  }
  const PythonOp* op = Declare(d, std::move(evaluate), std::move(infer));
  {
    const std::lock_guard lock(TheRegistered().mutex);
    TheRegistered().ops[d.name] = op;
  }
  RenewSharedContext();
}

// A dialect whose name is known when it is loaded.
struct NamedDialect : Dialect {
  inline static thread_local const char* kName = "";
  explicit NamedDialect(IrContext& c) : Dialect(c, kName) {}
};

void Load(IrContext& context, const PythonOp& op) {
  static const EvalInterface::Concept evaluate{&Eval};
  static const InferShapeInterface::Concept infer{&InferShape};
  static const FixedOpKind<OpKind::kOpaque, 0> kind;
  const std::string_view name = op.name;
  Dialect* dialect = context.FindDialect(name.substr(0, name.find('.')));
  // Of ops without a C++ class, the declaration is what identifies them.
  static_assert(sizeof(TypeId) == sizeof(const void*));
  const auto id = std::bit_cast<TypeId>(static_cast<const void*>(&op));
  context.RegisterOp(
      *dialect, id, name, &op,
      {{TypeId::Get<EvalInterface>(), &evaluate},
       {TypeId::Get<InferShapeInterface>(), &infer},
       {TypeId::Get<OpKindInterface>(), static_cast<const OpKindInterface::Concept*>(&kind)}},
      {TypeId::Get<HasValueSemantics>()});
}

}  // namespace

void LoadPythonOps(IrContext& context) {
  const std::lock_guard lock(TheRegistered().mutex);
  for (const auto& [name, op] : TheRegistered().ops) {
    const std::string dialect = name.substr(0, name.find('.'));
    NamedDialect::kName = dialect.c_str();
    context.LoadDialect<NamedDialect>();
    Load(context, *op);
  }
}

namespace {

void BindDim(nb::module_& m) {
  nb::class_<Dim> dim(m, "Dim", "A symbolic size: 'N', '2*N + 1'.");
  const auto binary = [&](const char* method, Dim (*compute)(const Dim&, const Dim&),
                          bool reflected) {
    const std::string signature =
        StrCat("def ", method, "(self, other: Dim | int, /) -> Dim | int");
    dim.def(
        method,
        [compute, reflected](const Dim& self, nb::handle other) {
          const Dim operand = DimFrom(other);
          return DimArgument(reflected ? compute(operand, self) : compute(self, operand));
        },
        nb::sig(signature.c_str()));
  };
  binary("__add__", [](const Dim& a, const Dim& b) { return a + b; }, false);
  binary("__radd__", [](const Dim& a, const Dim& b) { return a + b; }, true);
  binary("__sub__", [](const Dim& a, const Dim& b) { return a - b; }, false);
  binary("__rsub__", [](const Dim& a, const Dim& b) { return a - b; }, true);
  binary("__mul__", [](const Dim& a, const Dim& b) { return a * b; }, false);
  binary("__rmul__", [](const Dim& a, const Dim& b) { return a * b; }, true);
  binary("__floordiv__", [](const Dim& a, const Dim& b) { return FloorDiv(a, b); }, false);
  dim.def(
         "__eq__", [](const Dim& a, const Dim& b) { return a == b; }, nb::is_operator(),
         nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", &Dim::Hash)
      .def("__str__", &Dim::ToString)
      .def("__repr__", [](const Dim& d) { return StrCat("<lathe.Dim ", d.ToString(), ">"); });
}

void BindSpec(nb::module_& m) {
  nb::class_<Spec>(m, "Spec", "Element type and shape of a tensor, for shape functions.")
      .def(
          "__init__",
          [](Spec* self, nb::handle dtype, nb::handle shape) {
            new (self) Spec{ElementTypeOf(dtype), DimsFrom(shape)};
          },
          nb::arg("dtype"), nb::arg("shape").none(),
          nb::sig("def __init__(self, dtype: typing.Any, shape: collections.abc.Iterable[int | str "
                  "| Dim | None] | None) -> None"),
          "Of a shape, an int is a size, a Dim or a str a symbolic one, None one that is not "
          "known; "
          "None for the shape: not even the rank is.")
      .def_prop_ro(
          "dtype", [](const Spec& s) { return DtypeName(s.element); }, "'f32', 'i64', ...")
      .def_prop_ro("shape", ShapeArgument,
                   nb::sig("def shape(self) -> tuple[int | Dim, ...] | None"),
                   "None if the rank is not known; a Dim that is not known prints as '?'.")
      .def("__repr__", [](const Spec& s) {
        const SymShape shape = s.dims ? SymShape(*s.dims) : SymShape::Unranked();
        return StrCat("<lathe.Spec ", DtypeName(s.element), shape.ToString(), ">");
      });
}

}  // namespace

void BindPythonOps(nb::module_& m) {
  BindDim(m);
  BindSpec(m);
  m.def(
      "register_op",
      [](const std::string& name, const std::vector<OperandEntry>& operands,
         const std::vector<AttributeEntry>& attributes, size_t num_results, nb::object evaluate,
         nb::object infer, const std::string& summary, const std::string& onnx_domain,
         const std::string& onnx_name) {
        RegisterOp({name, summary, onnx_domain, onnx_name, operands, attributes, num_results},
                   std::move(evaluate), std::move(infer));
      },
      nb::arg("name"), nb::arg("operands"), nb::arg("attributes"), nb::arg("num_results"),
      nb::arg("evaluate"), nb::arg("infer").none(), nb::arg("summary"), nb::arg("onnx_domain"),
      nb::arg("onnx_name"),
      nb::sig("def register_op(name: str, operands: collections.abc.Sequence[tuple[str, bool, "
              "bool]], attributes: collections.abc.Sequence[tuple[str, str, str | None]], "
              "num_results: int, evaluate: collections.abc.Callable[..., typing.Any], infer: "
              "collections.abc.Callable[..., typing.Any] | None, summary: str, onnx_domain: str, "
              "onnx_name: str) -> None"));
}

}  // namespace lathe::python
