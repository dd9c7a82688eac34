"""Pipelines of scikit-learn, fitted to random data, through skl2onnx."""

import numpy as np
from skl2onnx import to_onnx
from sklearn.ensemble import (GradientBoostingClassifier, GradientBoostingRegressor,
                              RandomForestClassifier, RandomForestRegressor)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import SVC

from kit import model

FEATURES = 12
WORDS = "the a of stone river makes light under heavy rain all day nobody saw it go".split()
SIZES = {"N": 1}, {"N": 7}, {"N": 300}


def features(rng, N):
    return {"X": rng.standard_normal((N, FEATURES), dtype=np.float32)}


def sentences(rng, N):
    return {"X": np.array([[" ".join(rng.choice(WORDS, 6))] for _ in range(N)])}


def write(path, *steps, classes=4, zipmap=False):
    rng = np.random.default_rng(0)
    data = rng.standard_normal((400, FEATURES)).astype(np.float32)
    wanted = (data[:, 0] + data[:, 1] ** 2 + 0.1 * rng.standard_normal(400)).astype(np.float32)
    if classes:
        wanted = np.clip(wanted + 1, 0, classes - 1).astype(np.int64)
    pipeline = make_pipeline(*steps).fit(data, wanted)
    options = {id(pipeline): {"zipmap": zipmap}} if classes else None
    save(path, to_onnx(pipeline, data[:1], options=options))


def save(path, proto):
    path.write_bytes(proto.SerializeToString())


@model(features, *SIZES)
def random_forest(path):
    write(path, StandardScaler(), RandomForestClassifier(50, max_depth=8, random_state=0))


@model(features, *SIZES)
def forest_regressor(path):
    write(path, StandardScaler(), RandomForestRegressor(50, max_depth=8, random_state=0), classes=0)


@model(features, *SIZES)
def gradient_boosting(path):
    write(path, GradientBoostingClassifier(n_estimators=30, random_state=0))


@model(features, *SIZES)
def boosting_regressor(path):
    write(path, GradientBoostingRegressor(n_estimators=50, random_state=0), classes=0)


@model(features, *SIZES)
def logistic_regression(path):
    write(path, Normalizer(), LogisticRegression())


@model(features, *SIZES)
def logistic_zipmap(path):
    write(path, StandardScaler(), LogisticRegression(), zipmap=True)


@model(features, *SIZES)
def perceptron(path):
    write(path, StandardScaler(), MLPClassifier((64, 32), random_state=0, max_iter=50))


@model(features, *SIZES)
def support_vectors(path):
    write(path, StandardScaler(), SVC(probability=True, random_state=0))


@model(features, *SIZES)
def neighbors(path):
    write(path, StandardScaler(), KNeighborsClassifier(5))


@model(sentences, *SIZES)
def text_features(path):
    rng = np.random.default_rng(0)
    lines = sentences(rng, 200)["X"]
    wanted = np.array(["stone" in line for (line,) in lines]).astype(np.int64)
    pipeline = make_pipeline(TfidfVectorizer(lowercase=False), LogisticRegression()).fit(lines[:, 0], wanted)
    from skl2onnx.common.data_types import StringTensorType

    save(path, to_onnx(pipeline, initial_types=[("X", StringTensorType([None, 1]))],
                       options={id(pipeline): {"zipmap": False}}))
