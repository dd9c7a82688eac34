"""docs/benchmarks.svg: bars of onnxruntime's time divided by each side's, per model."""

import math
from xml.sax.saxutils import escape

from page import mean

SIDES = {
    "f32": ("Lathe, f32", "#0f766e"), "bf16": ("Lathe, bf16", "#2dd4bf"),
    "openvino": ("OpenVINO, f32", "#7c3aed"), "openvino_default": ("OpenVINO, default", "#c4b5fd"),
    "eager": ("PyTorch, eager", "#ea580c"), "compiled": ("PyTorch, compiled", "#fbb06b"), "iree": ("IREE", "#64748b"),
}
LEFT, WIDTH, BAR, GAP, TOP = 130, 640, 8, 14, 84
FONT = 'font-family="system-ui, Helvetica, Arial, sans-serif"'


def groups_of(rows):
    """[(name, {side: ratio})], the geometric mean first."""
    groups = [(r["model"], {s: r["ms"]["onnxruntime"] / r["ms"][s] for s in SIDES if s in r["ms"]}) for r in rows]
    ratios = {s: [held[s] for _, held in groups if s in held] for s in SIDES}
    return [("geometric mean", {s: mean(v) for s, v in ratios.items() if v}), *groups]


def text(x, y, said, size=11, anchor="start", fill="#334155", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" '
            f'stroke="#fff" stroke-width="2" paint-order="stroke" '
            f'font-weight="{weight}">{escape(said)}</text>')


def legend():
    for i, (name, color) in enumerate(SIDES.values()):
        x, y = LEFT + i % 4 * 160, 40 + i // 4 * 16
        yield f'<rect x="{x}" y="{y - 8}" width="10" height="9" rx="1.5" fill="{color}"/>'
        yield text(x + 15, y, name)


def axis(most, scale, bottom):
    for i in range(math.floor(most / 0.5) + 1):
        x = LEFT + i * 0.5 * scale
        color, width = ("#334155", 1.2) if i == 2 else ("#e2e8f0", 1)
        yield f'<path d="M{x:.1f} {TOP - 6}V{bottom}" stroke="{color}" stroke-width="{width}"/>'
        yield text(x, TOP - 10, f"{i * 0.5:g}", 10, "middle", "#64748b")


def group(name, held, y, scale):
    yield text(LEFT - 8, y + len(SIDES) * BAR / 2 + 4, name, 12, "end", "#0f172a",
               "bold" if name == "geometric mean" else "normal")
    for i, (side, (_, color)) in enumerate(SIDES.items()):
        if side in held:
            at, width = y + i * BAR, held[side] * scale
            yield f'<rect x="{LEFT}" y="{at}" width="{width:.1f}" height="{BAR - 1}" fill="{color}"/>'
            yield text(LEFT + width + 3, at + BAR - 1.2, f"{held[side]:.2f}", 8, fill="#64748b")


def draw(rows):
    groups = groups_of(rows)
    most = max(ratio for _, held in groups for ratio in held.values())
    scale, step = WIDTH / max(most, 1), len(SIDES) * BAR + GAP
    height = TOP + len(groups) * step
    parts = [text(LEFT, 20, "Time of onnxruntime divided by each one's, one thread (longer is faster)", 14,
                  fill="#0f172a", weight="bold"), *legend(), *axis(most, scale, height - GAP / 2)]
    for i, (name, held) in enumerate(groups):
        parts += group(name, held, TOP + i * step, scale)
    size = f'width="{LEFT + WIDTH + 50}" height="{height}" viewBox="0 0 {LEFT + WIDTH + 50} {height}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT}>\n<rect width="100%" height="100%" fill="#fff"/>\n'
            + "\n".join(parts) + "\n</svg>\n")
