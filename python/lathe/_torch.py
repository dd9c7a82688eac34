"""Outputs for those who came with torch."""

from __future__ import annotations

import importlib
from typing import Any

import numpy

# What numpy has no type for.
_TYPES = {
    "bf16": ("int16", "bfloat16"),
    "f8e4m3fn": ("uint8", "float8_e4m3fn"),
    "f8e4m3fnuz": ("uint8", "float8_e4m3fnuz"),
    "f8e5m2": ("uint8", "float8_e5m2"),
    "f8e5m2fnuz": ("uint8", "float8_e5m2fnuz"),
}


def tensor_of(array: numpy.typing.NDArray[Any], dtype: str) -> Any:
    """A torch tensor in the memory of an array that nobody else has."""
    torch = importlib.import_module("torch")  # which need not be there for mypy
    if dtype not in _TYPES:
        return torch.from_dlpack(array)
    storage, name = _TYPES[dtype]
    return torch.from_dlpack(array.view(storage)).view(getattr(torch, name))
