"""What a session says of its model: inputs, outputs, and where it comes from."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import lathe
from lathe import _core

_CUSTOM = "metadata_props."
_NO_VERSION = 2**63 - 1  # as onnxruntime has it


@dataclasses.dataclass(frozen=True)
class NodeArg:
    """An input or an output: name, type such as "tensor(float)", and shape.

    The shape has an int, a name or None for each axis; it is [] if the rank is unknown.
    """

    name: str
    type: str
    shape: list[Any]

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


@dataclasses.dataclass
class ModelMetadata:
    """What the model's file says about itself."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = _NO_VERSION
    custom_metadata_map: dict[str, str] = dataclasses.field(default_factory=dict)


def metadata_of(model: lathe.Model, file: _core.OnnxInterface | None) -> ModelMetadata:
    """Of a model and what its file declares, if that is one of ONNX."""
    said = dict(model.metadata)
    return ModelMetadata(
        producer_name=said.get("producer_name", ""),
        graph_name=file.graph_name if file else "",
        domain=said.get("domain", ""),
        description=said.get("doc_string", ""),
        graph_description=said.get("graph.doc_string", ""),
        version=int(said.get("model_version", _NO_VERSION)),
        custom_metadata_map={
            key[len(_CUSTOM) :]: text for key, text in said.items() if key.startswith(_CUSTOM)
        },
    )


def class_labels(model: lathe.Model, output: str) -> list[Any] | None:
    """Keys of the dicts that an output of ZipMap is a list of; None for other outputs."""
    text = model.metadata.get(f"value.{output}.class_labels")
    return None if text is None else json.loads(text)
