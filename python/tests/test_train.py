"""Training."""

import gc
import os
import pathlib
import signal
import sys
import threading

import numpy as np
import pytest
from conftest import ROOT

import lathe
from lathe import nn

DATA = ROOT / "examples" / "train_digits"


def line_program(dtype=np.float32):
    """y = x w + b from w = b = 0."""
    program = lathe.Program()
    x = program.input("x", ("N", 2), {np.float16: "f16", np.float32: "f32"}[dtype])
    w = program.parameter("w", np.zeros((2, 1), dtype))
    b = program.parameter("b", np.zeros(1, dtype))
    program.output("y", nn.add(nn.matmul(x, w), b))
    return program


def line_data(count=64):
    x = np.random.default_rng(3).standard_normal((count, 2)).astype(np.float32)
    return {"x": x, "labels": x @ np.array([[2], [-1]], np.float32) + 3}


def line_trainer(**options):
    options = {"loss": "mse", "optimizer": "sgd{lr=0.1}", "epochs": 8, "batch": 16, "cache": False,
               "threads": 1} | options
    return lathe.Trainer(line_program(), **options)


def weights(trainer):
    return {name: array.tobytes() for name, array in trainer.parameters.items()}


def test_a_line_is_learned():
    reports, steps = [], []
    trainer = line_trainer(on_epoch=reports.append, on_step=steps.append, epochs=20)
    data = line_data()
    assert trainer.evaluate(data).loss > 5
    assert trainer.fit(data, line_data(20)) is True
    np.testing.assert_allclose(trainer.parameters["w"], [[2], [-1]], atol=0.05)
    np.testing.assert_allclose(trainer.parameters["b"], [3], atol=0.05)
    assert trainer.evaluate(data).loss < 0.01 and trainer.evaluate(data).accuracy is None
    assert [r.epoch for r in reports] == list(range(1, 21)) and len(steps) == 80
    assert reports[-1].evaluation.samples == 20 and reports[0].training.samples == 64
    assert (steps[-1].step, steps[-1].batch, steps[-1].batches) == (80, 4, 4)
    assert (trainer.step, trainer.epoch) == (80, 20)
    exe = lathe.compile(trainer.trained(), cache=False)
    np.testing.assert_allclose(exe(data["x"]), data["labels"], atol=0.2)
    assert trainer.fit(data) is True and trainer.step == 80  # nothing is left


def test_models_of_f16_are_trained():
    options = {"loss": "mse", "optimizer": "sgd{lr=0.1}", "epochs": 20, "batch": 16, "threads": 1}
    for scale in (65536, 2.0**40, 0):
        trainer = lathe.Trainer(line_program(np.float16), loss_scale=scale, **options)
        trainer.fit(line_data())
        assert trainer.parameters["w"].dtype == np.float16
        np.testing.assert_allclose(trainer.parameters["w"], [[2], [-1]], atol=0.05)
        trained = trainer.trained()
        assert trained.parameters["w"].dtype == np.float16
        assert lathe.compile(trained)(np.ones((1, 2), np.float16)).dtype == np.float16


def test_a_budget_of_memory_and_a_precision():
    data = line_data()
    plain, small = line_trainer(), line_trainer(memory=1 << 20, precision="strict")
    for trainer in (plain, small):
        trainer.fit(data)
    np.testing.assert_allclose(small.parameters["w"], plain.parameters["w"], rtol=1e-5)
    with pytest.raises(lathe.Error) as error:
        line_trainer(memory=16).fit(data)
    assert error.value.id == "train/memory"
    with pytest.raises(lathe.Error, match="precision"):
        line_trainer(precision="f23")


def test_digits_from_files():
    trainer = lathe.Trainer(ROOT / "examples" / "digits" / "digits.onnx", initialize="auto", seed=7,
                            optimizer="adamw{lr=3e-3}", epochs=5, batch=64, cache=False)
    before = trainer.evaluate(DATA / "test.npz")
    assert before.accuracy < 0.5
    trainer.fit(str(DATA / "train.npz"))
    assert trainer.evaluate(dict(np.load(DATA / "test.npz"))).accuracy > 0.9


class Loader:
    """Batches that are made anew for each epoch, as those of torch's DataLoader."""

    def __init__(self, named=True, size=10):
        self.epochs, self.named, self.size = 0, named, size

    def __iter__(self):
        self.epochs += 1
        data = line_data()
        for i in range(0, 64, self.size):
            x, y = data["x"][i:i + self.size], data["labels"][i:i + self.size]
            yield {"x": x, "labels": y} if self.named else (x, y)


def test_loaders_give_what_arrays_give():
    trainer = line_trainer()
    trainer.fit(line_data())
    for loader in (Loader(), Loader(named=False), [b for b in Loader()], list(Loader(False))):
        other = line_trainer()
        assert other.fit(loader) is True
        assert weights(other) == weights(trainer) and other.epoch == 8
    assert Loader().epochs == 0
    loader = Loader()
    line_trainer().fit(loader, loader)
    assert loader.epochs == 9


