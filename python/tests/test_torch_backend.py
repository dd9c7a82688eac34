"""torch.compile(model, backend="lathe"), where torch and onnxscript are installed."""

import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.6")
pytest.importorskip("onnxscript")

from lathe import torch_backend  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x):
        y = torch.relu(self.linear(x) + self.shift)
        return y.reshape(-1), x.shape[0] * 2, None, x


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend=torch_backend.backend)


def stays(call):
    """Reasons that a call adds."""
    before = len(torch_backend.refusals())
    call()
    return torch_backend.refusals()[before:]


@torch.no_grad()
def test_a_module_of_any_size():
    net = Net().eval()
    fast = compiled(net)
    for rows in (2, 5, 7, 1):
        x = torch.randn(rows, 4)
        assert stays(lambda: fast(x)) == []
        for a, b in zip(fast(x), net(x)):
            torch.testing.assert_close(a, b) if isinstance(b, torch.Tensor) else None
            assert isinstance(b, torch.Tensor) or a == b


@torch.no_grad()
def test_threads_are_those_of_pytorch(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    made = []

    def backend(graph, inputs, **options):
        made.append(torch_backend.backend(graph, inputs, **options))
        return made[-1]

    for options, threads in (({}, 3), ({"threads": 1}, 1)):
        torch._dynamo.reset()
        torch.compile(torch.relu, backend=lambda g, i, o=options: backend(g, i, **o))(torch.ones(3))
        assert made[-1]._executable.threads == threads


@torch.no_grad()
def test_weights_that_change():
    net = Net().eval()
    fast, x = compiled(net), torch.randn(2, 4)
    fast(x)
    net.linear.weight.mul_(2)
    torch.testing.assert_close(fast(x)[0], net(x)[0])


@torch.no_grad()
def test_what_stays_in_pytorch():
    def writes(x):
        return x.add_(1) * 2

    x = torch.zeros(3)
    assert stays(lambda: compiled(writes)(x)) == ["it writes to its inputs or to weights"]
    np.testing.assert_array_equal(x, np.ones(3))
    drop = compiled(lambda x: torch.nn.functional.dropout(x, 0.5, True))
    (reason,) = stays(lambda: drop(torch.ones(3)))
    assert "draws random numbers" in reason


def test_gradients_stay_in_pytorch(caplog):
    net = Net()
    with caplog.at_level(logging.WARNING, "lathe"):
        (reason,) = stays(lambda: compiled(net)(torch.ones(2, 4))[0].sum().backward())
    assert "torch.no_grad()" in reason and reason in caplog.text
    assert net.linear.weight.grad is not None
