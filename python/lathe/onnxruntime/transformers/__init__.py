"""The tools for transformers: only what says types of bindings is here."""
