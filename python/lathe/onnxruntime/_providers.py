"""Execution providers. There is one here, which answers to the name of onnxruntime's for CPUs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

CPU = "CPUExecutionProvider"
# Those that onnxruntime knows, by precedence; a name beside these is a mistake.
_ALL = (
    "NvTensorRTRTX", "Tensorrt", "CUDA", "MIGraphX", "OpenVINO", "Dnnl", "VitisAI", "QNN",
    "Nnapi", "VSINPU", "Js", "CoreML", "ACL", "Dml", "Rknpu", "WebNN", "WebGpu", "Xnnpack", "CANN",
    "Azure", "CPU",
)


def get_all_providers() -> list[str]:
    """All that onnxruntime knows, by precedence."""
    return [f"{name}ExecutionProvider" for name in _ALL]


def get_available_providers() -> list[str]:
    """["CPUExecutionProvider"]: Lathe's code for this processor."""
    return [CPU]


def check_known(name: str) -> None:
    if name not in get_all_providers():
        raise RuntimeError(f"Unknown Provider Type: {name}")


def _pairs(providers: Any, options: Any) -> list[tuple[str, dict[Any, Any]]]:
    if not isinstance(providers, Sequence):
        raise ValueError("'providers' should be a sequence.")
    if options is not None:
        if not isinstance(options, Sequence):
            raise ValueError("'provider_options' should be a sequence.")
        if len(providers) != len(options):
            raise ValueError(
                "'providers' and 'provider_options' should be the same length if both are given."
            )
        if not all(isinstance(name, str) for name in providers):
            raise ValueError(
                "Only string values for 'providers' are supported if 'provider_options' is given."
            )
        if not all(isinstance(values, dict) for values in options):
            raise ValueError("'provider_options' values must be dicts.")
        return list(zip(providers, options))
    return [_pair(provider) for provider in providers]


def _pair(provider: Any) -> tuple[str, dict[Any, Any]]:
    if isinstance(provider, str):
        return provider, {}
    if isinstance(provider, tuple) and [type(part) for part in provider] == [str, dict]:
        return provider
    raise ValueError("'providers' values must be either strings or (string, dict) tuples.")


def check_and_normalize_provider_args(
    providers: Any, provider_options: Any, available_provider_names: Sequence[str]
) -> tuple[list[str], list[dict[str, str]]]:
    """Names and options of the providers that were asked for, each once, options as str.

    Raises ValueError if the arguments are neither names nor (name, options) pairs; warns of those
    that are not available.
    """
    if providers is None:
        return [], []
    found: dict[str, dict[str, str]] = {}
    for name, options in _pairs(providers, provider_options):
        if name not in available_provider_names:
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names."
                f"Available providers: '{', '.join(available_provider_names)}'"
            )
        if name in found:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.")
            continue
        found[name] = {str(key): str(value) for key, value in options.items()}
    return list(found), list(found.values())


def selected(providers: Any, provider_options: Any) -> list[str]:
    """The providers of a session: those asked for that are there, and the one for CPUs."""
    names, _ = check_and_normalize_provider_args(
        providers, provider_options, get_available_providers()
    )
    for name in names:
        check_known(name)
    return [CPU]
