"""lathe.from_sklearn, where skl2onnx is installed."""

import sys

import numpy as np
import pytest

import lathe


def test_without_skl2onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(ImportError, match="pip install skl2onnx"):
        lathe.from_sklearn(None)


def test_pipelines():
    pytest.importorskip("skl2onnx")
    from sklearn import datasets, ensemble, linear_model
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = datasets.load_iris(return_X_y=True)
    x = x.astype(np.float32)
    classifier = make_pipeline(StandardScaler(), linear_model.LogisticRegression()).fit(x, y)
    label, probabilities = lathe.compile(lathe.from_sklearn(classifier))(x)
    np.testing.assert_array_equal(label, classifier.predict(x))
    np.testing.assert_allclose(probabilities, classifier.predict_proba(x), atol=1e-5)
    forest = ensemble.RandomForestRegressor(20, random_state=0).fit(x, y)
    found = lathe.compile(lathe.from_sklearn(forest, x[:1]))(x)
    np.testing.assert_allclose(found[:, 0], forest.predict(x), atol=1e-5)
