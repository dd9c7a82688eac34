"""What goes wrong, as classes that are also the exceptions of Python that fit."""

from __future__ import annotations

from lathe_runtime._library import library


class Error(Exception):
    """id: stays the same over versions ("run/input-shape"). message: one sentence."""

    def __init__(self, text: str, id: str = "", message: str = "") -> None:
        super().__init__(text)
        self.id = id
        self.message = message or text


class InvalidArgumentError(Error, ValueError):
    """An argument that makes no sense."""


class NotFoundError(Error, LookupError):
    """Nothing has that name."""


class UnsupportedError(Error, NotImplementedError):
    """By this library or this processor."""


class DamagedError(Error, ValueError):
    """A file that is cut off, damaged or of another version."""


class ShapeError(Error, ValueError):
    """A value of the wrong shape."""


class ElementTypeError(Error, TypeError):
    """A value of the wrong element type."""


class FileError(Error, OSError):
    """A file that cannot be read."""


class MissingFileError(NotFoundError, FileNotFoundError):
    """A file that is not there."""


class LimitError(Error):
    """More memory or time than was allowed."""


class CancelledError(LimitError):
    """A token was cancelled."""


class InternalError(Error, RuntimeError):
    """A bug of Lathe."""


_CLASSES: dict[int, type[Error]] = {1: InvalidArgumentError, 2: NotFoundError, 3: UnsupportedError, 4: DamagedError,
            5: ShapeError, 6: ElementTypeError, 7: FileError, 8: LimitError, 9: CancelledError}


def check(error: int | None) -> None:
    """Raises what a function of the library gave, and frees it."""
    if not error:
        return
    lib = library()
    kind = _CLASSES.get(lib.lathe_error_code(error), InternalError)
    id, message, text = (get(error).decode(errors="replace") for get in (
        lib.lathe_error_id, lib.lathe_error_message, lib.lathe_error_text))
    lib.lathe_error_free(error)
    if kind is NotFoundError and id.startswith("io/"):
        kind = MissingFileError
    raise kind(text.rstrip(), id, message)
