"""Many threads, many runs, interrupts, memory."""

import concurrent.futures
import gc
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import model_of, one_node
from onnx import TensorProto, helper
from test_run import endless_model

import lathe

THREADS, RUNS = 8, 10_000


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_many_threads_and_runs_leak_nothing(add, rng):
    exe = lathe.compile(add, cache=False, threads=1)
    x = rng.standard_normal((512, 3)).astype(np.float32)  # a leaked output would be 6 KB
    expected = (x + x).tobytes()
    out = np.empty_like(x)

    def runs(count, out=None):
        given = None if out is None else {"y": out}
        return all(exe.run({"a": x, "b": x}, given)["y"].tobytes() == expected
                   for _ in range(count))

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        def in_threads(count):
            return all(pool.map(runs, [count // THREADS] * THREADS))

        assert in_threads(RUNS // 10)
        gc.collect()
        watched = [x, x.dtype, "a", "y", exe, None, out]
        counts = [sys.getrefcount(o) for o in watched]
        before = resident_bytes()
        assert in_threads(RUNS)
        assert runs(1000, out)
        gc.collect()
        grown = [sys.getrefcount(o) - n for o, n in zip(watched, counts)]
        assert max(map(abs, grown)) < 100, grown
        assert resident_bytes() - before < 20 << 20


def test_failed_runs_leak_nothing(add):
    exe = lathe.compile(add, cache=False, threads=1)
    good, bad = np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32)
    counts = [sys.getrefcount(o) for o in (good, bad, exe)]
    for _ in range(200):
        with pytest.raises(lathe.ShapeError):
            exe(good, bad)
        with pytest.raises(lathe.ElementTypeError):
            exe(good, object())
    gc.collect()
    assert counts == [sys.getrefcount(o) for o in (good, bad, exe)]


def test_threads_compile_and_change_programs_at_once(digits):
    model = lathe.load(digits)

    def work(i):
        if i % 2:
            program = model.program.clone()
            program.run_passes("inference")
            return len(program) > 0
        return lathe.compile(model, cache=False, threads=1).outputs[0].dtype == "f32"

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


LARGE = """
import sys
import numpy as np
sys.path.insert(0, {tests!r})
from conftest import model_of
from onnx import TensorProto, helper
import lathe

def peak():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM")) << 10

node = helper.make_node("ReduceMax", ["x"], ["y"], keepdims=0)
exe = lathe.compile(model_of([node], {{"x": (TensorProto.FLOAT, ["N"])}},
                             {{"y": (TensorProto.FLOAT, [])}}), cache=False, threads=1)
x = np.arange(25_000_000, dtype=np.float32)
exe(x[:1000])
before = peak()
assert exe(x) == x[-1]
print(peak() - before)
"""


def test_a_hundred_megabytes_are_not_copied():
    tests = os.path.dirname(__file__)
    grown = subprocess.run([sys.executable, "-c", LARGE.format(tests=tests)], check=True,
                           capture_output=True, text=True).stdout
    assert int(grown) < 10 << 20


@pytest.fixture
def interrupted_soon():
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    yield
    timer.join()


def test_an_interrupt_ends_a_run(interrupted_soon):
    exe = lathe.compile(endless_model(), cache=False)
    with pytest.raises(KeyboardInterrupt):
        exe.run({"n": np.int64(1 << 40)})


def test_a_handler_that_raises_nothing_ends_nothing(interrupted_soon):
    exe = lathe.compile(endless_model(), cache=False)
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        with pytest.raises(lathe.TimeLimitError):
            exe.run({"n": np.int64(1 << 40)}, timeout=1)
        assert seen == [1]
        assert signal.getsignal(signal.SIGINT) is not before
    finally:
        signal.signal(signal.SIGINT, before)


def test_runs_of_other_threads_do_not_hold_the_lock(add):
    slow = lathe.compile(endless_model(), cache=False)
    token = lathe.CancelToken()
    ended = []

    def run():
        try:
            slow.run({"n": np.int64(1 << 40)}, cancel=token)
        except lathe.CancelledError:
            ended.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    fast = lathe.compile(add, cache=False)
    x = np.ones((1, 3), np.float32)
    assert fast(x, x).tolist() == [[2, 2, 2]]
    token.cancel()
    thread.join()
    assert ended


def test_progress_and_what_it_raises(digits):
    seen = []
    lathe.compile(digits, cache=False, progress=lambda done, total: seen.append((done, total)))
    assert seen and seen[-1][0] == seen[-1][1]

    def stop(done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        lathe.compile(digits, cache=False, progress=stop)


def test_compilations_have_limits(digits):
    with pytest.raises(TimeoutError):
        lathe.compile(digits, cache=False, timeout=1e-6)


def test_reports(digits, add):
    exe = lathe.compile(digits, cache=False, threads=1)
    explanation = exe.explain()
    assert any(k.operations == "conv relu" and k.strategy for k in explanation.kernels)
    assert "conv relu" in str(explanation) and "<td>conv relu</td>" in explanation._repr_html_()
    profile = exe.profile({"image": np.zeros((1, 1, 8, 8), np.float32)}, runs=3)
    assert profile.runs == 3 and profile.ms > 0
    assert any(step.label == "conv relu" for step in profile.steps)
    assert "conv relu" in str(profile) and '"traceEvents"' in profile.trace
    node = helper.make_node("Unique", ["x"], ["y"])
    data = {"x": (TensorProto.STRING, [4])}
    interpreted = lathe.compile(model_of([node], data, {"y": (TensorProto.STRING, ["M"])}),
                                cache=False)
    assert interpreted.explain().interpreted
