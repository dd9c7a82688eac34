"""Inputs and outputs of a session: what is said of them, and what may be fed."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, NoReturn

import numpy as np

import lathe
from lathe import _core
from lathe.onnxruntime import _errors, _types
from lathe.onnxruntime._types import Array
from lathe.onnxruntime._metadata import NodeArg, class_labels
from lathe.onnxruntime._values import OrtValue

_ORT_NAMES = {t.lathe: t.ort for t in _types.ELEMENT_TYPES}


def _ort_type(text: str) -> str:
    """ "seq(tensor(f32))" as onnxruntime writes it: "seq(tensor(float))"."""
    return re.sub(r"\w+", lambda word: _ORT_NAMES.get(word[0], word[0]), text)


def _type_of_port(port: lathe.Port) -> str:
    tensor = f"tensor({'string' if port.dtype == 'str' else port.dtype})"
    form = {"list": "seq({})", "optional": "optional({})"}.get(port.kind, "{}")
    return _ort_type(form.format(tensor))


@dataclasses.dataclass
class Overrides:
    """Sizes that SessionOptions gives to dimensions, by name and by denotation."""

    names: dict[str, int]
    denotations: dict[str, int]

    def dim(self, dim: _core.OnnxDim) -> int | str | None:
        if dim.size is not None:
            return dim.size
        size: int | None = self.names.get(dim.name, self.denotations.get(dim.denotation))
        return size if size is not None else dim.name or None

    def symbols(self, inputs: list[_core.OnnxPort], separate: bool) -> dict[str, int]:
        """The symbols of the program that they fix; `separate` as OnnxImportOptions has it."""
        fixed = {}
        for port in inputs:
            for axis, dim in enumerate(port.dims or ()):
                size = self.dim(dim)
                if dim.size is None and isinstance(size, int):
                    own = separate or not dim.name
                    fixed[f"{port.name}.{axis}" if own else dim.name] = size
        return fixed


def _joined(
    declared: list[Any], inferred: tuple[Any, ...] | None, symbols: set[str]
) -> list[Any]:
    """A declared shape, and what is known beyond it."""
    if inferred is None or len(inferred) != len(declared):
        return declared

    def dim(said: Any, known: Any) -> Any:
        if isinstance(known, int) or said is None and known in symbols:
            return known
        return said

    return [dim(*pair) for pair in zip(declared, inferred)]


def _argument(
    port: _core.OnnxPort, inferred: lathe.Port | None, overrides: Overrides, symbols: set[str]
) -> NodeArg:
    declared = None if port.dims is None else [overrides.dim(dim) for dim in port.dims]
    of_tensor = port.type.startswith(("tensor(", "optional(tensor(")) or not port.type
    shape = declared or []
    if inferred is not None and of_tensor:
        known = inferred.shape
        shape = _joined(declared if declared is not None else [None] * len(known or ()), known,
                        symbols)
    kind = _ort_type(port.type)
    if not kind and inferred is not None:
        kind = _type_of_port(inferred)
    return NodeArg(port.name, kind, shape if of_tensor else [])


@dataclasses.dataclass
class Interface:
    """NodeArgs of a session."""

    inputs: list[NodeArg]
    outputs: list[NodeArg]
    overridable: list[NodeArg]


def interface_of(
    model: lathe.Model | lathe.Executable, file: _core.OnnxInterface | None, overrides: Overrides
) -> Interface:
    """Of a model and what its file declares, if that is one of ONNX."""
    if file is None:
        own, given = (
            [NodeArg(p.name, _type_of_port(p), list(p.shape or ())) for p in ports]
            for ports in (model.inputs, model.outputs)
        )
        return Interface(own, given, [])
    symbols = {dim.name for port in file.inputs for dim in port.dims or ()}
    ports = {port.name: port for port in model.outputs}
    inputs = [p for p in file.inputs if not p.has_initializer]
    spare = [p for p in file.inputs if p.has_initializer and file.ir_version >= 4]
    return Interface(
        [_argument(p, None, overrides, symbols) for p in inputs],
        [_argument(p, ports[p.name], overrides, symbols) for p in file.outputs],
        [_argument(p, None, overrides, symbols) for p in spare],
    )


class Input:
    """What may be fed to an input. `dtype` is that of arrays that need no second look."""

    def __init__(self, argument: NodeArg) -> None:
        self.name, self.shape = argument.name, argument.shape
        self._element = _types.within(argument.type)
        self._inner = self._element.tensor
        self.is_optional = argument.type.startswith("optional")
        self._is_list = argument.type.startswith(("seq", "optional(seq"))
        self._is_map = argument.type.startswith("map")
        plain = argument.type == self._inner and self._element is not _types.STRING
        self.dtype = self._element.dtype if plain and argument.shape else None
        self._is_scalar = False

    def converted(self, value: Any) -> Any:
        """What the executable takes. Raises as onnxruntime does for a value of another type."""
        if isinstance(value, OrtValue):
            value = value._value
        if value is None or self._is_map:
            return value
        if not self._is_list:
            return self._tensor(value)
        if isinstance(value, list):
            return [self._tensor(item) for item in value]
        if isinstance(value, np.ndarray):
            self._refuse(f"input with name: '{self.name}' expected to be of type: 3 but received a "
                         "tensor")
        raise RuntimeError(f"the tensors of '{self.name}' are to be in a list, not in a "
                           f"{type(value).__name__}")

    def _refuse(self, message: str) -> NoReturn:
        raise _errors.new(_errors.InvalidArgument, message)

    def _tensor(self, value: Any) -> Array:
        if isinstance(value, list):
            value = np.array(value, self._element.dtype)
        if not isinstance(value, np.ndarray):
            raise RuntimeError(f"Unable to handle object of type {type(value)}")
        element = _types.of_dtype(value.dtype)
        if element is None:
            raise RuntimeError(f"{value.dtype} of input '{self.name}' is not a type of tensors")
        if element is not self._element:
            self._refuse(f"Unexpected input data type. Actual: ({element.tensor}) , expected: "
                         f"({self._inner})")
        if element is _types.STRING:
            return _strings(value)
        if self._is_scalar and value.size == 1:
            value = value.reshape(())
        native: Array = value.astype(self._element.dtype, copy=False)  # the byte order
        return native

    def expect_scalar(self) -> None:
        """The program wants no axis, where onnxruntime takes one element in any shape."""
        self._is_scalar = True

    def check_shape(self, value: Any) -> None:
        """Raises InvalidArgument if an array contradicts the declared shape."""
        expected = self.shape
        if not isinstance(value, np.ndarray) or not expected:
            return
        remedy = "Please fix either the inputs/outputs or the model."
        if value.ndim != len(expected):
            self._refuse(f"Invalid rank for input: {self.name} Got: {value.ndim} Expected: "
                         f"{len(expected)} {remedy}")
        wrong = [
            f" index: {axis} Got: {got} Expected: {want}\n"
            for axis, (got, want) in enumerate(zip(value.shape, expected))
            if isinstance(want, int) and got != want
        ]
        if wrong:
            self._refuse(f"Got invalid dimensions for input: {self.name} for the following indices"
                         f"\n{''.join(wrong)} {remedy}")


def _strings(array: Array) -> Array:
    if array.dtype.kind in "UT":
        return array.astype(object)
    texts = [x.decode() if isinstance(x, bytes) else str(x) for x in array.ravel()]
    return np.array(texts, object).reshape(array.shape)


def map_keys(interface: Interface, model: lathe.Model) -> dict[str, list[Any]]:
    """Keys of the outputs that are lists of dicts, by name; the program gives them as a matrix."""
    keys = {arg.name: class_labels(model, arg.name) for arg in interface.outputs}
    return {name: labels for name, labels in keys.items() if labels is not None}


def as_maps(scores: Array, keys: list[Any]) -> list[dict[Any, float]]:
    """A dict for each row, sorted by key."""
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return [{keys[i]: row[i] for i in order} for row in scores.tolist()]
