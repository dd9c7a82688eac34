"""Compiling and running."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

from lathe import _core, _model
from lathe._reports import Explanation, Profile

Source = Union[_core.Model, _core.Program, _model.Source]
Cache = Union[str, "os.PathLike[str]", bool, None]


class Executable(_core.Executable):
    """A compiled model; see lathe.compile and Executable.load. Any number of threads may run one."""

    @classmethod
    def load(cls, path: str | os.PathLike[str], threads: int = 0, *,
             max_bytes: int = 0) -> Executable:
        """The executable that `save` has written; needs no compiler.

        threads: for parallel loops; 0: one per processor.
        max_bytes: of tensors alive at once; 0: four fifths of the machine's memory.

        Raises MissingFileError, ParseError, UnsupportedError (made for another processor).
        """
        return cls(os.fspath(path), threads=threads, max_bytes=max_bytes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one file with plan, code and weights; or three, if the path ends in .json.

        Raises UnsupportedError unless `can_save`, FileError.
        """
        super().save(os.fspath(path))

    def __reduce__(self) -> tuple[Callable[[bytes, int], Executable], tuple[bytes, int]]:
        """Pickled as the file that `save` writes, so that processes may hand it on, and copied so."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pickled.lx")
            self.save(path)
            with open(path, "rb") as file:
                return _from_bytes, (file.read(), self.threads)

    def explain(self) -> Explanation:
        """What the program became: kernels, the strategies that made them, what is interpreted and
        why. Of one that was loaded only the target is known."""
        return Explanation(self._code_target, self._kernels, dict(self._interpreted),
                           self._obstacles)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    def profile(self, inputs: Mapping[str, Any], runs: int = 10) -> Profile:
        """Where the time of a run goes, by step; `runs` are measured after one that warms up.

        Raises UnsupportedError if the program has no plan.
        """
        data = self._profile(inputs, runs)
        return Profile(data.runs, data.steps, data.trace)

    async def run_async(self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None, *,
                        timeout: float | None = None,
                        cancel: _core.CancelToken | None = None) -> dict[str, Any]:
        """`run` on a thread of the loop's executor. Cancelling the task ends the run."""
        token = cancel or _core.CancelToken()
        try:
            return await asyncio.to_thread(self.run, inputs, out, timeout=timeout, cancel=token)
        except asyncio.CancelledError:
            token.cancel()
            raise


def _from_bytes(content: bytes, threads: int) -> Executable:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pickled.lx")
        with open(path, "wb") as file:
            file.write(content)
        return Executable.load(path, threads)


def compile(model_or_source: Source, *,
            target: str | None = None, threads: int = 0, level: int = 2, cache: Cache = None,
            dims: Mapping[str, int] | None = None, strict: bool = False, max_bytes: int = 0,
            timeout: float | None = None, disable: Iterable[str] = (), enable: Iterable[str] = (),
            external: str | None = None, records: str | os.PathLike[str] | None = None,
            precision: str = "f32",
            progress: Callable[[int, int], object] | None = None) -> Executable:
    """Compiles a model, or what lathe.load takes, for this machine.

    target: an instruction set, such as "avx2"; default: the best of this machine.
    threads: for parallel loops; 0: one per processor.
    level: of optimization, 0 to 3.
    cache: a folder where machine code is kept for the next time; False: nowhere; default: that of
        the command, ~/.cache/lathe.
    dims: sizes of symbolic dims of the inputs by name, such as {"N": 1}.
    strict: what is not computed as it should be is an error.
    max_bytes: of tensors alive at once, while compiling and while running; 0: four fifths of the
        machine's memory.
    timeout: of the compilation, in seconds.
    disable, enable: passes to leave out, and to run at any level.
    external: name of an external compiler, which gets all that it takes.
    records: file of lathe.tune or `lathe tune`: what was measured to be the fastest is taken.
    precision: what kernels of f32 may do to take less time: "strict", "f32", "high" or
        "bf16".
    progress: called with how many kernels are compiled and how many are known of, by one thread at
        a time; what it raises ends the compilation.

    Raises what lathe.load does; NotFoundError (a target, a pass, a dim), TimeLimitError,
    MemoryLimitError.
    """
    program = program_of(model_or_source, strict)
    return Executable(program, target=target or "", threads=threads, level=level,
                      cache=cache_folder(cache), dims=dict(dims or {}), strict=strict,
                      max_bytes=max_bytes, timeout=timeout, disable=list(disable),
                      enable=list(enable), external=external or "",
                      records=os.fspath(records) if records is not None else "",
                      precision=precision, progress=progress)


def program_of(source: Source, strict: bool) -> _core.Program:
    """Of what lathe.compile takes."""
    if isinstance(source, _core.Program):
        return source
    if isinstance(source, _core.Model):
        return source.program
    return _model.load(source, strict=strict).program


def cache_folder(cache: Cache) -> str:
    """'' for none."""
    if cache is False:
        return ""
    if cache is not None and cache is not True:
        return os.fspath(cache)
    # Where programs keep what they can make again (XDG base directory specification).
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "lathe")
