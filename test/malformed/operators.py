"""Operators with attributes, shapes, types and indices that they must refuse.

Each hostile value comes as an initializer, so that the loader can see it, or as an input of the
model, so that only a run can; where both are interesting there are two cases.
"""

import numpy as np
from corpus import Const, case, f32, graph, i64, info, model, node, op_case, save
from onnx import TensorProto, helper, numpy_helper

HUGE = 1 << 40
MAX = (1 << 63) - 1
MIN = -(1 << 63)


def both(id, op, *inputs, at=1, **options):
    """Two cases; input number `at` is fed in the one and an initializer in the other."""
    op_case(id, op, *inputs, **options)
    fixed = [Const(value) if i == at else value for i, value in enumerate(inputs)]
    op_case(f"{id}-const", op, *fixed, **options)


def scalar(value, dtype=np.int64):
    return np.array(value, dtype)


# --- windows ------------------------------------------------------------------------------------

IMAGE, KERNEL = f32(1, 2, 5, 5), Const(f32(4, 2, 3, 3))


def conv_case(id, x=IMAGE, w=KERNEL, *more, op="Conv", **attributes):
    op_case(id, op, x, w, *more, **attributes)


conv_case("conv-dilations-short", dilations=[1])
conv_case("conv-dilations-long", dilations=[1] * 100)
conv_case("conv-dilations-zero", dilations=[0, 0])
conv_case("conv-dilations-huge", dilations=[MAX, MAX])
conv_case("conv-strides-zero", strides=[0, 0])
conv_case("conv-strides-negative", strides=[-1, -1])
conv_case("conv-strides-short", strides=[1])
conv_case("conv-pads-short", pads=[1, 1])
conv_case("conv-pads-negative", pads=[-9, -9, -9, -9])
conv_case("conv-pads-huge", pads=[MAX] * 4)
conv_case("conv-kernel-shape-rank", kernel_shape=[3])
conv_case("conv-kernel-shape-differs", kernel_shape=[2, 2])
conv_case("conv-kernel-larger-than-input", w=Const(f32(4, 2, 7, 7)))
conv_case("conv-kernel-empty", w=Const(f32(4, 2, 0, 0)))
conv_case("conv-groups-zero", group=0)
conv_case("conv-groups-negative", group=-2)
conv_case("conv-groups-do-not-divide", group=3)
conv_case("conv-groups-huge", group=MAX)
conv_case("conv-channels-differ", w=Const(f32(4, 3, 3, 3)))
conv_case("conv-filter-rank", w=Const(f32(4, 2, 3)))
conv_case("conv-filter-fed-rank", w=f32(4, 2, 3))
conv_case("conv-input-scalar", x=scalar(1, np.float32))
conv_case("conv-input-rank-two", x=f32(2, 5), w=Const(f32(4, 5)))
conv_case("conv-bias-length", IMAGE, KERNEL, Const(f32(3)))
conv_case("conv-auto-pad-unknown", auto_pad="SAME_ISH")
TRANSPOSED = Const(f32(2, 4, 3, 3))
conv_case(
    "conv-transpose-output-padding-huge",
    IMAGE,
    TRANSPOSED,
    op="ConvTranspose",
    output_padding=[MAX, MAX],
)
conv_case(
    "conv-transpose-output-shape-negative",
    IMAGE,
    TRANSPOSED,
    op="ConvTranspose",
    output_shape=[-1, -1],
)
conv_case(
    "conv-transpose-strides-huge", IMAGE, TRANSPOSED, op="ConvTranspose", strides=[HUGE, HUGE]
)

POOLS = {
    "zero-kernel": {"kernel_shape": [0, 0]},
    "negative-kernel": {"kernel_shape": [-1, -1]},
    "huge-kernel": {"kernel_shape": [MAX, MAX], "pads": [MAX, MAX, MAX, MAX]},
    "zero-stride": {"kernel_shape": [2, 2], "strides": [0, 0]},
    "kernel-rank": {"kernel_shape": [2, 2, 2, 2]},
    "no-kernel": {},
    "dilations-short": {"kernel_shape": [2, 2], "dilations": [1]},
}
for name, attributes in POOLS.items():
    for op in ("MaxPool", "AveragePool"):
        op_case(f"{op.lower()}-{name}", op, IMAGE, opset=19, **attributes)

