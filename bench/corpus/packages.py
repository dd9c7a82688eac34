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


@model(image("images"), {"N": 1, "H": 320, "W": 320}, {"N": 1, "H": 192, "W": 256}, {"N": 2, "H": 96, "W": 128})
def yolov8(path):
    copy("nudenet", "320n.onnx", path)


def file_start(rng, N):
    return {"bytes": rng.integers(0, 257, (N, 2048), dtype=np.int32)}


@model(file_start, {"N": 1}, {"N": 2}, {"N": 3})
def file_types(path):
    copy("magika", "model.onnx", path)


def waves(rng, N, L):
    return {"waveforms": 0.1 * rng.standard_normal((N, L), dtype=np.float32),
            "waveforms_lens": np.full(N, L) - np.arange(N)}


WAVES = {"N": 1, "L": 16000}, {"N": 1, "L": 9001}, {"N": 3, "L": 4000}


@model(waves, *WAVES)
def mel_stft(path):
    copy("onnx_asr", "nemo80.onnx", path)


@model(waves, *WAVES)
def mel_conv(path):
    copy("onnx_asr", "nemo80_conv.onnx", path)


def letters(rng, N, L):
    return {"input_1": rng.integers(1, 40, (N, L)).astype(np.float32)}


@model(letters, {"N": 1, "L": 80}, {"N": 2, "L": 31}, {"N": 1, "L": 1})
def vowels(path):
    copy("piper", "nakdimon.onnx", path)


def rated(rng, N, L):
    return {"degraded_audio": rng.standard_normal((N, 1, L, 257), dtype=np.float32),
            "rater_embed": rng.standard_normal((N, 64), dtype=np.float32)}


@model(rated, {"N": 1, "L": 120}, {"N": 1, "L": 77}, {"N": 2, "L": 50})
def speech_quality(path):
    copy("speechmos", "plcmos_v2.onnx", path)
