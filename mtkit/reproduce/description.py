"""What a model is, and what the backends offer, as facts that a reader or a program can use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from mtkit import models
from mtkit.checkpoint import checkpoints_folder, load_model, read_state
from mtkit.text.tokenizer import EOS_ID, PAD_ID
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
        "update": loaded.update,
    }
    if averaged := read_state(checkpoints_folder(loaded.folder) / loaded.name).get("average_of"):
        facts["average of the updates"] = ", ".join(f"{update:,}" for update in averaged)
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


class PresetFacts(NamedTuple):
    """One preset of one backend."""

    backend: str
    preset: str
    paper: models.Paper
    parameters: int
    attention: bool  # whether it can align its translation with the source
    state_numbers: int  # what decoding keeps of the target before its first token, a sentence
    state_numbers_per_token: int  # and for each token more; 0 = the state never grows


class SettingFacts(NamedTuple):
    """One key that a recipe's model section may have."""

    key: str
    default: Any
    values: str  # which are allowed, in words
    description: str


def describe_presets(vocab_size: int, backends: list[str] | None = None) -> list[PresetFacts]:
    """Every preset at one vocabulary size on both sides, counted on models without memory.

    Raises: RequestError for an unknown backend.
    """
    names = backends or models.available()
    return [_preset_facts(name, preset, vocab_size) for name in names for preset in models.load(name).PRESETS]


def describe_settings(backend: str) -> list[SettingFacts]:
    """The keys of a backend's model section, type and preset aside.

    Raises: RequestError for an unknown backend.
    """
    fields = models.load(backend).Config.model_json_schema()["properties"]
    return [
        SettingFacts(key, field.get("default"), _values(field), field["description"]) for key, field in fields.items()
    ]


def _values(schema: dict[str, Any]) -> str:
    """The values that a JSON Schema allows, in words."""
    if "anyOf" in schema:
        return " or ".join(map(_values, schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema["type"] == "array":
        return f"list, each {_values(schema['items'])}"
    if schema["type"] == "boolean":
        return "true | false"
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[key]:g}" for key, sign in signs.items() if key in schema]
    return " ".join([schema["type"], ", ".join(bounds)]).rstrip()


def _preset_facts(backend: str, preset: str, vocab_size: int) -> PresetFacts:
    section = {"type": backend, "preset": preset}
    with torch.device("meta"):
        model = models.build(section, vocab_size, vocab_size, PAD_ID)
    sizes = _state_sizes(section)
    return PresetFacts(
        backend,
        preset,
        models.load(backend).PAPER,
        sum(parameter.numel() for parameter in model.parameters()),
        model.has_attention,
        2 * sizes[0] - sizes[1],
        sizes[1] - sizes[0],
    )


def _state_sizes(section: dict[str, Any]) -> tuple[int, int]:
    """Numbers in the decoder state of one sentence after the first and after the second target token."""
    with FakeTensorMode(), torch.no_grad():
        model = models.build(section, 8, 8, PAD_ID).eval()
        memory = model.encode(torch.full((1, 8), EOS_ID), torch.zeros(1, 8, dtype=torch.bool))
        first = model.step(torch.full((1,), EOS_ID), model.start(memory), memory).state
        second = model.step(torch.full((1,), EOS_ID), first, memory).state
    return _count(first), _count(second)


def cache_numbers_per_token(section: dict[str, Any]) -> int:
    """Numbers that decoding with a recipe's model section keeps for each target token, in all layers."""
    first, second = _state_sizes(section)
    return second - first


def _count(state: Any) -> int:
    """Numbers in nested tuples of tensors."""
    if isinstance(state, Tensor):
        return state.numel()
    return sum(map(_count, state)) if isinstance(state, tuple) else 0