op_case("global-pool-scalar", "GlobalAveragePool", scalar(1, np.float32))
op_case("lrn-size-zero", "LRN", IMAGE, size=0)
op_case("depth-to-space-zero", "DepthToSpace", IMAGE, blocksize=0)
op_case("depth-to-space-does-not-divide", "DepthToSpace", IMAGE, blocksize=2)
op_case("space-to-depth-huge", "SpaceToDepth", IMAGE, blocksize=MAX)
op_case("batch-norm-scale-length", "BatchNormalization", IMAGE, *[f32(3)] * 4)
op_case("batch-norm-scale-rank", "BatchNormalization", IMAGE, *[scalar(1, np.float32)] * 4)
op_case("instance-norm-scale-length", "InstanceNormalization", IMAGE, f32(5), f32(5))
op_case("layer-norm-axis", "LayerNormalization", f32(2, 3), f32(3), axis=7)

# --- cutting and joining ------------------------------------------------------------------------

op_case("split-outputs-more", "Split", f32(6), outputs=2, num_outputs=5)
op_case("split-outputs-fewer", "Split", f32(6), outputs=5, num_outputs=2)
op_case("split-outputs-zero", "Split", f32(6), outputs=1, num_outputs=0)
op_case("split-outputs-negative", "Split", f32(6), outputs=1, num_outputs=-3)
op_case("split-outputs-huge", "Split", f32(6), outputs=1, num_outputs=MAX)
op_case("split-axis", "Split", f32(6), outputs=2, num_outputs=2, axis=3)
both("split-sizes-sum", "Split", f32(6), i64(2, 2), outputs=2)
both("split-sizes-negative", "Split", f32(6), i64(-2, 8), outputs=2)
both("split-sizes-count", "Split", f32(6), i64(2, 2, 2), outputs=2)
both("split-sizes-overflow", "Split", f32(6), i64(MAX, MAX, 8), outputs=3)
op_case("concat-rank", "Concat", f32(2, 2), f32(2), axis=0)
op_case("concat-dims", "Concat", f32(2, 2), f32(2, 3), axis=0)
op_case("concat-axis", "Concat", f32(2), f32(2), axis=-2)
op_case("concat-types", "Concat", f32(2), i64(1, 2), axis=0)
both("slice-step-zero", "Slice", f32(6), i64(0), i64(6), i64(0), i64(0), at=4)
both("slice-axis", "Slice", f32(6), i64(0), i64(6), i64(4), at=3)
both("slice-axis-twice", "Slice", f32(6), i64(0, 0), i64(6, 6), i64(0, -1), at=3)
both("slice-lengths-differ", "Slice", f32(6), i64(0, 0), i64(6), at=2)
both("slice-extremes", "Slice", f32(6), i64(MIN), i64(MAX), i64(0), i64(MAX), at=1)
both("slice-step-min", "Slice", f32(6), i64(MAX), i64(MIN), i64(0), i64(MIN), at=4)
both("pad-count", "Pad", f32(2, 2), i64(1, 1, 1))
both("pad-below-zero", "Pad", f32(2, 2), i64(-5, 0, 0, 0))
both("pad-huge", "Pad", f32(2, 2), i64(HUGE, HUGE, 0, 0))
both("pad-overflow", "Pad", f32(2, 2), i64(MAX, MAX, MAX, MAX))
both("pad-reflect-too-far", "Pad", f32(2), i64(9, 9), mode="reflect")
op_case("pad-mode", "Pad", f32(2), Const(i64(1, 1)), mode="sideways")
op_case("transpose-perm-twice", "Transpose", f32(2, 3), perm=[0, 0])
op_case("transpose-perm-range", "Transpose", f32(2, 3), perm=[0, 2])
op_case("transpose-perm-negative", "Transpose", f32(2, 3), perm=[0, -1])
op_case("transpose-perm-short", "Transpose", f32(2, 3), perm=[0])
both("squeeze-axis-not-one", "Squeeze", f32(2, 3), i64(0))
both("squeeze-axis", "Squeeze", f32(1, 3), i64(5))
both("unsqueeze-axis", "Unsqueeze", f32(3), i64(9))
both("unsqueeze-axis-twice", "Unsqueeze", f32(3), i64(0, 0))
both("reshape-count", "Reshape", f32(6), i64(4, 2))
both("reshape-two-open", "Reshape", f32(6), i64(-1, -1))
both("reshape-negative", "Reshape", f32(6), i64(-2, -3))
both("reshape-open-does-not-divide", "Reshape", f32(6), i64(4, -1))
both("reshape-zero-beyond-rank", "Reshape", f32(6), i64(6, 0))
both("reshape-overflow", "Reshape", f32(6), i64(HUGE, HUGE))
both("reshape-open-and-zero", "Reshape", f32(0, 3), i64(-1, 0), allowzero=1)
op_case("reshape-shape-rank", "Reshape", f32(6), np.array([[6]]))
op_case("flatten-axis", "Flatten", f32(2, 3), axis=5)

