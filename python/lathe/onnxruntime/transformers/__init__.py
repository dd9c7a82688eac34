"""Not here: importing it says so."""

raise ImportError("lathe.onnxruntime has no transformers: Lathe fuses what these tools rewrite; use them from the package onnxruntime where a model is to be changed")
