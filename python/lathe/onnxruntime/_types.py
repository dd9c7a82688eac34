"""Element types by their names in onnxruntime, ONNX, numpy and Lathe."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class ElementType:
    """One element type: TensorProto.DataType `number`, and its names."""

    number: int
    ort: str  # as in "tensor(float)"
    numpy: str  # name of the dtype; of ml_dtypes where numpy has none
    lathe: str

    @property
    def tensor(self) -> str:
        return f"tensor({self.ort})"

    @functools.cached_property
    def dtype(self) -> np.dtype[Any] | None:
        """None if it takes ml_dtypes, which is not installed."""
        try:
            return np.dtype(self.numpy)
        except TypeError:
            pass
        try:
            import ml_dtypes
        except ImportError:
            return None
        kind = getattr(ml_dtypes, self.numpy, None)
        return None if kind is None else np.dtype(kind)


ELEMENT_TYPES = tuple(
    ElementType(*row)
    for row in (
        (1, "float", "float32", "f32"),
        (2, "uint8", "uint8", "u8"),
        (3, "int8", "int8", "i8"),
        (4, "uint16", "uint16", "u16"),
        (5, "int16", "int16", "i16"),
        (6, "int32", "int32", "i32"),
        (7, "int64", "int64", "i64"),
        (8, "string", "object", "string"),
        (9, "bool", "bool", "bool"),
        (10, "float16", "float16", "f16"),
        (11, "double", "float64", "f64"),
        (12, "uint32", "uint32", "u32"),
        (13, "uint64", "uint64", "u64"),
        (14, "complex64", "complex64", "c64"),
        (15, "complex128", "complex128", "c128"),
        (16, "bfloat16", "bfloat16", "bf16"),
        (17, "float8e4m3fn", "float8_e4m3fn", "f8e4m3fn"),
        (18, "float8e4m3fnuz", "float8_e4m3fnuz", "f8e4m3fnuz"),
        (19, "float8e5m2", "float8_e5m2", "f8e5m2"),
        (20, "float8e5m2fnuz", "float8_e5m2fnuz", "f8e5m2fnuz"),
        (21, "uint4", "uint4", "u4"),
        (22, "int4", "int4", "i4"),
        (23, "float4e2m1", "float4_e2m1fn", "f4e2m1"),
        (24, "float8e8m0", "float8_e8m0fnu", "f8e8m0"),
        (25, "uint2", "uint2", "u2"),
        (26, "int2", "int2", "i2"),
    )
)
STRING = ELEMENT_TYPES[7]

_BY_NUMBER = {t.number: t for t in ELEMENT_TYPES}
_BY_ORT = {t.tensor: t for t in ELEMENT_TYPES}
_BY_NUMPY = {t.numpy: t for t in ELEMENT_TYPES}
_STRING_KINDS = "OSUT"  # objects, bytes, str, StringDType


def of_dtype(dtype: Any) -> ElementType | None:
    """The element type that arrays of a dtype hold; None if there is none."""
    dtype = np.dtype(dtype)
    return STRING if dtype.kind in _STRING_KINDS else _BY_NUMPY.get(dtype.newbyteorder("=").name)


def of_tensor(text: str) -> ElementType | None:
    """Of "tensor(float)"; None of what is not a tensor."""
    return _BY_ORT.get(text)


def within(text: str) -> ElementType:
    """Of the tensors in "seq(tensor(float))", "map(string,tensor(float))" or "tensor(float)"."""
    return _BY_ORT[text[text.index("tensor(") :].rstrip(")") + ")"]


def of_argument(element_type: Any) -> ElementType:
    """Of a number of TensorProto.DataType, or of whatever numpy takes for a dtype."""
    if isinstance(element_type, int) and not isinstance(element_type, bool):
        found = _BY_NUMBER.get(element_type)
    else:
        found = of_dtype(element_type)
    if found is None:
        raise RuntimeError(f"{element_type!r} is not an element type of tensors")
    return found
