"""Models from files, bytes and objects."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, Union

from lathe import _core

_log = logging.getLogger("lathe")

Bytes = Union[bytes, bytearray, memoryview]


class Readable(Protocol):
    def read(self) -> Bytes: ...


class Serializable(Protocol):
    """Such as onnx.ModelProto."""

    def SerializeToString(self) -> bytes: ...


Source = Union[str, "os.PathLike[str]", Bytes, Readable, Serializable]
ExternalData = Union[Mapping[str, Bytes], Callable[[str], Union[Bytes, None]]]


def load(source: Source, *, strict: bool = False, external_data: ExternalData | None = None,
         separate_dims: bool = False, initializers_as_inputs: Iterable[str] = (),
         initializers: Mapping[str, Any] | None = None) -> _core.Model:
    """The model of a file (.onnx, or .lathe text), or of ONNX in memory.

    source: a path; or bytes, which are not copied; or a file that was opened in binary mode; or an
        onnx.ModelProto.
    strict: what a file says of its values and does not hold is an error, not a logged warning.
    external_data: contents of the files where the model keeps weights, by the location that it
        names; or a function of that location, which gives None if there is none. Default: files
        beside the model.
    separate_dims: sizes that inputs of ONNX give one name need not be one.
    initializers_as_inputs: graph inputs of ONNX that have a value there, and are to be inputs.
    initializers: arrays to take for initializers of ONNX, by name.

    Raises ParseError, UnsupportedError (operators that Lathe lacks), VerifyError, ShapeError,
    MissingFileError, FileError.
    """
    model = _core.Model(_path_or_bytes(source), strict=strict,
                        external_data=_function_of(external_data), separate_dims=separate_dims,
                        initializers_as_inputs=list(initializers_as_inputs),
                        initializers=dict(initializers or {}))
    for id, message in model.warnings:
        _log.warning("%s [%s]", message, id)
    return model


def _path_or_bytes(source: Source) -> str | Bytes:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return source
    if hasattr(source, "SerializeToString"):
        return source.SerializeToString()
    if hasattr(source, "read"):
        content = source.read()
        if isinstance(content, str):
            raise TypeError("the file was opened as text; open it in binary mode: open(path, 'rb')")
        return content
    raise TypeError(f"a model is a path, bytes, a file or an onnx.ModelProto, not a "
                    f"{type(source).__name__}")


def _function_of(data: ExternalData | None) -> Callable[[str], Any] | None:
    return data.get if isinstance(data, Mapping) else data
