"""Single operators in sizes of real networks: what bench/ops/run.py races."""

import dataclasses

import numpy as np

RANDOM = np.random.default_rng(0)
TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i64": np.int64, "i32": np.int32,
         "u8": np.uint8, "i8": np.int8, "bool": np.bool_}
LARGE = (512, 2048)
CUBE = (64, 128, 128)
IMAGE = (1, 64, 56, 56)


@dataclasses.dataclass(frozen=True)
class Case:
    """One node. `constants`: the inputs that are initializers; None in `inputs`: one that is absent."""

    name: str
    op: str
    inputs: tuple
    attributes: dict
    outputs: int = 1
    constants: frozenset = frozenset()
    opset: int = 20
    domain: str = ""
    tolerance: float = 1e-4


def data(kind: str, shape, low=None, high=None):
    if kind == "bool":
        return RANDOM.random(shape) < 0.5
    if kind[0] == "f":
        return RANDOM.uniform(-2 if low is None else low, 2 if high is None else high, shape).astype(TYPES[kind])
    least = 1 if kind[0] == "u" else -50
    return RANDOM.integers(least if low is None else low, 50 if high is None else high, shape).astype(TYPES[kind])


def ints(*values):
    return np.array(values, np.int64)


def floats(*values):
    return np.array(values, np.float32)


