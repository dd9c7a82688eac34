"""docs/benchmarks.md, made of the figures of benchmarks.py."""

import math
import statistics

COLUMNS = {
    "strict": "strict", "f32": "f32", "high": "high", "bf16": "bf16", "avx2": "f32, AVX2", "x86-64": "f32, SSE2",
    "onnxruntime": "onnxruntime", "openvino": "OpenVINO f32", "openvino_default": "OpenVINO default",
    "eager": "PyTorch eager", "compiled": "PyTorch compiled", "iree": "IREE",
}
F32_PEERS = ("onnxruntime", "openvino", "eager", "compiled", "iree")
COMPARED = ("f32", *F32_PEERS)  # the least of these is bold
# Our side, the peer's, and what they are called.
PAIRS = [
    ("f32", "best", "f32", "the best one in f32, model by model"),
    ("f32", "onnxruntime", "f32", "onnxruntime"),
    ("f32", "openvino", "f32", "OpenVINO, f32"),
    ("f32", "eager", "f32", "PyTorch, eager"),
    ("f32", "compiled", "f32", "PyTorch, compiled"),
    ("f32", "iree", "f32", "IREE"),
    ("strict", "onnxruntime", "strict", "onnxruntime"),
    ("high", "onnxruntime", "high", "onnxruntime"),
    ("bf16", "onnxruntime", "bf16", "onnxruntime (f32)"),
    ("bf16", "openvino_default", "bf16", "OpenVINO, default"),
    ("avx2", "onnxruntime", "f32, for AVX2", "onnxruntime, which takes all that there is"),
    ("x86-64", "onnxruntime", "f32, for SSE2", "onnxruntime, which takes all that there is"),
    ("int8", "onnxruntime_int8", "int8", "onnxruntime, int8"),
]

HEAD = """# Benchmarks

The yardsticks of [bench/models](../bench/models/README.md) at every level of precision, on lesser targets and by every peer, made by `make bench` in one run:

    bench/models/benchmarks.py --rounds {rounds} --seconds {seconds:g} --markdown docs/benchmarks.md

Everybody has one thread. Outputs are compared with those of onnxruntime first, then rounds alternate over all sides of a model. A figure is the median of {rounds} rounds,
each the median of the runs in {seconds:g} s, at least five. A ratio is a peer's time divided by ours: above 1 is in our favor.

{machine}

![times of onnxruntime divided by those of others, per model]({picture})
"""

SIDES = """Ours are the levels of [precision.md](precision.md) on all that the processor has, and level `f32` for `--target avx2` and `--target x86-64` (SSE2). We, onnxruntime and OpenVINO
take the files as they are, extents that they leave open included. PyTorch and IREE get them with the extents of the sample, constants folded by onnxruntime's basic optimizations,
which is in their favor. PyTorch runs what onnx2torch makes of that; eager is the module as it is, compiled is `torch.compile` (Inductor, weights as constants,
one graph but for LSTM layers). IREE compiles for the processor it is on at `O3`, with data tiling and convolutions as products or without, whichever is faster.
oneDNN has no whole models: `bench/kernels/run.sh` compares its kernels with ours.
"""


def mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))


def time_of(row, side):
    if side != "best":
        return row["ms"].get(side)
    return min((row["ms"][peer] for peer in F32_PEERS if peer in row["ms"]), default=None)


def ratios_of(rows, ours, theirs):
    """{model: ratio} of the models that both sides have."""
    times = {row["model"]: (time_of(row, ours), time_of(row, theirs)) for row in rows}
    return {name: other / own for name, (own, other) in times.items() if own and other}


def table(head, lines):
    rows = [f"| {' | '.join(cells)} |" for cells in [head, *lines]]
    return "\n".join([rows[0], "|" + "---|" * len(head), *rows[1:]]) + "\n"


def milliseconds(ms):
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


class Notes:
    """Reasons of empty cells, numbered by their first use."""

    def __init__(self):
        self.told = []

    def mark(self, reason):
        if reason not in self.told:
            self.told.append(reason)
        return f"– [{self.told.index(reason) + 1}]"

    def lines(self):
        return "\n".join(f"[{i}] `{reason}`\n" for i, reason in enumerate(self.told, 1))