# --- indices ------------------------------------------------------------------------------------

for kind, index in {"negative": -7, "large": 6, "max": MAX, "min": MIN}.items():
    both(f"gather-{kind}", "Gather", f32(6), i64(index))
    both(f"gather-elements-{kind}", "GatherElements", f32(6), i64(index))
    both(f"gather-nd-{kind}", "GatherND", f32(6), i64(index).reshape(1, 1))
    both(f"scatter-elements-{kind}", "ScatterElements", f32(6), i64(index), f32(1))
    both(f"scatter-nd-{kind}", "ScatterND", f32(6), i64(index).reshape(1, 1), f32(1))
op_case("gather-axis", "Gather", f32(6), i64(0), axis=2)
op_case("gather-type", "Gather", f32(6), f32(2))
op_case("gather-elements-rank", "GatherElements", f32(2, 3), i64(0, 1))
op_case("gather-nd-depth", "GatherND", f32(6), i64(0, 0).reshape(1, 2))
op_case("gather-nd-batch-dims", "GatherND", f32(6), i64(0).reshape(1, 1), batch_dims=4)
op_case("scatter-nd-updates-shape", "ScatterND", f32(6), i64(0).reshape(1, 1), f32(3))
op_case("scatter-nd-depth", "ScatterND", f32(6), i64(0, 0, 0).reshape(1, 3), f32(1))
op_case("scatter-elements-updates-shape", "ScatterElements", f32(6), i64(0), f32(2))
op_case("scatter-elements-axis", "ScatterElements", f32(6), i64(0), f32(1), axis=3)
op_case(
    "array-feature-extractor-negative",
    "ArrayFeatureExtractor",
    f32(1, 6),
    i64(-9),
    domain="ai.onnx.ml",
    opset=3,
)
op_case("one-hot-depth-negative", "OneHot", i64(0, 1), scalar(-3), f32(2))
op_case("one-hot-depth-huge", "OneHot", i64(0, 1), scalar(HUGE), f32(2))
op_case("one-hot-values", "OneHot", i64(0, 1), scalar(3), f32(1))
op_case("topk-negative", "TopK", f32(6), i64(-1), outputs=2)
op_case("topk-too-many", "TopK", f32(6), i64(7), outputs=2)
op_case("topk-axis", "TopK", f32(6), i64(1), outputs=2, axis=4)
op_case("trilu-extremes", "Trilu", f32(2, 3), scalar(MIN))
op_case("trilu-rank", "Trilu", f32(3))
op_case("reverse-sequence-length", "ReverseSequence", f32(3, 2), i64(9, -1), time_axis=0)
op_case("compress-condition-long", "Compress", f32(3), np.ones(9, bool), axis=0)
op_case("col2im-blocks", "Col2Im", f32(1, 4, 9), i64(MAX, MAX), i64(2, 2))
op_case(
    "max-unpool-index",
    "MaxUnpool",
    f32(1, 1, 2, 2),
    np.full((1, 1, 2, 2), MAX),
    kernel_shape=[2, 2],
    strides=[2, 2],
)

# --- sizes ----------------------------------------------------------------------------------------

