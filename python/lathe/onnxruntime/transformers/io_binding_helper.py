# mypy: disable-error-code="import-not-found"
"""Types of inputs and outputs as those who bind them need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lathe.onnxruntime import _types
from lathe.onnxruntime._metadata import NodeArg
from lathe.onnxruntime._session import InferenceSession


def _element(ort_type: str) -> _types.ElementType:
    found = _types.of_tensor(ort_type)
    if found is None:
        raise ValueError(f"{ort_type} not found in map")
    return found


def _type_of(arguments: Sequence[NodeArg], name: str) -> str:
    for argument in arguments:
        if argument.name == name:
            return argument.type
    raise ValueError(f"name {name} not found")


class TypeHelper:
    """From the text of a type, "tensor(float)", to that of numpy, torch or ONNX."""

    @staticmethod
    def get_input_type(ort_session: InferenceSession, name: str) -> str:
        return _type_of(ort_session.get_inputs(), name)

    @staticmethod
    def get_output_type(ort_session: InferenceSession, name: str) -> str:
        return _type_of(ort_session.get_outputs(), name)

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> type:
        dtype = _element(ort_type).dtype
        if dtype is None:
            raise ValueError(f"{ort_type} needs ml_dtypes")
        return bool if dtype == bool else dtype.type

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> Any:
        """A torch.dtype."""
        import torch

        found = getattr(torch, _element(ort_type).numpy, None)
        if not isinstance(found, torch.dtype):
            raise ValueError(f"{ort_type} not found in map")
        return found

    @staticmethod
    def ort_type_to_onnx_type(ort_type: str) -> int:
        """A number of TensorProto.DataType."""
        return _element(ort_type).number

    @staticmethod
    def _each(ort_session: InferenceSession, convert: Callable[[str], Any]) -> dict[str, Any]:
        arguments = [*ort_session.get_inputs(), *ort_session.get_outputs()]
        return {argument.name: convert(argument.type) for argument in arguments}

    @staticmethod
    def get_io_onnx_type_map(ort_session: InferenceSession) -> dict[str, int]:
        return TypeHelper._each(ort_session, TypeHelper.ort_type_to_onnx_type)

    @staticmethod
    def get_io_numpy_type_map(ort_session: InferenceSession) -> dict[str, type]:
        return TypeHelper._each(ort_session, TypeHelper.ort_type_to_numpy_type)
