"""Not here: importing it says so."""

raise ImportError("lathe.onnxruntime has no quantization: quantize with the package onnxruntime or with `lathe`, and load the result here")
