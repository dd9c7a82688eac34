"""Measuring which ways to compute the kernels of a model are fastest on this machine."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence

from lathe import _core
from lathe._core import TunedKernel
from lathe._executable import Source, program_of
from lathe._reports import _html_table, _table


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What was measured. str() of it is a table; a notebook shows it as one.

    records: the file that lathe.compile takes.
    kernels: with what is taken without records, and the fastest.
    """

    records: str
    kernels: Sequence[TunedKernel]

    _HEAD = ("calls", "before ms", "after ms", "trials", "kernel")

    @property
    def first_seconds(self) -> float:
        """Of all calls without records."""
        return sum(k.calls * k.first_seconds for k in self.kernels)

    @property
    def best_seconds(self) -> float:
        """Of all calls with the fastest."""
        return sum(k.calls * k.best_seconds for k in self.kernels)

    def _rows(self) -> list[tuple[str, ...]]:
        return [(str(k.calls), f"{1e3 * k.first_seconds:.3g}", f"{1e3 * k.best_seconds:.3g}",
                 str(k.trials),
                 f"{k.operations}  {k.first}" + (f" -> {k.best}" if k.best != k.first else ""))
                for k in self.kernels]

    def __str__(self) -> str:
        return "\n".join([_table(self._HEAD, self._rows()),
                          f"all kernels: {1e3 * self.first_seconds:.3g} ms -> "
                          f"{1e3 * self.best_seconds:.3g} ms; the records are in {self.records}"])

    def _repr_html_(self) -> str:
        return _html_table(self._HEAD, self._rows())


def tune(model_or_source: Source, records: str | os.PathLike[str], *,
         dims: Mapping[str, int] | None = None, sizes: Mapping[str, int] | None = None,
         trials: int = 64, seconds: float = 0.05, target: str | None = None, threads: int = 0,
         level: int = 2, precision: str = "f32", strict: bool = False,
         progress: Callable[[int, int, str, str], object] | None = None) -> Tuning:
    """Measures the ways to compute each kernel; lathe.compile(model, records=records) takes the
    fastest.

    records: a file of records, a JSON object a line; those of one that is there are kept, and what
        they hold is not measured again. Each is written as soon as it is measured.
    dims: sizes of symbolic dims that the compiled model will have, as of lathe.compile.
    sizes: of dims that stay symbolic, while measuring; default: usual ones (one sample, pictures
        of 224 by 224, sequences of 32).
    trials: ways that are measured of a kernel, at most.
    seconds: of repeated runs per trial; at least three runs.
    target, threads, level, precision, strict: as of lathe.compile.
    progress: called before each trial with the number of the kernel, how many there are, its
        operations and the way.

    Raises what lathe.load does; InvalidArgumentError; ParseError if the file is not one of records.
    """
    if trials < 1:
        raise ValueError("trials is at least 1")
    if not 0 <= seconds <= 3600:
        raise ValueError("seconds are between 0 and 3600")
    path = os.fspath(records)
    kernels = _core._tune(program_of(model_or_source, strict), path, dict(dims or {}),
                          dict(sizes or {}), trials, seconds, target or "", threads, level,
                          precision, progress)
    return Tuning(path, kernels)
