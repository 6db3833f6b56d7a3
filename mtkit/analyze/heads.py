"""Attention heads taken away: masks, and how much a loss would feel it (Michel, Levy and Neubig 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtkit.data.batch import Batch
from mtkit.models import TranslationModel, in_eval_mode
from mtkit.nn.attention import MultiHeadAttention
from mtkit.text.tokenizer import PAD_ID


class Head(NamedTuple):
    """One head of one attention layer."""

    site: str  # the module's name, such as encoder.0.self_attention
    number: int  # from 0


def attention_sites(model: TranslationModel) -> dict[str, MultiHeadAttention]:
    """The attention layers of a model, by their names, in its own order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)}


def all_heads(model: TranslationModel) -> list[Head]:
    return [Head(site, number) for site, module in attention_sites(model).items() for number in range(module.n_heads)]


@contextmanager
def heads_scaled(model: TranslationModel, factors: dict[str, Tensor]) -> Iterator[None]:
    """While the context lasts, what head i of a layer gives to W^O is multiplied by factors[layer][i]."""
    handles = []
    for site, module in attention_sites(model).items():
        if site not in factors:
            continue

        def scale(output: nn.Module, args: tuple[Any, ...], factor: Tensor = factors[site]) -> tuple[Tensor]:
            (joined,) = args  # [..., n_heads * d_head]
            return ((joined.unflatten(-1, (len(factor), -1)) * factor[:, None].to(joined.dtype)).flatten(-2),)

        handles.append(module.output.register_forward_pre_hook(scale))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def heads_removed(model: TranslationModel, heads: Sequence[Head]) -> Iterator[None]:
    """While the context lasts, these heads give nothing."""
    factors = {site: torch.ones(module.n_heads) for site, module in attention_sites(model).items()}
    for head in heads:
        factors[head.site][head.number] = 0
    device = next(model.parameters()).device
    with heads_scaled(model, {site: factor.to(device) for site, factor in factors.items()}):
        yield


def head_importance(model: TranslationModel, batches: Sequence[Batch]) -> dict[Head, float]:
    """The mean over the sentence pairs of |d loss / d mask| for each head, the loss of a pair in nats per target token
    (eq. 2 there). Each pair is asked on its own: within a batch, slopes of unlike sign would cancel.
    """
    device = next(model.parameters()).device
    sites = attention_sites(model)
    factors = {site: torch.ones(module.n_heads, device=device, requires_grad=True) for site, module in sites.items()}
    totals = {site: torch.zeros(module.n_heads, device=device) for site, module in sites.items()}
    pairs = [Batch(*(part[row : row + 1] for part in batch)) for batch in batches for row in range(len(batch.src))]
    with in_eval_mode(model), heads_scaled(model, factors):
        for pair in pairs:
            logits = model(pair.src, pair.src_pad_mask, pair.trg_in).float()
            loss = F.cross_entropy(logits.flatten(0, 1), pair.trg_out.flatten(), ignore_index=PAD_ID)
            gradients = torch.autograd.grad(loss, list(factors.values()))
            for site, gradient in zip(factors, gradients, strict=True):
                totals[site] += gradient.abs()
    return {head: (totals[head.site][head.number] / len(pairs)).item() for head in all_heads(model)}
