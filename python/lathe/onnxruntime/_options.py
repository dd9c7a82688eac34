"""SessionOptions and RunOptions. docs/onnxruntime.md says which fields have an effect."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lathe
from lathe.onnxruntime import _enums, _errors, _providers
from lathe.onnxruntime._values import OrtValue


class _Field:
    """A typed field: an int, a str, a bool (of any truth value), or a member of an enumeration."""

    def __init__(self, kind: type, default: Any, doc: str) -> None:
        self.kind, self.default, self.__doc__ = kind, default, doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: _Options | None, owner: type | None = None) -> Any:
        return self if instance is None else instance._values.get(self.name, self.default)

    def __set__(self, instance: _Options, value: Any) -> None:
        instance._values[self.name] = self._converted(value)

    def _converted(self, value: Any) -> Any:
        if self.kind is bool:
            return bool(value)
        if self.kind is int:
            try:
                return operator.index(value)
            except TypeError:
                pass
        elif isinstance(value, self.kind):
            return value
        raise TypeError(f"{self.name} is to be of type {self.kind.__name__}, not {value!r}")


class _Options:
    """What both kinds of options share. Only what is declared can be set."""

    __slots__ = ("_values", "_config")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._config: dict[str, str] = {}

    def _add_entry(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"a configuration entry is a pair of str, not {(key, value)!r}")
        self._config[key] = value

    def _entry(self, key: str) -> str:
        try:
            return self._config[key]
        except KeyError:
            what = type(self).__name__
            raise RuntimeError(f"{what} does not have configuration with key: {key}") from None


class SessionOptions(_Options):
    """How an InferenceSession loads and compiles its model. Can be copied and pickled."""

    __slots__ = ("_dims", "_denotations", "_providers", "_external", "_initializers", "_canceled")

    intra_op_num_threads = _Field(int, 0, "Threads of one run; 0: one for each core.")
    inter_op_num_threads = _Field(int, 0, "Accepted: one pool runs everything.")
    graph_optimization_level = _Field(
        _enums.GraphOptimizationLevel,
        _enums.GraphOptimizationLevel.ORT_ENABLE_ALL,
        "DISABLE_ALL compiles at level 0, BASIC at 1, the others at 2.",
    )
    execution_mode = _Field(
        _enums.ExecutionMode, _enums.ExecutionMode.ORT_SEQUENTIAL, "Accepted."
    )
    execution_order = _Field(_enums.ExecutionOrder, _enums.ExecutionOrder.DEFAULT, "Accepted.")
    enable_cpu_mem_arena = _Field(bool, True, "Accepted: memory is planned.")
    enable_mem_pattern = _Field(bool, True, "Accepted: memory is planned.")
    enable_mem_reuse = _Field(bool, True, "Accepted: memory is planned.")
    use_deterministic_compute = _Field(bool, False, "Accepted: results always are.")
    use_per_session_threads = _Field(bool, True, "Accepted.")
    enable_profiling = _Field(bool, False, "Runs are timed; end_profiling() writes the file.")
    profile_file_prefix = _Field(str, "onnxruntime_profile_", "How its name begins.")
    optimized_model_filepath = _Field(str, "", "Where the optimized model is written.")
    logid = _Field(str, "", "Accepted.")
    log_severity_level = _Field(int, -1, "0 (everything) to 4 (fatal); -1: the default's.")
    log_verbosity_level = _Field(int, 0, "Accepted.")

    def __init__(self) -> None:
        super().__init__()
        self._dims: dict[str, int] = {}
        self._denotations: dict[str, int] = {}
        self._providers: dict[str, dict[str, str]] = {}
        self._external: dict[str, memoryview] = {}
        self._initializers: dict[str, OrtValue] = {}
        self._canceled = False

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Kept; `lathe.cache` (a folder for machine code) and `lathe.target` have an effect."""
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Raises RuntimeError for a key that was not added."""
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fixes a symbolic dimension of the inputs."""
        self._dims[name] = operator.index(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fixes the dimensions of the inputs that the model gives this denotation."""
        self._denotations[denotation] = operator.index(size)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Contents of the files that the model's external data refers to, by location."""
        if not len(names) == len(buffers) == len(lengths):
            raise RuntimeError("names, buffers and lengths are to be as many")
        for name, buffer, length in zip(names, buffers, lengths):
            self._external[name] = memoryview(buffer).cast("B")[:length]

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """A value to take for an initializer; the session copies it."""
        self._initializers[name] = value

    def add_external_initializers(
        self, names: Sequence[str], values: Sequence[OrtValue]
    ) -> None:
        """Values to take for initializers, also for those whose data lies outside."""
        if len(names) != len(values):
            raise RuntimeError("Expecting names and ort_values lists to have equal length")
        self._initializers.update(zip(names, values))

    def register_custom_ops_library(self, path: str) -> None:
        """Refused: such a library is made of onnxruntime's kernels."""
        raise _errors.new(
            _errors.NotImplemented,
            f"Failed to load library {path}: custom operators for onnxruntime call its C interface, "
            "which Lathe does not have; write them as a Lathe plug-in",
        )

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Raises RuntimeError for one that onnxruntime does not know, either."""
        _providers.check_known(name)
        if name not in _providers.get_available_providers():
            raise _errors.new(_errors.InvalidArgument, f"{name} is not enabled in this build.")
        self._providers[name] = {str(k): str(v) for k, v in options.items()}

    def has_providers(self) -> bool:
        return bool(self._providers)

    def add_provider_for_devices(
        self, devices: Sequence[Any], options: Mapping[str, str]
    ) -> None:
        """Devices are those of get_ep_devices()."""
        for device in devices:
            self.add_provider(device.ep_name, options)

    def set_provider_selection_policy(
        self, policy: _enums.OrtExecutionProviderDevicePolicy
    ) -> None:
        """Accepted: there is one provider to select."""
        if not isinstance(policy, _enums.OrtExecutionProviderDevicePolicy):
            raise TypeError(f"a policy is an OrtExecutionProviderDevicePolicy, not {policy!r}")

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Any]) -> None:
        """Accepted: there is one provider to select."""
        if not callable(delegate):
            raise TypeError(f"a delegate is a function, not {delegate!r}")

    def set_load_cancellation_flag(self, canceled: bool) -> None:
        """True: the session that is being made of these options ends with ModelLoadCanceled."""
        self._canceled = bool(canceled)

    def set_ep_context_data_read_func(
        self, read_func: Callable[..., Any], max_data_size: int
    ) -> None:
        """Accepted: models with nodes of EPContext are refused when they are loaded."""

    def clear_ep_context_data_read_func(self) -> None:
        """Accepted."""

    def _arrays(self) -> dict[str, Any]:
        """Values to take for initializers, by name."""
        return {name: value.numpy() for name, value in self._initializers.items()}

    @property
    def _threads(self) -> int:
        return max(int(self.intra_op_num_threads), 0)

    @property
    def _level(self) -> int:
        return min(int(self.graph_optimization_level), 2)


class RunOptions(_Options):
    """What holds for one run, or for several at once. `terminate` ends them from any thread."""

    __slots__ = ("_terminate", "_tokens", "_lock")

    log_severity_level = _Field(int, -1, "Accepted.")
    log_verbosity_level = _Field(int, 0, "Accepted.")
    logid = _Field(str, "", "Accepted.")
    only_execute_path_to_fetches = _Field(bool, False, "Accepted: all outputs are computed.")

    def __init__(self) -> None:
        super().__init__()
        self._terminate = False
        self._tokens: set[lathe.CancelToken] = set()
        self._lock = threading.Lock()

    @property
    def terminate(self) -> bool:
        """True ends runs under way and refuses new ones, until it is False again."""
        return self._terminate

    @terminate.setter
    def terminate(self, value: bool) -> None:
        with self._lock:
            self._terminate = bool(value)
            if self._terminate:
                for token in self._tokens:
                    token.cancel()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Kept; none has an effect."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Raises RuntimeError for a key that was not added."""
        return self._entry(key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Refused: adapters replace weights of a run, which are constants here."""
        raise _errors.new(_errors.NotImplemented, "LoRA adapters need weights that are inputs")

    def _begin(self) -> lathe.CancelToken:
        """A token of a run that `terminate` cancels, until _end."""
        token = lathe.CancelToken()
        with self._lock:
            self._tokens.add(token)
            if self._terminate:
                token.cancel()
        return token

    def _end(self, token: lathe.CancelToken) -> None:
        with self._lock:
            self._tokens.discard(token)


def get_default_session_options() -> SessionOptions:
    return SessionOptions()
