"""IOBinding: where a session reads its inputs and writes its outputs, run after run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from lathe.onnxruntime import _types, _values
from lathe.onnxruntime._types import Array
from lathe.onnxruntime._values import OrtValue, OrtValueVector

if TYPE_CHECKING:
    from lathe.onnxruntime._session import InferenceSession


class IOBinding:
    """Inputs and outputs of a session by name. Outputs without memory get some in each run."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, OrtValue] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        self._results = OrtValueVector()

    @property
    def _iobinding(self) -> IOBinding:
        return self

    def _bind(self, name: str, value: OrtValue) -> None:
        known = {arg.name for arg in self._session.get_inputs()}
        known.update(arg.name for arg in self._session.get_overridable_initializers())
        if name not in known:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        self._inputs[name] = value

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Shares the array's memory. RuntimeError: not an array, or an unknown input."""
        if not isinstance(arr_on_cpu, np.ndarray):
            raise RuntimeError("Unable to create OrtValue from the given python object")
        self._bind(name, OrtValue.of(arr_on_cpu))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Iterable[int],
        buffer_ptr: int,
    ) -> None:
        """Reads at an address; who binds it keeps the memory alive."""
        _values.require_cpu(device_type, device_id)
        element = _types.of_argument(element_type)
        self._bind(name, OrtValue.of(_values.array_at(buffer_ptr, element, shape)))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._bind(name, ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Iterable[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Writes to an address, which takes type and shape, or to memory that each run gets."""
        _values.require_cpu(device_type, device_id)
        value = None
        if buffer_ptr is not None:
            if element_type is None or shape is None:
                raise ValueError(
                    "`element_type` and `shape` are to be provided if pre-allocated memory is "
                    "provided"
                )
            element = _types.of_argument(element_type)
            value = OrtValue.of(_values.array_at(buffer_ptr, element, shape))
        self._outputs[name] = value

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._outputs[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Accepted: memory of the processor needs none."""

    def synchronize_outputs(self) -> None:
        """Accepted: memory of the processor needs none."""

    def get_outputs(self) -> list[OrtValue]:
        """Of the last run, in the order in which they were bound."""
        return list(self._results)

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        return self._results

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Arrays, lists and dicts of the last run, in the order in which they were bound."""
        return [
            value.numpy().copy() if value.is_tensor() else value._value for value in self._results
        ]

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._results = OrtValueVector()
