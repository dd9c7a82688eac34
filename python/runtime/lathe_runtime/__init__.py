"""Runs programs that Lathe has compiled (`lathe compile`, `Executable.save`), without the compiler.

    import lathe_runtime

    exe = lathe_runtime.load("digits.lx")
    probabilities = exe(image)                        # or exe(image=image), exe.run({"image": image})

Needs numpy, and ml_dtypes for elements that numpy lacks. Arguments are whatever numpy takes without
converting elements, and are not copied if they are row-major and aligned. Only load what you trust:
a program is machine code.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple, Union

import numpy as np

from lathe_runtime import _errors, _library
from lathe_runtime._errors import (CancelledError, DamagedError, ElementTypeError, Error, FileError,
                                   InternalError, InvalidArgumentError, LimitError,
                                   MissingFileError, NotFoundError, ShapeError,
                                   UnsupportedError)

__all__ = ["CancelToken", "CancelledError", "DamagedError", "ElementTypeError", "Error",
           "Executable", "FileError", "InternalError", "InvalidArgumentError", "LimitError",
           "MissingFileError", "NotFoundError", "Port", "ShapeError", "UnsupportedError", "load"]

__version__: str = _library.library().lathe_runtime_version().decode()

# Numbers of elements as in ONNX. Elements of less than a byte are packed and have no arrays here.
_NUMPY = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
          9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64",
          15: "complex128"}
_ML_DTYPES = {16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2",
              20: "float8_e5m2fnuz", 24: "float8_e8m0fnu"}


def _dtype(element: int, name: str) -> np.dtype[Any]:
    if element in _NUMPY:
        return np.dtype(_NUMPY[element])
    if element not in _ML_DTYPES:
        kind = _library.library().lathe_element_name(element).decode()
        raise UnsupportedError(f"'{name}' is {kind}, which has no arrays here")
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[element]))
    return dtype


class Port(NamedTuple):
    """An input or an output. Sizes that depend on the inputs are text: 'N', '2*N'."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[Union[int, str], ...]


class CancelToken:
    """Ends runs that were given it, from another thread."""

    def __init__(self) -> None:
        lib = _library.library()
        self._handle = lib.lathe_cancel_new()
        weakref.finalize(self, lib.lathe_cancel_free, self._handle)

    def cancel(self) -> None:
        """Runs with this token end with CancelledError, now and later."""
        _library.library().lathe_cancel_set(self._handle)


class _Call:
    """What a run allocates: outputs by index."""

    def __init__(self, executable: Executable, out: Mapping[str, Any]) -> None:
        self.ports = executable._outputs
        self.out = out
        self.arrays: list[np.ndarray[Any, Any] | None] = [None] * len(self.ports)
        self.error: BaseException | None = None

    def allocate(self, index: int, shape: tuple[int, ...]) -> int:
        port = self.ports[index]
        array = self.out.get(port.name)
        if array is None:
            array = np.empty(shape, port.dtype)
        elif array.dtype != port.dtype or array.shape != shape or not _is_usable(array):
            raise ShapeError(f"the array for output '{port.name}' has to be {port.dtype} of shape "
                             f"{shape}, row-major and writeable")
        self.arrays[index] = array
        return int(array.ctypes.data)


def _is_usable(array: np.ndarray[Any, Any]) -> bool:
    return bool(array.flags.c_contiguous and array.flags.aligned and array.flags.writeable)


_calls: dict[int, _Call] = {}  # of runs under way, by what the library hands on
_numbers = iter(range(1, 1 << 62))
_lock = threading.Lock()


def _allocate(user: int, index: int, shape: Any, rank: int, size: int) -> int | None:
    call = _calls[user]
    try:
        return call.allocate(index, tuple(shape[:rank]))
    except BaseException as error:  # must not pass through code of C
        call.error = error
        return None


_ALLOCATE = _library.Allocate(_allocate)


def _array(value: Any) -> np.ndarray[Any, Any]:
    """Row-major and aligned; no copy if it is so."""
    if not isinstance(value, np.ndarray):
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
            value = np.from_dlpack(value)
        value = np.asarray(value)
    return np.require(value, requirements=["C", "A"]) if value.ndim else np.array(value)


