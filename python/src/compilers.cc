#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "lathe/dialect/builtin/builtin.h"
#include "lathe/driver/extract.h"
#include "lathe/ir/tensor_of.h"
#include "lathe/lower/external.h"
#include "python/src/lent.h"
#include "python/src/numpy.h"
#include "python/src/values.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

struct PythonCompiler {
  Kept compile;
  std::optional<std::set<std::string, std::less<>>> ops;  // that it takes; none: all
  Kept refuse, refuse_region;                             // null: nothing is refused
};

using CompilerHandle = std::shared_ptr<const PythonCompiler>;

// By name; a compiler of Python may be registered again. Never freed, as the registry of compilers.
struct Registered {
  std::mutex mutex;
  std::map<std::string, CompilerHandle> compilers;
};
Registered& TheRegistered() {
  static auto* registered = new Registered;
  return *registered;
}

CompilerHandle CompilerNamed(const std::string& name) {
  const std::lock_guard lock(TheRegistered().mutex);
  return TheRegistered().compilers.at(name);
}

Error WrongResult(const std::string& what, const std::string& why, nb::handle function) {
  Error error(ErrorCode::kType, "python/result", StrCat(what, " gives ", why));
  if (const std::string line = DefinitionOf(function); !line.empty()) error.At(line);
  return error;
}

std::string ReprOf(nb::handle object) { return nb::cast<std::string>(nb::repr(object)); }

// ---- what it takes ----

// The reason that a function gives, or nothing, which is None or ''.
std::string ReasonOf(const std::string& what, const nb::object& function, nb::handle argument) {
  const nb::object reason = function(argument);
  if (reason.is_none()) return "";
  if (PyUnicode_Check(reason.ptr())) return nb::cast<std::string>(reason);
  throw WrongResult(what, ReprOf(reason), function)
      .Hint("it gives a reason, which is a str, or None");
}

// Nothing is changed through what is lent.
OpView ShownIn(const Lent& lent, const Operation* op) {
  return ViewOf(lent.holder(), const_cast<Operation*>(op));
}

std::string Refuse(const std::string& name, const Operation* op) {
  const CompilerHandle compiler = CompilerNamed(name);
  if (compiler->ops && !compiler->ops->contains(op->name())) {
    return StrCat("it does not take ", op->name());
  }
  if (compiler->refuse == nullptr) return "";
  const std::string what = StrCat("`refuse` of external compiler '", name, "'");
  return CallPython(what, [&] {
    const Lent lent(*op->context());
    return ReasonOf(what, *compiler->refuse, nb::cast(ShownIn(lent, op)));
  });
}

std::string RefuseRegion(const std::string& name, std::span<Operation* const> region) {
  const CompilerHandle compiler = CompilerNamed(name);
  if (compiler->refuse_region == nullptr) return "";
  const std::string what = StrCat("`refuse_region` of external compiler '", name, "'");
  return CallPython(what, [&] {
    const Lent lent(*region.front()->context());
    nb::list operations;
    for (const Operation* op : region) operations.append(ShownIn(lent, op));
    return ReasonOf(what, *compiler->refuse_region, operations);
  });
}

// ---- what it makes ----

// What a compiler has made of a function, with the types of that.
struct Code {
  std::string what;  // for messages
  std::vector<AnyTensorType> arguments, results;
  Kept function;

  void Run(const KernelBuffer* buffers) const;

 private:
  nb::list Arguments(const KernelBuffer* buffers) const;
  std::vector<nb::object> Results(nb::object given) const;
  void Store(nb::handle result, size_t i, const KernelBuffer& to) const;
};

Shape ShapeOf(const KernelBuffer& buffer, AnyTensorType type) {
  return {buffer.shape, buffer.shape + type.rank()};
}

// Python may keep what it gets, so these are copies.
nb::list Code::Arguments(const KernelBuffer* buffers) const {
  nb::list arrays;
  for (const AnyTensorType type : arguments) {
    const KernelBuffer& from = *buffers++;
    Tensor tensor(type.element(), ShapeOf(from, type));
    if (tensor.byte_size() > 0) std::memcpy(tensor.mutable_raw(), from.data, tensor.byte_size());
    arrays.append(ObjectOf(RtValue(std::move(tensor))));
  }
  return arrays;
}

// A list of numbers is one array.
bool AreSeveral(nb::handle given) {
  if (PyTuple_Check(given.ptr())) return true;
  if (!PyList_Check(given.ptr())) return false;
  const auto list = nb::borrow<nb::list>(given);
  return list.size() == 0 || IsArray(list[0]) || nb::hasattr(list[0], "__dlpack__");
}

std::vector<nb::object> Code::Results(nb::object given) const {
  const bool several = AreSeveral(given);
  if (results.size() == 1 && !several) return {std::move(given)};
  std::vector<nb::object> all;
  if (several) {
    for (const nb::handle item : given) all.push_back(nb::borrow(item));
  }
  if (all.size() == results.size()) return all;
  const std::string count = several ? StrCat(all.size(), " results") : ReprOf(given.type());
  throw WrongResult(what, StrCat(count, "; the function has ", results.size()), *function);
}

