"""Not here: importing it says so."""

raise ImportError("lathe.onnxruntime has no training: train with lathe.Trainer")
