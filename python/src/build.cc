#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "lathe/dialect/nn/op_names.h"
#include "lathe/ir/op_error.h"
#include "lathe/ir/text_format.h"
#include "lathe/ir/traits.h"
#include "lathe/ir/verify.h"
#include "lathe/pass/rewriter.h"
#include "python/src/attributes.h"
#include "python/src/interrupts.h"
#include "python/src/values.h"
#include "python/src/views.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

// Arrays with more elements are parameters, not constants.
constexpr int64_t kMaxConstant = 64;

// Notes what is erased, for views.
class Eraser : public RewriteListener {
 public:
  explicit Eraser(ProgramHolder& holder) : holder_(holder) {}
  void Erasing(Operation* op) override {
    holder_.erased[op] = ++holder_.version;
    if (holder_.before == op) holder_.before = op->next();
  }

 private:
  ProgramHolder& holder_;
};

// What a view shows, which must be of the program; that is locked.
Value Checked(const ProgramHolder& holder, const ValueView& view) {
  if (view.holder.get() == &holder) return view.Locked();
  throw Error(ErrorCode::kInvalidArgument, "program/other", "the value is of another program");
}

Operation* Checked(const ProgramHolder& holder, const OpView& view) {
  if (view.holder.get() == &holder) return view.Locked();
  throw Error(ErrorCode::kInvalidArgument, "program/other", "the operation is of another program");
}

// Changes a program while it lives, with its lock.
class Edit {
 public:
  explicit Edit(ProgramHolder& holder) : lock_(holder), eraser_(holder), holder_(holder) {
    if (holder.rewriter != nullptr) {
      rewriter_ = holder.rewriter;
      if (holder.before != nullptr) rewriter_->SetInsertionPoint(holder.before);
      return;
    }
    rewriter_ = &made_.emplace(holder.program(), holder.pass);
    rewriter_->set_listener(&eraser_);
    if (holder.before != nullptr) {
      rewriter_->SetInsertionPoint(holder.before);
    } else {
      rewriter_->SetInsertionPointToEnd(holder.block != nullptr ? holder.block
                                                                : holder.program().block());
    }
  }
  Rewriter* operator->() { return rewriter_; }

  /// What is known of values, constants and the contents of shapes.
  ShapeInferencer& facts() {
    if (holder_.facts == nullptr) {
      holder_.facts = std::make_unique<ShapeInferencer>(&holder_.program().parameters());
    }
    return *holder_.facts;
  }
  /// What was known may not hold any more.
  void Forget() { holder_.facts.reset(); }
  /// Errors: program/lent where operations are made and nothing else is changed.
  static void CheckMayChange(const ProgramHolder& holder) {
    if (holder.rewriter == nullptr) return;
    throw Error(ErrorCode::kInvalidArgument, "program/lent",
                "the function of a rule makes operations; the rule changes the others");
  }

 private:
  WriteLock lock_;
  std::optional<Rewriter> made_;
  Rewriter* rewriter_ = nullptr;
  Eraser eraser_;
  ProgramHolder& holder_;
};

// Where an operation comes from: a name, or a line of Python.
struct Place {
  std::string name;
  std::string file;
  uint32_t line;

  Location In(IrContext& context, const Operation* before) const {
    if (name.empty() && before != nullptr) return before->location();
    if (!name.empty()) return Location::Name(context, name);
    return file.empty() ? Location() : Location::FileLineCol(context, file, line, 1);
  }
};

const AttrDef* Declaration(const OpDef& def, const std::string& name) {
  const auto at = std::ranges::find_if(
      def.attributes, [&](const AttrDef& attribute) { return name == attribute.name; });
  return at == def.attributes.end() ? nullptr : &*at;
}

std::vector<NamedAttribute> AttributesOf(IrContext& context, OpInfo op, const nb::dict& given) {
  std::vector<NamedAttribute> attributes;
  for (const auto& [key, object] : given) {
    if (object.is_none()) continue;
    const auto name = nb::cast<std::string>(key);
    const AttrDef* def = op.def() == nullptr ? nullptr : Declaration(*op.def(), name);
    attributes.push_back(
        {StrAttribute::Get(context, name),
         AttributeOf(context, object, def, StrCat("attribute '", name, "' of ", op.name()))});
  }
  return attributes;
}