void Code::Store(nb::handle result, size_t i, const KernelBuffer& to) const {
  const ElementType element = results[i].element();
  const Tensor tensor = ArrayInput(result, element, StrCat("result ", i, " of ", what)).ToTensor();
  const Shape planned = ShapeOf(to, results[i]);
  if (tensor.element_type() != element || tensor.shape() != planned) {
    throw WrongResult(what,
                      StrCat(tensor.TypeString(), " as result ", i, ", which is ",
                             Tensor(element, planned).TypeString()),
                      *function);
  }
  if (tensor.byte_size() > 0) std::memcpy(to.data, tensor.raw(), tensor.byte_size());
}

void Code::Run(const KernelBuffer* buffers) const {
  CallPython(what, [&] {
    nb::object given = (*function)(*Arguments(buffers));
    const std::vector<nb::object> all = Results(std::move(given));
    for (size_t i = 0; i < all.size(); ++i) Store(all[i], i, buffers[arguments.size() + i]);
  });
}

// "compiled, file.py:12"
std::string Described(nb::handle function) {
  const nb::object name =
      nb::getattr(function, "__qualname__", nb::getattr(function.type(), "__name__"));
  const std::string line = DefinitionOf(function);
  return StrCat(nb::cast<std::string>(nb::str(name)), line.empty() ? "" : ", ", line);
}

// The type of a value that lies in memory as it is.
AnyTensorType NumbersIn(Value value, const std::string& compiler, const Operation* function) {
  const AnyTensorType type = TensorOrNull(value);
  if (type && type.has_rank() && type.element() != ElementType::kString) return type;
  throw Error(ErrorCode::kUnsupported, "python/compiler",
              StrCat("external compiler '", compiler, "' cannot have function '",
                     FunctionTable::NameOf(function), "', which takes or gives a ",
                     value.type().ToString()));
}

ExternalKernel Compile(const std::string& name, const Operation* function, const Program& program) {
  const CompilerHandle compiler = CompilerNamed(name);
  const std::string what = StrCat("external compiler '", name, "'");
  Code code{.what = StrCat("code of ", what), .arguments = {}, .results = {}, .function = nullptr};
  const Block& body = *FunctionTable::Body(function);
  for (size_t i = 0; i < body.num_arguments(); ++i) {
    code.arguments.push_back(NumbersIn(body.argument(i), name, function));
  }
  const Operation* end = FunctionTable::Return(function);
  for (size_t i = 0; i < end->num_operands(); ++i) {
    code.results.push_back(NumbersIn(end->operand(i), name, function));
  }
  return CallPython(what, [&]() -> ExternalKernel {
    const auto own = std::make_shared<ProgramHolder>(OwnerOf(*function->context()),
                                                     FunctionProgram(function, program));
    nb::object made = (*compiler->compile)(own);
    if (PyCallable_Check(made.ptr()) == 0) {
      throw WrongResult(what, ReprOf(made), *compiler->compile)
          .Hint("it gives a function of arrays");
    }
    std::string described = Described(made);
    code.function = Keep(std::move(made));
    return {[code](const KernelBuffer* buffers, KernelTeam*) { code.Run(buffers); },
            {},
            std::move(described)};
  });
}

// ---- registration ----

void RegisterCompiler(const std::string& name, CompilerHandle compiler) {
  CompilerHandle replaced;  // freed when the mutex is free
  const std::lock_guard lock(TheRegistered().mutex);
  auto& compilers = TheRegistered().compilers;
  if (const auto at = compilers.find(name); at != compilers.end()) {
    replaced = std::exchange(at->second, std::move(compiler));
    return;
  }
  ExternalCompilers::Global().Register(
      {.name = name,
       .refuse = [name](const Operation* op) { return Refuse(name, op); },
       .compile = [name](const Operation* function,
                         const Program& program) { return Compile(name, function, program); },
       .refuse_region =
           [name](std::span<Operation* const> region) { return RefuseRegion(name, region); }});
  compilers.emplace(name, std::move(compiler));
}

}  // namespace

void BindCompilers(nb::module_& m) {
  m.def(
      "register_compiler",
      [](const std::string& name, nb::handle compile,
         const std::optional<std::vector<std::string>>& ops, nb::handle refuse,
         nb::handle refuse_region) {
        PythonCompiler compiler{KeepSome(compile), {}, KeepSome(refuse), KeepSome(refuse_region)};
        if (ops) compiler.ops.emplace(ops->begin(), ops->end());
        RegisterCompiler(name, std::make_shared<PythonCompiler>(std::move(compiler)));
      },
      nb::arg("name"), nb::arg("compile"), nb::arg("ops").none(), nb::arg("refuse").none(),
      nb::arg("refuse_region").none(),
      nb::sig("def register_compiler(name: str, compile: "
              "collections.abc.Callable[[Program], collections.abc.Callable[..., typing.Any]], "
              "ops: collections.abc.Sequence[str] | None, refuse: "
              "collections.abc.Callable[[Operation], str | None] | None, refuse_region: "
              "collections.abc.Callable[[list[Operation]], str | None] | None) -> None"));
}

}  // namespace lathe::python
