"""Not here: importing it says so."""

raise ImportError("lathe.onnxruntime has no tools: use them from the package onnxruntime")
