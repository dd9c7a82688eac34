"""Passes, rules, operators and external compilers that are written in Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, Union, get_args, overload

from lathe import _core, _ops

PassFunction = TypeVar("PassFunction", bound=Callable[..., object])
OpFunction = TypeVar("OpFunction", bound=Callable[..., Any])
CompilerFunction = TypeVar("CompilerFunction", bound=Callable[[_core.Program], Callable[..., Any]])
RuleFunction = TypeVar("RuleFunction", bound=Callable[[_core.Match], Union[_core.Value, None]])
ShapeFunction = Callable[..., Union[_core.Spec, Sequence[_core.Spec]]]


def _first_line(function: Callable[..., object]) -> str:
    return (inspect.getdoc(function) or "").split("\n", 1)[0]


# ---- passes ----

_OPTION_KINDS = {bool: "bool", int: "int", float: "float", str: "str", list: "list"}


def _options(function: Callable[..., object]) -> list[tuple[str, str, str]]:
    """Name, kind and default of each option: of the parameters that are given by keyword only."""
    options = []
    positional = 0
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            positional += 1
            continue
        kind = _OPTION_KINDS.get(type(parameter.default))
        if kind is None:
            raise TypeError(f"option '{parameter.name}' of a pass needs a default that is a bool, "
                            "an int, a float, a str or a list of str")
        options.append((parameter.name, kind, _option_text(parameter.default)))
    if positional != 1:
        raise TypeError("a pass takes the program, and options by keyword only")
    return options


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(value)}]" if isinstance(value, list) else str(value)


@overload
def register_pass(function: PassFunction) -> PassFunction: ...
@overload
def register_pass(*, name: str = "", doc: str = "", pipeline: str = "", level: int = 2,
                  before: str = "") -> Callable[[PassFunction], PassFunction]: ...


def register_pass(function: Any = None, *, name: str = "", doc: str = "", pipeline: str = "",
                  level: int = 2, before: str = "") -> Any:
    """Makes a function of a program a pass, which pipelines name.

        @lathe.register_pass
        def drop_relus(program: lathe.Program, *, limit: int = 10) -> None: ...

        program.run_passes("drop_relus{limit=2},cse")

    The function changes the program in place; it is verified afterwards. Parameters that go by
    keyword only are options. A pass of Python may be registered again, with the same options.

    pipeline: a named pipeline, such as "inference", that runs the pass, too, whenever anything is
        compiled: at `level` and above, before the first step with the pass `before`, or at its end.

    Raises InvalidArgumentError if Lathe has a pass of that name, NotFoundError for an unknown
    pipeline or step.
    """
    def register(f: PassFunction) -> PassFunction:
        _core.register_pass(name or f.__name__, f, doc or _first_line(f), _options(f),
                            pipeline, level, before)
        return f

    return register if function is None else register(function)


# ---- rules ----

def apply_rules(program: _core.Program, rules: Sequence[_core.Rule]) -> int:
    """Rewrites until none of the rules fits any more; how often. On an error the program is as
    before, unless it is that of a pass."""
    return _core.Rule._apply(program, rules)


def register_rule(source: _core.Pattern, *, name: str = "",
                  where: Callable[[_core.Match], bool] | None = None,
                  any_extents: bool = False) -> Callable[[RuleFunction], RuleFunction]:
    """Makes a function a pass that puts what it builds where `source` is found.

        x = lathe.Pattern.var("x")

        @lathe.register_rule(nn.mul(x, nn.sigmoid(x)))
        def use_swish(match):
            return nn.swish(match["x"])

    The function gives None if it does not want to, after all. where, any_extents: as of lathe.Rule.
    """
    def register(f: RuleFunction) -> RuleFunction:
        rule = _core.Rule(name or f.__name__, source, f, where=where, any_extents=any_extents)

        def run(program: _core.Program) -> None:
            apply_rules(program, [rule])

        register_pass(name=rule.name, doc=_first_line(f) or f"applies rule {rule.name}")(run)
        return f

    return register


# ---- operators ----

_ATTRIBUTE_KINDS = {bool: "a bool", int: "an integer", float: "a number", str: "a str"}
_LIST_KINDS = {int: "a list of integers", float: "a list of numbers", str: "a list of str"}
_ANNOTATIONS: dict[Any, Any] = {
    "bool": True, "int": 0, "float": 0.0, "str": "", "list[int]": [0], "list[float]": [0.0],
    "list[str]": [""], bool: True, int: 0, float: 0.0, str: "", list[int]: [0],
    list[float]: [0.0], list[str]: [""]}


def _operands(signature: inspect.Signature) -> list[tuple[str, bool, bool]]:
    operands = []
    for p in signature.parameters.values():
        if p.kind is inspect.Parameter.VAR_POSITIONAL:
            operands.append((p.name, False, True))
        elif p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            if p.default not in (inspect.Parameter.empty, None):
                raise TypeError(f"operand '{p.name}' cannot have a default but None")
            operands.append((p.name, p.default is None, False))
    return operands


def _attributes(signature: inspect.Signature) -> list[tuple[str, str, str | None]]:
    attributes = []
    for p in signature.parameters.values():
        if p.kind is inspect.Parameter.KEYWORD_ONLY:
            missing = p.default is inspect.Parameter.empty
            like = _example(p.annotation) if missing or p.default is None else p.default
            text = None if missing else "" if p.default is None else _attribute_text(p.default)
            attributes.append((p.name, _attribute_kind(p.name, like), text))
    return attributes


def _example(annotation: Any) -> Any:
    """A value of the annotated type, which may be optional, or None."""
    if isinstance(annotation, str):
        return _ANNOTATIONS.get(annotation.removesuffix(" | None"))
    some = [a for a in get_args(annotation) if a is not type(None)]
    is_optional = len(some) == 1 and type(None) in get_args(annotation)
    return _ANNOTATIONS.get(some[0] if is_optional else annotation)


def _attribute_kind(name: str, like: Any) -> str:
    kinds, item = _ATTRIBUTE_KINDS, like
    if isinstance(like, (list, tuple)) and like:
        kinds, item = _LIST_KINDS, like[0]
    if type(item) not in kinds:
        raise TypeError(f"attribute '{name}' needs a default or an annotation: bool, int, float, "
                        "str, or a list of int, float or str")
    return kinds[type(item)]


def _attribute_text(value: Any) -> str:
    """As the text of programs has it."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_attribute_text, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return _option_text(value)


