"""Models whose layers multiply bytes, made of models that multiply floats."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lathe import _core
from lathe._core import LayerReport
from lathe._executable import Source, program_of
from lathe._reports import _html_table, _table

Runs = Iterable[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Quantization:
    """A quantized program, and what that costs. str() of it is a table; a notebook shows it as one.

    program: to compile, or to write as ONNX (`program.to_onnx(path)`).
    layers: convolutions and products of the model.
    errors: of each output of floats the relative RMS error over the data.
    runs: that the data gave.
    """

    program: _core.Program = dataclasses.field(repr=False)
    layers: Sequence[LayerReport]
    errors: dict[str, float]
    runs: int

    _HEAD = ("error", "kind", "layer")

    def _rows(self) -> list[tuple[str, ...]]:
        return [("-" if layer.error is None else f"{layer.error:.2e}", layer.kind,
                 layer.name + (f"  f32: {layer.why_not}" if layer.why_not else ""))
                for layer in self.layers]

    def __str__(self) -> str:
        quantized = sum(not layer.why_not for layer in self.layers)
        return "\n".join([_table(self._HEAD, self._rows()),
                          *(f"output {name}  {error:.2e}" for name, error in self.errors.items()),
                          f"{quantized} of {len(self.layers)} layers quantized"])

    def _repr_html_(self) -> str:
        return _html_table(self._HEAD, self._rows())


def quantize(model_or_source: Source, data: Runs, *, method: str = "min-max",
             percentile: float = 99.99, per_tensor: bool = False, symmetric: bool = False,
             ops: Iterable[str] = ("conv", "matmul", "gemm"), exclude: Iterable[str] = (),
             max_error: float | None = None, threads: int = 0,
             progress: Callable[[str], object] | None = None) -> Quantization:
    """A model with activations and weights of 8 bits (QuantizeLinear and DequantizeLinear of ONNX).

    data: inputs by name, run by run, to see what ranges values have; gone through several times, so
        an iterator is made a list first.
    method: of finding ranges: "min-max", "percentile" or "entropy".
    percentile: of the numbers that are in the range, for that method.
    per_tensor: one scale for all weights of a layer, not one per output channel.
    symmetric: activations are i8 about zero, not u8 with a zero point.
    ops: kinds of layers to quantize.
    exclude: names of layers that stay f32; * and ? stand for any characters.
    max_error: layers that lose most stay f32, until no output has a larger relative RMS error.
    threads: of the runs; 0: one per processor.
    progress: called with what begins.

    Raises InvalidArgumentError (quantize/...); what lathe.load does.
    """
    return _result(_core._quantize(program_of(model_or_source, False), _again(data), method,
                                   percentile, per_tensor, symmetric, list(ops), list(exclude),
                                   max_error, threads, progress))


def quantize_weights(model_or_source: Source, data: Runs | None = None, *, bits: int = 4,
                     block: int = 32, symmetric: bool = False, rounding: str = "nearest",
                     ops: Iterable[str] = ("matmul", "gemm"), exclude: Iterable[str] = (),
                     max_error: float | None = None, threads: int = 0,
                     progress: Callable[[str], object] | None = None) -> Quantization:
    """A model whose products have weights of 4 or 8 bits, by blocks; what they multiply stays f32.

    data: as `quantize` has it; without it errors are those of the weights, and `errors` is empty.
    block: how many weights, along the depth, have a scale of their own.
    rounding: "nearest", or "calibrated" by what the weights are multiplied by, which needs data.
    Otherwise as `quantize`.
    """
    return _result(_core._quantize_weights(program_of(model_or_source, False),
                                           None if data is None else _again(data), bits, block,
                                           symmetric, rounding, list(ops), list(exclude), max_error,
                                           threads, progress))


def _again(data: Runs) -> Runs:
    return list(data) if iter(data) is data else data


def _result(quantized: tuple[_core.Program, _core.QuantizationReport]) -> Quantization:
    program, report = quantized
    return Quantization(program, report.layers, dict(report.outputs), report.runs)
