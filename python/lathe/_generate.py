"""Continuing sequences of tokens with a decoder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Union

from lathe import _core, _model
from lathe._executable import Executable, compile, program_of

Source = Union[Executable, _core.Model, _core.Program, _model.Source]
Prompts = Union[Sequence[int], Sequence[Sequence[int]]]


class Generator(_core.Generator):
    """A decoder as exporters write those of the Llama, Qwen and GPT-2 families.

    source: an Executable, the path of one (.lx, .json), or what lathe.compile takes.
    ids, mask, positions, logits: names of inputs and of the output, if they are not those that
        exporters give.
    past, present: names of inputs and outputs of the cache, with a star for what is the same in
        both, such as "past_key_values.*" and "present.*".
    options: those of lathe.compile.

    `executable` is what runs; its `save` writes what a Generator takes again. Any number of threads
    may use one. Raises InvalidArgumentError (generate/input, generate/output,
    generate/cache), which lists the inputs or outputs, and what lathe.compile does.
    """

    def __init__(self, source: Source, *, ids: str = "", mask: str = "", positions: str = "",
                 logits: str = "", past: str = "", present: str = "", **options: Any) -> None:
        names = dict(ids=ids, mask=mask, positions=positions, logits=logits, past=past,
                     present=present)
        self.executable = _executable_of(source, names, options)
        super().__init__(self.executable, **names)

    def generate(self, prompts: Prompts, *, max_new_tokens: int = 64, max_length: int = 0,
                 stop: Iterable[int] = (), temperature: float = 0.0, top_k: int = 0,
                 top_p: float = 1.0, seed: int = 0, padding: str = "auto",
                 on_token: Callable[[int, int], object] | None = None,
                 timeout: float | None = None,
                 cancel: _core.CancelToken | None = None) -> _core.Generation:
        """Continues each prompt, a sequence of token ids, or the one that is given.

        max_new_tokens: of each sequence.
        max_length: of a sequence with its prompt; 0: no limit.
        stop: tokens that end a sequence; they are part of the result.
        temperature: of what tokens are drawn from; 0: the likeliest is taken.
        top_k, top_p: draw from the k likeliest tokens; from the likeliest that have this
            probability together.
        seed: of what is drawn. The same for any number of threads and whatever else is in a batch.
        padding: of shorter prompts, "right" or "left"; "none": those as long as others run
            together.
        on_token: called with the index of a sequence and each token as soon as it is known; what
            it raises ends the generation.
        timeout: in seconds.

        Raises InvalidArgumentError (generate/prompt, generate/token, generate/option,
        generate/logits), and what runs do.
        """
        listed = [[int(token) for token in prompt] for prompt in _rows(prompts)]
        return self._generate(listed, max_new_tokens, max_length, [int(token) for token in stop],
                              temperature, top_k, top_p, seed, padding, on_token, timeout, cancel)


def generate(source: Source, prompts: Prompts, *, max_new_tokens: int = 64, threads: int = 0,
             **options: Any) -> _core.Generation:
    """Generator(source, threads=threads).generate(prompts, ...); options are those of `generate`."""
    generator = Generator(source, **({"threads": threads} if threads else {}))
    return generator.generate(prompts, max_new_tokens=max_new_tokens, **options)


def _rows(prompts: Prompts) -> Sequence[Any]:
    rows = list(prompts)
    return [rows] if rows and not hasattr(rows[0], "__iter__") else rows


def _executable_of(source: Source, names: dict[str, str],
                   options: dict[str, Any]) -> Executable:
    if isinstance(source, Executable):
        return source
    if isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith((".lx", ".json")):
        return Executable.load(source, **options)
    program = program_of(source, options.get("strict", False))
    return compile(_core._with_decoder_sizes(program, **names), **options)
