"""What a model is, as facts that a reader or a program can use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mtkit.checkpoint import load_model
from mtkit.train.log import read_metrics


def describe(folder: Path) -> dict[str, Any]:
    """Name, backend, sizes, vocabulary and the last dev scores of a model.

    Raises: ModelError when the folder holds none.
    """
    loaded = load_model(folder)
    recipe, tokenizers = loaded.recipe, loaded.tokenizers
    facts: dict[str, Any] = {
        "name": recipe.name,
        "languages": f"{recipe.data.src} → {recipe.data.trg}",
        "model": ", ".join(f"{key} {value}" for key, value in recipe.model.items()),
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "attention": loaded.model.has_attention,
        "vocabulary": f"{recipe.text.subword}, {tokenizers.src.vocab_size:,} tokens"
        + ("" if tokenizers.shared else f" and {tokenizers.trg.vocab_size:,} tokens"),
        "checkpoint": loaded.name,
    }
    facts.update(_dev_scores(loaded.folder, loaded.name))
    search = recipe.search
    facts["search"] = f"beam {search.beam_size}, length penalty {search.length_penalty} ({search.length_normalization})"
    return facts


def _dev_scores(run: Path, checkpoint: str) -> dict[str, Any]:
    """The dev scores reported for a checkpoint, where the log of the run is still beside the model."""
    found = [entry for entry in read_metrics(run) if entry.get("checkpoint") == checkpoint]
    if not found:
        return {}
    return {
        "dev BLEU (greedy)": round(found[-1]["dev_bleu"], 2),
        "dev loss (nats)": round(found[-1]["dev_loss_nats"], 4),
        "trained for (minutes)": found[-1]["minutes"],
    }
