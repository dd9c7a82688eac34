"""Operators as functions: `nn.relu(x)`, for whatever `x` is."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from lathe import _core, _errors


@functools.cache
def _table() -> dict[str, _core.OpInfo]:
    return {op.name: op for op in _core.list_ops()}


def _unknown(kind: str, name: str, known: Sequence[str]) -> _errors.NotFoundError:
    hint = _core.did_you_mean(name, known)
    return _errors.NotFoundError(f"there is no {kind} '{name}'", code="not-found",
                                 id="ir/unknown-op", hints=[hint] if hint else [])


def info_of(name: str) -> _core.OpInfo:
    """Of an operator. Raises NotFoundError."""
    if name not in _table():
        raise _unknown("operator", name, list(_table()))
    return _table()[name]


def forget_table() -> None:
    """After an operator was registered."""
    _table.cache_clear()
    _operator.cache_clear()


class Operator:
    """An operator, such as `nn.conv`. Called with values of a program, it is built there; called with
    symbols, it gives a symbol, with patterns, a pattern.

    Operands go by position or by name; numbers, lists and arrays are constants; None is an absent
    one. Attributes go by name. Further keywords:

    name: where errors and other programs find it; default: the line of Python that calls.
    num_results: how many results it has, if that is not fixed (the pieces of nn.split).
    program: where it is built, if no operand says so.
    """

    def __init__(self, info: _core.OpInfo) -> None:
        self.info = info
        self.__name__ = self.__qualname__ = info.name
        self.__doc__ = _doc(info)

    def __repr__(self) -> str:
        return f"<lathe.Operator {self.info.name}>"

    def __call__(self, *operands: Any, name: str | None = None, num_results: int | None = None,
                 program: _core.Program | None = None, **keywords: Any) -> Any:
        if name is not None and any(slot.name == "name" for slot in self.info.attributes):
            keywords, name = {**keywords, "name": name}, None  # of nn.feed and its like
        everything = (*operands, *keywords.values())
        if any(isinstance(o, _core.Symbol) for o in everything):
            return self._symbol(operands, keywords, name, num_results)
        if any(isinstance(o, _core.Pattern) for o in everything):
            return self._pattern(operands, keywords)
        given, attributes = self._bind(operands, keywords)
        program = self._program_of(given) if program is None else program
        if program is None:
            raise TypeError(f"{self.info.name}: no operand is of a program; give program=")
        values = [None if o is None else self._value(i, o, given, program)
                  for i, o in enumerate(given)]
        file, line = _caller()
        results = program._create(self.info.name, values, attributes, num_results, name or "",
                                  file, line)
        return results[0] if len(results) == 1 else tuple(results) or None

    def _symbol(self, operands: Sequence[Any], keywords: Mapping[str, Any], name: str | None,
                num_results: int | None) -> _core.Symbol:
        """What is missing of a layer becomes variables; other keywords are attributes as text."""
        slots = {slot.name for slot in self.info.operands}
        named = {key: value for key, value in keywords.items() if key in slots}
        attributes = {key: _text(value) for key, value in keywords.items() if key not in slots}
        if num_results is not None:
            attributes["num_results"] = str(num_results)
        return _core.Symbol._apply(self.info.name, list(operands), named, attributes, name or "")

    def _pattern(self, operands: Sequence[Any], keywords: Mapping[str, Any]) -> _core.Pattern:
        """Numbers are constants near them, None is an absent operand."""
        given, attributes = self._bind(operands, keywords, partial=True)

        def part(operand: Any) -> _core.Pattern:
            if operand is None:
                return _core.Pattern.absent()
            return operand if isinstance(operand, _core.Pattern) else _core.Pattern.number(operand)

        return _core.Pattern._call(self.info.name, [part(o) for o in given], attributes)

    def _bind(self, operands: Sequence[Any], keywords: Mapping[str, Any],
              partial: bool = False) -> tuple[list[Any], dict[str, Any]]:
        """Operands in order, without absent ones at the end, and attributes. Partial: attributes
        that an operation needs may be missing."""
        slots = self.info.operands
        variadic = bool(slots) and slots[-1].variadic
        if len(operands) > len(slots) and not variadic:
            raise TypeError(f"{self.info.name} takes {len(slots)} operands, {len(operands)} were "
                            "given")
        given: dict[int, Any] = dict(enumerate(operands))
        attributes: dict[str, Any] = {}
        places = {slot.name: i for i, slot in enumerate(slots)}
        known = [attribute.name for attribute in self.info.attributes]
        for key, value in keywords.items():
            if key in places and key not in known:
                self._put(given, places[key], value, variadic)
            elif key in known:
                attributes[key] = value
            else:
                raise TypeError(str(_unknown(f"operand or attribute of {self.info.name}", key,
                                             [*places, *known])))
        self._check_complete(given, attributes, partial)
        count = max((i + 1 for i, value in given.items() if value is not None), default=0)
        return [given.get(i) for i in range(count)], attributes

    def _put(self, given: dict[int, Any], place: int, value: Any, variadic: bool) -> None:
        if place in given:
            raise TypeError(f"{self.info.name}: operand '{self.info.operands[place].name}' is "
                            "given twice")
        if variadic and place == len(self.info.operands) - 1:
            given.update(enumerate(value, place))
        else:
            given[place] = value

    def _check_complete(self, given: Mapping[int, Any], attributes: Mapping[str, Any],
                        partial: bool) -> None:
        for i, slot in enumerate(self.info.operands):
            if given.get(i) is None and not slot.optional and not slot.variadic:
                raise TypeError(f"{self.info.name} needs operand '{slot.name}'")
        for slot in self.info.attributes:
            if attributes.get(slot.name) is None and not slot.optional and not partial:
                raise TypeError(f"{self.info.name} needs attribute '{slot.name}', {slot.type}")

    @staticmethod
    def _program_of(operands: Sequence[Any]) -> _core.Program | None:
        for operand in operands:
            if isinstance(operand, _core.Value):
                return operand.program
        return None

    def _value(self, place: int, operand: Any, all_operands: Sequence[Any],
               program: _core.Program) -> _core.Value:
        if isinstance(operand, _core.Value):
            return operand
        return program.constant(operand, self._dtype_of(place, operand, all_operands))

    def _dtype_of(self, place: int, operand: Any, all_operands: Sequence[Any]) -> str | None:
        """Numbers and lists have the element type of what they meet; arrays have their own."""
        if hasattr(operand, "dtype"):
            return None
        slots = self.info.operands
        wanted = slots[min(place, len(slots) - 1)].type
        for i, other in enumerate(all_operands):
            same = slots[min(i, len(slots) - 1)].type == wanted
            if same and isinstance(other, _core.Value) and wanted:
                return other.dtype
        return wanted if wanted in _ELEMENTS else None


_ELEMENTS = frozenset(["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16",
                       "f32", "f64", "string"])


def _text(value: Any) -> str:
    """As the text of programs has it; text itself as it is."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def variable(name: str, shape: Sequence[int | str | None] | None = None,
             dtype: str | None = None, **attributes: Any) -> _core.Symbol:
    """A variable of a network of symbols; see lathe.Symbol.

    shape, dtype: what it is where `to_program` is not told otherwise; as in Program.input.
    attributes: any others, as text.
    """
    texts = {key: _text(value) for key, value in attributes.items()}
    if shape is not None:
        texts["__shape__"] = _text(["?" if size is None else size for size in shape])
    if dtype is not None:
        texts["__dtype__"] = dtype
    return _core.Symbol._variable(name, texts)