std::vector<ValueView> ResultsOf(const Holder& holder, Operation* op) {
  std::vector<ValueView> results;
  for (size_t i = 0; i < op->num_results(); ++i) results.push_back(ViewOf(holder, op->result(i)));
  return results;
}

size_t DefaultResults(const OpInfo& op) {
  if (op.def() == nullptr) return 1;
  return std::ranges::count_if(op.def()->results, [](const ValueDef& r) { return !r.optional; });
}

// Optional and variadic results are those that the caller decides on.
size_t CheckedResults(const OpInfo& op, size_t count) {
  if (op.def() == nullptr) return count;
  const std::span<const ValueDef> all = op.def()->results;
  const bool variadic = !all.empty() && all.back().variadic;
  constexpr size_t kMost = 1 << 16;
  const size_t least = DefaultResults(op) - (variadic ? 1 : 0),
               most = variadic ? kMost : all.size();
  if (least <= count && count <= most) return count;
  throw Error(ErrorCode::kInvalidArgument, "program/results",
              StrCat(op.name(), " has ", least, least == most ? "" : StrCat(" to ", most),
                     " results, not ", count));
}

// An operation that cannot be right is not left in the program.
Operation* Built(Edit& edit, Operation* op) {
  try {
    edit.facts().Visit(op);
    if (std::vector<Error> errors = Verify(op); !errors.empty()) throw std::move(errors.front());
    return op;
  } catch (...) {
    edit->Erase(op);
    throw;
  }
}

std::vector<ValueView> Create(const Holder& holder, const std::string& name,
                              const std::vector<std::optional<ValueView>>& operands,
                              const nb::dict& attributes, std::optional<size_t> num_results,
                              const Place& place) {
  IrContext& context = *holder->context;
  const OpInfo info = context.GetOrMakeOp(name);
  if (info.def() != nullptr && !info.def()->regions.empty()) {
    throw Error(ErrorCode::kUnsupported, "program/regions",
                StrCat(name, " has regions, which Python does not build"))
        .Hint("write it as text: lathe.Program.parse");
  }
  const size_t results = CheckedResults(info, num_results.value_or(DefaultResults(info)));
  const std::vector<NamedAttribute> named = AttributesOf(context, info, attributes);
  Edit edit(*holder);
  std::vector<Value> values;
  for (const auto& operand : operands) {
    values.push_back(operand ? Checked(*holder, *operand) : Value());
  }
  if (holder->rewriter == nullptr) {  // one that is lent knows its place, and has facts of its own
    edit->set_location(place.In(context, holder->before));
    edit->set_facts(&edit.facts());
  }
  Operation* op = edit->Create(name, values, named, results);
  return ResultsOf(holder, Built(edit, op));
}

Type TensorTypeOf(IrContext& context, nb::handle shape, nb::handle dtype) {
  const ElementType element = ElementTypeOf(dtype);
  if (shape.is_none()) return VTensorType::Get(context, SymShape::Unranked(), element);
  std::vector<Dim> dims;
  for (const nb::handle item : nb::borrow<nb::iterable>(shape)) {
    if (item.is_none()) {
      dims.push_back(Dim::Unknown());
    } else if (PyUnicode_Check(item.ptr())) {
      dims.push_back(Dim::Parse(nb::cast<std::string>(item)));
    } else {
      const auto size = nb::cast<int64_t>(nb::int_(item));
      if (size < 0) {
        throw Error(ErrorCode::kInvalidArgument, "shape/python",
                    StrCat("an extent cannot be ", size))
            .Hint("None is one that is not known, a str a symbolic one");
      }
      dims.emplace_back(size);
    }
  }
  return VTensorType::Get(context, SymShape(std::move(dims)), element);
}

