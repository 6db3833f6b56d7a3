"""mtkit: train, run and compare the translators that lead from the first encoder-decoder to the Transformer."""

__version__ = "0.1.0"
