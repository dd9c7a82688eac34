"""The exceptions of the package, and which error of the library becomes which."""

from __future__ import annotations

from collections.abc import Sequence


class Error(Exception):
    """What a user did wrong, and how to put it right.

    code: its kind, such as "shape".
    id: which it is, such as "shape/conv-groups"; does not change from release to release.
    message: what is wrong.
    location: where: a file, a node, a line; "" if that is nowhere.
    hint: what to do; "" if nobody knows.
    notes: more facts.
    others: further errors that were found on the way; this one is the first.
    """

    def __init__(self, message: str, *, code: str = "", id: str = "", location: str = "",
                 notes: Sequence[str] = (), hints: Sequence[str] = (),
                 others: Sequence[Error] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.id = id
        self.location = location
        self.notes = tuple(notes)
        self.hint = "\n".join(hints)
        self.others = tuple(others)

    def __str__(self) -> str:
        lines = [f"{self.message} [{self.id}]" if self.id else self.message]
        lines += [f"  --> {self.location}"] if self.location else []
        lines += [f"   |  {note}" for note in self.notes]
        lines += [f"   = help: {hint}" for hint in self.hint.splitlines()]
        return "\n".join([*lines, *(str(other) for other in self.others)])


class InvalidArgumentError(Error, ValueError):
    """An argument that makes no sense, or a missing one."""


class NotFoundError(Error, LookupError):
    """A name that there is nothing for: an input, an output, a pass, a target."""


class UnsupportedError(Error, NotImplementedError):
    """What Lathe cannot do, or not on this machine."""


class ParseError(Error, ValueError):
    """A file or text that is damaged or not what it is taken for."""


class VerifyError(Error, ValueError):
    """A program that contradicts itself."""


class ShapeError(Error, ValueError):
    """Shapes that contradict each other."""


class ElementTypeError(Error, TypeError):
    """A value of the wrong element type or kind."""


class CallbackError(Error):
    """A function of yours that Lathe has called raised an exception, which is the `__cause__`."""


class FileError(Error, OSError):
    """A file that cannot be read or written."""


class MissingFileError(NotFoundError, FileNotFoundError):
    """A file that is not there."""


class LimitError(Error):
    """Work that takes more than it may."""


class MemoryLimitError(LimitError, MemoryError):
    """Memory, beyond what was allowed or what the machine has."""


class TimeLimitError(LimitError, TimeoutError):
    """Time, beyond what was allowed."""


class CancelledError(LimitError):
    """Work that a CancelToken has ended."""


class InternalError(Error, RuntimeError):
    """A bug of Lathe. Please report it."""


_BY_ID: dict[str, type[Error]] = {
    "python/exception": CallbackError,
    "limit/memory": MemoryLimitError,
    "limit/time": TimeLimitError,
    "run/cancelled": CancelledError,
}
_BY_CODE: dict[str, type[Error]] = {
    "invalid-argument": InvalidArgumentError,
    "not-found": NotFoundError,
    "unsupported": UnsupportedError,
    "parse": ParseError,
    "verify": VerifyError,
    "shape": ShapeError,
    "type": ElementTypeError,
    "io": FileError,
    "limit": LimitError,
    "internal": InternalError,
}


def exception_of(code: str, id: str, message: str, location: str, notes: Sequence[str],
                 hints: Sequence[str], others: Sequence[Error]) -> Error:
    """The exception of an error of the library; the module calls it."""
    kind = _BY_ID.get(id) or _BY_CODE[code]
    if code == "not-found" and id.startswith("io/"):
        kind = MissingFileError
    return kind(message, code=code, id=id, location=location, notes=notes, hints=hints,
                others=others)
