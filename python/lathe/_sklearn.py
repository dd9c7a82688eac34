# mypy: disable-error-code="import-not-found"
"""scikit-learn's models."""

from __future__ import annotations

from typing import Any

from lathe import _core, _model


def from_sklearn(model: Any, sample: Any = None, **options: Any) -> _core.Model:
    """A fitted model or pipeline of scikit-learn as a model, through skl2onnx.

    sample: rows that it takes; without them, its inputs are float32[rows, model.n_features_in_].
    options: of skl2onnx.to_onnx. Classifiers give labels and a matrix of probabilities, unless
        options say otherwise.

    Raises ImportError if skl2onnx is not installed, and what it and lathe.load raise.
    """
    try:
        import skl2onnx
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError as error:
        raise ImportError("lathe.from_sklearn needs skl2onnx: pip install skl2onnx") from error
    if sample is not None:
        options["X"] = sample
    elif "initial_types" not in options:
        options["initial_types"] = [("X", FloatTensorType([None, model.n_features_in_]))]
    if hasattr(model, "predict_proba"):
        options.setdefault("options", {id(model): {"zipmap": False}})
    return _model.load(skl2onnx.to_onnx(model, **options))
