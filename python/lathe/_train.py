"""Training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Union

import numpy as np

from lathe import _core, _executable, _model

Batch = Union[Mapping[str, Any], Sequence[Any]]
Data = Union[Mapping[str, Any], str, "os.PathLike[str]", Iterable[Batch], _core.DataSet]

_LABELS = "labels"


class Trainer(_core.Trainer):
    """Trains a program: makes a training program of it, compiles that and an evaluation that reads
    the same parameters, and runs epochs. One thread at a time.

        trainer = lathe.Trainer(model, optimizer="adamw{lr=1e-3}", epochs=5)
        trainer.fit({"image": images, "labels": labels}, {"image": others, "labels": their_labels})
        exe = lathe.compile(trainer.trained())
    """

    def __init__(self, model: _core.Model | _core.Program | _model.Source, *,
                 loss: str = "cross_entropy", output: str = "", class_axis: int = 1,
                 optimizer: str = "sgd{lr=1e-2}", freeze: Iterable[str] = (),
                 loss_scale: float = 65536, epochs: int = 1, batch: int = 32, seed: int = 0,
                 shuffle: bool = True, drop_last: bool = False, labels: str = "",
                 normalize: str = "unit",
                 checkpoint: str | os.PathLike[str] | None = None, initialize: str = "",
                 target: str | None = None, threads: int = 0, cache: _executable.Cache = None,
                 precision: str = "f32", memory: int = 0,
                 on_step: Callable[[_core.StepReport], object] | None = None,
                 on_epoch: Callable[[_core.EpochReport], object] | None = None) -> None:
        """Copies the model, or loads what lathe.load takes.

        loss: "cross_entropy", "binary_cross_entropy", "mse" or "l1" of `output`, which need not be
            named if it is the only one; or the name of an output that is the loss.
        class_axis: of scores for cross_entropy.
        optimizer: passes that update parameters, such as "sgd{lr=0.1,momentum=0.9}".
        freeze: names and patterns of parameters that stay as they are.
        loss_scale: what the loss of a model of f16 is multiplied by at first; 0: nothing.
        seed: of the order of samples, of dropout and of `initialize`. With the same seed and data,
            all losses and weights have the same bits, for any number of threads.
        drop_last: leaves out a last batch that is not full.
        labels: the array with labels or targets; else found by name.
        normalize: of bytes that feed floats, as of Model.read_input.
        checkpoint: a folder; one is written after each epoch, and when fit is stopped.
        initialize: begins with fresh parameters: "auto", or an initializer of the pass initialize.
        target, threads, cache, precision: as of lathe.compile.
        memory: bytes that parameters, states and a step may take; 0: any. Values are computed twice
            where they do not fit.
        on_step, on_epoch: called after each; what they raise ends fit, and `stop` does.

        Raises what lathe.load does; InvalidArgumentError, NotFoundError for a loss, an optimizer or
        a program that cannot be trained.
        """
        program = _executable.program_of(model, strict=False)
        super().__init__(program, loss=loss, output=output, class_axis=class_axis,
                         optimizer=optimizer, freeze=list(freeze), loss_scale=loss_scale,
                         epochs=epochs, batch=batch, seed=seed, shuffle=shuffle, drop_last=drop_last, labels=labels,
                         normalize=normalize,
                         checkpoint="" if checkpoint is None else os.fspath(checkpoint),
                         initialize=initialize, target=target or "", threads=threads,
                         cache=_executable.cache_folder(cache), precision=precision, memory=memory,
                         on_step=on_step, on_epoch=on_epoch)
        self._epochs = epochs
        self._names = [*(op.attributes["name"] for op in program if op.name == "nn.feed"),
                       labels or _LABELS]

    def fit(self, data: Data, evaluation: Data | None = None) -> bool:
        """Runs the epochs that are left; whether that was all, or `stop` has ended it. An interrupt
        lets the step end and is raised then; fit goes on from there.

        data, evaluation: arrays by name, whose first axis is that of samples; files, as lathe train
            takes them ("train.npz"); or an iterable of batches, by name, or as tuples of the inputs
            in order and the labels. What is not an array is iterated anew for each epoch, into memory.

        Raises InvalidArgumentError, ShapeError if data do not fit; for a loss that is not finite,
        with the operation that made it.
        """
        self._begin()
        held_out = None if evaluation is None else self._data(evaluation)
        if isinstance(data, (_core.DataSet, Mapping, str, os.PathLike)):
            return self._fit(self._data(data), held_out, one_epoch=False)
        if isinstance(data, Iterator) and self._epochs - self.epoch > 1:
            raise ValueError("an iterator lasts for one epoch; give what can be iterated again")
        while self.epoch < self._epochs:
            if not self._fit(self._data(data), held_out, one_epoch=True):
                return False
        return True

    def evaluate(self, data: Data) -> _core.Metrics:
        """Loss and accuracy of the model as it is now, in inference mode."""
        return self._evaluate(self._data(data))

    @property
    def parameters(self) -> dict[str, np.ndarray[Any, Any]]:
        """Copies of the weights as they are now, by name."""
        return self.trained().parameters

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Weights, states of the optimizer and where the training is. Raises FileError."""
        self._save(os.fspath(path))

    def resume(self, path: str | os.PathLike[str] | None = None) -> None:
        """Goes on from a checkpoint, by default that of the folder, with the same bits as if there
        had been no stop. Raises MissingFileError, ParseError; InvalidArgumentError if it is of
        another model, optimizer, seed or batch."""
        self._resume(os.fspath(path) if path is not None else self.checkpoint_path)

    def _data(self, data: Data) -> _core.DataSet:
        if isinstance(data, _core.DataSet):
            return data
        if isinstance(data, Mapping):
            return _core.arrays(dict(data))
        if isinstance(data, (str, os.PathLike)):
            return _core.open_data([os.fspath(data)])
        return _core.arrays(self._joined(data))

    def _joined(self, batches: Iterable[Batch]) -> dict[str, Any]:
        """All batches in one array for each name."""
        parts: dict[str, list[Any]] = {}
        for batch in batches:
            for name, array in self._named(batch).items():
                parts.setdefault(name, []).append(np.asarray(array))
        if not parts:
            raise ValueError("there are no batches in the data")
        return {name: np.concatenate(arrays) for name, arrays in parts.items()}

    def _named(self, batch: Batch) -> Mapping[str, Any]:
        if isinstance(batch, Mapping):
            return batch
        if not isinstance(batch, (tuple, list)) or len(batch) != len(self._names):
            raise TypeError(f"a batch is a mapping of arrays by name, or a tuple of "
                            f"{len(self._names)}: {', '.join(self._names)}")
        return dict(zip(self._names, batch))