def _caller() -> tuple[str, int]:
    """The line outside of this package that asks for an operation."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("lathe."):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def _doc(info: _core.OpInfo) -> str:
    def line(slot: _core.OpParameter) -> str:
        note = f" = {slot.default}" if slot.default else " (optional)" if slot.optional else ""
        return f"    {slot.name}: {slot.type or 'value'}{note}. {slot.doc}".rstrip(" .")

    parts = [info.summary]
    parts += [info.description.strip()] if info.description.strip() else []
    parts += ["Operands:\n" + "\n".join(map(line, info.operands))] if info.operands else []
    parts += ["Attributes:\n" + "\n".join(map(line, info.attributes))] if info.attributes else []
    parts += ["Results: " + ", ".join(info.results)] if info.results else []
    return "\n\n".join(parts)


@functools.cache
def _operator(name: str) -> Operator:
    return Operator(_table()[name])


class Dialect:
    """The operators of a dialect as attributes: `lathe.Dialect("nn").relu`."""

    def __init__(self, name: str) -> None:
        if name not in {op.split(".")[0] for op in _table()}:
            raise _unknown("dialect", name, sorted({op.split(".")[0] for op in _table()}))
        self._name = name

    def __getattr__(self, name: str) -> Operator:
        if name.startswith("__"):
            raise AttributeError(name)
        info = _table().get(f"{self._name}.{name}")
        if info is None:
            known = dir(self)
            near = _unknown("operator", f"{self._name}.{name}", [f"{self._name}.{k}" for k in known])
            raise AttributeError(str(near), name=name, obj=self) from None
        return _operator(info.name)

    def __dir__(self) -> list[str]:
        return [op.split(".", 1)[1] for op in _table() if op.startswith(self._name + ".")]

    def __repr__(self) -> str:
        return f"<lathe.Dialect {self._name}>"


class _Lazy(Dialect):
    """A dialect whose table is read when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name


nn: Dialect = _Lazy("nn")
