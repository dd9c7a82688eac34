"""The trace file of a session: events as chrome://tracing and Perfetto show them."""

from __future__ import annotations

import datetime
import json
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import lathe


class Trace:
    """Events since it was made, from any thread."""

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.monotonic_ns()
        now = datetime.datetime.now()
        self._path = f"{prefix}_{now:%Y-%m-%d_%H-%M-%S}_{now.microsecond // 1000:03}.json"
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def add(self, category: str, name: str, start_ns: int, end_ns: int, **arguments: Any) -> None:
        """An event between two times of time.monotonic_ns()."""
        event = {
            "cat": category,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "dur": (end_ns - start_ns) // 1000,
            "ts": (start_ns - self.start_ns) // 1000,
            "ph": "X",
            "name": name,
            "args": arguments,
        }
        with self._lock:
            self._events.append(event)

    def add_steps(self, steps: Sequence[lathe.ProfiledStep]) -> None:
        """Kernels of one run, one after the other from now on."""
        at = time.monotonic_ns()
        for step in steps:
            end = at + int(step.ms * 1e6)
            self.add("Node", step.label, at, end, op_name=step.label, node=step.origin)
            at = end

    def write(self) -> str:
        """Writes the file and gives its path."""
        with self._lock, open(self._path, "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(map(json.dumps, self._events)) + "\n]\n")
        return self._path
