"""The networks of bench/train/run.py: made by torch with seeded weights, and data to train them on."""

import dataclasses
from collections.abc import Callable

import torch
import torchvision
import transformers
from torch import nn


@dataclasses.dataclass(frozen=True)
class Task:
    """`make()` gives a network whose output are scores, `data(generator)` its inputs by the names
    of its parameters and the labels."""

    make: Callable
    data: Callable
    class_axis: int = 1  # of the scores
    optimizer: str = "adamw"


class Scores(nn.Module):
    """A network of transformers, of which the scores alone are taken."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, ids):
        return self.inner(input_ids=ids).logits


class WordModel(nn.Module):
    """The next word by two layers of LSTM."""

    def __init__(self, words: int, width: int):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, ids):
        return self.out(self.lstm(self.table(ids))[0])


class GptBlock(nn.Module):
    """A layer of a transformer, norms first, whose attention sees what came before."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """A GPT whose table of words is also its last layer."""

    def __init__(self, words: int, length: int, width: int, layers: int, heads: int):
        super().__init__()
        self.table, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        for table in (self.table, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(*(GptBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.blocks(self.table(ids) + self.places.weight)
        return nn.functional.linear(self.norm(x), self.table.weight)


def mlp():
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                         nn.Linear(1024, 10))


def bert():
    config = transformers.BertConfig(
        hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048,
        num_labels=2)
    network = transformers.BertForSequenceClassification(config)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0
    return Scores(network)


def gpt():
    return Gpt(words=8192, length=128, width=384, layers=6, heads=6)


def pictures(generator, batch=16):
    return ({"input": torch.randn(batch, 3, 224, 224, generator=generator)},
            torch.randint(1000, (batch,), generator=generator))


def vectors(generator, batch=128):
    return ({"input": torch.randn(batch, 784, generator=generator)},
            torch.randint(10, (batch,), generator=generator))


def sentences(generator, batch=8, length=128):
    return ({"ids": torch.randint(30522, (batch, length), generator=generator)},
            torch.randint(2, (batch,), generator=generator))


def text(words: int, batch: int, length: int):
    def make(generator):
        ids = torch.randint(words, (batch, length + 1), generator=generator)
        return {"ids": ids[:, :-1].contiguous()}, ids[:, 1:].contiguous()

    return make


TASKS = {
    "mlp": Task(mlp, vectors, optimizer="sgd"),
    "resnet18": Task(lambda: torchvision.models.resnet18(), pictures, optimizer="sgd"),
    "bert": Task(bert, sentences),
    "lstm": Task(lambda: WordModel(10000, 512), text(10000, 20, 35), class_axis=2),
    "gpt": Task(gpt, text(8192, 8, 128), class_axis=2),
}
