"""What a session runs: a model, and what it was compiled into."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import lathe
from lathe import _core
from lathe.onnxruntime import _errors, _metadata, _ports
from lathe.onnxruntime._options import SessionOptions

_NO_OVERRIDES: frozenset[str] = frozenset()
_Result = TypeVar("_Result")
Values = dict[str, Any]


class Compiled:
    """A model with the code for it. Any number of threads may run it.

    A second executable is made when it is needed: of a run that gives values for initializers, or
    sizes that differ where the model has one name for them, which onnxruntime does not mind.
    """

    def __init__(self, source: str | bytes, options: SessionOptions):
        if options._canceled:
            raise _errors.new(_errors.ModelLoadCanceled, "the load was cancelled")
        self._source, self._options = source, options
        self._overrides = _ports.Overrides(options._dims, options._denotations)
        self._lock = threading.Lock()
        self._separate = False
        self._executables: dict[tuple[frozenset[str], bool], lathe.Executable] = {}
        self._load()

    def _load(self) -> None:
        _refuse_ort_format(self._source, self._options)
        self._file: _core.OnnxInterface | None = None
        if isinstance(self._source, str) and self._source.endswith((".lx", ".json")):
            executable = self._translated(
                lathe.Executable.load, self._source, threads=self._options._threads
            )
            self.metadata = _metadata.ModelMetadata()
            self.interface = _ports.interface_of(executable, None, self._overrides)
            self._maps: dict[str, list[Any]] = {}
            ports = executable.inputs
        else:
            model = self._model()
            if not (isinstance(self._source, str) and self._source.endswith(".lathe")):
                self._file = _core.read_onnx_interface(self._source)
            self.metadata = _metadata.metadata_of(model, self._file)
            self.interface = _ports.interface_of(model, self._file, self._overrides)
            self._maps = _ports.map_keys(self.interface, model)
            ports = model.inputs
            executable = self._compile(model)
            self._translated(self._write_optimized, model)
        self._executables[_NO_OVERRIDES, False] = executable
        arguments = [*self.interface.inputs, *self.interface.overridable]
        self.inputs = {argument.name: _ports.Input(argument) for argument in arguments}
        for port in ports:
            if port.shape == ():
                self.inputs[port.name].expect_scalar()
        self.overridable = {argument.name for argument in self.interface.overridable}

    @staticmethod
    def _translated(function: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
        try:
            return function(*arguments, **options)
        except lathe.Error as error:
            raise _errors.translated(error) from error

    def _model(self, overridden: frozenset[str] = _NO_OVERRIDES, separate: bool = False) -> lathe.Model:
        if isinstance(self._source, str) and not os.path.exists(self._source):
            raise _errors.new(
                _errors.NoSuchFile,
                f"Load model from {self._source} failed:Load model {self._source} failed. File "
                "doesn't exist",
            )
        return self._translated(
            lathe.load,
            self._source,
            external_data=self._options._external.get if self._options._external else None,
            separate_dims=separate,
            initializers_as_inputs=sorted(overridden),
            initializers=self._options._arrays(),
        )

    def _compile(self, model: lathe.Model, separate: bool = False) -> lathe.Executable:
        options = self._options
        dims = {} if self._file is None else self._overrides.symbols(self._file.inputs, separate)
        return self._translated(
            lathe.compile,
            model,
            target=options._config.get("lathe.target"),
            cache=options._config.get("lathe.cache"),
            threads=options._threads,
            level=options._level,
            dims=dims or None,
        )

    def _write_optimized(self, model: lathe.Model) -> None:
        path = self._options.optimized_model_filepath
        if path:
            program = model.program.clone()
            program.run_passes("inference", level=self._options._level)
            program.to_onnx(path)

    def _executable(self, overridden: frozenset[str], separate: bool) -> lathe.Executable:
        found = self._executables.get((overridden, separate))
        if found is not None:
            return found
        with self._lock:
            if (overridden, separate) not in self._executables:
                model = self._model(overridden, separate)
                self._executables[overridden, separate] = self._compile(model, separate)
            return self._executables[overridden, separate]

    def run(
        self, feeds: Values, out: Values | None, cancel: lathe.CancelToken | None
    ) -> Values:
        """Outputs by name. Feeds are what Input.converted gives; `out` as lathe.Executable.run."""
        overridden = _NO_OVERRIDES
        if self.overridable:
            overridden = frozenset(self.overridable.intersection(feeds))
        executable = self._executable(overridden, self._separate)
        try:
            results = executable.run(feeds, out=out, cancel=cancel)
        except lathe.Error as error:
            results = self._run_again(error, overridden, feeds, out, cancel)
        for name, keys in self._maps.items():
            results[name] = _ports.as_maps(results[name], keys)
        return results

    def _run_again(
        self,
        error: lathe.Error,
        overridden: frozenset[str],
        feeds: Values,
        out: Values | None,
        cancel: lathe.CancelToken | None,
    ) -> Values:
        for name, value in feeds.items():
            self.inputs[name].check_shape(value)
        if self._separate or self._file is None or not self._names_differ(feeds):
            raise _errors.translated(error) from error
        executable = self._executable(overridden, True)
        results = self._translated(executable.run, feeds, out=out, cancel=cancel)
        self._separate = True
        return results

    def _names_differ(self, feeds: Values) -> bool:
        """Whether these inputs have different sizes where the model has one name for them."""
        sizes: dict[str, int] = {}
        for name, value in feeds.items():
            for dim, size in zip(self.inputs[name].shape, getattr(value, "shape", ())):
                if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
                    return True
        return False

    def steps(self, feeds: Values) -> Sequence[lathe.ProfiledStep]:
        """Kernels of a run and their times; none if the interpreter goes through the model."""
        overridden = frozenset(self.overridable.intersection(feeds))
        try:
            return self._executable(overridden, self._separate).profile(feeds, 1).steps
        except lathe.UnsupportedError:
            return []


def _refuse_ort_format(source: str | bytes, options: SessionOptions) -> None:
    """Files of onnxruntime's own format hold graphs that its passes have changed."""
    named = options._config.get("session.load_model_format", "").upper() == "ORT"
    if named or isinstance(source, str) and source.endswith(".ort"):
        raise _errors.new(
            _errors.NotImplemented,
            "models of the format ORT cannot be read; load the ONNX model they were made of",
        )
