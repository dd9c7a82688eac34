"""liblathe_runtime, by ctypes: the declarations of lathe/runtime.h that are used here."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p


class Dim(ctypes.Structure):
    _fields_ = [("value", c_int64), ("text", c_char_p)]


class Port(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("element", c_int), ("rank", c_size_t), ("dims", POINTER(Dim))]


class LoadOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("threads", c_int32), ("max_bytes", c_uint64)]


class InputView(ctypes.Structure):
    _fields_ = [("element", c_int), ("data", c_void_p), ("shape", POINTER(c_int64)),
                ("rank", c_size_t)]


class RunOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("cancel", c_void_p), ("profile", c_void_p),
                ("timeout_seconds", c_double)]


Allocate = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, POINTER(c_int64), c_size_t, c_size_t)

_SIGNATURES = {
    "lathe_error_code": (c_int, [c_void_p]),
    "lathe_error_id": (c_char_p, [c_void_p]),
    "lathe_error_message": (c_char_p, [c_void_p]),
    "lathe_error_text": (c_char_p, [c_void_p]),
    "lathe_error_free": (None, [c_void_p]),
    "lathe_runtime_version": (c_char_p, []),
    "lathe_load_file": (c_void_p, [c_char_p, POINTER(LoadOptions), POINTER(c_void_p)]),
    "lathe_load_memory": (c_void_p, [c_void_p, c_size_t, POINTER(LoadOptions), POINTER(c_void_p)]),
    "lathe_program_free": (None, [c_void_p]),
    "lathe_num_inputs": (c_size_t, [c_void_p]),
    "lathe_num_outputs": (c_size_t, [c_void_p]),
    "lathe_input": (POINTER(Port), [c_void_p, c_size_t]),
    "lathe_output": (POINTER(Port), [c_void_p, c_size_t]),
    "lathe_element_name": (c_char_p, [c_int]),
    "lathe_run_into": (c_void_p, [c_void_p, POINTER(InputView), c_size_t, Allocate, c_void_p,
                                  POINTER(RunOptions)]),
    "lathe_memory": (c_uint64, [c_void_p]),
    "lathe_trim": (None, [c_void_p]),
    "lathe_cancel_new": (c_void_p, []),
    "lathe_cancel_free": (None, [c_void_p]),
    "lathe_cancel_set": (None, [c_void_p]),
}


@functools.cache
def library() -> ctypes.CDLL:
    """The library in this package; LATHE_RUNTIME_LIBRARY names another one."""
    beside = pathlib.Path(__file__).with_name("liblathe_runtime.so")
    lib = ctypes.CDLL(os.environ.get("LATHE_RUNTIME_LIBRARY", str(beside)))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib
