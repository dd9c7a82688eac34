# mypy: disable-error-code="import-not-found,import-untyped"
"""Looking into models and comparing them: what `lathe check`, `diff`, `extract` and `run --dump` do."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import numpy as np

from lathe import _core, _model
from lathe._core import ProgramDifference, ValueDifference
from lathe._executable import Source, compile, program_of
from lathe._reports import _html_table, _table

Results = Mapping[str, Any]
_RESULTS = (".npz", ".npy", ".safetensors")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Outputs beside those of somebody else. str() of it is a table; a notebook shows it as one.

    against: what they are compared with.
    outputs: how each differs. `bool(comparison)` says whether all agree.
    """

    against: str
    outputs: Sequence[ValueDifference]

    _HEAD = ("max abs", "max rel", "differ", "output")

    @property
    def agrees(self) -> bool:
        return all(output.agrees for output in self.outputs)

    def __bool__(self) -> bool:
        return self.agrees

    def _rows(self) -> list[tuple[str, ...]]:
        def text(d: ValueDifference) -> str:
            first = f": first at {d.place}, {d.a} and {d.b}" if d.beyond else ""
            return f"{d.name} {d.type}" + (f": {d.mismatch}" if d.mismatch else first)

        return [(f"{d.max_abs:.3g}", f"{d.max_rel:.3g}", f"{d.beyond} of {d.elements}", text(d))
                for d in self.outputs]

    def __str__(self) -> str:
        same = sum(output.agrees for output in self.outputs)
        return (_table(self._HEAD, self._rows()) +
                f"\n{same} of {len(self.outputs)} outputs agree with {self.against}")

    def _repr_html_(self) -> str:
        return _html_table(self._HEAD, self._rows())


def extract(model_or_source: Source, *, inputs: Iterable[str] = (),
            outputs: Iterable[str] = ()) -> _core.Program:
    """The part of a program that computes `outputs` of `inputs`, as a program.

    inputs, outputs: names of inputs, of outputs, or of values between them, as the model's file has
        them, or "%N" of the program's text. Default: those that the program has.

    Raises NotFoundError for an unknown name; InvalidArgumentError (extract/input) for an input that
    the outputs need and that is not listed; what lathe.load does.
    """
    return _core._extract(program_of(model_or_source, False), list(inputs), list(outputs))


def dump(model_or_source: Source, inputs: Mapping[str, Any], names: Iterable[str] | str = "all",
         **options: Any) -> dict[str, Any]:
    """The outputs of a run, and behind them values from within.

    names: of values as the model's file has them, or "%N" of the program's text; "all": every value
        that operations outside of regions make.
    options: those of lathe.compile. What is looked at is not fused, so the run is slower.

    Raises NotFoundError for an unknown name; what lathe.compile and Executable.run do.
    """
    wanted = [names] if isinstance(names, str) else list(names)
    program = _core._fetching(program_of(model_or_source, False), wanted)
    return compile(program, **options).run(inputs)


def interpret(model_or_source: Source, inputs: Mapping[str, Any], *,
              timeout: float | None = None) -> dict[str, Any]:
    """Outputs by the interpreter, which defines what operations mean: nothing is optimized or
    compiled, so it is slow.

    inputs: as Executable.run takes them.
    timeout: in seconds.

    Raises what lathe.load and Executable.run do.
    """
    return _core._interpret(program_of(model_or_source, False), inputs, timeout)


@overload
def diff(a: Results, b: Results, *, rtol: float = ..., atol: float = ...) -> list[ValueDifference]: ...
@overload
def diff(a: Source, b: Source, *, rtol: float = ...,
         atol: float = ...) -> list[ProgramDifference] | list[ValueDifference]: ...
def diff(a: Source | Results, b: Source | Results, *, rtol: float = 1e-5,
         atol: float = 1e-5) -> list[ProgramDifference] | list[ValueDifference]:
    """How two programs differ, or the results of two runs.

    Of programs (models, or what lathe.load takes): inputs, outputs and parameters by name, and
    operations by what they are, read and give; an empty list if they compute the same in the same
    way. Of results (arrays by name, or the path of a .npz, .npy, .safetensors or a folder of .npy):
    an entry for each name, whose `agrees` says whether |a - b| <= atol + rtol * |b|.

    Raises TypeError for a program and results; ValueError for a negative tolerance; what lathe.load
    does.
    """
    _check_tolerances(rtol, atol)
    if _is_results(a) != _is_results(b):
        raise TypeError("lathe.diff compares two programs, or two results")
    if _is_results(a):
        return _core._different_values(_results_of(a), _results_of(b), rtol, atol)
    return _core._different_programs(program_of(a, False), program_of(b, False))  # type: ignore[arg-type]


def check(model_or_source: Source, inputs: Mapping[str, Any] | None = None, *,
          against: str | os.PathLike[str] | Results | None = None, rtol: float | None = None,
          atol: float | None = None, seed: int = 1, dims: Mapping[str, int] | None = None,
          **options: Any) -> Comparison:
    """What the compiled program gives, compared with what it should give.

    inputs: by name; default: random ones, where symbolic dims that `dims` leaves open are 2.
    against: None: the interpreter. "onnxruntime": that package, with the CPU. Else results: arrays
        by name, or the path of a file of them.
    rtol, atol: outputs agree where |a - b| <= atol + rtol * |b|; default: by the types of the program.
    options: those of lathe.compile; without `cache` all is compiled anew.

    Raises ImportError if onnxruntime is to be compared with and is not installed; ValueError for a
    negative tolerance; what lathe.compile and Executable.run do.
    """
    _check_tolerances(rtol, atol)
    source = (model_or_source if isinstance(model_or_source, (_core.Model, _core.Program))
              else _model._path_or_bytes(model_or_source))  # an open file is read once
    program = program_of(source, False)
    sizes = dict(dims or {})
    given = dict(inputs) if inputs is not None else _core._sampled(program, sizes, seed)
    executable = compile(program, dims=sizes, **{"cache": False, **options})
    outputs = executable.run(given)
    name, wanted = _wanted(source, program, given, against)
    usual = _core._usual_tolerance(program, options.get("precision", "f32"))
    differences = _core._different_values(
        _as_arrays(outputs), {k: v for k, v in wanted.items() if k in outputs or len(wanted) == 1},
        usual[0] if rtol is None else rtol, usual[1] if atol is None else atol)
    return Comparison(name, differences)


def _wanted(source: Source, program: _core.Program, inputs: Mapping[str, Any],
            against: str | os.PathLike[str] | Results | None) -> tuple[str, dict[str, Any]]:
    if against is None:
        return "the interpreter", interpret(program, inputs)
    if isinstance(against, Mapping):
        return "the results", _as_arrays(against)
    if os.fspath(against) == "onnxruntime":
        return _run_onnxruntime(source, program, inputs)
    return os.fspath(against), _core._read_results(os.fspath(against))


# The file as it is, if there is one, so that what the importer does to it is compared, too.
def _run_onnxruntime(source: Source, program: _core.Program,
                     inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    import onnxruntime

    model: Any = None
    if isinstance(source, _core.Model):
        model = source.name if source.name.endswith(".onnx") else None
    elif not isinstance(source, _core.Program):
        model = _model._path_or_bytes(source)
    if model is None or (isinstance(model, str) and not model.endswith(".onnx")):
        model = program.to_onnx()
    session = onnxruntime.InferenceSession(model if isinstance(model, str) else bytes(model),
                                           providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return (f"onnxruntime {onnxruntime.__version__}",
            _as_arrays(dict(zip(names, session.run(names, _as_arrays(inputs))))))


def _check_tolerances(*tolerances: float | None) -> None:
    for tolerance in tolerances:
        if tolerance is not None and not tolerance >= 0:
            raise ValueError(f"a tolerance is at least 0, not {tolerance}")


def _as_arrays(values: Mapping[str, Any]) -> dict[str, Any]:
    def array(value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            # Of ZipMap, whose matrix is what a program gives.
            return np.array([list(row.values()) for row in value], np.float32)
        return value if value is None or isinstance(value, (list, tuple, dict)) else np.asarray(value)

    return {name: array(value) for name, value in values.items()}


def _is_results(source: Any) -> bool:
    if isinstance(source, Mapping):
        return True
    if not isinstance(source, (str, os.PathLike)):
        return False
    path = os.fspath(source)
    return path.endswith(_RESULTS) or os.path.isdir(path)


def _results_of(source: Any) -> dict[str, Any]:
    return _as_arrays(source) if isinstance(source, Mapping) else _core._read_results(
        os.fspath(source))
