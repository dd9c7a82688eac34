"""What the builders of the corpus share: the list of models, exporting, and data to feed."""

import dataclasses
import inspect
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Model:
    """`build(path)` writes the file; `feeds(rng, **sizes)` makes inputs by name for each of `sizes`."""

    build: Callable
    feeds: Callable
    sizes: tuple[dict, ...]


MODELS: dict[str, Model] = {}


def model(feeds, *sizes):
    """Registers the function below, which writes the model of its name: `feeds` as in `Model`."""

    def register(build):
        MODELS[build.__name__] = Model(build, feeds, sizes)
        return build

    return register


def image(name="image", channels=3):
    """An image with values of about size one, N by `channels` by H by W."""
    return lambda rng, N, H, W: {name: rng.standard_normal((N, channels, H, W), dtype=np.float32)}


def tokens(*names, vocabulary=1000):
    """Numbers of words; what is called `...mask` is 1, but for the end of the last sequence."""

    def feeds(rng, N, L):
        values = {}
        for name in names:
            values[name] = rng.integers(1, vocabulary, (N, L))
            if name.endswith("mask"):
                values[name][:] = 1
                values[name][-1, max(1, L - 2):] = 0
        return values

    return feeds


def export(path, module, args, axes, outputs, dynamo):
    """Writes `module` called with `args` by name, by the exporter of torch.export (`dynamo`) or the
    one of TorchScript. `axes` names the dims that stay open: {input: {axis: name}}."""
    import torch

    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # an operator that no exporter knows
    module = module.eval()
    order = [p for p in inspect.signature(module.forward).parameters if p in args]
    common = dict(input_names=order, output_names=outputs, dynamo=dynamo)
    with torch.no_grad():
        if not dynamo:
            torch.onnx.export(module, tuple(args[n] for n in order), path, dynamic_axes=axes, **common)
            return
        made = {name: torch.export.Dim(name, min=1) for dims in axes.values() for name in dims.values()}
        shapes = {n: {a: made[d] for a, d in axes.get(n, {}).items()} for n in order}
        torch.onnx.export(module, (), path, kwargs={n: args[n] for n in order}, dynamic_shapes=shapes,
                          external_data=False, **common)


def randomize(module, seed=0):
    """Statistics of batch norms that differ from those of an untrained network; returns `module`."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
        elif name.endswith("running_var"):
            buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
    return module