void RefuseTaken(const std::vector<Operation*>& ports, const std::string& name, const char* kind) {
  for (const Operation* op : ports) {
    if (op->attribute("name").cast<StrAttribute>().value() != name) continue;
    throw Error(ErrorCode::kInvalidArgument, "program/name",
                StrCat("the program has an ", kind, " '", name, "' already"));
  }
}

ValueView AddInput(const Holder& holder, const std::string& name, nb::handle shape,
                   nb::handle dtype, const std::optional<std::string>& type) {
  IrContext& context = *holder->context;
  const Type its = type ? ParseType(context, *type) : TensorTypeOf(context, shape, dtype);
  Edit edit(*holder);
  RefuseTaken(holder->program().feeds(), name, "input");
  edit->set_location(Location::Name(context, name));
  const NamedAttribute attribute = edit->Named("name", edit->Attr(std::string_view(name)));
  Builder& builder = *edit.operator->();
  return ViewOf(holder, builder.Create(nn::kFeed, {}, {&attribute, 1}, {&its, 1})->result(0));
}

void AddOutput(const Holder& holder, const std::string& name, const ValueView& view) {
  Edit edit(*holder);
  const Value value = Checked(*holder, view);
  RefuseTaken(holder->program().fetches(), name, "output");
  edit->set_location(Location::Name(*holder->context, name));
  const NamedAttribute attribute = edit->Named("name", edit->Attr(std::string_view(name)));
  edit->Create(nn::kFetch, {&value, 1}, {&attribute, 1});
}

Tensor TensorOf(nb::handle array, nb::handle dtype, const std::string& what) {
  const ElementType wanted = dtype.is_none() ? ElementType::kUndefined : ElementTypeOf(dtype);
  ArrayInput input(array, wanted, what);
  if (wanted != ElementType::kUndefined && input.element() != wanted) {
    throw Error(ErrorCode::kType, "type/python",
                StrCat(what, " is ", Name(input.element()), ", not ", Name(wanted)));
  }
  return std::move(input).ToTensor();
}

ValueView AddParameter(const Holder& holder, const std::string& name, nb::handle array,
                       nb::handle dtype) {
  Tensor tensor = TensorOf(array, dtype, StrCat("parameter '", name, "'"));
  Edit edit(*holder);
  if (holder->program().parameters().Find(name) != nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "program/name",
                StrCat("the program has a parameter '", name, "' already"));
  }
  return ViewOf(holder, edit->Parameter(name, std::move(tensor)));
}

ValueView AddConstant(const Holder& holder, nb::handle array, nb::handle dtype) {
  Tensor tensor = TensorOf(array, dtype, "the constant");
  Edit edit(*holder);
  const Value value = tensor.num_elements() > kMaxConstant
                          ? edit->Parameter("constant", std::move(tensor))
                          : edit->Constant(tensor);
  edit.facts().Visit(value.defining_op());
  return ViewOf(holder, value);
}

