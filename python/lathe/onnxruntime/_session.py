"""InferenceSession: a model that is compiled, and runs."""

from __future__ import annotations

import concurrent.futures
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from lathe.onnxruntime import _errors, _platform, _profile, _providers, _values
from lathe.onnxruntime._binding import IOBinding
from lathe.onnxruntime._compiled import Compiled, Values
from lathe.onnxruntime._metadata import ModelMetadata, NodeArg
from lathe.onnxruntime._options import RunOptions, SessionOptions
from lathe.onnxruntime._values import OrtValue, OrtValueVector


class InferenceSession:
    """A model from a path or from bytes, compiled for this processor.

    Any number of threads may run it at once. It can be subclassed, copied (a copy shares the code)
    and pickled (with the path or the bytes of its model, which is compiled again).
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._model_path: str | None = None
        self._model_bytes: bytes | None = None
        if isinstance(path_or_bytes, (str, os.PathLike)):
            self._model_path = os.fspath(path_or_bytes)
        elif isinstance(path_or_bytes, bytes):
            self._model_bytes = path_or_bytes
        else:
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        self._enable_fallback = int(kwargs.get("enable_fallback", 1)) == 1
        self._fallback_providers = [_providers.CPU]
        self._sess_options = sess_options if sess_options is not None else SessionOptions()
        self.set_providers(providers, provider_options)
        self._create()

    # What a session of a pickle makes anew.
    _MADE = ("_compiled", "_pool", "_trace", "_last_feeds")

    def _create(self) -> None:
        options = self._sess_options
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        profiles = options.enable_profiling
        self._trace = _profile.Trace(options.profile_file_prefix) if profiles else None
        self._profiled_since = self._trace.start_ns if self._trace else 0
        began = time.monotonic_ns()
        source = self._model_path or self._model_bytes or b""
        self._compiled = Compiled(source, options)
        self._last_feeds: Values | None = None
        self._traced("session_initialization", began)
        self._inputs_meta = self._compiled.interface.inputs
        self._outputs_meta = self._compiled.interface.outputs
        inputs = self._compiled.inputs
        self._required = [arg.name for arg in self._inputs_meta if not inputs[arg.name].is_optional]
        self._output_names = [arg.name for arg in self._outputs_meta]

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in self._MADE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._create()

    def __copy__(self) -> InferenceSession:
        other = self.__class__.__new__(self.__class__)
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> InferenceSession:
        return self.__copy__()

    # What it is.

    def get_inputs(self) -> list[NodeArg]:
        """Inputs that have to be given, in the order of the model."""
        return self._inputs_meta

    def get_outputs(self) -> list[NodeArg]:
        return self._outputs_meta

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs that have a value in the model, and need not be given."""
        return self._compiled.interface.overridable

    def get_modelmeta(self) -> ModelMetadata:
        return self._compiled.metadata

    def get_session_options(self) -> SessionOptions:
        return self._sess_options

    def get_providers(self) -> list[str]:
        return self._providers

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {name: {} for name in self._providers}

    def set_providers(
        self,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
    ) -> None:
        """Checks the names: whatever they are, the code is Lathe's for this processor."""
        try:
            self._providers = _providers.selected(providers, provider_options)
        except (ValueError, RuntimeError) as error:
            if not self._enable_fallback:
                raise
            warnings.warn(f"{error}: {self._fallback_providers} run the model", stacklevel=3)
            self._providers = list(self._fallback_providers)

    def disable_fallback(self) -> None:
        """Wrong providers are errors from now on."""
        self._enable_fallback = False

    def enable_fallback(self) -> None:
        """Wrong providers are warned of, and the one for CPUs is taken."""
        self._enable_fallback = True

    def get_input_memory_infos(self) -> list[_values.OrtMemoryInfo]:
        return [_values.OrtMemoryInfo() for _ in self._inputs_meta]

    def get_output_memory_infos(self) -> list[_values.OrtMemoryInfo]:
        return [_values.OrtMemoryInfo() for _ in self._outputs_meta]

    def get_input_epdevices(self) -> list[_platform.OrtEpDevice]:
        return _platform.get_ep_devices() * len(self._inputs_meta)

    def get_provider_graph_assignment_info(self) -> NoReturn:
        """Refused: there are no subgraphs of providers; `lathe explain` shows what there is."""
        raise _errors.new(_errors.NotImplemented, "one provider runs the whole graph")

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Accepted."""

    def get_tuning_results(self) -> list[Any]:
        """None: `lathe tune` keeps records of its own."""
        return []

    def set_tuning_results(self, results: Any, *, error_on_invalid: bool = False) -> None:
        """Accepted."""

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Accepted: nothing is captured."""

    # Runs.

    def _feeds(self, feed: Mapping[str, Any]) -> Values:
        names = feed.keys()
        missing = [name for name in self._required if name not in names]
        if missing:
            raise ValueError(
                f"Required inputs ({missing}) are missing from input feed ({list(names)})."
            )
        inputs, feeds = self._compiled.inputs, Values()
        for name, value in feed.items():
            known = inputs.get(name)
            if known is None:
                raise _errors.new(_errors.InvalidArgument, f"Invalid input name: {name}")
            plain = type(value) is np.ndarray and value.dtype is known.dtype
            feeds[name] = value if plain else known.converted(value)
        return feeds

    def _requested(self, names: Sequence[str] | None) -> Sequence[str]:
        if not names:
            return self._output_names
        if isinstance(names, str):
            raise TypeError(f"run(): names of outputs are a list of str, not {names!r}")
        for name in names:
            if name not in self._output_names:
                raise _errors.new(_errors.InvalidArgument, f"Invalid output name:{name}")
        return names

    def _results(
        self, feeds: Values, options: RunOptions | None, out: Values | None = None
    ) -> Values:
        began = time.monotonic_ns() if self._trace else 0
        self._last_feeds = feeds if self._trace else None
        if options is None:
            results = self._compiled.run(feeds, out, None)
        elif not isinstance(options, RunOptions):
            raise TypeError(f"run(): options are RunOptions, not {options!r}")
        else:
            token = options._begin()
            try:
                results = self._compiled.run(feeds, out, token)
            finally:
                options._end(token)
        self._traced("model_run", began)
        return results

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Outputs of these names, or all: arrays, lists of arrays, lists of dicts, None.

        Raises ValueError if an input is missing, InvalidArgument if one has the wrong type, rank or
        size, or if a name is wrong, Fail if the run fails or `run_options.terminate` ends it.
        """
        feeds = self._feeds(input_feed)
        names = self._requested(output_names)
        results = self._results(feeds, run_options)
        return [results[name] for name in names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], object],
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> None:
        """As run, in another thread, which calls callback(results, user_data, error).

        `error` is "" if all went well, else what is wrong, with no results. Raises ValueError at
        once if an input is missing.
        """
        missing = [name for name in self._required if name not in input_feed]
        if missing:
            self._feeds(input_feed)

        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as failure:  # whatever it is, only the callback can tell
                results, error = [], _errors.without_prefix(failure)
            callback(results, user_data, error)

        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(thread_name_prefix="lathe-session")
        self._pool.submit(work)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As run, from and to OrtValues."""
        feed = {name: value._get_c_value() for name, value in input_dict_ort_values.items()}
        names = self._requested(output_names)
        results = self._results(self._feeds(feed), run_options)
        return [self._ort_value(name, results[name]) for name in names]

    def _ort_value(self, name: str, value: Any) -> OrtValue:
        kind = self._outputs_meta[self._output_names.index(name)].type
        present = kind.startswith("optional(") and value is not None
        return OrtValue.of(value, kind[len("optional(") : -1] if present else kind)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: list[OrtValue],
        fetch_devices: Any,
    ) -> None:
        """As run_with_ort_values; appends the outputs to `fetches`."""
        fetches.extend(
            self.run_with_ort_values(fetch_names, dict(zip(feed_names, feeds)), run_options)
        )

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Reads and writes where the binding says. Raises RuntimeError for what run refuses."""
        if iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        try:
            self._run_bound(iobinding, run_options)
        except (ValueError, _errors.Fail, _errors.InvalidArgument) as error:
            raise RuntimeError(f"Error in execution: {_errors.without_prefix(error)}") from error

    def _run_bound(self, binding: IOBinding, options: RunOptions | None) -> None:
        if not binding._outputs:
            raise ValueError("At least one output should be requested.")
        names = self._requested(list(binding._outputs))
        feeds = self._feeds(binding._inputs)
        out = {name: value.numpy() for name, value in binding._outputs.items() if value is not None}
        results = self._results(feeds, options, out or None)
        binding._results = OrtValueVector(
            binding._outputs[name] or self._ort_value(name, results[name]) for name in names
        )

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """As OrtValue.ortvalue_from_shape_and_type."""
        return OrtValue.ortvalue_from_shape_and_type(
            shape, element_type, device_type, device_id, vendor_id
        )

    # Profiles.

    def _traced(self, name: str, began: int) -> None:
        if self._trace:
            self._trace.add("Session", name, began, time.monotonic_ns())

    def end_profiling(self) -> str:
        """Writes the trace and gives its path; "" if the session does not profile.

        The times of kernels are those of one more run of the last inputs, which this makes.
        """
        trace, self._trace = self._trace, None
        if trace is None:
            return ""
        if self._last_feeds is not None:
            trace.add_steps(self._compiled.steps(self._last_feeds))
        return trace.write()

    def get_profiling_start_time_ns(self) -> int:
        """As time.monotonic_ns; 0 if the session does not profile."""
        return self._profiled_since


# The base class has this name in onnxruntime.
Session = InferenceSession
