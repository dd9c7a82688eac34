"""An executable (.lx) run by liblathe_runtime alone, through its C interface."""

import ctypes
import time

import numpy as np

ELEMENTS = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
            "bool": 9, "float16": 10, "float64": 11, "uint32": 12, "uint64": 13}  # lathe_element
TYPES = {number: np.dtype(name) for name, number in ELEMENTS.items()}
STRING = 8


class LoadOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_int32), ("max_bytes", ctypes.c_uint64)]


class PortInfo(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("element", ctypes.c_int), ("rank", ctypes.c_size_t),
                ("dims", ctypes.c_void_p), ("type", ctypes.c_char_p)]


class InputView(ctypes.Structure):
    _fields_ = [("element", ctypes.c_int), ("data", ctypes.c_void_p),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("rank", ctypes.c_size_t)]


class OutputView(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                            ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t, ctypes.c_size_t)


def load_library(path):
    library = ctypes.CDLL(str(path))
    for name, result in {"lathe_error_text": ctypes.c_char_p, "lathe_num_inputs": ctypes.c_size_t,
                         "lathe_num_outputs": ctypes.c_size_t, "lathe_load_file": ctypes.c_void_p,
                         "lathe_output_shape": ctypes.c_void_p, "lathe_run": ctypes.c_void_p,
                         "lathe_run_into": ctypes.c_void_p,
                         "lathe_input": ctypes.POINTER(PortInfo),
                         "lathe_output": ctypes.POINTER(PortInfo)}.items():
        getattr(library, name).restype = result
    return library


def in_memory(array):
    """(element type, memory) of an input; strings are pointers to text that ends with NUL."""
    if array.dtype.kind not in "OUS":
        return ELEMENTS[array.dtype.name], array
    texts = [str(text).encode() for text in array.flat]
    return STRING, (ctypes.c_char_p * max(1, len(texts)))(*texts)


def address(memory):
    return memory.ctypes.data if isinstance(memory, np.ndarray) else ctypes.addressof(memory)


class Executable:
    def __init__(self, library, path, threads=1):
        self.library, self.program = library, ctypes.c_void_p()
        self.computed = None
        options = LoadOptions(ctypes.sizeof(LoadOptions), threads, 0)
        self.check(library.lathe_load_file(str(path).encode(), ctypes.byref(options),
                                           ctypes.byref(self.program)))
        self.inputs = self.ports(library.lathe_num_inputs, library.lathe_input)
        self.outputs = self.ports(library.lathe_num_outputs, library.lathe_output)

    def __del__(self):
        self.library.lathe_program_free(self.program)

    def check(self, error):
        if error:
            pointer = ctypes.c_void_p(error)
            text = self.library.lathe_error_text(pointer).decode()
            self.library.lathe_error_free(pointer)
            raise RuntimeError(text)

    def ports(self, count, port):
        all_ports = [port(self.program, ctypes.c_size_t(i)).contents for i in range(count(self.program))]
        return [(p.name.decode(), p.element, p.rank) for p in all_ports]

    def run(self, feeds):
        """(outputs by name, seconds that asking for their shapes and the run took)."""
        arrays = [np.asarray(feeds[name], order="C") for name, _, _ in self.inputs]
        shapes = [(ctypes.c_int64 * max(1, a.ndim))(*a.shape) for a in arrays]
        inputs = [in_memory(a) for a in arrays]
        views = (InputView * len(arrays))(*[
            InputView(element, address(memory), s, a.ndim)
            for (element, memory), a, s in zip(inputs, arrays, shapes)])
        if self.computes_sizes(views):
            return self.run_into(views)
        start = time.perf_counter()
        results = [self.make_output(views, i) for i in range(len(self.outputs))]
        places = (OutputView * len(results))(*[OutputView(r.ctypes.data, r.nbytes) for r in results])
        self.check(self.library.lathe_run(self.program, views, ctypes.c_size_t(len(views)), places,
                                          ctypes.c_size_t(len(places)), None))
        seconds = time.perf_counter() - start
        return {name: r for (name, _, _), r in zip(self.outputs, results)}, seconds

    def computes_sizes(self, views):
        """Whether an output has sizes that depend on the elements of inputs."""
        if self.computed is None:
            try:
                for i in range(len(self.outputs)):
                    self.make_output(views, i)
                self.computed = False
            except RuntimeError as error:
                if "run/output-shape" not in str(error):
                    raise
                self.computed = True
        return self.computed

    def run_into(self, views):
        results = [None] * len(self.outputs)

        def allocate(_, index, shape, rank, size):
            element = self.outputs[index][1]
            if element == STRING:
                results[index] = tuple(shape[:rank]), ctypes.create_string_buffer(size)
                return ctypes.addressof(results[index][1])
            results[index] = np.empty(tuple(shape[:rank]), TYPES[element])
            return results[index].ctypes.data

        start = time.perf_counter()
        self.check(self.library.lathe_run_into(self.program, views, ctypes.c_size_t(len(views)),
                                               ALLOCATE(allocate), None, None))
        seconds = time.perf_counter() - start
        for i, result in enumerate(results):
            if isinstance(result, tuple):
                count = int(np.prod(result[0]))
                pointers = ctypes.cast(result[1], ctypes.POINTER(ctypes.c_char_p))
                texts = [pointers[k].decode() for k in range(count)]
                results[i] = np.array(texts, object).reshape(result[0])
        return {name: r for (name, _, _), r in zip(self.outputs, results)}, seconds

    def make_output(self, views, index):
        _, element, rank = self.outputs[index]
        shape, size = (ctypes.c_int64 * max(1, rank))(), ctypes.c_size_t()
        self.check(self.library.lathe_output_shape(self.program, views, ctypes.c_size_t(len(views)),
                                                   ctypes.c_size_t(index), shape, ctypes.byref(size)))
        return np.empty(tuple(shape[:rank]), TYPES[element])
