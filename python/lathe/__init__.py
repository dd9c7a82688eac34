"""Lathe: a deep-learning graph compiler and runtime.

    import lathe

    exe = lathe.compile("resnet50.onnx")
    scores = exe(image)                       # or exe(data=image), exe.run({"data": image})
    exe.save("resnet50.lx")

Arrays go in and out: of numpy, torch, or whatever has ``__dlpack__``, the buffer protocol or
``__array__``. Errors are exceptions: `lathe.Error` and its kinds. Any number of threads may use one
executable; the interpreter's lock is free while it runs.
"""

from lathe._core import (
    CancelToken,
    Kernel,
    Model,
    OpInfo,
    Operation,
    PassInfo,
    Port,
    ProfiledStep,
    Program,
    Symbol,
    Value,
    list_ops,
    list_passes,
)
from lathe._core import version as __version__
from lathe._errors import (
    CancelledError,
    ElementTypeError,
    Error,
    FileError,
    InternalError,
    InvalidArgumentError,
    LimitError,
    MemoryLimitError,
    MissingFileError,
    NotFoundError,
    ParseError,
    ShapeError,
    TimeLimitError,
    UnsupportedError,
    VerifyError,
)
from lathe._executable import Executable, compile
from lathe._model import load
from lathe._ops import Dialect, Operator, nn, variable
from lathe._reports import Explanation, Profile
from lathe._sklearn import from_sklearn

__all__ = [
    "CancelToken",
    "CancelledError",
    "Dialect",
    "ElementTypeError",
    "Error",
    "Executable",
    "Explanation",
    "FileError",
    "InternalError",
    "InvalidArgumentError",
    "Kernel",
    "LimitError",
    "MemoryLimitError",
    "MissingFileError",
    "Model",
    "NotFoundError",
    "OpInfo",
    "Operation",
    "Operator",
    "ParseError",
    "PassInfo",
    "Port",
    "Profile",
    "ProfiledStep",
    "Program",
    "ShapeError",
    "Symbol",
    "TimeLimitError",
    "UnsupportedError",
    "Value",
    "VerifyError",
    "__version__",
    "compile",
    "from_sklearn",
    "list_ops",
    "list_passes",
    "load",
    "nn",
    "variable",
]
