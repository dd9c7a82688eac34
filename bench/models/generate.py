#!/usr/bin/env python3
"""Tokens per second of a decoder against onnxruntime in the same loop; the tokens are compared first.

    bench/models/gpt2.py --past --layers 4 --hidden 256 --heads 4 --vocab 8000 --out build/models/gpt2-tiny
    bench/models/generate.py build/models/gpt2-tiny/model.onnx

Greedy, on one thread, from prompts of random tokens. Rounds alternate; printed are medians of the
tokens per second behind the prompt and of the time to the first token. onnxruntime gets its caches back
as values of its own, which are not copied between its steps.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnxruntime as ort

LATHE = Path(__file__).resolve().parents[2] / "build/bin/lathe"


class Peer:
    """A loop over a session; prompts are as long as each other."""

    def __init__(self, path, threads):
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = {port.name: port for port in self.session.get_inputs()}
        self.outputs = [port.name for port in self.session.get_outputs()]

    def caches(self, batch):
        values = {}
        for name, port in self.inputs.items():
            if name.startswith("past"):
                _, heads, _, size = port.shape
                dtype = np.float16 if "float16" in port.type else np.float32
                values[name] = ort.OrtValue.ortvalue_from_numpy(
                    np.zeros((batch, heads, 0, size), dtype))
        return values

    def feeds(self, ids, length):
        batch, new = ids.shape
        positions = np.broadcast_to(np.arange(length - new, length), (batch, new))
        values = {"input_ids": ids, "attention_mask": np.ones((batch, length), np.int64),
                  "position_ids": np.ascontiguousarray(positions)}
        return {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in values.items()
                if name in self.inputs}

    def step(self, ids, length, caches):
        """The next tokens, and the caches that belong to them."""
        results = self.session.run_with_ort_values(self.outputs, {**self.feeds(ids, length), **caches})
        named = dict(zip(self.outputs, results))
        tokens = named["logits"].numpy()[:, -1].argmax(-1)
        return tokens, {name: named[name.replace("past_key_values", "present")] for name in caches}

    def generate(self, prompts, count):
        """(tokens, tokens per second, ms to the first token)"""
        caches, ids, length, made = self.caches(len(prompts)), np.array(prompts), 0, []
        start = first = time.perf_counter()
        for _ in range(count):
            length += ids.shape[1]
            tokens, caches = self.step(ids, length, caches)
            if not made:
                first = time.perf_counter()
            made.append(tokens)
            ids = tokens[:, None]
        seconds = time.perf_counter() - first
        rate = len(prompts) * (count - 1) / seconds
        return np.stack(made, 1).tolist(), rate, (first - start) * 1e3


def ours(args, prompts):
    words = [args.lathe, "generate", args.model, "--json", "-n", args.new, "--threads", args.threads]
    for prompt in prompts:
        words += ["--prompt", ",".join(map(str, prompt))]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    result = json.loads(done.stdout)
    tokens = [sequence["tokens"] for sequence in result["sequences"]]
    return tokens, result["tokens_per_second"], result["first_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--lathe", default=LATHE)
    parser.add_argument("--prompt", type=int, default=32, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=128, help="tokens to generate")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    peer = Peer(args.model, args.threads)
    vocabulary = peer.session.get_outputs()[0].shape[-1]
    prompts = np.random.default_rng(0).integers(0, vocabulary, (args.batch, args.prompt)).tolist()
    rounds = [(ours(args, prompts), peer.generate(prompts, args.new)) for _ in range(args.rounds)]
    for mine, theirs in rounds:
        if mine[0] != theirs[0]:
            raise SystemExit("the tokens differ")
    for name, side in (("lathe", 0), ("onnxruntime", 1)):
        rate, first = (statistics.median(r[side][i] for r in rounds) for i in (1, 2))
        print(f"{name:12} {rate:9.1f} tokens/s   first after {first:8.1f} ms")
    ratio = statistics.median(mine[1] / theirs[1] for mine, theirs in rounds)
    print(f"{'ratio':12} {ratio:9.2f}")


if __name__ == "__main__":
    main()
