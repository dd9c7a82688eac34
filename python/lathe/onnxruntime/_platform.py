"""What the module itself says and sets: versions, devices, logging."""

from __future__ import annotations

import dataclasses
import logging
import platform
import sys
from typing import Any

import lathe
from lathe.onnxruntime import _enums, _errors, _providers, _values

# The release of onnxruntime whose calls these are; clients compare it. lathe.__version__ is ours.
__version__ = "1.31.1"

_log = logging.getLogger("lathe")
_SEVERITIES = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def get_version_string() -> str:
    return __version__


def get_build_info() -> str:
    return f"Lathe {lathe.__version__}, with the interface of onnxruntime {__version__}"


def get_device() -> str:
    """Always "CPU"."""
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Sets the level of the logger "lathe": 0 everything, 2 warnings, 4 almost nothing."""
    if severity not in range(len(_SEVERITIES)):
        raise RuntimeError(
            "Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal"
        )
    _log.setLevel(_SEVERITIES[severity])


def set_default_logger_verbosity(level: int) -> None:
    """Accepted."""


def set_seed(seed: int) -> None:
    """Accepted: what is random in a model follows from the seeds in it."""


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Accepted: sessions have threads of their own."""


def enable_telemetry_events() -> None:
    """Accepted: there is no telemetry."""


def disable_telemetry_events() -> None:
    """Accepted: there is no telemetry."""


def has_collective_ops() -> bool:
    return False


def create_and_register_allocator(memory_info: Any, arena_cfg: Any = None) -> None:
    """Accepted: memory is planned."""


def create_and_register_allocator_v2(
    provider: str, memory_info: Any, options: Any, arena_cfg: Any = None
) -> None:
    """Accepted: memory is planned."""


def register_execution_provider_library(name: str, path: str) -> None:
    """Refused: providers are libraries for onnxruntime."""
    raise _errors.new(
        _errors.NotImplemented, f"{path} is an execution provider; Lathe has external compilers"
    )


def unregister_execution_provider_library(name: str) -> None:
    raise _errors.new(_errors.InvalidArgument, f"no library is registered as {name}")


class OrtArenaCfg:
    """Accepted: memory is planned."""

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        self.__dict__.update(fields)


@dataclasses.dataclass
class OrtHardwareDevice:
    """A processor."""

    type: _enums.OrtHardwareDeviceType = _enums.OrtHardwareDeviceType.CPU
    vendor: str = dataclasses.field(default_factory=platform.machine)
    vendor_id: int = 0
    device_id: int = 0
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class OrtEpDevice:
    """The provider on the processor."""

    ep_name: str = _providers.CPU
    ep_vendor: str = "Lathe"
    ep_metadata: dict[str, str] = dataclasses.field(default_factory=dict)
    ep_options: dict[str, str] = dataclasses.field(default_factory=dict)
    device: OrtHardwareDevice = dataclasses.field(default_factory=OrtHardwareDevice)

    def memory_info(self, kind: _enums.OrtDeviceMemoryType) -> _values.OrtMemoryInfo:
        return _values.OrtMemoryInfo()


def get_ep_devices() -> list[OrtEpDevice]:
    return [OrtEpDevice()]


def get_hardware_devices() -> list[OrtHardwareDevice]:
    return [OrtHardwareDevice()]


def print_debug_info() -> None:
    """Versions, for a report of a bug."""
    print(get_build_info())
    print("platform:", platform.platform())
    print("python:", sys.version)


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None
) -> None:
    """Accepted: there is nothing to load."""


class _Refused:
    """A class of onnxruntime that has no counterpart; making one says why."""

    reason = ""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise _errors.new(_errors.NotImplemented, f"{type(self).__name__}: {self.reason}")


class ModelCompiler(_Refused):
    reason = "models of EPContext nodes are made for providers; lathe.compile(...).save keeps code"


class AdapterFormat(_Refused):
    reason = "LoRA adapters need weights that are inputs"


class LoraAdapter(_Refused):
    reason = "LoRA adapters need weights that are inputs"


class OrtExternalInitializerInfo(_Refused):
    reason = "it says where ModelCompiler writes weights"


class OrtSyncStream(_Refused):
    reason = "there are no devices with streams"
