"""`import onnxruntime` gives lathe.onnxruntime, for programs that cannot be changed."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

_NAME, _OWN = "onnxruntime", "lathe.onnxruntime"


class _Loader(importlib.abc.Loader):
    """Gives a module that is loaded under its own name, as it is."""

    def __init__(self, own: str) -> None:
        self._own = own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(self._own)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec  # the import has set it to that of the alias


class _Distribution(importlib.metadata.Distribution):
    """So that importlib.metadata.version("onnxruntime") has an answer."""

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {_version()}\n"

    def locate_file(self, path: Any) -> Any:
        return path


def _version() -> str:
    return str(sys.modules[_OWN].__version__)


class _Finder(importlib.metadata.DistributionFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _NAME and not fullname.startswith(f"{_NAME}."):
            return None
        own = _OWN + fullname[len(_NAME) :]
        found = importlib.util.find_spec(own)
        if found is None:
            return None
        alias = importlib.machinery.ModuleSpec(fullname, _Loader(own), origin=found.origin)
        alias.submodule_search_locations = found.submodule_search_locations
        return alias

    def find_distributions(
        self,
        context: importlib.metadata.DistributionFinder.Context = (
            importlib.metadata.DistributionFinder.Context()
        ),
    ) -> Iterator[importlib.metadata.Distribution]:
        if context.name is None or context.name.lower() == _NAME:
            yield _Distribution()


_finder = _Finder()


def install() -> None:
    """From here on `import onnxruntime` gives this package, whether onnxruntime is installed or not.

    To be called before anything imports onnxruntime; raises RuntimeError otherwise. A second call
    does nothing.
    """
    module = sys.modules.get(_NAME)
    if module is not None and module is not sys.modules[_OWN]:
        raise RuntimeError(
            f"onnxruntime is already imported, from {module.__file__}: call install() before"
        )
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    """`import onnxruntime` gives what is installed again; modules that were imported stay."""
    if _finder not in sys.meta_path:
        return
    sys.meta_path.remove(_finder)
    for name in list(sys.modules):
        if name == _NAME or name.startswith(f"{_NAME}."):
            del sys.modules[name]
