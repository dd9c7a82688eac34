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
    DataSet,
    Dim,
    EpochReport,
    GeneratedSequence,
    Generation,
    Kernel,
    LayerReport,
    Match,
    Metrics,
    Model,
    OpInfo,
    Operation,
    PassInfo,
    Pattern,
    Port,
    ProfiledStep,
    Program,
    ProgramDifference,
    Rule,
    Spec,
    StepReport,
    Symbol,
    TunedKernel,
    Value,
    ValueDifference,
    list_ops,
    list_passes,
    reduce,
)
from lathe._core import version as __version__
from lathe._errors import (
    CallbackError,
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
from lathe._extend import (
    apply_rules,
    register_compiler,
    register_op,
    register_pass,
    register_rule,
)
from lathe._generate import Generator, generate
from lathe._model import load
from lathe._ops import Dialect, Operator, nn, variable
from lathe._quantize import Quantization, quantize, quantize_weights
from lathe._reports import Explanation, Profile
from lathe._sklearn import from_sklearn
from lathe._tools import Comparison, check, diff, dump, extract, interpret
from lathe._train import Trainer
from lathe._tune import Tuning, tune

__all__ = [
    "CallbackError",
    "CancelToken",
    "CancelledError",
    "Comparison",
    "DataSet",
    "Dialect",
    "Dim",
    "ElementTypeError",
    "EpochReport",
    "Error",
    "Executable",
    "Explanation",
    "FileError",
    "GeneratedSequence",
    "Generation",
    "Generator",
    "InternalError",
    "InvalidArgumentError",
    "Kernel",
    "LayerReport",
    "LimitError",
    "Match",
    "MemoryLimitError",
    "Metrics",
    "MissingFileError",
    "Model",
    "NotFoundError",
    "OpInfo",
    "Operation",
    "Operator",
    "ParseError",
    "PassInfo",
    "Pattern",
    "Port",
    "Profile",
    "ProfiledStep",
    "Program",
    "ProgramDifference",
    "Quantization",
    "Rule",
    "ShapeError",
    "Spec",
    "StepReport",
    "Symbol",
    "TimeLimitError",
    "Trainer",
    "TunedKernel",
    "Tuning",
    "UnsupportedError",
    "Value",
    "ValueDifference",
    "VerifyError",
    "__version__",
    "apply_rules",
    "check",
    "compile",
    "diff",
    "dump",
    "extract",
    "from_sklearn",
    "generate",
    "interpret",
    "list_ops",
    "list_passes",
    "load",
    "nn",
    "quantize",
    "quantize_weights",
    "reduce",
    "register_compiler",
    "register_op",
    "register_pass",
    "register_rule",
    "tune",
    "variable",
]
