"""The extension module under the name by which onnxruntime's own modules import it."""

from lathe.onnxruntime.capi.onnxruntime_pybind11_state import *
