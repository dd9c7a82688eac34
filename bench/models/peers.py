"""Peers of benchmarks.py that run.py does not have. What they compile is kept in build/peers."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import onnx

from race import OpenVino, Peer, samples

COMPILE_LIMIT = 300  # seconds


def work_folder(folder):
    """Where peers keep what they make of the model in `folder`."""
    made = folder.parents[1] / "peers" / folder.name
    made.mkdir(parents=True, exist_ok=True)
    return made


@contextlib.contextmanager
def limited(seconds):
    """Ends what takes longer with a TimeoutError."""
    def stop(*_):
        raise TimeoutError(f"took more than {seconds} s to compile")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fixed_model(folder):
    """The model with the sizes of its sample, what follows from them computed, as a file.

    PyTorch's and IREE's importers want shapes that are constants. onnxruntime's basic optimizations
    write these; what they fold besides (batch norms into convolutions) is in favor of the peers.
    """
    import onnxruntime as ort

    source, target = folder / "model.onnx", work_folder(folder) / "fixed.onnx"
    if target.exists() and target.stat().st_mtime > source.stat().st_mtime:
        return target
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "fixed.data")
    options.log_severity_level = 3
    given = samples(folder, "input")
    for value in onnx.load(str(source), load_external_data=False).graph.input:
        if value.name in given:
            for dim, size in zip(value.type.tensor_type.shape.dim, given[value.name][1].shape):
                if dim.dim_param:
                    options.add_free_dimension_override_by_name(dim.dim_param, size)
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    keep_standard_domain(target)
    return target


def keep_standard_domain(file):
    """onnxruntime lists all domains that it knows; importers refuse those."""
    model = onnx.load(str(file), load_external_data=False)
    standard = [o for o in model.opset_import if not o.domain]
    del model.opset_import[:]
    model.opset_import.extend(standard)
    onnx.save(model, str(file))


class OpenVinoDefault(OpenVino):
    """Computes in the type that it takes by itself."""

    precision = None

    def load(self, model, threads=None):
        super().load(model, threads)
        self.took = self.compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()


class Iree(Peer):
    """The faster one of two ways to compile. Its device is synchronous: one thread."""

    base = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3",
            "--iree-llvmcpu-stack-allocation-limit=262144"]
    ways = {"tiled": ["--iree-opt-data-tiling", "--iree-global-opt-use-im2col-for-convs"], "plain": []}

    def load(self, model):
        self.folder = work_folder(Path(model).parent)
        self.graph = onnx.load(str(fixed_model(Path(model).parent)), load_external_data=False).graph
        functions, times, failed = {}, {}, {}
        for way in self.ways:
            try:
                self.function = functions[way] = self.load_function(self.compile(way))
                times[way] = self.bench(0)
            except (subprocess.SubprocessError, RuntimeError) as error:
                failed[way] = error
        if not times:
            raise failed["tiled"]
        self.took = min(times, key=times.get)
        self.function = functions[self.took]

    def compile(self, way):
        """The module's file; one that was compiled before is taken."""
        from importlib.metadata import version

        source = self.folder / "iree.mlir"
        target = self.folder / f"{way}-{version('iree-base-compiler')}.vmfb"
        made_of = self.folder / "fixed.onnx"
        if not target.exists() or target.stat().st_mtime < made_of.stat().st_mtime:
            self.call("iree-import-onnx", made_of, "--opset-version", "17", "--externalize-params", "-o", source)
            self.call("iree-compile", source, *self.base, *self.ways[way], "-o", target)
        return target

    def call(self, tool, *words):
        command = [str(Path(sys.executable).with_name(tool)), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT)
        if done.returncode != 0:
            told = [line for line in done.stderr.splitlines() if "error:" in line] or done.stderr.splitlines()[-1:]
            raise RuntimeError(told[0].split("error:")[-1].strip() if told else f"{tool} ended with {done.returncode}")

    def load_function(self, file):
        import iree.runtime as rt

        config = rt.Config("local-sync")
        index = rt.ParameterIndex()
        index.load(str(self.folder / "iree_params.irpa"))
        parameters = rt.create_io_parameters_module(config.vm_instance, index.create_provider("model"))
        module = rt.VmModule.mmap(config.vm_instance, str(file))
        name = next(n for n in module.function_names if not n.startswith("__") and not n.endswith("$async"))
        given = [i.name for i in self.graph.input if i.name in self.feeds]
        self.arguments = [rt.asdevicearray(config.device, self.feeds[n]) for n in given]
        return rt.load_vm_modules(parameters, module, config=config)[-1][name]

    def infer(self):
        return self.function(*self.arguments)

    def outputs(self):
        results = self.infer()
        results = results if isinstance(results, tuple) else (results,)
        return {o.name: r.to_host() for o, r in zip(self.graph.output, results)}
