"""What a program became, and where its time goes, for people to read."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence

from lathe._core import Kernel, ProfiledStep


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be; the last one, which is text, as it is."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
    return "\n".join(
        "  ".join([*(cell.rjust(width) for cell, width in zip(line, widths)), line[-1]]).rstrip()
        for line in lines)


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    return ("<table>" + line("th", head) + "".join(line("td", row) for row in rows) + "</table>")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What a program became. str() of it is a table; a notebook shows it as one.

    target: the instruction set.
    kernels: groups of operations, each computed by one piece of code, with their strategies.
    interpreted: operations without machine code, and how often.
    obstacles: why the interpreter goes through the whole program; empty if it does not.
    """

    target: str
    kernels: Sequence[Kernel]
    interpreted: dict[str, int]
    obstacles: Sequence[str]

    _HEAD = ("calls", "GFLOP", "MB", "strategy", "operations")

    def _rows(self) -> list[tuple[str, ...]]:
        return [(str(k.calls), _number(k.gflop),
                 _number(None if k.gigabytes is None else 1e3 * k.gigabytes),
                 k.strategy or "interpreted", k.operations) for k in self.kernels if k.calls]

    def __str__(self) -> str:
        return "\n".join([f"for {self.target or 'the interpreter'}",
                          _table(self._HEAD, self._rows()),
                          *(f"why there is no plan: {why}" for why in self.obstacles)])

    def _repr_html_(self) -> str:
        return _html_table(self._HEAD, self._rows())


@dataclasses.dataclass(frozen=True)
class Profile:
    """Where the time of a run goes. str() of it is a table; a notebook shows it as one.

    runs: that were measured.
    steps: in the order in which they ran, means over the runs.
    trace: all runs as JSON of Chrome's trace format, for chrome://tracing or Perfetto.
    """

    runs: int
    steps: Sequence[ProfiledStep]
    trace: str = dataclasses.field(repr=False)

    _HEAD = ("share", "ms", "GFLOP/s", "GB/s", "step")

    @property
    def ms(self) -> float:
        """Of all steps of a run together."""
        return sum(step.ms for step in self.steps)

    def _rows(self) -> list[tuple[str, ...]]:
        total = self.ms

        def rate(work: float | None, step: ProfiledStep) -> str:
            return "-" if work is None or step.ms == 0 else f"{1e3 * work / step.ms:.1f}"

        return [(f"{100 * s.ms / total if total else 0:.1f}%", f"{s.ms:.3f}", rate(s.gflop, s),
                 rate(s.gigabytes, s), f"{s.label}  {s.origin}".rstrip())
                for s in sorted(self.steps, key=lambda s: -s.ms)]

    def __str__(self) -> str:
        return f"{self.ms:.3f} ms a run, mean of {self.runs}\n{_table(self._HEAD, self._rows())}"

    def _repr_html_(self) -> str:
        return _html_table(self._HEAD, self._rows())
