"""onnxruntime's exceptions, and which of them an error of Lathe is."""

from __future__ import annotations

import re

import lathe


_NUMBERS: dict[type[Exception], tuple[int, str]] = {}


def _declare(name: str, code: int, category: str) -> type[Exception]:
    kind = type(name, (Exception,), {"__module__": _MODULE})
    _NUMBERS[kind] = (code, category)
    return kind


# Where client code finds them, and what pickles name.
_MODULE = "lathe.onnxruntime.capi.onnxruntime_pybind11_state"

Fail = _declare("Fail", 1, "FAIL")
InvalidArgument = _declare("InvalidArgument", 2, "INVALID_ARGUMENT")
NoSuchFile = _declare("NoSuchFile", 3, "NO_SUCHFILE")
NoModel = _declare("NoModel", 4, "NO_MODEL")
EngineError = _declare("EngineError", 5, "ENGINE_ERROR")
RuntimeException = _declare("RuntimeException", 6, "RUNTIME_EXCEPTION")
InvalidProtobuf = _declare("InvalidProtobuf", 7, "INVALID_PROTOBUF")
ModelLoaded = _declare("ModelLoaded", 8, "MODEL_LOADED")
NotImplemented = _declare("NotImplemented", 9, "NOT_IMPLEMENTED")
InvalidGraph = _declare("InvalidGraph", 10, "INVALID_GRAPH")
EPFail = _declare("EPFail", 11, "EP_FAIL")
ModelLoadCanceled = _declare("ModelLoadCanceled", 12, "MODEL_LOAD_CANCELED")
ModelRequiresCompilation = _declare("ModelRequiresCompilation", 13, "MODEL_REQUIRES_COMPILATION")
NotFound = _declare("NotFound", 14, "NOT_FOUND")
DeviceReset = _declare("DeviceReset", 15, "DEVICE_RESET")

# What `import *` gives: the exceptions alone.
__all__ = [
    "DeviceReset", "EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph",
    "InvalidProtobuf", "ModelLoadCanceled", "ModelLoaded", "ModelRequiresCompilation", "NoModel",
    "NoSuchFile", "NotFound", "NotImplemented", "RuntimeException",
]


def new(kind: type[Exception], message: str) -> Exception:
    """An exception of a kind with onnxruntime's prefix."""
    code, category = _NUMBERS[kind]
    return kind(f"[ONNXRuntimeError] : {code} : {category} : {message}")


def without_prefix(error: Exception) -> str:
    """What `new` was given, of whatever exception."""
    return re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error))


_BY_ID = {
    "onnx/wire": InvalidProtobuf,
    "onnx/no-graph": InvalidArgument,
    "onnx/unsupported-op": InvalidGraph,
    "onnx/undefined-input": InvalidArgument,
    "onnx/duplicate-name": Fail,
    "onnx/cycle": Fail,
    "onnx/input-type": Fail,
    "onnx/opset": Fail,
    "model/format": InvalidProtobuf,
    "io/open": NoSuchFile,
}
_BY_CODE = {
    "invalid-argument": InvalidArgument,
    "not-found": NotFound,
    "unsupported": NotImplemented,
    "parse": InvalidProtobuf,
    "verify": InvalidGraph,
    "internal": RuntimeException,
}


def translated(error: lathe.Error) -> Exception:
    """What onnxruntime raises for it; the error of Lathe is to be its cause."""
    if error.id == "run/cancelled":
        return new(Fail, "Exiting due to terminate flag being set to true.")
    kind = _BY_ID.get(error.id) or _BY_CODE.get(error.code, Fail)
    return new(kind, str(error))
