"""The command lathe: `python -m lathe`, and the script of the package."""

from __future__ import annotations

import os
import pathlib
import sys


def main() -> None:
    """Becomes the command."""
    command = pathlib.Path(__file__).parent / "bin" / "lathe"
    if not command.exists():  # a module that is linked into a build folder
        from lathe import _core

        command = pathlib.Path(_core.__file__).parent / "bin" / "lathe"
    os.execv(command, ["lathe", *sys.argv[1:]])
