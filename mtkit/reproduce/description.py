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
        "update": loaded.update,
    }
    facts.update(_last_dev_scores(loaded.folder, loaded.update))
    search = recipe.search
    facts["search"] = f"beam {search.beam_size}, length penalty {search.length_penalty} ({search.length_normalization})"
    return facts


def _last_dev_scores(run: Path, update: int) -> dict[str, Any]:
    """The dev scores reported for one update, where the log of the run is still beside the model."""
    found = [entry for entry in read_metrics(run) if entry["update"] == update and "dev_bleu" in entry]
    if not found:
        return {}
    best = max(found, key=lambda entry: entry["dev_bleu"])
    return {
        "dev BLEU (greedy)": round(best["dev_bleu"], 2),
        "dev loss (nats)": round(best["dev_loss_nats"], 4),
        "trained for (minutes)": best["minutes"],
    }
