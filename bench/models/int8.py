"""Yardsticks as onnxruntime's quantizer writes them: convolutional networks with pairs of
QuantizeLinear and DequantizeLinear, BERT with weights alone in advance."""

import logging
import shutil
import tempfile
from pathlib import Path

import onnx

from race import samples

STATIC, DYNAMIC = ("resnet50", "mobilenet_v2"), ("bert",)
OPSET = 13  # from which scales may be one a channel


class OneSample:
    """Calibration data, which is enough for random weights."""

    def __init__(self, feeds):
        self.left = [feeds]

    def get_next(self):
        return self.left.pop() if self.left else None


def quantize_static(folder, target):
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(OneSample, quantization.CalibrationDataReader):
        pass

    with tempfile.TemporaryDirectory() as place:
        newer, ready = Path(place) / "newer.onnx", Path(place) / "ready.onnx"
        model = onnx.load(str(folder / "model.onnx"))
        if model.opset_import[0].version < OPSET:
            model = onnx.version_converter.convert_version(model, OPSET)
        onnx.save(model, str(newer))
        quant_pre_process(newer, ready, skip_symbolic_shape=True)
        feeds = {name: value for name, (_, value) in samples(folder, "input").items()}
        quantization.quantize_static(ready, target, Reader(feeds), quant_format=quantization.QuantFormat.QDQ,
                                     per_channel=True)


def quantize_dynamic(folder, target):
    from onnxruntime import quantization

    quantization.quantize_dynamic(folder / "model.onnx", target, per_channel=True,
                                  weight_type=quantization.QuantType.QUInt8)


def ensure_int8(folder):
    """The folder of the quantized model, made if missing; None if this model is not measured so."""
    if folder.name not in STATIC + DYNAMIC:
        return None
    made = folder.with_name(f"{folder.name}_int8")
    if not (made / "test_data_set_0").exists():
        logging.getLogger().setLevel(logging.ERROR)  # it warns of what it has done
        made.mkdir(exist_ok=True)
        quantize = quantize_static if folder.name in STATIC else quantize_dynamic
        quantize(folder, made / "model.onnx")
        shutil.copytree(folder / "test_data_set_0", made / "test_data_set_0")
    return made
