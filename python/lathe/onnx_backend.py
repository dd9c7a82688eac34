"""Lathe as a backend of ONNX's own interface (onnx.backend.base); needs the package onnx.

    import lathe.onnx_backend as backend

    outputs = backend.prepare(model).run([image])      # a tuple, by place or by name
    outputs = backend.run_node(node, [a, b])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend import base

import lathe


class LatheRep(base.BackendRep):
    """A model that is ready to run."""

    def __init__(self, executable: lathe.Executable):
        self.executable = executable
        names = [port.name for port in executable.outputs]
        self._outputs = base.namedtupledict("Outputs", names)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs for inputs in the order of the model, by name, or for a single one."""
        ports = self.executable.inputs
        if not isinstance(inputs, Mapping):
            if not isinstance(inputs, (list, tuple)):
                inputs = [inputs]
            if len(inputs) > len(ports):
                raise ValueError(f"{len(inputs)} inputs were given, the model has {len(ports)}")
            inputs = {port.name: value for port, value in zip(ports, inputs)}
        results = self.executable.run(dict(inputs))
        return self._outputs(*(results[port.name] for port in self.executable.outputs))


class LatheBackend(base.Backend):
    """Options of `prepare` are those of lathe.compile."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model can be loaded; it is not compiled."""
        try:
            lathe.load(model)
        except lathe.Error:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> LatheRep:
        """Raises lathe.Error if the model cannot be compiled, ValueError for other devices."""
        if not cls.supports_device(device):
            raise ValueError(f"Lathe computes on the CPU, not on '{device}'")
        return LatheRep(lathe.compile(model, **kwargs))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one operator, of the operator set `opset_version` or the newest."""
        opset = kwargs.pop("opset_version", None)
        onnx.checker.check_node(node, _checker(opset or _newest(), node.domain))
        given = [name for name in node.input if name]
        if isinstance(inputs, Mapping):
            values = dict(inputs)
        else:
            values = dict(zip(given, inputs if isinstance(inputs, (list, tuple)) else [inputs]))
        values = {name: np.asarray(value) for name, value in values.items()}
        graph = helper.make_graph(
            [node],
            node.op_type,
            [_info(name, array.dtype, array.shape) for name, array in values.items()],
            _outputs_of(node, outputs_info),
        )
        opsets = [helper.make_opsetid(node.domain, opset or _newest())]
        model = helper.make_model(graph, opset_imports=opsets)
        return cls.prepare(model, device, **kwargs).run(values)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True of "CPU"."""
        return device.split(":")[0] == "CPU"


def _checker(opset: int, domain: str) -> Any:
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = onnx.IR_VERSION, {domain: opset}
    return context


def _newest() -> int:
    return onnx.defs.onnx_opset_version()


def _info(name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


def _outputs_of(
    node: onnx.NodeProto, info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None
) -> list[onnx.ValueInfoProto]:
    names = [name for name in node.output if name]
    if info is None:
        return [onnx.ValueInfoProto(name=name) for name in names]
    return [_info(name, np.dtype(dtype), shape) for name, (dtype, shape) in zip(names, info)]


is_compatible = LatheBackend.is_compatible
prepare = LatheBackend.prepare
run = LatheBackend.run_model
run_model = LatheBackend.run_model
run_node = LatheBackend.run_node
supports_device = LatheBackend.supports_device
