"""The attention of one sentence pair, named and chosen as a reader asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mtkit.analyze.attention_maps import TOP, AttentionMap, attention_maps
from mtkit.checkpoint import LoadedModel, load_model
from mtkit.data.batch import make_batch
from mtkit.errors import RequestError
from mtkit.search.translator import Rendering, Translator
from mtkit.text.tokenizer import SPECIALS
from mtkit.train.precision import resolve_device

Part = Literal["cross", "encoder", "decoder"]
_SITES = {"cross": "cross_attention", "encoder": "self_attention", "decoder": "self_attention"}
_BOS, _EOS = SPECIALS[2], SPECIALS[3]


class View(NamedTuple):
    """Some maps of one sentence pair; all have the same tokens on their axes."""

    target: str
    columns: list[str]
    rows: list[str]
    axes_names: tuple[str, str]  # of the columns and of the rows
    maps: list[tuple[str, Tensor]]  # name and weights [rows, columns]
    n_heads: int  # maps of one layer stand next to each other


def view_attention(
    folder: Path,
    source: str,
    target: str | None = None,
    *,
    part: Part = "cross",
    layer: int | None = None,
    head: int | None = None,
    every: bool = False,
    device: str = "auto",
) -> View:
    """What a model looks at while it reads a pair, or writes its own translation.

    Args:
        target: None: the model's best translation.
        part: of a Transformer: over the source, or the self-attention of one side.
        layer, head: from 1. Without a layer, the one that follows word alignments best, the one below the last of a
            Transformer's decoder; without a head, the mean over the heads.
        every: one map for each head of every layer.

    Raises: ModelError; RequestError for a model without attention, a layer or head that is not there, an empty source.
    """
    loaded = load_model(folder, device=resolve_device(device))
    if not loaded.model.has_attention:
        raise RequestError(f"{folder}: {loaded.recipe.model['type']} has no attention to show")
    if not source.strip():
        raise RequestError("the source is empty: there is nothing to look at")
    tokenizers = loaded.tokenizers
    if target is None:
        # Its text cut into tokens once more might be others than those that the model wrote, <unk> above all.
        best = _translate(loaded, source)
        target, trg_tokens = best.text, best.tokens
        trg_ids = [tokenizers.trg.ids(trg_tokens)]
    else:
        trg_tokens, trg_ids = tokenizers.trg.split([target])[0], tokenizers.trg.encode([target])
    batch = make_batch(tokenizers.src.encode([source]), trg_ids).to(next(loaded.model.parameters()).device)
    maps = _of_part(attention_maps(loaded.model, batch)[0], part, folder)
    src_tokens = [*tokenizers.src.split([source])[0], _EOS]
    read, written = [_BOS, *trg_tokens], [*trg_tokens, _EOS]
    columns, rows = {"cross": (src_tokens, written), "encoder": (src_tokens, src_tokens), "decoder": (read, read)}[part]
    names = {"cross": ("source", "target"), "encoder": ("source", "source"), "decoder": ("target read", "target read")}
    layers = list(dict.fromkeys(each.layer for each in maps))
    n_heads = sum(each.layer == layers[0] for each in maps)
    chosen = maps if every else _choose(maps, layers, layer, head)
    titles = [(_title(each, layers, mean=not every and head is None and n_heads > 1), each.weights) for each in chosen]
    return View(target, columns, rows, names[part], titles, n_heads)


def _translate(loaded: LoadedModel, source: str) -> Rendering:
    translator = Translator.of(
        loaded.model, loaded.tokenizers, loaded.recipe.search, device=next(loaded.model.parameters()).device
    )
    return translator.translate([source])[0].hypotheses[0]


def _of_part(maps: list[AttentionMap], part: Part, folder: Path) -> list[AttentionMap]:
    """The maps of one part of a Transformer; other backends have one map, over the source."""
    if maps[0].layer == TOP:
        if part != "cross":
            raise RequestError(f"--part {part}: {folder} attends to the source alone")
        return maps
    side = "encoder" if part == "encoder" else "decoder"
    return [each for each in maps if each.layer.startswith(side) and each.layer.endswith(_SITES[part])]


def _choose(maps: list[AttentionMap], layers: list[str], layer: int | None, head: int | None) -> list[AttentionMap]:
    """The one map of a layer and head; without a head, the mean of the layer's heads."""
    if layer is not None and layer > len(layers):
        raise RequestError(f"--layer {layer}: there are the layers 1 to {len(layers)}")
    name = layers[max(0, len(layers) - 2) if layer is None else layer - 1]
    heads = [each for each in maps if each.layer == name]
    if head is None:
        return [heads[0]._replace(weights=torch.stack([each.weights for each in heads]).mean(0))]
    if head > len(heads):
        raise RequestError(f"--head {head}: there are the heads 1 to {len(heads)}")
    return [heads[head - 1]]


def _title(each: AttentionMap, layers: list[str], *, mean: bool) -> str:
    if each.layer == TOP:
        return "attention"
    return f"layer {layers.index(each.layer) + 1}, {'mean of the heads' if mean else f'head {each.head + 1}'}"
