"""Models of the other files as onnxruntime's quantizer writes them: with pairs of QuantizeLinear and
DequantizeLinear (qdq), with operators on integers (qop), with weights alone in advance (dynamic), and
with weights in blocks of 32 (bits), by which rows of 8 bits are multiplied, as its decoders have them."""

import logging
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic,
                                      quantize_static)
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.quantization.shape_inference import quant_pre_process

import audio  # noqa: F401 (these register the models)
import language  # noqa: F401
import variety  # noqa: F401
import vision  # noqa: F401
from kit import MODELS, Model


class First(CalibrationDataReader):
    """One set of inputs, which is enough for random weights."""

    def __init__(self, feeds):
        self.left = [feeds]

    def get_next(self):
        return self.left.pop() if self.left else None


def static(base, form, **options):
    def build(path):
        entry = MODELS[base]
        with tempfile.TemporaryDirectory() as folder:
            whole, ready = Path(folder) / "whole.onnx", Path(folder) / "ready.onnx"
            entry.build(whole)
            quant_pre_process(whole, ready, skip_symbolic_shape=True)
            feeds = entry.feeds(np.random.default_rng(0), **entry.sizes[0])
            quantize_static(ready, path, First(feeds), quant_format=form, **options)

    return build


def dynamic(base, **options):
    def build(path):
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder) / "whole.onnx"
            MODELS[base].build(whole)
            quantize_dynamic(whole, path, **options)

    return build


def blocks(base, bits, **options):
    def build(path):
        logging.getLogger("onnxruntime.quantization.matmul_nbits_quantizer").setLevel(logging.WARNING)
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder) / "whole.onnx"
            MODELS[base].build(whole)
            quantizer = MatMulNBitsQuantizer(onnx.load(whole), bits=bits, block_size=32, accuracy_level=4, **options)
            quantizer.process()
            quantizer.model.save_model_to_file(str(path))

    return build


def add(base, kind, build):
    MODELS[f"{base}_{kind}"] = Model(build, MODELS[base].feeds, MODELS[base].sizes)


QDQ, QOP = QuantFormat.QDQ, QuantFormat.QOperator
UNSIGNED = dict(activation_type=QuantType.QUInt8)
add("resnet18", "qop", static("resnet18", QOP, **UNSIGNED))
add("densenet", "qop", static("densenet", QOP, **UNSIGNED))
add("mobilenet_v2", "qdq", static("mobilenet_v2", QDQ, per_channel=True))
add("efficientnet_b0", "qdq", static("efficientnet_b0", QDQ, **UNSIGNED))
add("segformer", "qdq", static("segformer", QDQ))
add("distilbert", "qdq", static("distilbert", QDQ))
add("bert", "dynamic", dynamic("bert", per_channel=True, weight_type=QuantType.QUInt8))
add("resnet18", "dynamic", dynamic("resnet18"))
add("lstm_tagger", "dynamic", dynamic("lstm_tagger"))
add("llama", "4bits", blocks("llama", 4, is_symmetric=True))
add("qwen3", "4bits", blocks("qwen3", 4, is_symmetric=False))
add("vit", "8bits", blocks("vit", 8, is_symmetric=True))
