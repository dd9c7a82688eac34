"""lathe.tune, and compilation that takes what it has measured."""

import json

import numpy as np
import pytest

import lathe
from lathe import nn


def product(rows=None):
    """y = relu(x w), with a batch of any size."""
    program = lathe.Program()
    x = program.input("x", (rows, 24), "f32")
    w = program.parameter("w", np.linspace(-1, 1, 24 * 40, dtype=np.float32).reshape(24, 40))
    program.output("y", nn.relu(nn.matmul(x, w)))
    return program


def few(model, path, **options):
    return lathe.tune(model, path, trials=2, seconds=0, threads=1, **options)


@pytest.mark.parametrize("rows", [None, "N", 7])
def test_records_are_written_and_taken(tmp_path, rows):
    path = tmp_path / "tuned.jsonl"
    tuning = few(product(rows), path)
    assert tuning.records == str(path) and len(tuning.kernels) == 1
    kernel = tuning.kernels[0]
    assert kernel.calls == 1 and 1 <= kernel.trials <= 2 and kernel.first and kernel.best
    assert kernel.best_seconds <= kernel.first_seconds and "matmul" in kernel.operations
    assert tuning.best_seconds <= tuning.first_seconds
    assert "all kernels" in str(tuning) and "<table>" in tuning._repr_html_()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["implementation"] for line in lines} >= {kernel.best}
    x = np.random.default_rng(0).standard_normal((7, 24)).astype(np.float32)
    plain = lathe.compile(product(rows), cache=False)
    tuned = lathe.compile(product(rows), records=path, cache=False)
    np.testing.assert_allclose(tuned(x), plain(x), rtol=1e-5, atol=1e-5)


def test_a_second_run_measures_the_rest(tmp_path):
    path = tmp_path / "tuned.jsonl"
    few(product(), path)
    before = path.read_text()
    assert few(product(), path).kernels[0].trials == 2
    assert path.read_text() == before
    few(product(3), path)
    assert path.read_text().startswith(before) and len(path.read_text()) > len(before)


def test_progress_is_shown_and_may_end_it(tmp_path):
    seen = []
    few(product(), tmp_path / "a.jsonl", progress=lambda *event: seen.append(event))
    assert seen and seen[0][:2] == (0, 1) and "matmul" in seen[0][2]

    def stop(*event):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        few(product(), tmp_path / "b.jsonl", progress=stop)


def test_wrong_arguments(tmp_path):
    path = tmp_path / "tuned.jsonl"
    for options in ({"trials": 0}, {"seconds": -1}, {"seconds": float("nan")}):
        with pytest.raises(ValueError):
            lathe.tune(product(), path, **options)
    with pytest.raises(lathe.InvalidArgumentError, match="avx1024"):
        few(product(), path, target="avx1024")
    assert not path.exists()
    for option in ("dims", "sizes"):
        with pytest.raises(lathe.Error, match="'M'"):
            few(product("N"), path, **{option: {"M": 2}})
    with pytest.raises(lathe.MissingFileError):
        lathe.compile(product(), records=tmp_path / "none.jsonl")
    other = tmp_path / "other.txt"
    other.write_text("precious\n")
    with pytest.raises(lathe.ParseError):
        few(product(), other)
    assert other.read_text() == "precious\n"
