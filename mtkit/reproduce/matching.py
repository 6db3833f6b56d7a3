"""Sizes at which unlike systems have about as many parameters."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import torch

from mtkit import models
from mtkit.recipe import Recipe
from mtkit.text.tokenizer import PAD_ID

# The widths of each backend, as keys of its model section; lists are lists of widths. All shrink and grow together.
_WIDTHS = {
    "seq2seq": ("d_embedding", "d_hidden"),
    "rnnencdec": ("d_embedding", "d_encoder", "d_hidden", "d_maxout"),
    "rnnsearch": ("d_embedding", "d_encoder", "d_hidden", "d_attention", "d_maxout"),
    "luong": ("d_embedding", "d_hidden"),
    "convs2s": ("d_embedding", "encoder_widths", "decoder_widths"),
    "transformer": ("d_model", "d_ff"),
}
_STEP = 16  # widths are multiples of it: every number of heads up to 16 divides them
_FACTORS = [number / 100 for number in range(25, 401)]


def count_parameters(section: dict[str, Any], recipe: Recipe) -> int:
    """Parameters of a model section with a recipe's vocabulary sizes, counted without memory."""
    text = recipe.text
    trg_size = text.vocab_size if text.trg_vocab_size is None else text.trg_vocab_size
    with torch.device("meta"):
        model = models.build(section, text.vocab_size, trg_size, PAD_ID)
    return sum(parameter.numel() for parameter in model.parameters())


def matched_widths(recipe: Recipe, n_parameters: int) -> dict[str, Any]:
    """The widths, scaled together, with which a recipe's model comes nearest to so many parameters."""
    section = dict(recipe.model)

    def widths_at(factor: float) -> dict[str, Any]:
        return {key: _scaled(section[key], factor) for key in _WIDTHS[section["type"]]}

    def size(factor: float) -> int:
        return count_parameters({**section, **widths_at(factor)}, recipe)

    above = bisect_left(_FACTORS, n_parameters, key=size)
    near = _FACTORS[max(0, above - 1) : above + 1]
    return widths_at(min(near, key=lambda factor: abs(size(factor) - n_parameters)))


def _scaled(width: Any, factor: float) -> Any:
    if isinstance(width, (list, tuple)):
        return [_scaled(each, factor) for each in width]
    return max(_STEP, round(width * factor / _STEP) * _STEP)