void Replace(const Holder& holder, const OpView& view, nb::handle with) {
  Edit::CheckMayChange(*holder);
  const std::vector<ValueView> given = nb::isinstance<ValueView>(with)
                                           ? std::vector{nb::cast<ValueView>(with)}
                                           : nb::cast<std::vector<ValueView>>(with);
  Edit edit(*holder);
  Operation* op = Checked(*holder, view);
  std::vector<Value> values;
  for (const ValueView& value : given) values.push_back(Checked(*holder, value));
  if (values.size() != op->num_results()) {
    throw ErrorAt(op, "verify/replace",
                  StrCat("has ", op->num_results(), " results, not ", values.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (Compatible(values[i].type(), op->result(i).type())) continue;
    throw ErrorAt(op, "type/replace",
                  StrCat("a value of type ", values[i].type().ToString(), " cannot replace one of ",
                         op->result(i).type().ToString()));
  }
  edit.Forget();
  edit->ReplaceOp(op, values);
}

void Erase(const Holder& holder, const OpView& view) {
  Edit::CheckMayChange(*holder);
  Edit edit(*holder);
  Operation* op = Checked(*holder, view);
  if (!op->use_empty()) throw ErrorAt(op, "verify/erase", "its results are used");
  edit.Forget();
  edit->Erase(op);
}

void SetAttribute(const Holder& holder, const OpView& view, const std::string& name,
                  nb::handle object) {
  Edit::CheckMayChange(*holder);
  const OpInfo info = view.get().item->info();
  const AttrDef* declared = info.def() == nullptr ? nullptr : Declaration(*info.def(), name);
  const Attribute value = object.is_none()
                              ? Attribute()
                              : AttributeOf(*holder->context, object, declared,
                                            StrCat("attribute '", name, "' of ", info.name()));
  Edit edit(*holder);
  Operation* op = Checked(*holder, view);
  edit.Forget();
  edit->SetAttribute(op, name, value);
}

void SetOperand(const Holder& holder, const OpView& view, size_t index,
                const std::optional<ValueView>& value) {
  Edit::CheckMayChange(*holder);
  Edit edit(*holder);
  Operation* op = Checked(*holder, view);
  if (index >= op->num_operands()) {
    throw ErrorAt(op, "verify/operand",
                  StrCat("has ", op->num_operands(), " operands; there is no ", index));
  }
  const Value operand = value ? Checked(*holder, *value) : Value();
  edit.Forget();
  edit->SetOperand(op, index, operand);
}

// `with program.at(op):` operations are built before `op`, and come from where it comes from.
class InsertionScope {
 public:
  InsertionScope(Holder holder, OpView before)
      : holder_(std::move(holder)), before_(std::move(before)) {}

  void Enter() {
    const WriteLock lock(*holder_);
    Operation* op = Checked(*holder_, before_);
    old_before_ = std::exchange(holder_->before, op);
    old_block_ = std::exchange(holder_->block, op->block());
    version_ = holder_->version;
  }
  void Exit() {
    const WriteLock lock(*holder_);
    if (holder_->replaced > version_) return;  // there is no such place any more
    const auto gone = holder_->erased.find(old_before_);
    const bool erased = gone != holder_->erased.end() && gone->second > version_;
    holder_->before = erased ? nullptr : old_before_;
    holder_->block = erased ? nullptr : old_block_;
  }

 private:
  Holder holder_;
  OpView before_;
  Operation* old_before_ = nullptr;
  Block* old_block_ = nullptr;
  uint64_t version_ = 0;
};

void VerifyNow(const Holder& holder) {
  WithoutLock([&] { VerifyOrThrow(CloneOf(*holder, Gil::kReleased)); });
}

}  // namespace

namespace {

struct Arithmetic {
  const char *method, *op;
  bool reflected;
};
constexpr Arithmetic kArithmetic[] = {
    {"__add__", "add", false},     {"__radd__", "add", true},       {"__sub__", "sub", false},
    {"__rsub__", "sub", true},     {"__mul__", "mul", false},       {"__rmul__", "mul", true},
    {"__truediv__", "div", false}, {"__rtruediv__", "div", true},   {"__pow__", "pow", false},
    {"__rpow__", "pow", true},     {"__matmul__", "matmul", false}, {"__rmatmul__", "matmul", true},
};

nb::object Apply(const char* op, const auto&... operands) {
  return nb::module_::import_("lathe._ops").attr("nn").attr(op)(operands...);
}

}  // namespace

void BindArithmetic(nb::class_<ValueView>& value) {
  value.attr("__array_ufunc__") = nb::none();  // numpy leaves `array + value` to the value
  for (const Arithmetic& a : kArithmetic) {
    const std::string signature = StrCat("def ", a.method, "(self, other: typing.Any, /) -> Value");
    value.def(
        a.method,
        [a](const ValueView& self, nb::handle other) {
          return a.reflected ? Apply(a.op, other, self) : Apply(a.op, self, other);
        },
        nb::sig(signature.c_str()));
  }
  value.def(
      "__neg__", [](const ValueView& self) { return Apply("neg", self); },
      nb::sig("def __neg__(self) -> Value"));
}

void BindBuild(nb::module_& m, nb::class_<ProgramHolder>& program) {
  nb::class_<InsertionScope>(m, "InsertionScope", "See Program.at.")
      .def("__enter__", &InsertionScope::Enter, nb::sig("def __enter__(self) -> None"))
      .def(
          "__exit__", [](InsertionScope& scope, const nb::args&) { scope.Exit(); },
          nb::sig("def __exit__(self, *exception: object) -> None"));
  program.def(
      "input", AddInput, nb::arg("name"), nb::arg("shape").none() = nb::none(),
      nb::arg("dtype") = "f32", nb::kw_only(), nb::arg("type").none() = nb::none(),
      nb::sig("def input(self, name: str, shape: collections.abc.Iterable[int | str | None] | "
              "None = None, dtype: typing.Any = 'f32', *, type: str | None = None) -> Value"),
      "A new input. Of its shape, an int is a size, a str a symbolic one ('N', '2*N'), None one "
      "that is not known; without a shape even the rank is not. dtype: 'f32', numpy.float32, "
      "...; or the whole type as text, such as 'list<v_tensor<[N], i64>>'. Raises "
      "InvalidArgumentError if there is one of that name.");
  program.def("output", AddOutput, nb::arg("name"), nb::arg("value"),
              "Makes a value an output. Raises InvalidArgumentError if there is one of that name.");
  program.def(
      "parameter", AddParameter, nb::arg("name"), nb::arg("array"),
      nb::arg("dtype").none() = nb::none(),
      nb::sig("def parameter(self, name: str, array: typing.Any, dtype: typing.Any = None) -> "
              "Value"),
      "A new weight, which keeps the array if that is row-major.");
  program.def("constant", AddConstant, nb::arg("array"), nb::arg("dtype").none() = nb::none(),
              nb::sig("def constant(self, array: typing.Any, dtype: typing.Any = None) -> Value"),
              "A value that is known: a constant, or, of more than 64 elements, a parameter.");
  program.def(
      "replace", Replace, nb::arg("operation"), nb::arg("values"),
      nb::sig("def replace(self, operation: Operation, values: Value | "
              "collections.abc.Sequence[Value]) -> None"),
      "What reads the results of an operation reads these values; the operation is removed. "
      "Raises ElementTypeError if types do not fit.");
  program.def("erase", Erase, nb::arg("operation"),
              "Removes an operation whose results nothing reads. Raises VerifyError otherwise.");
  program.def(
      "set_attribute", SetAttribute, nb::arg("operation"), nb::arg("name"), nb::arg("value").none(),
      nb::sig("def set_attribute(self, operation: Operation, name: str, value: typing.Any) -> "
              "None"),
      "Sets an attribute, or, with None, removes it.");
  program.def("set_operand", SetOperand, nb::arg("operation"), nb::arg("index"),
              nb::arg("value").none(),
              "Makes an operation read another value, or, with None, nothing.");
  program.def(
      "at", [](const Holder& holder, const OpView& op) { return InsertionScope(holder, op); },
      nb::arg("operation"), nb::sig("def at(self, operation: Operation) -> InsertionScope"),
      "`with program.at(operation):` operations are built before that one, and come from where it "
      "comes from; else at the end.");
  program.def("verify", VerifyNow,
              "Raises VerifyError, ShapeError, ... if the program cannot be right.");
  program.def(
      "_create",
      [](const Holder& holder, const std::string& name,
         const std::vector<std::optional<ValueView>>& operands, const nb::dict& attributes,
         std::optional<size_t> num_results, const std::string& label, const std::string& file,
         uint32_t line) {
        return Create(holder, name, operands, attributes, num_results, {label, file, line});
      },
      nb::arg("name"), nb::arg("operands"), nb::arg("attributes"), nb::arg("num_results").none(),
      nb::arg("label"), nb::arg("file"), nb::arg("line"),
      nb::sig("def _create(self, name: str, operands: collections.abc.Sequence[Value | None], "
              "attributes: dict[str, typing.Any], num_results: int | None, label: str, file: str, "
              "line: int) -> list[Value]"));
}

}  // namespace lathe::python
