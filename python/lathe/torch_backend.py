# mypy: disable-error-code="import-not-found"
"""torch.compile(model, backend="lathe"): graphs of PyTorch, compiled for this processor.

A graph goes through PyTorch's exporter to ONNX, in memory; weights that PyTorch holds still become
constants. What Lathe cannot take, PyTorch runs as before: `refusals()` says what and why, and so
does the logger "lathe".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

import lathe

_log = logging.getLogger("lathe")
_refusals: list[str] = []

Nodes = list[torch.fx.Node]


class Refused(Exception):
    """Why a graph stays in PyTorch."""


def refusals() -> list[str]:
    """Why graphs stayed in PyTorch, one reason each, oldest first."""
    return list(_refusals)


def backend(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any
) -> Callable[..., Any]:
    """What torch.compile calls. Options are those of lathe.compile; by default there are as many
    threads as PyTorch has."""
    try:
        _check(graph, example_inputs)
        return _CompiledGraph(graph, options)
    except Refused as reason:
        return _stay(graph, reason)


def _stay(graph: torch.fx.GraphModule, error: Exception) -> Callable[..., Any]:
    first = str(error).strip().splitlines()[:1] or [""]
    reason = first[0] if isinstance(error, Refused) else f"{type(error).__name__}: {first[0]}"
    _refusals.append(reason)
    _log.warning("a graph of %d nodes stays in PyTorch: %s", len(graph.graph.nodes), reason)
    eager: Callable[..., Any] = graph.forward
    return eager


class _CompiledGraph:
    """A graph as a function of what PyTorch passes. It is compiled when it is called first: while
    PyTorch traces, exporting would disturb it."""

    def __init__(self, graph: torch.fx.GraphModule, options: dict[str, Any]):
        # PyTorch's threads spin for a while after an operation of theirs: more of ours would wait.
        self._graph, self._options = graph, {"threads": torch.get_num_threads()} | options
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        kinds = [_kind(node) for node in placeholders]
        self._fixed = [i for i, kind in enumerate(kinds) if kind == "fixed"]
        self._given = [i for i, kind in enumerate(kinds) if kind == "given"]
        (self._results,) = graph.graph.output_node().args
        self._computed = _computed(self._results)
        fixed, given = ([placeholders[i] for i in kept] for kept in (self._fixed, self._given))
        self._module = _frozen(graph, fixed, given, self._computed)
        self._axes = tuple(_dynamic_axes(node) for node in given)
        self._versions: list[int] | None = None
        self._eager: Callable[..., Any] | None = None

    def _compile(self, inputs: Sequence[Any]) -> None:
        fixed = [inputs[i] for i in self._fixed]
        for place, tensor in enumerate(fixed):
            setattr(self._module, f"fixed_{place}", torch.nn.Buffer(tensor.detach()))
        given = tuple(inputs[i].detach() for i in self._given)
        self._executable = lathe.compile(_exported(self._module, given, self._axes), **self._options)
        self._names = [port.name for port in self._executable.inputs]
        self._outputs = [port.name for port in self._executable.outputs]
        self._versions = [tensor._version for tensor in fixed]

    def __call__(self, *inputs: Any) -> Any:
        if self._eager is not None:
            return self._eager(*inputs)
        if [inputs[i]._version for i in self._fixed] != self._versions:  # none, or changed in place
            try:
                self._compile(inputs)
            except Exception as error:  # the exporter raises whatever its parts raise
                self._eager = _stay(self._graph, error)
                return self._eager(*inputs)
        feeds = {name: inputs[i].detach() for name, i in zip(self._names, self._given)}
        results = self._executable.run(feeds)
        values = dict(zip(self._computed, (results[name] for name in self._outputs)))
        return [self._value(result, values) for result in self._results]

    @staticmethod
    def _value(result: Any, values: dict[Any, Any]) -> Any:
        if not isinstance(result, torch.fx.Node):
            return result
        value = values[result]
        is_number = isinstance(result.meta.get("example_value"), torch.SymInt)
        return int(value) if is_number else torch.as_tensor(value)


def _check(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Raises Refused for what an exported graph would do differently."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        raise Refused("gradients may be wanted; run the model under torch.no_grad()")
    devices = {t.device.type for t in tensors} - {"cpu"}
    if devices:
        raise Refused(f"tensors are on {', '.join(sorted(devices))}, not in the processor's memory")


def _kind(placeholder: torch.fx.Node) -> str:
    """A parameter or a buffer, which PyTorch keeps at its place, another tensor, or a size."""
    if "_dynamo_static_input_type" in placeholder.meta.get("tensor_dict", {}):
        return "fixed"
    return "given" if isinstance(placeholder.meta["example_value"], torch.Tensor) else "size"


def _computed(results: Sequence[Any]) -> list[torch.fx.Node]:
    """What the graph gives, each value once."""
    return list(dict.fromkeys(r for r in results if isinstance(r, torch.fx.Node)))


def _frozen(
    graph: torch.fx.GraphModule, fixed: Nodes, given: Nodes, results: Nodes
) -> torch.fx.GraphModule:
    """A copy of the graph: fixed placeholders are attributes, sizes are read from tensors."""
    new = torch.fx.Graph()
    copied: dict[torch.fx.Node, torch.fx.Node] = {}
    for place, node in enumerate(given):
        copied[node] = new.placeholder(f"input_{place}")
    for place, node in enumerate(fixed):
        copied[node] = new.get_attr(f"fixed_{place}")
    for node in graph.graph.nodes:
        if node.op == "placeholder" and node not in copied:
            copied[node] = _size_of(node, given, copied, new)
        elif node.op not in ("placeholder", "output"):
            copied[node] = new.node_copy(node, copied.__getitem__)
            copied[node].meta = {}
    new.output(tuple(copied[node] for node in results))
    attributes = dict(graph.named_children())
    attributes |= {n.target: getattr(graph, n.target) for n in new.nodes
                   if n.op == "get_attr" and hasattr(graph, n.target)}
    attributes |= {f"fixed_{place}": torch.empty(0) for place in range(len(fixed))}
    return torch.fx.GraphModule(attributes, new)


def _size_of(
    symbol: torch.fx.Node,
    given: Nodes,
    copied: dict[torch.fx.Node, torch.fx.Node],
    new: torch.fx.Graph,
) -> torch.fx.Node:
    """A size that PyTorch passes beside the tensors, read from the tensor that has it."""
    wanted = symbol.meta["example_value"]
    for node in given:
        for axis, size in enumerate(node.meta["example_value"].shape):
            if isinstance(size, torch.SymInt) and size.node.expr == wanted.node.expr:
                return new.call_function(torch.ops.aten.sym_size.int, (copied[node], axis))
    raise Refused(f"the number {symbol.name} is no size of an input")


def _dynamic_axes(node: torch.fx.Node) -> dict[int, Any]:
    kinds = {True: torch.export.Dim.DYNAMIC, False: torch.export.Dim.STATIC}
    shape = node.meta["example_value"].shape
    return {axis: kinds[isinstance(size, torch.SymInt)] for axis, size in enumerate(shape)}


def _exported(
    module: torch.fx.GraphModule, tensors: tuple[Any, ...], axes: tuple[Any, ...]
) -> bytes:
    """The module as an ONNX model of these tensors."""
    with torch.no_grad():
        program = torch.export.export(module, tensors, dynamic_shapes=axes or None)
        program = program.run_decompositions({})  # which shows what is written to
    _refuse_effects(program)
    exported = torch.onnx.export(program, dynamo=True, verbose=False)
    return bytes(exported.model_proto.SerializeToString())


def _refuse_effects(program: torch.export.ExportedProgram) -> None:
    signature = program.graph_signature
    if signature.user_inputs_to_mutate or signature.buffers_to_mutate:
        raise Refused("it writes to its inputs or to weights")
    for node in program.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise Refused(f"{node.target} draws random numbers of PyTorch's generator")
