"""The texts that models have learned from, as reports name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mtkit.recipe import DataSection, FilePair

SCORED_ON = "scored on "
"""Begins a report's line of the test set that its scores are of."""


def text_name(source: str | FilePair, data: DataSection) -> str:
    """A bitext as a reader can find it, with its languages."""
    languages = f"({data.src}-{data.trg})"
    if isinstance(source, str) and source.startswith(("hub:", "synthetic:")):
        return f"{source} {languages}"
    files = [source] if isinstance(source, str) else [source.src, source.trg]
    return f"{', '.join(str(Path(data.root or '') / file) for file in files)} {languages}"


def learned_from(
    learners: Sequence[tuple[str, DataSection]], name: Callable[[str | FilePair, DataSection], str] = text_name
) -> list[str]:
    """Training and dev texts, each once, with the learners' labels where not all of them have read it."""
    found: dict[str, list[str]] = {}
    for label, data in learners:
        share = f", {100 * data.share:g}% of it" if data.share < 1 else ""
        texts = [f"train: {name(source, data)}{share}" for source in data.train_bitexts]
        for text in (*texts, f"dev: {name(data.dev, data)}"):
            found.setdefault(text, []).append(label)
    return [
        text if len(labels) == len(learners) else f"{text}, for {'; '.join(labels)}" for text, labels in found.items()
    ]
