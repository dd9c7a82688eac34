"""PyTorch as a peer: onnx2torch makes a module of the file, so weights are those of the model."""

import os
from pathlib import Path

import onnx

from peers import COMPILE_LIMIT, fixed_model, limited, work_folder
from race import Peer


def lstm_module(weights, state_weights, bias):
    """torch.nn.LSTM with an ONNX node's weights, whose gates are in another order."""
    import torch

    hidden = state_weights.shape[2]

    def gates(value):
        return value.reshape(4, hidden, -1)[[0, 2, 3, 1]].reshape(4 * hidden, -1)

    class Lstm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.LSTM(weights.shape[2], hidden)

        def forward(self, x, h, c):
            steps, (h, c) = self.layer(x, (h, c))
            return steps.unsqueeze(1), h, c

    module = Lstm()
    module.layer.load_state_dict({
        "weight_ih_l0": gates(weights[0]), "weight_hh_l0": gates(state_weights[0]),
        "bias_ih_l0": gates(bias[0, :4 * hidden]).flatten(), "bias_hh_l0": gates(bias[0, 4 * hidden:]).flatten()})
    return module


def convert_lstm(node, graph):
    from onnx2torch.utils.common import OnnxMapping, OperationConverterResult

    module = lstm_module(*(graph.initializers[name].to_torch() for name in node.input_values[1:4]))
    inputs = tuple(node.input_values[i] for i in (0, 5, 6))
    return OperationConverterResult(module, OnnxMapping(inputs, node.output_values))


def add_lstm():
    """onnx2torch has no LSTM; this is the one that the yardstick needs: forward, with a first state."""
    from onnx2torch.node_converters import registry

    with_lstm = registry.OperationDescription(domain="", operation_type="LSTM", version=14)
    if with_lstm not in registry._CONVERTER_REGISTRY:
        registry.add_converter(operation_type="LSTM", version=14)(convert_lstm)


def reshape(x, dims):
    return x.reshape([x.shape[i] if d == 0 else d for i, d in enumerate(dims)])


def known_call(kind, module, value):
    """A function and its arguments for a module of onnx2torch whose second input is a constant."""
    import torch

    if kind == "OnnxReshape":
        return reshape, (value.tolist(),)
    if kind == "OnnxSqueezeDynamicAxes":
        return torch.squeeze, (tuple(value.tolist()),)
    if kind == "OnnxGather" and value.ndim == 0:
        return torch.select, (module._axis, value.item())
    return None


def constants_as_numbers(module):
    """Shapes, axes and indices that are constants become numbers: TorchDynamo cannot read tensors."""
    for node in list(module.graph.nodes):
        if node.op != "call_module" or len(node.args) != 2 or node.args[1].op != "get_attr":
            continue
        called = module.get_submodule(node.target)
        owner, _, name = node.args[1].target.rpartition(".")
        call = known_call(type(called).__name__, called, getattr(module.get_submodule(owner), name))
        if call:
            with module.graph.inserting_before(node):
                node.replace_all_uses_with(module.graph.call_function(call[0], (node.args[0], *call[1])))
            module.graph.erase_node(node)
    module.recompile()
    return module


class Eager(Peer):
    """The module as it is."""

    def load(self, model):
        folder = Path(model).parent
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(work_folder(folder).parent / "inductor")
        import onnx2torch
        import torch

        torch.set_num_threads(1)
        add_lstm()
        file = onnx.load(str(fixed_model(folder)))
        given = [i.name for i in file.graph.input if i.name in self.feeds]
        self.arguments = [torch.from_numpy(self.feeds[name].copy()) for name in given]
        self.names = [o.name for o in file.graph.output]
        self.module = constants_as_numbers(onnx2torch.convert(file).eval())
        self.mode = torch.inference_mode

    def infer(self):
        with self.mode():
            return self.module(*self.arguments)

    def outputs(self):
        results = self.infer()
        results = results if isinstance(results, (tuple, list)) else [results]
        return {name: result.numpy() for name, result in zip(self.names, results)}


class Compiled(Eager):
    """By Inductor, for these sizes, with weights as constants, in one graph but for LSTM layers."""

    def load(self, model):
        super().load(model)
        import torch
        import torch._inductor.config as inductor

        torch._dynamo.reset()
        inductor.freezing = True
        inductor.compile_threads = 1
        breaks = any(isinstance(part, torch.nn.LSTM) for part in self.module.modules())
        self.module = torch.compile(self.module, dynamic=False, fullgraph=not breaks)
        with limited(COMPILE_LIMIT):
            self.infer()
