"""All attention that a model pays while it reads a sentence pair, layer by layer and head by head."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mtkit.analyze.heads import attention_sites
from mtkit.data.batch import Batch
from mtkit.models import TranslationModel, in_eval_mode
from mtkit.text.tokenizer import PAD_ID

TOP = "attention"
"""The layer of a model that has but one map: RNNsearch, Luong, ConvS2S (there the mean over its decoder layers)."""


class AttentionMap(NamedTuple):
    """What one head of one layer looks at, of one sentence pair."""

    layer: str  # encoder.0.self_attention, decoder.1.cross_attention, …, or TOP
    head: int  # from 0
    weights: Tensor  # [rows, columns], fp32: a row for each position that asks, a column for each that is looked at

    @property
    def of_source(self) -> bool:
        """Whether columns are source tokens."""
        return not self.layer.startswith("decoder") or "cross" in self.layer

    @property
    def from_source(self) -> bool:
        """Whether rows are source tokens."""
        return self.layer.startswith("encoder")


@torch.no_grad()
def attention_maps(model: TranslationModel, batch: Batch) -> list[list[AttentionMap]]:
    """For each sentence pair of the batch, every map; teacher forcing, in eval mode, without padding.

    Target rows are the positions that predict: the first has read BOS, the last predicts EOS. Target columns are what
    has been read, BOS first.
    """
    with in_eval_mode(model):
        found = _all_layers(model, batch) if attention_sites(model) else {TOP: _steps(model, batch)}
    src_lengths = (~batch.src_pad_mask).sum(1).tolist()
    trg_lengths = (batch.trg_out != PAD_ID).sum(1).tolist()
    pairs = []
    for row, (src_len, trg_len) in enumerate(zip(src_lengths, trg_lengths, strict=True)):
        maps = []
        for layer, weights in found.items():
            probe = AttentionMap(layer, 0, weights)
            n_rows = src_len if probe.from_source else trg_len
            n_columns = src_len if probe.of_source else trg_len
            maps += [
                AttentionMap(layer, head, weights[row, head, :n_rows, :n_columns].float().cpu())
                for head in range(weights.size(1))
            ]
        pairs.append(maps)
    return pairs


def _all_layers(model: TranslationModel, batch: Batch) -> dict[str, Tensor]:
    """[batch, heads, rows, columns] for each layer."""
    with _recording(model) as weights:
        model(batch.src, batch.src_pad_mask, batch.trg_in)
    return weights


@contextmanager
def _recording(model: TranslationModel) -> Iterator[dict[str, Tensor]]:
    """While the context lasts, every attention layer makes its weights and leaves them here."""
    weights: dict[str, Tensor] = {}

    def recorder(site: str, context: Any) -> Any:
        @functools.wraps(context)
        def record(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, _need: bool) -> Any:
            found, weights[site] = context(queries, keys, values, mask, True)
            return found, weights[site]

        return record

    sites = attention_sites(model)
    for site, module in sites.items():
        module.context = recorder(site, module.context)  # type: ignore[method-assign]
    try:
        yield weights
    finally:
        for module in sites.values():
            del module.context


def _steps(model: TranslationModel, batch: Batch) -> Tensor:
    """[batch, 1, trg_len, src_len], of a model with one map."""
    memory = model.encode(batch.src, batch.src_pad_mask)
    state, rows = model.start(memory), []
    for prev in batch.trg_in.unbind(1):
        step = model.step(prev, state, memory, need_attention=True)
        assert step.attention is not None
        state = step.state
        rows.append(step.attention)
    return torch.stack(rows, dim=1)[:, None]