def test_wrong_data():
    trainer, data = line_trainer(), line_data()
    for wrong, message in [
        ({"x": data["x"]}, "labels"),
        ({"x": data["x"][:5], "labels": data["labels"]}, "samples"), ({}, "no arrays"),
        ({"x": data["x"][:, :1], "labels": data["labels"]}, "x"),
        ({"x": data["x"][:4], "labels": data["labels"][:4]}, "batch"),
        (iter([]), "lasts for one epoch"), ([], "no batches"), ([(data["x"],)], "x, labels"),
        ([5], "a batch is"), ("nothing.npz", "nothing.npz"),
    ]:
        with pytest.raises((lathe.Error, ValueError, TypeError), match=message):
            trainer.fit(wrong)
    assert trainer.step == 0
    with pytest.raises(TypeError):
        trainer.fit(5)


def test_wrong_options():
    for options, message in [
        ({"loss": "mes"}, "did you mean 'mse'"), ({"optimizer": "sdg"}, "did you mean 'sgd'"),
        ({"epochs": -1}, "-1 epochs"), ({"batch": 0}, "0 samples"), ({"output": "z"}, "z"),
        ({"initialize": "zeroes"}, "zeroes"), ({"normalize": "none"}, "none"),
        ({"freeze": ["*"]}, "trained|freeze|parameters"),
    ]:
        with pytest.raises(lathe.Error, match=message):
            line_trainer(**options)


def test_checkpoints_go_on_with_the_same_bits(tmp_path):
    whole = line_trainer(optimizer="adam{lr=0.1}")
    whole.fit(line_data())

    def stop(report):
        if report.step == 10:
            part.stop()

    part = line_trainer(optimizer="adam{lr=0.1}", checkpoint=tmp_path, on_step=stop)
    assert part.fit(line_data()) is False and part.step == 10
    assert pathlib.Path(part.checkpoint_path).parent == tmp_path
    rest = line_trainer(optimizer="adam{lr=0.1}", checkpoint=tmp_path)
    rest.resume()
    assert rest.step == 10 and rest.fit(line_data()) is True
    assert weights(rest) == weights(whole)
    rest.save_checkpoint(tmp_path / "mine")
    again = line_trainer(optimizer="adam{lr=0.1}")
    again.resume(tmp_path / "mine")
    assert weights(again) == weights(whole) and again.epoch == 8
    with pytest.raises(lathe.InvalidArgumentError):
        line_trainer().resume(tmp_path / "mine")  # of another optimizer
    with pytest.raises(FileNotFoundError):
        again.resume(tmp_path / "nothing")


def test_stopping_after_an_epoch_of_a_loader():
    trainer = line_trainer(on_epoch=lambda report: report.epoch == 3 and trainer.stop())
    assert trainer.fit(Loader()) is False and trainer.epoch == 3
    whole = line_trainer()
    whole.fit(line_data())
    assert trainer.fit(Loader()) is True and weights(trainer) == weights(whole)


def test_what_callbacks_raise_ends_fit():
    def fails(report):
        raise RuntimeError("enough")

    for options in ({"on_step": fails}, {"on_epoch": fails}):
        trainer = line_trainer(**options)
        with pytest.raises(RuntimeError, match="enough"):
            trainer.fit(line_data())
        assert trainer.step >= 1


def test_an_interrupt_ends_a_step(tmp_path):
    def interrupt(report):
        if report.step == 5:
            os.kill(os.getpid(), signal.SIGINT)

    trainer = line_trainer(on_step=interrupt, checkpoint=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(line_data())
    assert trainer.step in (5, 6)
    whole = line_trainer()
    whole.fit(line_data())
    assert trainer.fit(line_data()) is True and weights(trainer) == weights(whole)


def test_one_thread_at_a_time():
    inside, go_on = threading.Event(), threading.Event()

    def wait(report):
        inside.set()
        go_on.wait(10)

    trainer = line_trainer(on_step=wait)
    thread = threading.Thread(target=trainer.fit, args=(line_data(),))
    thread.start()
    inside.wait(10)
    with pytest.raises(lathe.InvalidArgumentError, match="at work"):
        trainer.fit(line_data())
    go_on.set()
    thread.join()
    assert trainer.epoch == 8


def test_a_loss_that_is_not_finite_names_the_operation():
    data = line_data()
    data["x"][3] = 1e38
    with pytest.raises(lathe.InvalidArgumentError, match="the loss is") as error:
        line_trainer().fit(data)
    assert error.value.id == "train/not-finite" and "nn.mul makes inf" in str(error.value)


def test_threads_and_seeds_do_not_decide_bits():
    def trained(**options):
        trainer = line_trainer(**options)
        trainer.fit(line_data())
        return weights(trainer)

    assert trained(threads=2) == trained(threads=1) != trained(seed=1)


def test_nothing_leaks():
    class Watched:
        pass

    watched, data = Watched(), line_data()
    counts = [sys.getrefcount(o) for o in (watched, data["x"], data["labels"])]
    for _ in range(3):
        trainer = line_trainer(epochs=1, on_step=lambda r, w=watched: None)
        trainer.fit(data)
        del trainer
    gc.collect()
    assert [sys.getrefcount(o) for o in (watched, data["x"], data["labels"])] == counts
