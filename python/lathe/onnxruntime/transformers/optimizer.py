"""Not here: importing it says so."""

raise ImportError(
    "lathe.onnxruntime has no transformers.optimizer: Lathe fuses what it rewrites; to change a "
    "model, use it from the package onnxruntime"
)