both("bomb-constant-of-shape", "ConstantOfShape", i64(HUGE), at=0)
both("bomb-constant-of-shape-overflow", "ConstantOfShape", i64(HUGE, HUGE), at=0)
both("bomb-constant-of-shape-wraps", "ConstantOfShape", i64(1 << 32, 1 << 32, 4), at=0)
both("constant-of-shape-negative", "ConstantOfShape", i64(-1), at=0)
both("bomb-expand", "Expand", f32(1), i64(1 << 20, 1 << 20))
both("bomb-expand-overflow", "Expand", f32(1), i64(HUGE, HUGE))
both("expand-mismatch", "Expand", f32(3), i64(2))
both("expand-negative", "Expand", f32(1), i64(-4))
both("bomb-tile", "Tile", f32(4), i64(HUGE))
both("bomb-tile-overflow", "Tile", f32(4), i64(MAX))
both("tile-negative", "Tile", f32(4), i64(-1))
both("tile-count", "Tile", f32(4), i64(1, 1))
op_case("bomb-range", "Range", scalar(0), scalar(HUGE), scalar(1))
op_case("bomb-range-overflow", "Range", scalar(MIN), scalar(MAX), scalar(1))
op_case("range-delta-zero", "Range", scalar(0), scalar(5), scalar(0))
op_case(
    "range-nan", "Range", scalar(0, np.float32), scalar(np.nan, np.float32), scalar(1, np.float32)
)
op_case(
    "bomb-range-float",
    "Range",
    scalar(0, np.float32),
    scalar(3e38, np.float32),
    scalar(1e-38, np.float32),
)
both(
    "bomb-resize-scales",
    "Resize",
    f32(1, 1, 2, 2),
    None,
    np.array([1, 1, 1e9, 1e9], np.float32),
    at=2,
)
both("bomb-resize-sizes", "Resize", f32(1, 1, 2, 2), None, None, i64(1, 1, HUGE, HUGE), at=3)
both(
    "resize-scale-negative",
    "Resize",
    f32(1, 1, 2, 2),
    None,
    np.array([1, 1, -1, -1], np.float32),
    at=2,
)
both(
    "resize-scale-nan",
    "Resize",
    f32(1, 1, 2, 2),
    None,
    np.array([1, 1, np.nan, 1], np.float32),
    at=2,
)
both("resize-scale-zero", "Resize", f32(1, 1, 2, 2), None, np.array([1, 1, 0, 1], np.float32), at=2)
both("resize-scales-count", "Resize", f32(1, 1, 2, 2), None, np.array([1, 2], np.float32), at=2)
both("resize-sizes-negative", "Resize", f32(1, 1, 2, 2), None, None, i64(1, 1, -4, 4), at=3)
op_case("bomb-matmul", "MatMul", f32(1 << 20, 1), f32(1, 1 << 20))
op_case("bomb-broadcast", "Add", f32(1 << 20, 1), f32(1, 1 << 20))
op_case("bomb-eye-like-is-fine", "EyeLike", f32(2, 2), k=MAX)
op_case("bomb-random", "RandomNormal", shape=[HUGE])
op_case(
    "bomb-upsample", "Upsample", f32(1, 1, 2, 2), np.array([1, 1, 1e9, 1e9], np.float32), opset=9
)


@case("bomb-doubling")
def doubling(folder):
    """Forty concatenations of a value with itself."""
    names = ["x", *(f"v{i}" for i in range(39)), "y"]
    nodes = [node("Concat", [a, a], [b], axis=0) for a, b in zip(names, names[1:])]
    save(folder, model(nodes), feeds={"x": f32(4)})


def loop_case(id, trips, condition, body_nodes, scans=0):
    """A Loop over f32[4]; the body's `go` says whether to continue."""

    @case(id)
    def write(folder):
        inputs = [info("i", TensorProto.INT64, []), info("on", TensorProto.BOOL, []), info("s")]
        outputs = [info("go", TensorProto.BOOL, []), info("t")]
        outputs += [info(f"q{k}") for k in range(scans)]
        body = graph(body_nodes, inputs, outputs)
        names = ["y", *(f"all{k}" for k in range(scans))]
        loop = node(
            "Loop",
            ["n" if trips is not None else "", "c" if condition else "", "x"],
            names,
            body=body,
        )
        weights = [numpy_helper.from_array(np.array(True), "c")]
        if trips is not None:
            weights.append(numpy_helper.from_array(scalar(trips), "n"))
        outs = [helper.make_empty_tensor_value_info(name) for name in names]
        save(folder, model([loop], outputs=outs, initializers=weights), feeds={"x": f32(4)})


GO_ON = node("Identity", ["on"], ["go"])
loop_case("loop-good", 3, False, [GO_ON, node("Abs", ["s"], ["t"])])
loop_case("loop-trips-negative", -5, False, [GO_ON, node("Abs", ["s"], ["t"])])
loop_case("loop-trips-huge", MAX, False, [GO_ON, node("Abs", ["s"], ["t"])])
loop_case("loop-endless", None, True, [GO_ON, node("Abs", ["s"], ["t"])])
loop_case(
    "loop-trips-huge-scan",
    MAX,
    False,
    [GO_ON, node("Abs", ["s"], ["t"]), node("Neg", ["s"], ["q0"])],
    scans=1,
)
loop_case("loop-state-grows", 40, False, [GO_ON, node("Concat", ["s", "s"], ["t"], axis=0)])
loop_case(
    "loop-condition-type", 3, False, [node("Identity", ["s"], ["go"]), node("Abs", ["s"], ["t"])]
)
loop_case("loop-undefined-state", 3, False, [GO_ON, node("Abs", ["nowhere"], ["t"])])


