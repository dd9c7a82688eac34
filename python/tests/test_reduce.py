"""Programs that fail, and small ones that fail too."""

import pytest

import lathe
from lathe import nn


def names(program):
    return [op.name for op in program]


@pytest.fixture
def program():
    """Ten operations on x; the fourth is an exp."""
    program = lathe.Program()
    value = program.input("x", (8,))
    for i in range(10):
        value = nn.exp(value) if i == 3 else nn.sin(value)
    program.output("y", value)
    return program


def test_one_operation_is_left(program):
    before = str(program)
    small = lathe.reduce(program, lambda p: "nn.exp" in names(p))
    assert names(small) == ["nn.feed", "nn.exp", "nn.fetch"]
    assert list(small)[0].results[0].shape == (1,)
    assert str(program) == before


def test_candidates_run_and_are_the_caller_s(program):
    kept = []

    def fails(candidate):
        kept.append(candidate)
        lathe.compile(candidate, cache=False, threads=1)
        candidate.run_passes("inference")
        return "nn.exp" in str(candidate)

    small = lathe.reduce(program, fails)
    assert names(small).count("nn.exp") == 1
    assert len(names(small)) == 3
    assert len({id(c) for c in kept}) == len(kept) > 3


def test_runs_are_limited(program):
    runs = []
    lathe.reduce(program, lambda p: not runs.append(p) and "nn.exp" in names(p), max_runs=3)
    assert len(runs) == 3
    with pytest.raises(ValueError, match="max_runs is negative"):
        lathe.reduce(program, lambda p: True, max_runs=-1)


def test_what_does_not_fail(program):
    with pytest.raises(lathe.InvalidArgumentError) as raised:
        lathe.reduce(program, lambda p: False)
    assert "reduce/no-failure" in str(raised.value)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_what_the_function_raises_ends_it(program, error):
    def fails(candidate):
        if len(names(candidate)) < 12:
            raise error("enough")
        return True

    with pytest.raises(error, match="enough"):
        lathe.reduce(program, fails)


def test_something_that_cannot_be_called(program):
    with pytest.raises(TypeError):
        lathe.reduce(program, "nn.exp")
