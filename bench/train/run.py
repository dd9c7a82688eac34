#!/usr/bin/env python3
"""Training steps (forward, backward, update) of Lathe against those of PyTorch, from the same weights.

    env/bin/pip install -r bench/train/requirements.txt
    PYTHONPATH=build/python env/bin/python bench/train/run.py [MODEL...] [--threads 1 2] [--inductor]

Each network is exported to ONNX and compiled as `lathe compile --train` does. Ten losses of both
sides on the same data are compared first; then steps alternate in one process, which has as many
threads for both. PyTorch has its fused optimizer, and with --inductor also torch.compile.
A row has the largest relative difference of losses (where steps magnify rounding, so that it is more
than TOLERANCE, PyTorch in f64 says how much is due to it: Lathe may be four times as far from that as
PyTorch in f32 is), the best times of a step in ms, how much faster
Lathe is than the better one of PyTorch's, and the peak memory of a process of each side alone, beyond
what it has after imports, in MB.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = ("mlp", "resnet18", "bert", "lstm", "gpt")
OPTIMIZERS = {"sgd": {"lr": 1e-2, "momentum": 0.9}, "adamw": {"lr": 1e-4, "weight_decay": 1e-2}}
COMPARED = 10
TOLERANCE = 2e-4
MAGNIFIED = 4


def task(name: str):
    """The task, and its network and data; the same for every call."""
    import torch

    from models import TASKS

    torch.manual_seed(0)
    network = TASKS[name].make().train()
    inputs, labels = TASKS[name].data(torch.Generator().manual_seed(1))
    return TASKS[name], network, inputs, labels


def export(name: str, folder: pathlib.Path, args) -> pathlib.Path:
    """Writes the training step of a network."""
    import torch

    made, network, inputs, _ = task(name)
    onnx, step = folder / f"{name}.onnx", folder / f"{name}.lx"
    with torch.no_grad():
        torch.onnx.export(
            network, tuple(inputs.values()), onnx, input_names=list(inputs), output_names=["scores"],
            dynamo=False, training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
            dynamic_axes={x: {0: "N"} for x in [*inputs, "scores"]}, opset_version=17)
    options = ",".join(f"{k}={v}" for k, v in OPTIMIZERS[made.optimizer].items())
    sizes = [] if args.open else ["--dim", f"N={len(next(iter(inputs.values())))}"]
    command = [sys.executable, "-m", "lathe", "compile", onnx, "--train", "--class-axis", made.class_axis,
               "--optimizer", f"{made.optimizer}{{{options}}}", *sizes, "-o", step, "--force"]
    subprocess.run([str(x) for x in command], check=True, stderr=subprocess.DEVNULL)
    return step


def torch_step(name: str, inductor: bool = False, wide: bool = False):
    """A function that makes a step and returns its loss; `wide`: in f64."""
    import torch

    made, network, inputs, labels = task(name)
    if wide:
        network = network.double()
        inputs = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[made.optimizer]
    optimizer = kind(network.parameters(), **OPTIMIZERS[made.optimizer], fused=True)

    def loss_of(*arguments):
        scores = network(*arguments).transpose(made.class_axis, 1)
        return torch.nn.functional.cross_entropy(scores, labels)

    forward = torch.compile(loss_of) if inductor else loss_of

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = forward(*inputs.values())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def lathe_step(name: str, path: pathlib.Path, threads: int):
    import lathe

    _, _, inputs, labels = task(name)
    fed = {**{k: v.numpy() for k, v in inputs.items()}, "labels": labels.numpy()}
    exe = lathe.Executable.load(path, threads=threads)
    return lambda: float(exe.run(fed)["loss"])


def step_of(side: str, name: str, path: pathlib.Path, threads: int):
    if side == "lathe":
        return lathe_step(name, path, threads)
    return torch_step(name, side == "inductor")


def times_of(steps: dict, rounds: int, seconds: float, clock) -> dict:
    times = {side: [] for side in steps}
    began = time.perf_counter()
    while len(times["lathe"]) < rounds or time.perf_counter() - began < seconds:
        for side, step in steps.items():
            start = clock()
            step()
            times[side].append(1e3 * (clock() - start))
    return times


def peak_memory(name: str, side: str, path: pathlib.Path, threads: int) -> float:
    """MB that steps take beyond what imports do; for a process of its own."""
    import numpy  # noqa: F401
    import torch

    torch.set_num_threads(threads)
    if side == "lathe":
        import lathe  # noqa: F401
    _, _, inputs, labels = task(name)
    status = pathlib.Path("/proc/self/status")

    def value(key: str) -> float:
        lines = status.read_text().splitlines()
        return next(int(x.split()[1]) for x in lines if x.startswith(key)) / 1024

    del inputs, labels
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = value("VmRSS")
    step = step_of(side, name, path, threads)
    for _ in range(3):
        step()
    return value("VmHWM") - before


def difference(losses: list, others: list) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(losses, others))


def magnified(name: str, losses: dict) -> bool:
    """Whether rounding explains that losses differ."""
    step = torch_step(name, wide=True)
    exact = [step() for _ in range(COMPARED)]
    of_torch = difference(losses["eager"], exact)
    return difference(losses["lathe"], exact) <= MAGNIFIED * max(of_torch, TOLERANCE)


def work(name: str, threads: int, path: pathlib.Path, args) -> dict:
    """The row of a network; for a process of its own."""
    import torch

    torch.set_num_threads(threads)
    sides = ["eager", "inductor", "lathe"] if args.inductor else ["eager", "lathe"]
    steps = {side: step_of(side, name, path, threads) for side in sides}
    losses = {side: [step() for _ in range(COMPARED)] for side, step in steps.items()}
    error = difference(losses["lathe"], losses["eager"])
    agrees = error <= TOLERANCE or magnified(name, losses)
    clock = time.process_time if args.processor_time else time.perf_counter
    times = times_of(steps, args.rounds, args.seconds, clock)
    return {"error": error, "agrees": agrees, "loss": losses["lathe"][-1],
            "best": {side: min(values) for side, values in times.items()},
            "median": {side: statistics.median(values) for side, values in times.items()}}


def in_process(*arguments) -> dict:
    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, threads: int, path: pathlib.Path, passed: list) -> dict:
    made = in_process("--work", "time", path, name, "--threads", threads, *passed)
    made["memory"] = {side: in_process("--work", side, path, name, "--threads", threads)
                      for side in ("eager", "lathe")}
    best = made["best"]
    made["ratio"] = min(v for side, v in best.items() if side != "lathe") / best["lathe"]
    return {"model": name, "threads": threads, **made}


def show(made: dict):
    best, memory = made["best"], made["memory"]
    shown = [f"{best[k]:9.1f}" if k in best else f"{'-':>9}" for k in ("eager", "inductor", "lathe")]
    print(f"{made['model']:10} {made['threads']:2} {made['error']:8.1e} {' '.join(shown)} "
          f"{made['ratio']:6.2f} {memory['eager']:8.0f} {memory['lathe']:8.0f} "
          f"{memory['lathe'] / memory['eager']:6.2f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5, help="at least so many steps")
    parser.add_argument("--seconds", type=float, default=10, help="at least so long")
    parser.add_argument("--inductor", action="store_true", help="torch.compile, too")
    parser.add_argument("--processor-time", action="store_true",
                        help="of all threads: for one thread on a machine that others use")
    parser.add_argument("--open", action="store_true", help="compile for any size of batch")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows here")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for models, made if missing")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = set(args.models) - set(MODELS)
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    if args.work:
        side, path = args.work[0], pathlib.Path(args.work[1])
        function = work if side == "time" else peak_memory
        last = args if side == "time" else None
        name, threads = args.models[0], args.threads[0]
        print(json.dumps(work(name, threads, path, last) if function is work
                         else peak_memory(name, side, path, threads)))
        return 0
    passed = ["--rounds", args.rounds, "--seconds", args.seconds]
    passed += ["--inductor"] if args.inductor else []
    passed += ["--processor-time"] if args.processor_time else []
    print(f"{'':10} {'':2} {'error':>8} {'eager':>9} {'inductor':>9} {'lathe':>9} {'ratio':>6} "
          f"{'MB eager':>8} {'lathe':>8} {'ratio':>6}")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in args.models or MODELS:
            path = export(name, folder, args)
            for threads in args.threads:
                rows.append(row(name, threads, path, passed))
                show(rows[-1])
    ratios = [made["ratio"] for made in rows]
    print(f"geometric mean of {len(ratios)}: {math.prod(ratios) ** (1 / len(ratios)):.2f}, "
          f"worst {min(ratios):.2f}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return int(not all(made["agrees"] for made in rows))


if __name__ == "__main__":
    sys.exit(main())
