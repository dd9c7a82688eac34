#!/usr/bin/env python3
"""Trains a small convolutional network on scikit-learn's handwritten digits and exports it.

Writes digits.onnx, labels.txt and digit_0.png ... digit_9.png beside this file and prints the accuracy.
The run is seeded. Needs: pip install numpy scikit-learn onnx onnxruntime pillow
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).resolve().parent
SEED = 2024
EPOCHS = 40
BATCH = 32
LEARNING_RATE = 2e-3
CHANNELS = (16, 32)


# --- the data -----------------------------------------------------------------------------------


def load_split():
    """Pixels as the PNG files hold them (0..255), with a quarter of the pictures kept for the test."""
    digits = load_digits()
    pixels = np.rint(digits.images / 16 * 255).astype(np.uint8)
    return train_test_split(
        pixels, digits.target, test_size=0.25, random_state=SEED, stratify=digits.target
    )


def to_input(pixels):
    """[N, 8, 8] bytes to f32 [N, 1, 8, 8] in 0..1."""
    return (pixels[:, None] / 255).astype(np.float32)


def shifted(rng, images):
    """Each picture moved by up to one pixel, so that the network does not learn positions by heart."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    dy, dx = rng.integers(0, 3, (2, len(images)))
    return np.stack([p[:, y : y + 8, x : x + 8] for p, y, x in zip(padded, dy, dx)])


# --- the network: each layer returns its output and a function from output to input gradient -----


def conv(x, weight, bias, grads, name):
    """3x3, stride 1, padding 1."""
    n, c, h, w = x.shape
    windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, c * 9)
    matrix = weight.reshape(len(weight), -1)
    out = (columns @ matrix.T + bias).reshape(n, h, w, -1).transpose(0, 3, 1, 2)

    def backward(dout):
        rows = dout.transpose(0, 2, 3, 1).reshape(n * h * w, -1)
        grads[name + ".weight"] = (rows.T @ columns).reshape(weight.shape)
        grads[name + ".bias"] = rows.sum(0)
        spread = (rows @ matrix).reshape(n, h, w, c, 3, 3)
        dx = np.zeros((n, c, h + 2, w + 2), np.float32)
        for i in range(3):
            for j in range(3):
                dx[:, :, i : i + h, j : j + w] += spread[..., i, j].transpose(0, 3, 1, 2)
        return dx[:, :, 1:-1, 1:-1]

    return out, backward


def relu(x):
    return np.maximum(x, 0), lambda dout: dout * (x > 0)