class Cases:
    """Collects those whose name matches; the data of the others is not made."""

    def __init__(self, matches):
        self.matches = matches
        self.all = []

    def add(self, name, op, inputs, outputs=1, constants=(), opset=20, domain="", tolerance=1e-4, **attributes):
        """`inputs`: arrays, or a function without arguments that gives them."""
        if not self.matches(name):
            return
        made = tuple(inputs() if callable(inputs) else inputs)
        self.all.append(Case(name, op, made, attributes, outputs, frozenset(constants), opset, domain, tolerance))

    # ---- element by element ----

    def unary(self):
        for op in ("Abs Atan Ceil Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsNaN LeakyRelu Mish Neg Reciprocal "
                   "Relu Round Selu Sigmoid Sign Sin Softplus Softsign Tan Tanh").split():
            self.add(op, op, lambda: [data("f32", LARGE)])
        for op in "Acos Asin Atanh".split():
            self.add(op, op, lambda: [data("f32", LARGE, -0.9, 0.9)])
        for op in "Log Sqrt".split():
            self.add(op, op, lambda: [data("f32", LARGE, 0.1, 9)])
        for kind, tolerance in (("f16", 1e-2), ("f64", 1e-6)):
            for op in "Abs Exp Log Tanh Sqrt Sigmoid Erf Relu Floor Neg Softmax".split():
                self.add(f"{op}.{kind}", op, lambda k=kind: [data(k, LARGE, 0.1, 2)], tolerance=tolerance)
        for kind in ("i64", "i32", "i8"):
            for op in "Abs Sign Relu Neg".split():
                self.add(f"{op}.{kind}", op, lambda k=kind: [data(k, LARGE)])

    def binary(self):
        for kind in ("f32", "f64", "f16", "i64", "i32", "u8"):
            low, high = (0.1, 3) if kind[0] == "f" else (1, 20)
            for op in "Add Sub Mul Div Max Min Equal Less".split():
                self.add(f"{op}.{kind}", op, lambda k=kind, a=low, b=high: [data(k, LARGE, a, b) for _ in range(2)],
                         tolerance=1e-2 if kind == "f16" else 1e-4)
        for op in "Add Mul Div Max Pow Equal".split():
            for name, a, b in (("row", LARGE, LARGE[1:]), ("column", LARGE, (LARGE[0], 1)),
                               ("outer", (LARGE[0], 1), (1, LARGE[1])), ("scalar", LARGE, ()),
                               ("middle", (32, 64, 512), (32, 1, 512))):
                self.add(f"{op}.{name}", op, lambda a=a, b=b: [data("f32", s, 0.1, 2) for s in (a, b)])
        for exponent in (2, 3, 0.5, 2.2):
            self.add(f"Pow.{exponent}", "Pow", lambda e=exponent: [data("f32", LARGE, 0.1, 2), np.float32(e)],
                     constants=[1])
        for op in "And Or Xor".split():
            self.add(op, op, lambda: [data("bool", LARGE), data("bool", LARGE)])
        for kind in ("f32", "f16", "i64", "u8"):
            self.add(f"Where.{kind}", "Where", lambda k=kind: [data("bool", LARGE), data(k, LARGE), data(k, LARGE)])
        for op in "Sum Mean Max".split():
            self.add(f"{op}.3", op, lambda: [data("f32", LARGE) for _ in range(3)])
        self.add("PRelu", "PRelu", lambda: [data("f32", IMAGE), data("f32", (64, 1, 1))], constants=[1])
        self.add("Clip", "Clip", lambda: [data("f32", LARGE), np.float32(-1), np.float32(1)], constants=[1, 2])

    def casts(self):
        for a in ("f32", "f16", "i64", "u8", "bool"):
            for b in ("f32", "f16", "i64", "u8", "bool"):
                if a != b:
                    self.add(f"Cast.{a}.{b}", "Cast", lambda a=a: [data(a, LARGE, 0, 100)], to=onnx_type(b))

    # ---- reductions and order ----

    def reductions(self):
        axes = {"last": [2], "middle": [1], "first": [0], "all": [0, 1, 2], "outer": [0, 2], "inner": [1, 2]}
        for op in "ReduceSum ReduceMean ReduceMax ReduceL2 ReduceLogSumExp".split():
            for name, along in axes.items():
                self.add(f"{op}.{name}", op, lambda a=along: [data("f32", CUBE), ints(*a)], constants=[1], keepdims=0,
                         tolerance=1e-3)
        for kind in ("i64", "f64", "f16"):
            for op in "ReduceSum ReduceMax".split():
                for name in ("last", "first", "all"):
                    self.add(f"{op}.{name}.{kind}", op, lambda k=kind, a=axes[name]: [data(k, CUBE), ints(*a)],
                             constants=[1], keepdims=0, tolerance=2e-2 if kind == "f16" else 1e-4)
        for op in "Softmax LogSoftmax Hardmax ArgMax ArgMin".split():
            for axis in range(3):
                self.add(f"{op}.{axis}", op, lambda: [data("f32", CUBE)], axis=axis)
            self.add(f"{op}.wide", op, lambda: [data("f32", (4, 50001))], axis=1)
        for axis in range(3):
            self.add(f"CumSum.{axis}", "CumSum", lambda a=axis: [data("f32", CUBE), np.int64(a)], constants=[1])
        for k in (1, 5, 100, 1000):
            self.add(f"TopK.{k}", "TopK", lambda k=k: [data("f32", (64, 10000)), ints(k)], 2, [1], axis=1)
        self.add("TopK.first", "TopK", lambda: [data("f32", (1000, 128)), ints(10)], 2, [1], axis=0)
        self.add("TopK.experts", "TopK", lambda: [data("f32", (4096, 64)), ints(4)], 2, [1], axis=1)
        self.add("Unique", "Unique", lambda: [data("i64", (100000,), 0, 1000)], 4)
        self.add("NonZero", "NonZero", lambda: [data("bool", (512, 512))])

    def norms(self):
        def weights(n):
            return data("f32", (n,), 0.5, 1.5)

        self.add("BatchNormalization", "BatchNormalization",
                 lambda: [data("f32", IMAGE), *(weights(64) for _ in range(4))], constants=[1, 2, 3, 4])
        self.add("InstanceNormalization", "InstanceNormalization",
                 lambda: [data("f32", IMAGE), weights(64), weights(64)], constants=[1, 2])
        self.add("GroupNormalization", "GroupNormalization", lambda: [data("f32", IMAGE), weights(64), weights(64)],
                 constants=[1, 2], opset=21, num_groups=8)
        self.add("LayerNormalization", "LayerNormalization", lambda: [data("f32", (512, 768)), weights(768), weights(768)],
                 constants=[1, 2], axis=-1)
        self.add("RMSNormalization", "RMSNormalization", lambda: [data("f32", (512, 768)), weights(768)], constants=[1],
                 opset=23, axis=-1)
        self.add("LRN", "LRN", lambda: [data("f32", (1, 96, 55, 55))], size=5)

    # ---- movement ----

    def indices(self):
        self.add("Gather.rows", "Gather", lambda: [data("f32", (30000, 256)), data("i64", (4, 128), 0, 30000)])
        self.add("Gather.last", "Gather", lambda: [data("f32", LARGE), data("i64", (512,), 0, 2048)], axis=1)
        self.add("GatherElements", "GatherElements", lambda: [data("f32", LARGE), data("i64", (512, 512), 0, 2048)], axis=1)
        self.add("GatherND", "GatherND", lambda: [data("f32", (100, 100, 64)), data("i64", (5000, 2), 0, 100)])

        def places(n, m):
            chosen = RANDOM.permutation(n * n)[:m]
            return np.stack([chosen // n, chosen % n], 1).astype(np.int64)

        for how in ("none", "add", "max"):
            self.add(f"ScatterND.{how}", "ScatterND",
                     lambda: [data("f32", (100, 100, 64)), places(100, 5000), data("f32", (5000, 64))], reduction=how)
            self.add(f"ScatterElements.{how}", "ScatterElements",
                     lambda: [data("f32", (512, 512)), np.argsort(RANDOM.random((512, 512)), axis=1).astype(np.int64),
                              data("f32", (512, 512))], axis=1, reduction=how)
        self.add("OneHot", "OneHot", lambda: [data("i64", (4096,), 0, 100), np.int64(100), floats(0, 1)], constants=[1, 2])
        self.add("Compress", "Compress", lambda: [data("f32", (1000, 256)), data("bool", (1000,))], axis=0)

    def movement(self):
        for axis in range(3):
            self.add(f"Concat.{axis}", "Concat", lambda: [data("f32", CUBE) for _ in range(3)], axis=axis)
            self.add(f"Split.{axis}", "Split", lambda: [data("f32", CUBE)], 4, axis=axis, num_outputs=4)
        self.add("Split.narrow", "Split", lambda: [data("f32", (200000, 4))], 4, axis=1, num_outputs=4)
        for name, bounds in (("step", (0, 1000, 2, 2)), ("reversed", (-1, -1000, 2, -1)), ("cut", (5, 100, 2, 1))):
            self.add(f"Slice.{name}", "Slice", lambda b=bounds: [data("f32", CUBE), *(ints(x) for x in b)],
                     constants=[1, 2, 3, 4])
        for fed in (False, True):
            constants, end = ([], ".fed") if fed else ([1], "")
            for mode in ("constant", "reflect", "edge"):
                self.add(f"Pad.{mode}{end}", "Pad",
                         lambda: [data("f32", (1, 64, 112, 112)), ints(0, 0, 3, 3, 0, 0, 3, 3)], constants=constants,
                         mode=mode)
            self.add(f"Tile{end}", "Tile", lambda: [data("f32", (64, 1, 128)), ints(1, 64, 1)], constants=constants)
            self.add(f"Expand{end}", "Expand", lambda: [data("f32", (64, 1, 128)), ints(64, 64, 128)], constants=constants)
        for kind in ("f32", "u8"):
            for shape, order in (((1024, 1024), (1, 0)), ((8, 128, 12, 64), (0, 2, 1, 3)), ((8, 128, 12, 64), (0, 2, 3, 1)),
                                 ((1, 3, 224, 224), (0, 2, 3, 1)), ((1, 224, 224, 3), (0, 3, 1, 2)),
                                 ((64, 128, 128), (2, 1, 0)), ((4, 8, 16, 16, 32), (0, 3, 1, 4, 2))):
                name = f"Transpose.{kind}.{'x'.join(map(str, shape))}.{''.join(map(str, order))}"
                self.add(name, "Transpose", lambda k=kind, s=shape: [data(k, s)], perm=order)
        self.add("DepthToSpace", "DepthToSpace", lambda: [data("f32", (1, 64, 128, 128))], blocksize=2)

    def sampling(self):
        small, large = (1, 32, 64, 64), (1, 32, 128, 128)
        for mode in ("nearest", "linear", "cubic"):
            self.add(f"Resize.up.{mode}", "Resize", lambda: [data("f32", small), None, floats(1, 1, 2, 2)],
                     constants=[2], opset=19, mode=mode)
            self.add(f"Resize.down.{mode}", "Resize", lambda: [data("f32", large), None, floats(1, 1, 0.4, 0.4)],
                     constants=[2], opset=19, mode=mode)
            self.add(f"Resize.fed.{mode}", "Resize", lambda: [data("f32", small), None, None, ints(1, 32, 100, 120)],
                     opset=19, mode=mode)
            self.add(f"Resize.scales.{mode}", "Resize", lambda: [data("f32", small), None, floats(1, 1, 1.5, 1.7)],
                     opset=19, mode=mode)
            if mode != "nearest":
                self.add(f"Resize.antialias.{mode}", "Resize", lambda: [data("f32", large), None, floats(1, 1, 0.4, 0.4)],
                         constants=[2], opset=19, mode=mode, antialias=1)
            for padding in ("zeros", "border"):
                self.add(f"GridSample.{mode}.{padding}", "GridSample",
                         lambda: [data("f32", small), data("f32", (1, 64, 64, 2), -1.1, 1.1)], mode=mode,
                         padding_mode=padding)

        for mode in ("nearest", "linear"):
            self.add(f"Resize.3d.{mode}", "Resize",
                     lambda: [data("f32", (1, 16, 16, 32, 32)), None, floats(1, 1, 2, 2, 2)], constants=[2], opset=19,
                     mode=mode)

        def regions():
            return np.sort(RANDOM.uniform(0, 60, (200, 2, 2)), axis=1).reshape(200, 4).astype(np.float32)

        self.add("RoiAlign", "RoiAlign", lambda: [data("f32", (1, 64, 64, 64)), regions(), np.zeros(200, np.int64)],
                 opset=16, output_height=7, output_width=7, sampling_ratio=2, spatial_scale=1.0)
        for ratio, low in ((2, 0), (0, 0), (0, -20)):
            self.add(f"RoiAlign.large.{ratio}.{-low}", "RoiAlign",
                     lambda a=low: [data("f32", (2, 64, 50, 68)), np.sort(RANDOM.uniform(a, 1000, (300, 2, 2)), axis=1)
                                    .reshape(300, 4).astype(np.float32), data("i64", (300,), 0, 2)],
                     opset=16, output_height=7, output_width=7, sampling_ratio=ratio, spatial_scale=0.0625)
        self.add("DeformConv", "DeformConv",
                 lambda: [data("f32", (1, 32, 28, 28)), data("f32", (32, 32, 3, 3)), data("f32", (1, 18, 28, 28))],
                 constants=[1], opset=19, pads=[1] * 4, tolerance=1e-3)

    # ---- windows and products ----

    def pools(self):
        for kernel, stride, pad, shape in ((2, 2, 0, (8, 64, 112, 112)), (3, 2, 1, (8, 64, 112, 112)),
                                           (3, 1, 1, (8, 64, 56, 56)), (5, 1, 2, (1, 256, 20, 20)),
                                           (13, 1, 6, (1, 256, 20, 20))):
            for op in ("MaxPool", "AveragePool"):
                self.add(f"{op}.{kernel}.{stride}", op, lambda s=shape: [data("f32", s)], kernel_shape=[kernel] * 2,
                         strides=[stride] * 2, pads=[pad] * 4)
        self.add("MaxPool.indices", "MaxPool", lambda: [data("f32", (8, 64, 112, 112))], 2, kernel_shape=[2, 2],
                 strides=[2, 2])
        self.add("AveragePool.plane", "AveragePool", lambda: [data("f32", (8, 512, 7, 7))], kernel_shape=[7, 7])
        self.add("MaxPool.1d", "MaxPool", lambda: [data("f32", (8, 64, 4000))], kernel_shape=[3], strides=[2])
        self.add("MaxPool.3d", "MaxPool", lambda: [data("f32", (1, 32, 32, 56, 56))], kernel_shape=[3] * 3, strides=[2] * 3)
        for op in "GlobalAveragePool GlobalMaxPool".split():
            self.add(op, op, lambda: [data("f32", (8, 256, 28, 28))])

    def convolutions(self):
        def conv(name, x, w, op="Conv", fed=False, **attributes):
            self.add(f"{op}.{name}", op, lambda: [data("f32", x), data("f32", w)], constants=[] if fed else [1],
                     tolerance=1e-3, **attributes)

        conv("3x3", IMAGE, (64, 64, 3, 3), pads=[1] * 4)
        conv("1x1", (1, 256, 56, 56), (64, 256, 1, 1))
        conv("depthwise", (1, 128, 56, 56), (128, 1, 3, 3), pads=[1] * 4, group=128)
        conv("depthwise7", (1, 128, 56, 56), (128, 1, 7, 7), pads=[3] * 4, group=128)
        conv("first", (1, 3, 224, 224), (64, 3, 7, 7), pads=[3] * 4, strides=[2, 2])
        conv("patches", (1, 3, 224, 224), (384, 3, 16, 16), strides=[16, 16])
        conv("grouped", (1, 128, 28, 28), (128, 4, 3, 3), pads=[1] * 4, group=32)
        conv("dilated", (1, 128, 28, 28), (128, 128, 3, 3), pads=[6] * 4, dilations=[6, 6])
        conv("1d", (1, 80, 3000), (384, 80, 3), pads=[1, 1])
        conv("stft", (1, 1, 64000), (258, 1, 256), strides=[128])
        conv("3d", (1, 16, 16, 56, 56), (32, 16, 3, 3, 3), pads=[1] * 6)
        conv("odd", (1, 37, 31, 33), (53, 37, 5, 5), pads=[2] * 4)
        conv("fed", IMAGE, (64, 64, 3, 3), fed=True, pads=[1] * 4)
        conv("1x1.fed", (1, 256, 56, 56), (64, 256, 1, 1), fed=True)
        conv("depthwise.fed", (1, 128, 56, 56), (128, 1, 3, 3), fed=True, pads=[1] * 4, group=128)
        transposed = "ConvTranspose"
        conv("2x2", IMAGE, (64, 64, 2, 2), transposed, strides=[2, 2])
        conv("4x4", IMAGE, (64, 32, 4, 4), transposed, strides=[2, 2], pads=[1] * 4)
        conv("vocoder", (1, 256, 500), (256, 128, 16), transposed, strides=[8], pads=[4, 4])
        conv("istft", (1, 402, 300), (402, 1, 400), transposed, strides=[160])

    def products(self):
        def product(name, a, b, fed=False):
            self.add(f"MatMul.{name}", "MatMul", lambda: [data("f32", a), data("f32", b)], constants=[] if fed else [1],
                     tolerance=1e-3)

        for rows in (1, 3, 128):
            product(f"{rows}x768x3072", (rows, 768), (768, 3072))
        product("odd", (127, 333), (333, 517))
        for fed, end in ((False, ""), (True, ".fed")):
            product(f"column{end}", (2048, 512), (512, 1), fed)
            product(f"columns.stack{end}", (32, 64, 512), (32, 512, 1), fed)
            product(f"row{end}", (1, 768), (768, 3072), fed)
            product(f"rows.stack{end}", (32, 1, 512), (32, 512, 64), fed)
            product(f"two{end}", (2048, 512), (512, 2), fed)
        product("keys", (12, 1, 64), (12, 64, 512), True)
        product("values", (12, 1, 512), (12, 512, 64), True)
        for kind in ("f64", "f16", "i32"):
            for name, a, b in (("column", (2048, 512), (512, 1)), ("row", (1, 512), (512, 2048))):
                for fed, end in ((False, ""), (True, ".fed")):
                    self.add(f"MatMul.{name}.{kind}{end}", "MatMul", lambda k=kind, a=a, b=b: [data(k, a), data(k, b)],
                             constants=[] if fed else [1], tolerance=1e-2 if kind == "f16" else 1e-4)
        product("stack", (12, 128, 64), (12, 64, 128), True)
        product("small", (4096, 4, 4), (4096, 4, 4), True)
        for equation, a, b in (("bhqd,bhkd->bhqk", (2, 8, 128, 64), (2, 8, 128, 64)),
                               ("bhqk,bkhd->bqhd", (2, 8, 128, 128), (2, 128, 8, 64)),
                               ("bqhc,hkc->bqhk", (1, 128, 8, 64), (8, 128, 64)),
                               ("ij,j->i", (2048, 512), (512,)), ("i,ij->j", (512,), (512, 2048)),
                               ("bij,bj->bi", (32, 64, 512), (32, 512)), ("n c t k v,k v w->n c t w", (1, 64, 32, 3, 25), (3, 25, 25)),
                               ("b l d,d n->b l d n", (1, 512, 256), (256, 16)), ("b l d n,b l n->b l d", (1, 128, 256, 16), (1, 128, 16))):
            self.add(f"Einsum.{equation}", "Einsum", lambda a=a, b=b: [data("f32", a), data("f32", b)], equation=equation,
                     tolerance=1e-3)
        for equation, *shapes in (("...qhd,...khd->...hqk", (2, 4, 64, 4, 32), (2, 4, 96, 4, 32)), ("ij->", (512, 512)),
                                  ("ij,jk,kl->il", (64, 96), (96, 80), (80, 48)), ("i b n d,j b n d->i j b n", (64, 2, 4, 16), (80, 2, 4, 16))):
            self.add(f"Einsum.{equation}", "Einsum", lambda s=shapes: [data("f32", shape) for shape in s], equation=equation,
                     tolerance=1e-3)

    def sequences(self):
        for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
            for direction, n in (("forward", 1), ("bidirectional", 2)):
                for batch in (1, 32):
                    self.add(f"{op}.{direction}.{batch}", op,
                             lambda g=gates, n=n, b=batch: [data("f32", (50, b, 128)),
                                                            data("f32", (n, g * 128, 128), -0.1, 0.1),
                                                            data("f32", (n, g * 128, 128), -0.1, 0.1)],
                             2, [1, 2], hidden_size=128, direction=direction)
            self.add(f"{op}.lengths", op,
                     lambda g=gates: [data("f32", (50, 8, 128)), data("f32", (1, g * 128, 128), -0.1, 0.1),
                                      data("f32", (1, g * 128, 128), -0.1, 0.1), None, data("i32", (8,), 1, 50)],
                     2, [1, 2], hidden_size=128)
            self.add(f"{op}.fed", op,
                     lambda g=gates: [data("f32", (50, 8, 128)), data("f32", (1, g * 128, 128), -0.1, 0.1),
                                      data("f32", (1, g * 128, 128), -0.1, 0.1)],
                     2, hidden_size=128)
        heads = (2, 8, 128, 64)
        self.add("Attention", "Attention", lambda: [data("f32", heads) for _ in range(3)], opset=23, tolerance=1e-3)
        for length in (512, 400, 997):
            self.add(f"DFT.{length}", "DFT", lambda n=length: [data("f32", (16, n, 1))], opset=17, axis=1, tolerance=1e-3)

    def quantized(self):
        for kind in ("u8", "i8"):
            zero = TYPES[kind](3)
            self.add(f"QuantizeLinear.{kind}", "QuantizeLinear",
                     lambda z=zero: [data("f32", LARGE), np.float32(0.02), z], constants=[1, 2])
            self.add(f"DequantizeLinear.{kind}", "DequantizeLinear",
                     lambda k=kind, z=zero: [data(k, LARGE), np.float32(0.02), z], constants=[1, 2])
        self.add("QuantizeLinear.channels", "QuantizeLinear",
                 lambda: [data("f32", IMAGE), data("f32", (64,), 0.5, 1.5), np.zeros(64, np.int8)], constants=[1, 2],
                 axis=1)
        self.add("DynamicQuantizeLinear", "DynamicQuantizeLinear", lambda: [data("f32", LARGE)], 3)
        self.add("MatMulInteger", "MatMulInteger", lambda: [data("u8", (128, 768)), data("i8", (768, 768)), np.uint8(3)],
                 constants=[1, 2])
        self.add("ConvInteger", "ConvInteger",
                 lambda: [data("u8", (1, 64, 28, 28)), data("u8", (64, 64, 3, 3)), np.uint8(3), np.uint8(5)],
                 constants=[1, 2, 3], pads=[1] * 4)


def onnx_type(kind: str) -> int:
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[kind]))


def cases(matches) -> list:
    found = Cases(matches)
    for group in (found.unary, found.binary, found.casts, found.reductions, found.norms, found.indices, found.movement,
                  found.sampling, found.pools, found.convolutions, found.products, found.sequences, found.quantized):
        group()
    return found.all
