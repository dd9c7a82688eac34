#!/usr/bin/env python3
"""torch.compile(model, backend="lathe") against eager PyTorch and inductor.

    env/bin/pip install -r bench/torch/requirements.txt
    PYTHONPATH=build/python env/bin/python bench/torch/run.py [MODEL...] [--without-inductor]

Networks of torchvision and transformers in eval mode with random weights; those of transformers are
small. Each is called with two sizes, so that the graph is compiled for any; then rounds alternate.
A row has how many graphs stayed in PyTorch, the largest difference from eager relative to the
largest output, medians in ms on one thread, and the seconds until the first result was there.
"""

import argparse
import statistics
import sys
import time

import torch
import torchvision
import transformers

from lathe import torch_backend

SMALL = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
         "intermediate_size": 256}


def picture(batch: int) -> tuple:
    return (torch.randn(batch, 3, 224, 224),)


def words(batch: int) -> tuple:
    return (torch.randint(5, 900, (batch, 24 + batch)),)


def sound(batch: int) -> tuple:
    return (torch.randn(batch, 8000),)


def vision(name: str):
    return lambda: (getattr(torchvision.models, name)(weights=None), picture)


def language(kind: str, **config):
    def make():
        options = {"vocab_size": 1000, **SMALL, **config, "use_cache": False}
        made = transformers.AutoConfig.for_model(kind, **options)
        return transformers.AutoModel.from_config(made, attn_implementation="eager"), words

    return make


def other(kind: str, inputs, **config):
    def make():
        made = transformers.AutoConfig.for_model(kind, **{**SMALL, **config})
        return transformers.AutoModel.from_config(made, attn_implementation="eager"), inputs

    return make


MODELS = {
    **{name: vision(name) for name in (
        "alexnet", "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "squeezenet1_1",
        "densenet121", "shufflenet_v2_x1_0", "efficientnet_b0", "mnasnet1_0", "regnet_y_400mf",
        "convnext_tiny", "vgg11")},
    "bert": language("bert"),
    "roberta": language("roberta"),
    "electra": language("electra", embedding_size=128),
    "albert": language("albert", embedding_size=64),
    "distilbert": language("distilbert", dim=128, n_layers=3, n_heads=4, hidden_dim=256),
    "gpt2": language("gpt2", n_embd=128, n_layer=3, n_head=4),
    "vit": other("vit", picture),
    "wav2vec2": other("wav2vec2", sound),
}


def tensors(result) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    values = result.values() if isinstance(result, dict) else result
    return [t for value in values if value is not None for t in tensors(value)]


def difference(ours, expected) -> float:
    pairs = list(zip(tensors(ours), tensors(expected), strict=True))
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-6)) for a, b in pairs)


def prepared(model, backend, sizes) -> tuple:
    """A compiled model, its results for each of the inputs, and the seconds for the first."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    fast = model if backend is None else torch.compile(model, backend=backend)
    began = time.perf_counter()
    first = fast(*sizes[0])
    seconds = time.perf_counter() - began
    return fast, [first, *(fast(*inputs) for inputs in sizes[1:])], seconds


def median(functions: dict, inputs: tuple, rounds: int) -> dict:
    times = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            began = time.perf_counter()
            function(*inputs)
            times[name].append(1e3 * (time.perf_counter() - began))
    return {name: statistics.median(values) for name, values in times.items()}


@torch.no_grad()
def row(name: str, args) -> bool:
    """Measures and prints one model; whether it agrees."""
    torch.manual_seed(0)
    model, make_inputs = MODELS[name]()
    model.eval()
    sizes = [make_inputs(2), make_inputs(3), make_inputs(1)]
    expected = [model(*inputs) for inputs in sizes]
    stayed = len(torch_backend.refusals())
    options = {"threads": 1}
    functions, seconds = {"eager": model}, {}
    functions["lathe"], found, seconds["lathe"] = prepared(
        model, lambda graph, inputs: torch_backend.backend(graph, inputs, **options), sizes)
    reasons = torch_backend.refusals()[stayed:]
    error = max(difference(a, b) for a, b in zip(found, expected))
    times = median(functions, sizes[-1], args.rounds)
    if not args.without_inductor:
        inductor, _, seconds["inductor"] = prepared(model, "inductor", sizes)
        times["inductor"] = median({"inductor": inductor}, sizes[-1], args.rounds)["inductor"]
    shown = [f"{times[k]:9.2f}" if k in times else "        -" for k in ("eager", "inductor", "lathe")]
    late = [f"{seconds[k]:7.1f}" if k in seconds else "      -" for k in ("inductor", "lathe")]
    print(f"{name:20} {len(reasons):3} {error:8.1e} {' '.join(shown)} {' '.join(late)}"
          f"  {'; '.join(reasons)[:120]}", flush=True)
    return error < 1e-3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--without-inductor", action="store_true")
    args = parser.parse_args()
    unknown = set(args.models) - MODELS.keys()
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    torch.set_num_threads(1)
    print(f"{'':20} {'out':>3} {'error':>8} {'eager':>9} {'inductor':>9} {'lathe':>9} {'s ind.':>7} "
          f"{'s lathe':>7}")
    return int(not all([row(name, args) for name in args.models or MODELS]))


if __name__ == "__main__":
    sys.exit(main())
