"""What measures a model that we and others run: the command, the peers, and how outputs are compared."""

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnx
from onnx import numpy_helper

TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}


def samples(folder, kind, number=0):
    """{name: (file, array)} of sample `number`."""
    files = sorted(folder.glob(f"test_data_set_{number}/{kind}_*.pb"), key=lambda f: int(re.findall(r"\d+", f.stem)[-1]))
    tensors = [onnx.load_tensor(str(f)) for f in files]
    return {t.name: (f, numpy_helper.to_array(t)) for f, t in zip(files, tensors)}


class Failed(SystemExit):
    """A call of the command: what it said. Ends a script that does not expect it."""


class Lathe:
    """The command on sample `number` of a model."""

    def __init__(self, tool, folder, options, number=0, timeout=None):
        self.tool, self.model, self.options = tool, folder / "model.onnx", options
        self.timeout = timeout
        given = samples(folder, "input", number).items()
        self.inputs = [word for name, (file, _) in given for word in ("-i", f"{name}={file}")]

    def call(self, command, *options):
        words = list(map(str, [self.tool, command, self.model, *self.inputs, *self.options, *options]))
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=self.timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"{' '.join(words)}\nnot done after {self.timeout} s") from None
        if done.returncode != 0:
            raise Failed(f"{' '.join(words)}\n{done.stderr}")
        return done.stdout

    def outputs(self):
        with tempfile.TemporaryDirectory() as folder:
            self.call("run", "--output-dir", folder)
            return {Path(f).stem: np.load(Path(folder) / f) for f in os.listdir(folder)}

    def bench(self, threads, seconds):
        return json.loads(self.call("bench", "--threads", threads, "--seconds", seconds, "--json"))


class Peer:
    """A model loaded by somebody else. `infer` runs it on the feeds."""

    def __init__(self, folder, number=0, **options):
        self.feed(folder, number)
        start = time.perf_counter()
        self.load(str(folder / "model.onnx"), **options)
        self.load_ms = (time.perf_counter() - start) * 1e3

    def feed(self, folder, number):
        self.feeds = {name: value for name, (_, value) in samples(folder, "input", number).items()}

    def bench(self, seconds):
        """Median milliseconds of a run."""
        self.infer()
        times, end = [], time.perf_counter() + seconds
        while len(times) < 5 or time.perf_counter() < end:
            start = time.perf_counter()
            self.infer()
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times)


class OnnxRuntime(Peer):
    one = {"threads": 1}
    many = [{"threads": os.cpu_count()}, {"threads": os.cpu_count(), "spin": False}]

    def load(self, model, threads, spin=True):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spin)))
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def infer(self):
        return self.session.run(None, self.feeds)

    def outputs(self):
        return dict(zip([o.name for o in self.session.get_outputs()], self.infer()))


class OpenVino(Peer):
    one = {"threads": 1}
    many = [{}]  # its own choice
    precision = "f32"  # None: what it takes by itself

    def load(self, model, threads=None):
        sys.modules.setdefault("openvino_telemetry", None)  # a package of its own, which is not loaded
        try:
            import openvino
        except ImportError:
            raise SystemExit("OpenVINO is not here: pip install -r requirements/bench.txt")
        config = {"PERFORMANCE_HINT": "LATENCY"}
        if self.precision:
            config["INFERENCE_PRECISION_HINT"] = self.precision
        if threads is not None:
            config["INFERENCE_NUM_THREADS"] = threads
        self.names = [o.name for o in onnx.load(model, load_external_data=False).graph.output]
        core = openvino.Core()
        self.compiled = core.compile_model(core.read_model(model), "CPU", config)
        self.request = self.compiled.create_infer_request()

    def infer(self):
        return self.request.infer(self.feeds, share_inputs=True, share_outputs=True)

    def outputs(self):
        results = self.infer()
        return {name: np.array(results[self.compiled.output(name)]) for name in self.names}


PEERS = {"onnxruntime": OnnxRuntime, "openvino": OpenVino}


def named(outputs, name):
    """An output of ours; the command writes files, whose names have no other characters."""
    return outputs[name] if name in outputs else outputs[re.sub(r"[^A-Za-z0-9_.-]", "_", name)]


def compare(ours, theirs):
    for name, wanted in theirs.items():
        scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)) if wanted.dtype.kind == "f" else 0
        np.testing.assert_allclose(named(ours, name), wanted, rtol=TOLERANCE["rtol"],
                                   atol=TOLERANCE["atol"] * max(scale, 1e-2), err_msg=f"output {name}")


def compare_quantized(ours, theirs):
    """Numbers rounded to few bits on the way: another order of rounding is off by a few steps."""
    assert len(ours) == len(theirs), f"outputs {sorted(ours)}, not {sorted(theirs)}"
    for name, wanted in theirs.items():
        got, reach = named(ours, name), np.ptp(wanted) if wanted.size else 0
        assert got.shape == wanted.shape, f"{name}: shape {got.shape}, not {wanted.shape}"
        off = np.abs(got.astype(np.float64) - wanted) / (reach or 1)
        most, mean = off.max(initial=0), off.mean() if off.size else 0
        assert most <= 0.03 and mean <= 0.005, f"{name}: off by {most:.4f} of the range, {mean:.4f} on the average"


def rms_error(ours, theirs):
    """Of the output that has the largest, relative to its RMS."""
    def of(name, wanted):
        wanted = wanted.astype(np.float64)
        return math.sqrt(np.mean((named(ours, name) - wanted) ** 2) / np.mean(wanted**2))

    return max(of(*item) for item in theirs.items())