@case("loop-body-arity")
def loop_body_arity(folder):
    body = graph([node("Abs", ["s"], ["t"])], [info("s")], [info("t")])
    count = numpy_helper.from_array(scalar(3), "n")
    save(folder, model([node("Loop", ["n", "", "x"], ["y"], body=body)], initializers=[count]))


def scan_case(id, scan_inputs):
    @case(id)
    def write(folder):
        body = graph([node("Abs", ["s"], ["t"])], [info("s", dims=[])], [info("t", dims=[])])
        scan = node("Scan", ["x"], ["y"], body=body, num_scan_inputs=scan_inputs)
        save(folder, model([scan]), feeds={"x": f32(4)})


scan_case("scan-inputs-huge", MAX)
scan_case("scan-inputs-negative", -1)
scan_case("scan-inputs-zero", 0)


def scan_axis_case(id, **axes):
    """The body says what it takes, so that nothing of it follows from the axes."""

    @case(id)
    def write(folder):
        row = [info(name, dims=[3]) for name in ("s", "a", "b", "t", "u")]
        nodes = [node("Add", ["s", "a"], ["t"]), node("Add", ["a", "b"], ["u"])]
        body = graph(nodes, row[:3], row[3:])
        outputs = ["last", "all"]
        scan = node("Scan", ["s", "x", "y"], outputs, body=body, num_scan_inputs=2, **axes)
        feeds = {"s": f32(3), "x": f32(4, 3), "y": f32(4, 3)}
        inputs = [info(name, dims=value.shape) for name, value in feeds.items()]
        save(folder, model([scan], inputs, [info(name) for name in outputs]), feeds=feeds)


for axis in (2, -3, MAX, MIN):
    scan_axis_case(f"scan-input-axis{axis}", scan_input_axes=[0, axis])
    scan_axis_case(f"scan-output-axis{axis}", scan_output_axes=[axis])

# --- arithmetic that traps or is undefined in C -------------------------------------------------

for bits in (8, 16, 32, 64):
    dtype = np.dtype(f"int{bits}")
    least = np.array([np.iinfo(dtype).min], dtype)
    op_case(f"div-by-zero-int{bits}", "Div", least, np.array([0], dtype))
    op_case(f"div-least-by-minus-one-int{bits}", "Div", least, np.array([-1], dtype))
    op_case(f"mod-by-zero-int{bits}", "Mod", least, np.array([0], dtype))
    op_case(f"mod-least-by-minus-one-int{bits}", "Mod", least, np.array([-1], dtype))
op_case("div-by-zero-const", "Div", i64(7), Const(i64(0)))
op_case("abs-least", "Abs", i64(MIN))
op_case("neg-least", "Neg", i64(MIN))
op_case("add-overflow", "Add", i64(MAX), i64(MAX))
op_case("mul-overflow", "Mul", i64(MAX), i64(MAX))
op_case("pow-negative-exponent", "Pow", i64(0, 2, -1), i64(-1, -1, MIN))
op_case(
    "cast-nan-to-int",
    "Cast",
    np.array([np.nan, np.inf, -np.inf, 1e30], np.float32),
    to=TensorProto.INT32,
)
op_case(
    "bit-shift-width",
    "BitShift",
    np.array([1, 1], np.uint8),
    np.array([8, 255], np.uint8),
    direction="LEFT",
)
op_case(
    "bit-shift-direction",
    "BitShift",
    np.array([1], np.uint8),
    np.array([1], np.uint8),
    direction="UP",
)
op_case("cumsum-axis", "CumSum", f32(4), scalar(9))
op_case("quantize-scale-zero", "QuantizeLinear", f32(4), scalar(0, np.float32))
op_case("quantize-axis", "QuantizeLinear", f32(4, 4), f32(4), axis=7)
op_case("dequantize-length", "DequantizeLinear", np.zeros((4, 4), np.int8), f32(3), axis=1)

# --- types and shapes ---------------------------------------------------------------------------