def times_table(rows, notes):
    lines = []
    for row in rows:
        least = min((row["ms"][side] for side in COMPARED if side in row["ms"]))
        cells = [row["model"]]
        for side in COLUMNS:
            ms = row["ms"].get(side)
            shown = milliseconds(ms) if ms else notes.mark(row["missing"].get(side, "not measured"))
            cells.append(f"**{shown}**" if side in COMPARED and ms == least else shown)
        lines.append(cells)
    return table(["model", *COLUMNS.values()], lines)


def ratio_table(rows):
    against = [side for side in COLUMNS if side != "f32"]
    lines = []
    for row in rows:
        cells = [f"{row['ms'][side] / row['ms']['f32']:.2f}" if {side, "f32"} <= row["ms"].keys() else "–"
                 for side in against]
        lines.append([row["model"], *cells])
    means = [ratios_of(rows, "f32", side) for side in against]
    lines.append(["**geometric mean**", *(f"**{mean(m.values()):.2f}**" if m else "–" for m in means)])
    return table(["model", *(COLUMNS[side] for side in against)], lines)


def summary_cells(rows):
    for ours, theirs, name, other in PAIRS:
        ratios = ratios_of(rows, ours, theirs)
        if ratios:
            least = min(ratios, key=ratios.get)
            yield [name, other, f"{mean(ratios.values()):.2f}", f"{ratios[least]:.2f} ({least})", str(len(ratios))]


def summary(rows):
    """Lines for a terminal."""
    return [f"{ours:14} against {other:44} geometric mean {value}, least {least}, {count} models"
            for ours, other, value, least, count in summary_cells(rows)]


def error_table(rows):
    lines = []
    for row in rows:
        errors = [f"{row['rms'][side]:.1e}" if side in row["rms"] else "–" for side in ("bf16", "openvino_default")]
        lines.append([row["model"], *errors, row["took"].get("openvino_default", "–")])
    return table(["model", "bf16", "OpenVINO default", "which is"], lines)


def int8_table(rows, notes):
    lines = []
    for row in rows:
        theirs, ours = row["ms"].get("onnxruntime_int8"), row["ms"].get("int8")
        if theirs:
            own = milliseconds(ours) if ours else notes.mark(row["missing"]["int8"])
            lines.append([row["model"], own, milliseconds(theirs), f"{theirs / ours:.2f}" if ours else "–"])
    return table(["model", "int8", "onnxruntime, int8", "ratio"], lines) if lines else ""


def machine_lines(told, note):
    caches = ", ".join(f"{level} {size}" for level, size in told["caches"].items())
    versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    lines = [["processor", told["cpu"]], ["cores, memory", f"{told['cores']}, {told['memory_gb']} GB"],
             ["caches", caches], ["instructions", " ".join(f"`{f}`" for f in told["features"])],
             ["versions", versions], ["date", told["date"]], ["load when it began", f"{told['load']:.1f}"]]
    return table(["machine", ""], lines) + (f"\n{note}\n" if note else "")


def page(result, picture, note):
    rows, notes = result["rows"], Notes()
    told = machine_lines(result["machine"], note)
    parts = [
        HEAD.format(rounds=result["rounds"], seconds=result["seconds"], machine=told.rstrip(), picture=picture),
        "## In short\n", table(["ours", "against", "geometric mean", "least", "models"], list(summary_cells(rows))),
        SIDES,
        "## Milliseconds\n", times_table(rows, notes),
        "Bold: the least of level `f32` and the peers in f32.\n",
        "## Divided by those of level f32\n", ratio_table(rows),
        "## Errors of lesser precision\n",
        "RMS of the difference from onnxruntime's f32 relative to the RMS of the output, of the output with the "
        "largest. All others agree with it to f32's tolerance.\n", error_table(rows)]
    quantized = int8_table(rows, notes)
    if quantized:
        parts += ["## Quantized\n", "By onnxruntime's quantizer: convolutional networks with pairs of `QuantizeLinear` "
                  "and `DequantizeLinear`, BERT dynamically. Outputs are within 3% of the range, 0.5% on the average.\n",
                  quantized]
    if notes.told:
        parts += ["## Empty cells\n", notes.lines()]
    return "\n".join(parts)
