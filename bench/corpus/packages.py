"""Models that packages ship, taken as they are."""

import importlib.util
import shutil
from pathlib import Path

import numpy as np

from kit import image, model


def copy(package, name, path):
    folder = Path(importlib.util.find_spec(package).origin).parent
    (found,) = sorted(folder.rglob(name))[:1] or [None]
    if found is None:
        raise SystemExit(f"package {package} has no {name}")
    shutil.copy(found, path)


@model(image("x"), {"N": 1, "H": 320, "W": 320}, {"N": 1, "H": 192, "W": 256}, {"N": 2, "H": 96, "W": 128})
def ocr_detect(path):
    copy("rapidocr_onnxruntime", "*det*.onnx", path)


@model(image("x"), {"N": 1, "H": 48, "W": 320}, {"N": 1, "H": 48, "W": 200}, {"N": 3, "H": 48, "W": 96})
def ocr_read(path):
    copy("rapidocr_onnxruntime", "*rec*.onnx", path)


@model(image("x"), {"N": 1, "H": 48, "W": 192}, {"N": 2, "H": 48, "W": 192}, {"N": 3, "H": 48, "W": 192})
def ocr_turn(path):
    copy("rapidocr_onnxruntime", "*cls*.onnx", path)


def voice(rng, N, L, rate):
    return {"input": 0.1 * rng.standard_normal((N, L), dtype=np.float32),
            "state": np.zeros((2, N, 128), np.float32), "sr": np.array(rate)}


VOICE = {"N": 1, "L": 576, "rate": 16000}, {"N": 1, "L": 288, "rate": 8000}, {"N": 2, "L": 576, "rate": 16000}


@model(voice, *VOICE)
def silero_vad(path):
    copy("silero_vad", "silero_vad.onnx", path)


@model(voice, *[s for s in VOICE if s["rate"] == 16000])
def silero_vad_16k(path):
    copy("silero_vad", "silero_vad_16k_op15.onnx", path)