op_case("types-add", "Add", f32(2), i64(1, 2))
op_case("types-where", "Where", f32(2), f32(2), f32(2))
op_case("types-relu-string", "Relu", np.array(["a"]), opset=21)
op_case("types-matmul-bool", "MatMul", np.ones((2, 2), bool), np.ones((2, 2), bool))
op_case("types-not-float", "Not", f32(2))
op_case("types-cast-undefined", "Cast", f32(2), to=TensorProto.UNDEFINED)
op_case("types-cast-unknown", "Cast", f32(2), to=999)
op_case("types-reshape-shape-float", "Reshape", f32(6), f32(1))
op_case("broadcast-mismatch", "Add", f32(3), f32(4))
op_case("broadcast-empty", "Add", f32(0), f32(4))
op_case("matmul-mismatch", "MatMul", f32(2, 3), f32(4, 2))
op_case("matmul-scalar", "MatMul", scalar(1, np.float32), f32(2, 2))
op_case("matmul-batch", "MatMul", f32(2, 2, 2), f32(3, 2, 2))
op_case("gemm-rank", "Gemm", f32(2, 2, 2), f32(2, 2))
op_case("gemm-bias", "Gemm", f32(2, 3), f32(3, 2), f32(7))
op_case("softmax-axis", "Softmax", f32(2, 2), axis=2)
op_case("softmax-axis-min", "Softmax", f32(2, 2), axis=MIN)
op_case("argmax-axis", "ArgMax", f32(2, 2), axis=-3)
op_case("argmax-empty", "ArgMax", f32(0, 2), axis=0)
both("reduce-axis", "ReduceSum", f32(2, 2), i64(2))
both("reduce-axis-min", "ReduceSum", f32(2, 2), i64(MIN))
both("reduce-axis-twice", "ReduceSum", f32(2, 2), i64(0, 0))
op_case("einsum-equation", "Einsum", f32(2, 2), f32(2, 2), equation="i-j,->>k")
op_case("einsum-rank", "Einsum", f32(2, 2), f32(2, 2), equation="ijk,kl->il")
op_case("einsum-dims", "Einsum", f32(2, 3), f32(2, 3), equation="ij,jk->ik")
op_case("prelu-slope", "PRelu", f32(2, 3), f32(2))
op_case("clip-bounds-rank", "Clip", f32(4), f32(2))
op_case("dropout-ratio", "Dropout", f32(4), scalar(np.nan, np.float32), scalar(True, bool))
op_case("constant-two-values", "Constant", value_int=1, value_float=1.0)
op_case("constant-no-value", "Constant")
op_case("sequence-at", "SequenceAt", scalar(3))

# --- recurrent ------------------------------------------------------------------------------------

X, W, R = f32(5, 2, 3), Const(f32(1, 16, 3)), Const(f32(1, 16, 4))


def lstm_case(id, x=X, w=W, r=R, *more, **attributes):
    op_case(id, "LSTM", x, w, r, *more, **{"hidden_size": 4, **attributes})


lstm_case("lstm-good")
lstm_case("lstm-input-rank", x=f32(5, 2))
lstm_case("lstm-input-scalar", x=scalar(1, np.float32))
lstm_case("lstm-weights-rank", w=Const(f32(16, 3)))
lstm_case("lstm-weights-fed-rank", w=f32(16, 3))
lstm_case("lstm-recurrence-rank", r=Const(f32(16)))
lstm_case("lstm-weights-shape", w=Const(f32(1, 15, 3)))
lstm_case("lstm-hidden-size-differs", hidden_size=5)
lstm_case("lstm-hidden-size-huge", hidden_size=MAX)
lstm_case("lstm-hidden-size-negative", hidden_size=-4)
lstm_case("lstm-direction", direction="sideways")
lstm_case("lstm-direction-count", direction="bidirectional")
lstm_case("lstm-activations-few", activations=["Sigmoid"])
lstm_case("lstm-activation-unknown", activations=["Sigmoid", "Wiggle", "Tanh"])
lstm_case("lstm-bias-shape", X, W, R, Const(f32(1, 16)))
lstm_case("lstm-lengths-large", X, W, R, None, np.array([9, 9], np.int32))
lstm_case("lstm-lengths-negative", X, W, R, None, np.array([-1, 2], np.int32))
lstm_case("lstm-state-shape", X, W, R, None, None, f32(1, 3, 4))
op_case("gru-input-rank", "GRU", f32(5), Const(f32(1, 12, 3)), Const(f32(1, 12, 4)), hidden_size=4)
op_case("rnn-input-rank", "RNN", f32(5), Const(f32(1, 4, 3)), Const(f32(1, 4, 4)), hidden_size=4)
