"""Run a model over given translations: how probable it finds them, and what it looks at while it reads them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mtkit.data.batch import Batch, make_source
from mtkit.models import Memory, TranslationModel, select_rows
from mtkit.search.hypothesis import Hypothesis, finished
from mtkit.search.penalties import LengthPenalty
from mtkit.text.tokenizer import BOS_ID, PAD_ID

_ROWS = 1024  # target positions whose logits are in memory together


@torch.inference_mode()
def force(
    model: TranslationModel,
    memory: Memory,
    translations: Sequence[Sequence[int]],
    *,
    length_penalty: LengthPenalty | None = None,
    need_attention: bool = False,
) -> tuple[list[Hypothesis], list[list[float]]]:
    """The given translations as hypotheses, and the log-probability of each of their tokens, EOS last.

    Args:
        model: in eval mode.
        memory: the sources, as `model.encode` reads them; each may have k translations, one after the other.
        translations: ids without BOS and EOS, k for each source.
        length_penalty: for the scores; by default the mean log-probability of a token.

    Raises: MtkitError when the model's output is not finite.
    """
    if not translations:
        return [], []
    device = memory.src_pad_mask.device
    expected, is_padding = (part.to(device) for part in make_source(translations))  # ends with EOS
    prev = torch.full((len(translations),), BOS_ID, device=device)
    state = model.start(memory)
    k = len(translations) // len(memory.src_pad_mask)
    if k > 1:
        state = select_rows(state, torch.arange(len(memory.src_pad_mask), device=device).repeat_interleave(k))
    per_step: list[Tensor] = []
    attention: list[Tensor] = []
    for token in expected.unbind(1):
        step = model.step(prev, state, memory, need_attention=need_attention)
        per_step.append(step.logits.float().log_softmax(1).gather(1, token[:, None]).squeeze(1))
        if step.attention is not None:
            attention.append(step.attention)
        prev, state = token, step.state
    log_probs = torch.stack(per_step, dim=1).double().masked_fill(is_padding, 0.0).cpu()
    weights = torch.stack(attention, dim=1).cpu() if attention else None  # [rows, trg_len, src_len]
    src_lengths = (~memory.src_pad_mask).sum(1).tolist()
    looked = [
        None if weights is None else weights[row, : len(tokens) + 1, : src_lengths[row // k]]
        for row, tokens in enumerate(translations)
    ]
    return _hypotheses(translations, log_probs, looked, length_penalty)


@torch.inference_mode()
def force_at_once(
    model: TranslationModel,
    batch: Batch,
    translations: Sequence[Sequence[int]],
    *,
    length_penalty: LengthPenalty | None = None,
) -> tuple[list[Hypothesis], list[list[float]]]:
    """What `force` finds, without attention, by one pass over all positions as in training.

    Args:
        model: in eval mode.
        batch: a source for each of the translations, and these.
        translations: ids without BOS and EOS.

    Raises: MtkitError when the model's output is not finite.
    """
    real = batch.trg_out != PAD_ID
    features, tokens = model.features(batch.src, batch.src_pad_mask, batch.trg_in)[real], batch.trg_out[real]
    found = [
        model.output(part).float().log_softmax(1).gather(1, token[:, None]).squeeze(1)
        for part, token in zip(features.split(_ROWS), tokens.split(_ROWS), strict=True)
    ]
    log_probs = torch.zeros(batch.trg_out.shape, dtype=torch.float64)
    log_probs[real.cpu()] = torch.cat(found).double().cpu()
    return _hypotheses(translations, log_probs, [None] * len(translations), length_penalty)


def _hypotheses(
    translations: Sequence[Sequence[int]],
    log_probs: Tensor,
    attention: Sequence[Tensor | None],
    length_penalty: LengthPenalty | None,
) -> tuple[list[Hypothesis], list[list[float]]]:
    """`log_probs` [rows, trg_len] are 0 at padding."""
    length_penalty = length_penalty or LengthPenalty()
    hypotheses, tokens_of = [], []
    for row, tokens in enumerate(translations):
        total = log_probs[row].sum().item()
        hypotheses.append(finished(list(tokens), total, total / length_penalty(len(tokens) + 1), attention[row]))
        tokens_of.append(log_probs[row, : len(tokens) + 1].tolist())
    return hypotheses, tokens_of