def max_pool(x):
    """2x2, stride 2."""
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
    out = blocks.max((3, 5), keepdims=True)

    def backward(dout):
        mask = blocks == out
        share = dout.reshape(out.shape) / mask.sum((3, 5), keepdims=True)
        return (mask * share).reshape(x.shape)

    return out.reshape(n, c, h // 2, w // 2), backward


def linear(x, weight, bias, grads, name):
    flat = x.reshape(len(x), -1)

    def backward(dout):
        grads[name + ".weight"] = dout.T @ flat
        grads[name + ".bias"] = dout.sum(0)
        return (dout @ weight).reshape(x.shape)

    return flat @ weight.T + bias, backward


def forward(params, x, grads):
    """Logits [N, 10] and the backward functions in the order of the layers."""
    tape = []
    for name in ("conv1", "conv2"):
        x, back = conv(x, params[name + ".weight"], params[name + ".bias"], grads, name)
        tape.append(back)
        x, back = relu(x)
        tape.append(back)
    x, back = max_pool(x)
    tape.append(back)
    x, back = linear(x, params["fc.weight"], params["fc.bias"], grads, "fc")
    return x, [*tape, back]


def softmax(logits):
    exp = np.exp(logits - logits.max(1, keepdims=True))
    return exp / exp.sum(1, keepdims=True)


def gradients(params, images, labels):
    grads = {}
    logits, tape = forward(params, images, grads)
    dout = (softmax(logits) - np.eye(10, dtype=np.float32)[labels]) / len(labels)
    for backward in reversed(tape):
        dout = backward(dout)
    return grads


# --- the training -------------------------------------------------------------------------------


def initial_parameters(rng):
    first, second = CHANNELS
    shapes = {"conv1": (first, 1, 3, 3), "conv2": (second, first, 3, 3), "fc": (10, second * 16)}
    params = {}
    for name, shape in shapes.items():
        scale = np.sqrt(2 / np.prod(shape[1:]))
        params[name + ".weight"] = (rng.standard_normal(shape) * scale).astype(np.float32)
        params[name + ".bias"] = np.zeros(shape[0], np.float32)
    return params


class Adam:
    def __init__(self, params):
        self.params, self.step = params, 0
        self.mean = {k: np.zeros_like(v) for k, v in params.items()}
        self.square = {k: np.zeros_like(v) for k, v in params.items()}

    def update(self, grads, rate):
        self.step += 1
        for k, g in grads.items():
            self.mean[k] += 0.1 * (g - self.mean[k])
            self.square[k] += 0.001 * (g * g - self.square[k])
            mean = self.mean[k] / (1 - 0.9**self.step)
            square = self.square[k] / (1 - 0.999**self.step)
            self.params[k] -= np.float32(rate) * mean / (np.sqrt(square) + 1e-8)


def train(images, labels):
    rng = np.random.default_rng(SEED)
    params = initial_parameters(rng)
    optimizer = Adam(params)
    for epoch in range(EPOCHS):
        rate = LEARNING_RATE * (1 + np.cos(np.pi * epoch / EPOCHS)) / 2
        for batch in np.array_split(rng.permutation(len(images)), len(images) // BATCH):
            optimizer.update(gradients(params, shifted(rng, images[batch]), labels[batch]), rate)
    return params


def accuracy(scores, labels):
    return float((scores.argmax(1) == labels).mean())


# --- the files ----------------------------------------------------------------------------------


def build_model(params):
    def node(op, name, inputs, **attributes):
        return helper.make_node(op, inputs, [name], name=name, **attributes)

    def conv_node(name, source):
        inputs = [source, name + ".weight", name + ".bias"]
        return node("Conv", name, inputs, kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    nodes = [
        conv_node("conv1", "image"),
        node("Relu", "relu1", ["conv1"]),
        conv_node("conv2", "relu1"),
        node("Relu", "relu2", ["conv2"]),
        node("MaxPool", "pool", ["relu2"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "flatten", ["pool"], axis=1),
        node("Gemm", "fc", ["flatten", "fc.weight", "fc.bias"], transB=1),
        helper.make_node("Softmax", ["fc"], ["probabilities"], name="softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(value, name) for name, value in params.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(
        graph, ir_version=8, opset_imports=opsets, producer_name="lathe digits"
    )


def write_pictures(pixels, labels):
    """The first picture of each class in the test split."""
    for digit in range(10):
        first = np.flatnonzero(labels == digit)[0]
        Image.fromarray(pixels[first]).save(HERE / f"digit_{digit}.png", optimize=True)


def check_with_onnxruntime(path, params, images):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"image": images})
    np.testing.assert_allclose(scores, softmax(forward(params, images, {})[0]), atol=1e-5)
    return scores


def main():
    train_pixels, test_pixels, train_labels, test_labels = load_split()
    params = train(to_input(train_pixels), train_labels)

    model = build_model(params)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, HERE / "digits.onnx")
    (HERE / "labels.txt").write_text("".join(f"{digit}\n" for digit in range(10)))
    write_pictures(test_pixels, test_labels)

    scores = check_with_onnxruntime(HERE / "digits.onnx", params, to_input(test_pixels))
    pictures = [np.asarray(Image.open(HERE / f"digit_{digit}.png")) for digit in range(10)]
    shown = check_with_onnxruntime(HERE / "digits.onnx", params, to_input(np.stack(pictures)))
    trained = softmax(forward(params, to_input(train_pixels), {})[0])
    print(f"train accuracy {accuracy(trained, train_labels):.4f} of {len(train_labels)} pictures")
    print(f"test accuracy  {accuracy(scores, test_labels):.4f} of {len(test_labels)} pictures")
    print(f"the ten pictures: {int(accuracy(shown, np.arange(10)) * 10 + 0.5)} right")
    print(f"digits.onnx: {(HERE / 'digits.onnx').stat().st_size} bytes")


if __name__ == "__main__":
    main()