class Executable:
    """A compiled program. Any number of threads may run one at once; Python's other threads go on
    meanwhile."""

    def __init__(self, source: str | os.PathLike[str] | bytes, threads: int = 0,
                 max_bytes: int = 0) -> None:
        lib = _library.library()
        options = _library.LoadOptions(ctypes.sizeof(_library.LoadOptions), threads, max_bytes)
        handle = ctypes.c_void_p()
        self._bytes = None
        if isinstance(source, bytes):
            room = np.empty(len(source) + 64, np.uint8)
            begin = -room.ctypes.data % 64
            self._bytes = room[begin:begin + len(source)]
            self._bytes[:] = np.frombuffer(source, np.uint8)
            error = lib.lathe_load_memory(self._bytes.ctypes.data, len(source),
                                          ctypes.byref(options), ctypes.byref(handle))
        else:
            error = lib.lathe_load_file(os.fsencode(source), ctypes.byref(options),
                                        ctypes.byref(handle))
        _errors.check(error)
        self._handle = handle.value or 0
        weakref.finalize(self, _free, self._handle, self._bytes)
        self._inputs = self._ports(lib.lathe_num_inputs, lib.lathe_input)
        self._outputs = self._ports(lib.lathe_num_outputs, lib.lathe_output)
        self._elements = [lib.lathe_input(self._handle, i).contents.element
                          for i in range(len(self._inputs))]

    def _ports(self, count: Any, get: Any) -> list[Port]:
        ports = []
        for i in range(count(self._handle)):
            port = get(self._handle, i).contents
            name = port.name.decode()
            shape = tuple(dim.value if dim.value >= 0 else dim.text.decode()
                          for dim in port.dims[:port.rank])
            ports.append(Port(name, _dtype(port.element, name), shape))
        return ports

    @property
    def inputs(self) -> list[Port]:
        return list(self._inputs)

    @property
    def outputs(self) -> list[Port]:
        return list(self._outputs)

    @property
    def memory(self) -> int:
        """Bytes held for tensors between steps, idle ones included; `trim` gives these back."""
        return int(_library.library().lathe_memory(self._handle))

    def trim(self) -> None:
        """Gives idle memory back."""
        _library.library().lathe_trim(self._handle)

    def __repr__(self) -> str:
        names = [", ".join(p.name for p in ports) for ports in (self._inputs, self._outputs)]
        return f"<lathe_runtime.Executable {names[0]} -> {names[1]}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs on inputs in order or by name: the output, or a tuple if there are several."""
        if len(args) > len(self._inputs):
            raise TypeError(f"{len(self._inputs)} inputs, but {len(args)} were given")
        inputs = {port.name: value for port, value in zip(self._inputs, args)}
        for name, value in kwargs.items():
            if name in inputs:
                raise TypeError(f"input '{name}' is given twice")
            inputs[name] = value
        arrays = tuple(self.run(inputs).values())
        return arrays[0] if len(arrays) == 1 else arrays

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None, *,
            timeout: float | None = None,
            cancel: CancelToken | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """Outputs by name for inputs by name; those that `out` has are written there.

        Raises NotFoundError, ShapeError, ElementTypeError, LimitError (timeout, in seconds),
        CancelledError.
        """
        arrays = self._arrays(inputs)
        views = (_library.InputView * max(1, len(arrays)))()
        for view, element, array in zip(views, self._elements, arrays):
            view.element, view.rank, view.data = element, array.ndim, array.ctypes.data
            view.shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
        options = _library.RunOptions(ctypes.sizeof(_library.RunOptions),
                                      cancel._handle if cancel else None, None, timeout or 0.0)
        call = _Call(self, out or {})
        with _lock:
            number = next(_numbers)
        _calls[number] = call
        try:
            error = _library.library().lathe_run_into(
                self._handle, views, len(arrays), _ALLOCATE, number, ctypes.byref(options))
        finally:
            del _calls[number]
        if call.error is not None:
            _library.library().lathe_error_free(error)
            raise call.error
        _errors.check(error)
        return {port.name: array for port, array in zip(self._outputs, call.arrays)
                if array is not None}

    def _arrays(self, inputs: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
        arrays = []
        for port in self._inputs:
            if port.name not in inputs:
                raise NotFoundError(f"no value for input '{port.name}'")
            array = _array(inputs[port.name])
            if array.dtype != port.dtype:
                raise ElementTypeError(f"input '{port.name}' is {port.dtype}, but the value is "
                                       f"{array.dtype}")
            arrays.append(array)
        if len(inputs) > len(arrays):
            known = {port.name for port in self._inputs}
            names = ", ".join(f"'{name}'" for name in inputs if name not in known)
            raise NotFoundError(f"unknown input {names}")
        return arrays


def _free(handle: int, _memory: Any) -> None:
    _library.library().lathe_program_free(handle)


def load(source: str | os.PathLike[str] | bytes, threads: int = 0, *,
         max_bytes: int = 0) -> Executable:
    """The program in a file (.lx) or in bytes.

    threads: for parallel loops; 0: one per processor.
    max_bytes: of tensors between steps, of all runs together; 0: any number.

    Raises MissingFileError, FileError, DamagedError, UnsupportedError (made for another processor).
    """
    return Executable(source, threads, max_bytes)
