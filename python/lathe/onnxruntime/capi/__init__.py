"""Modules of onnxruntime that client code imports from, with what is theirs here."""

from lathe.onnxruntime.capi import (
    _pybind_state,
    onnxruntime_inference_collection,
    onnxruntime_pybind11_state,
    onnxruntime_validation,
)
