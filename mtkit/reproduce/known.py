"""Sentence pairs without an unknown word: the second column of the tables of 2014 and 2015 (Bahdanau et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence

from mtkit.text.tokenizer import UNK_ID, Tokenizers


def known_rows(tokenizers: Tokenizers, sources: Sequence[str], references: Sequence[str]) -> list[int]:
    """The rows whose source and reference the vocabularies hold whole."""
    sides = zip(tokenizers.src.encode(sources), tokenizers.trg.encode(references), strict=True)
    return [row for row, (src, trg) in enumerate(sides) if UNK_ID not in src and UNK_ID not in trg]