def register_op(name: str, *, shape: ShapeFunction | None = None, results: int = 1,
                onnx: str = "") -> Callable[[OpFunction], OpFunction]:
    """Makes a function of arrays an operator of programs that are made or loaded from now on.

        @lathe.register_op("mine.soft_cap", onnx="com.example::SoftCap")
        def soft_cap(x, *, limit: float = 30.0):
            return limit * np.tanh(x / limit)

        y = lathe.Dialect("mine").soft_cap(x, limit=5.0)

    Positional parameters are operands, of which those with the default None may be absent; *args
    takes any number; parameters that go by keyword only are attributes. The function gets arrays of
    numpy and gives one, or a tuple of `results`. It must not depend on anything else: what it gives
    for constants is computed once, when the program is compiled.

    shape: gives a lathe.Spec for each result of one for each operand (None: absent) and the
        attributes. Without, results have the element type and the shape of the operands, broadcast.
    onnx: the operator of ONNX that is loaded as this one, "domain::Name".

    Raises InvalidArgumentError for a name in a dialect of Lathe.
    """
    if name.count(".") != 1 or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"'{name}' is not a name like 'mine.soft_cap'")
    domain, _, onnx_name = onnx.rpartition("::")
    if onnx and not (domain and onnx_name):
        raise ValueError(f"'{onnx}' is not a name like 'com.example::SoftCap'")

    def register(f: OpFunction) -> OpFunction:
        signature = inspect.signature(f)
        _core.register_op(name, _operands(signature), _attributes(signature), results, f, shape,
                          _first_line(f) or f"{f.__name__}, of Python", domain, onnx_name)
        _ops.forget_table()
        return f

    return register


# ---- external compilers ----

@overload
def register_compiler(function: CompilerFunction) -> CompilerFunction: ...
@overload
def register_compiler(*, name: str = "", ops: Iterable[str] | None = None,
                      refuse: Callable[[_core.Operation], str | None] | None = None,
                      refuse_region: Callable[[list[_core.Operation]], str | None] | None = None,
                      ) -> Callable[[CompilerFunction], CompilerFunction]: ...


def register_compiler(function: Any = None, *, name: str = "", ops: Iterable[str] | None = None,
                      refuse: Any = None, refuse_region: Any = None) -> Any:
    """Makes a function an external compiler, which lathe.compile(..., external=name) gives a part of
    the program, as large as can be.

        @lathe.register_compiler(ops=["nn.relu", "nn.add"])
        def through_numpy(program: lathe.Program):
            ...
            return lambda a, b: np.maximum(a + b, 0)

    The function gets the part as a program with the weights that it needs, whose inputs `in0`, `in1`,
    ... are its operands and whose outputs `out0`, `out1`, ... its results, and gives a function of
    arrays of numpy: the inputs in order; it gives the outputs, of several a tuple or a list. Any thread
    calls that, and the same arrays must give the same. A compiler of Python may be registered again.

    ops: names of the operations that it takes; default: all.
    refuse: of an operation with such a name, why it does not take it after all; None if it does.
    refuse_region: of the operations of a part, why that is better left where it is; or None.

    Parts of a program may be marked by hand, too: functions with the attribute `compiler`. What has
    such code cannot be saved. Raises InvalidArgumentError if there is another compiler of that name,
    NotFoundError for a name in `ops`.
    """
    taken = None if ops is None else _known_ops(ops)

    def register(f: CompilerFunction) -> CompilerFunction:
        _core.register_compiler(name or f.__name__, f, taken, refuse, refuse_region)
        return f

    return register if function is None else register(function)


def _known_ops(names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise TypeError("ops is a list of names")
    taken = list(names)
    for name in taken:
        _ops.info_of(name)
    return taken
