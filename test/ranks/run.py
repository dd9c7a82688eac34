#!/usr/bin/env python3
"""Trains on several processes, started by mpirun, and checks what they compute and how they fail.

Prints `N passed, N failed` last.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
NET = ROOT / "test" / "ranks" / "mlp.lathe"
LIMIT = 60  # seconds that no command takes unless something hangs
FOREVER = "1000000"
# More ranks than there are cores, also as root, as in a container.
ENVIRONMENT = dict(os.environ, NO_COLOR="1", LC_ALL="C.UTF-8", OMPI_ALLOW_RUN_AS_ROOT="1",
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")


class Failure(Exception):
    """What is not as it should be."""


def expect(holds, text):
    if not holds:
        raise Failure(text)


class Suite:
    """A test is a method whose name begins with try_."""

    def __init__(self, build, folder):
        self.lathe = build / "bin" / "lathe"
        self.build = build
        self.folder = folder
        self.make_data()

    def make_data(self):
        with numpy.load(ROOT / "examples" / "train_digits" / "train.npz") as digits:
            for name, count in (("train", 300), ("other", 299)):
                images = digits["image"][:count].reshape(count, 64)
                numpy.savez(self.folder / f"{name}.npz", image=images,
                            labels=digits["labels"][:count])

    def words(self, *more, net=NET, data="train"):
        """`lathe train` and its options; later ones say what is different."""
        return [self.lathe, "train", net, "--init", "auto", "--seed", "7", "--data",
                self.folder / f"{data}.npz", "--batch", "32", "--optimizer",
                "adamw{lr=1e-2,clip_global_norm=1}", *more]

    def run(self, *command):
        """(exit code, stdout and stderr)."""
        process = subprocess.run([str(word) for word in command], env=ENVIRONMENT, timeout=LIMIT,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                 stderr=subprocess.STDOUT, check=False)
        return process.returncode, process.stdout

    def train(self, ranks, name, *more):
        """The losses of the steps, and the checkpoint."""
        metrics, checkpoint = self.folder / f"{name}.jsonl", self.folder / name
        start = ["mpirun", "-n", ranks] if ranks > 1 else []
        code, text = self.run(*start, *self.words("--metrics", metrics, "--checkpoint", checkpoint,
                                                  *more))
        expect(code == 0, text)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        losses = [line["loss"] for line in lines if line["kind"] == "step"]
        return losses, checkpoint / "checkpoint.safetensors"

    def expect_near(self, losses, wanted):
        expect(len(losses) == len(wanted), f"{len(losses)} steps, not {len(wanted)}")
        worst = max(abs(a - b) for a, b in zip(losses, wanted))
        expect(worst < 5e-5, f"losses differ by {worst}")

    # ---- what is computed ----

    def try_losses(self):
        """Two epochs of 10 steps, the last of 12 samples: 4 ranks have 3 each, 8 have 1 or 2."""
        wanted, _ = self.train(1, "one", "--epochs", "2")
        expect(wanted[-1] < 0.8 * wanted[0], f"nothing is learned: {wanted}")
        for ranks in (2, 3, 4, 8):
            losses, checkpoint = self.train(ranks, f"ranks{ranks}", "--epochs", "2")
            self.expect_near(losses, wanted)
            again, same = self.train(ranks, f"again{ranks}", "--epochs", "2", "--threads", "2")
            expect(again == losses, "other losses in a second run")
            expect(checkpoint.read_bytes() == same.read_bytes(), "other bits in a second run")

    def try_resume(self):
        """Two epochs of 4 ranks and one of 2 are three of one."""
        wanted, _ = self.train(1, "whole", "--epochs", "3")
        self.train(4, "parts", "--epochs", "2")
        losses, _ = self.train(2, "parts", "--epochs", "3", "--resume")
        self.expect_near(losses, wanted)

    def try_shards(self):
        """Each rank has a part of the optimizer's states; the checkpoint has all of them."""
        wanted, _ = self.train(1, "whole2", "--epochs", "2")
        for ranks in (2, 8):
            losses, checkpoint = self.train(ranks, f"shards{ranks}", "--epochs", "2", "--shard")
            self.expect_near(losses, wanted)
            again, same = self.train(ranks, f"shards_again{ranks}", "--epochs", "2", "--shard")
            expect(again == losses, "other losses in a second run")
            expect(checkpoint.read_bytes() == same.read_bytes(), "other bits in a second run")
        wanted, _ = self.train(1, "whole3", "--epochs", "3")
        losses, _ = self.train(3, "shards8", "--epochs", "3", "--resume")
        self.expect_near(losses, wanted)

    def try_report(self):
        """What an epoch says of communication and memory."""
        code, text = self.run("mpirun", "-n", 4, *self.words("--json", "--shard"))
        expect(code == 0, text)
        line = json.loads(next(t for t in text.splitlines() if t.startswith("{")))
        expect(0 <= line["hidden_seconds"] <= line["communication_seconds"], text)
        whole = 2 * line["parameter_bytes"]  # the moments of AdamW
        expect(whole / 4 <= line["state_bytes"] < whole / 4 + 1000, text)
        code, text = self.run("mpirun", "-n", 2, *self.words())
        expect("% hidden" in text and text.count("each rank holds") == 1, text)

    def try_one_speaks(self):
        """Results and files are those of one rank."""
        out = self.folder / "trained.onnx"
        code, text = self.run("mpirun", "-n", 3, *self.words("-o", out))
        expect(code == 0 and out.exists(), text)
        expect(text.count("epoch 1 of 1") == 1 and text.count("wrote") == 1, text)

    # ---- how it fails ----

    def fails(self, text, code, message):
        expect(code != 0, f"it ends with 0: {text}")
        expect(text.count("error[") == 1, f"not one error: {text}")
        expect(message in text, f"no '{message}' in {text}")

    def try_other_options(self):
        """One rank has another seed, model or data."""
        changes = [(["--init", "xavier_normal"], {}, None),
                   ([], {"data": "other"}, "rank 1 has another number of samples")]
        for more, change, message in changes:
            words = self.words(**change)
            if more:
                at = words.index(more[0])
                words[at + 1] = more[1]
            code, text = self.run("mpirun", "-n", 1, *self.words(), ":", "-n", 1, *words)
            if message is None:  # parameters are those of rank 0
                expect(code == 0, text)
            else:
                self.fails(text, code, message)
        net = self.folder / "other.lathe"
        net.write_text(NET.read_text().replace("nn.relu", "nn.sigmoid"))
        code, text = self.run("mpirun", "-n", 1, *self.words(), ":", "-n", 2, *self.words(net=net))
        self.fails(text, code, "rank 1 has another model than rank 0")

    def try_missing_data(self):
        """What one rank cannot read ends the others, and is said."""
        code, text = self.run("mpirun", "-n", 1, *self.words(), ":", "-n", 1,
                              *self.words(data="nowhere"))
        self.fails(text, code, "rank 1 has failed")
        expect("nowhere.npz" in text, text)

    def start(self, ranks, *more):
        """A training that does not end, once it trains: (mpirun, processes by rank)."""
        metrics = self.folder / f"metrics{time.monotonic_ns()}.jsonl"
        command = ["mpirun", "-n", ranks, *self.words("--epochs", FOREVER, "--metrics", metrics,
                                                      *more)]
        mpirun = subprocess.Popen([str(word) for word in command], env=ENVIRONMENT,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.STDOUT)
        deadline = time.monotonic() + LIMIT
        while not (metrics.exists() and metrics.stat().st_size > 0):
            if mpirun.poll() is not None or time.monotonic() > deadline:
                mpirun.kill()
                raise Failure(f"it does not begin: {mpirun.communicate()[0]}")
            time.sleep(0.05)
        return mpirun, self.processes_of(mpirun.pid)

    @staticmethod
    def processes_of(parent):
        children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        ranks = {}
        for pid in map(int, children):
            for entry in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                    ranks[int(entry.split(b"=")[1])] = pid
        return ranks

    def end_of(self, mpirun):
        """(exit code, text) of an mpirun that has to end by itself."""
        try:
            text, _ = mpirun.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            mpirun.terminate()
            raise Failure("the other ranks go on waiting") from None
        return mpirun.returncode, text

    def try_killed_rank(self):
        """mpirun says it, and nobody stays behind."""
        mpirun, processes = self.start(3)
        os.kill(processes[1], signal.SIGKILL)
        code, text = self.end_of(mpirun)
        expect(code != 0 and "rank 1" in text and "signal 9" in text, text)
        deadline = time.monotonic() + LIMIT
        while any(map(self.is_alive, processes.values())):
            expect(time.monotonic() < deadline, "other ranks stay")
            time.sleep(0.05)

    @staticmethod
    def is_alive(pid):
        try:
            return "State:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return False

    def try_stopped_rank(self):
        """A rank that hangs is named, whoever it is."""
        for rank in (0, 2, 1, 2):
            mpirun, processes = self.start(3, "--rank-timeout", "2")
            os.kill(processes[rank], signal.SIGSTOP)
            code, text = self.end_of(mpirun)
            self.fails(text, code, f"rank {rank} has not taken part in")

    def try_without_mpi(self):
        """A Lathe that was built without MPI says so."""
        for name in ("bin/lathe", "lib/liblathe.so.0.1"):
            target = self.folder / "without" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.build / name, target)
        code, text = self.run("mpirun", "-n", 2, self.folder / "without" / "bin" / "lathe",
                              *self.words()[1:])
        expect(code != 0 and "error[rank/no-mpi]" in text, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build", help="build folder (default: build)")
    parser.add_argument("--only", help="just this test")
    options = parser.parse_args()
    build = (ROOT / options.build).resolve()
    for needed, there in (("mpirun", shutil.which("mpirun")),
                          ("liblathe_mpi.so", (build / "lib" / "liblathe_mpi.so").exists())):
        if not there:
            print(f"skipped: there is no {needed}; scripts/install.sh test installs OpenMPI")
            print("0 passed, 0 failed")
            return 0
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(build, pathlib.Path(folder))
        for name in [n for n in dir(suite) if n.startswith("try_")]:
            if options.only and name != f"try_{options.only}":
                continue
            begin = time.monotonic()
            try:
                getattr(suite, name)()
                passed += 1
                print(f"ok    {name[4:]} ({time.monotonic() - begin:.1f} s)", flush=True)
            except (Failure, subprocess.TimeoutExpired) as failure:
                failed += 1
                print(f"FAIL  {name[4:]}: {failure}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
