"""What a search returns, and the choice of next tokens that all searches share."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mtkit.errors import DivergedError
from mtkit.text.tokenizer import BOS_ID, PAD_ID, UNK_ID


class Hypothesis(NamedTuple):
    """A complete translation of one sentence."""

    tokens: list[int]  # without EOS
    log_prob: float  # nats, EOS included; never above 0
    score: float  # log_prob / length penalty, plus the coverage penalty: what hypotheses are ranked by
    attention: Tensor | None = None  # [trg_len + 1, src_len], EOS row and EOS column last; no padding columns


def best_tokens(log_probs: Tensor, count: int, *, allow_unknown: bool) -> tuple[Tensor, Tensor]:
    """The best `count` tokens of each row that a translation may hold, and maybe a few worse ones.

    PAD, BOS and (unless allowed) UNK are left out of the choice, but keep their share of the probability: a
    translation's log-probability is the model's own, the same in every search and when it is scored as given.

    Args:
        log_probs: [rows, trg_vocab], after the softmax over the whole vocabulary.

    Returns: log-probabilities and tokens, both [rows, >= count] (the vocabulary permitting); -inf where the choice
    is forbidden, in no promised order.
    """
    forbidden = (PAD_ID, BOS_ID) if allow_unknown else (PAD_ID, BOS_ID, UNK_ID)
    # Room for the forbidden among the best is cheaper than a copy of all log-probabilities with three columns changed.
    best, tokens = log_probs.topk(min(count + len(forbidden), log_probs.shape[1]), dim=1)
    is_forbidden = torch.zeros_like(tokens, dtype=torch.bool)
    for token in forbidden:
        is_forbidden |= tokens == token
    return best.masked_fill(is_forbidden, -math.inf), tokens


def finished(tokens: list[int], log_prob: float, score: float, attention: Tensor | None = None) -> Hypothesis:
    """The hypothesis, checked.

    Raises: DivergedError when the model gave no finite number, as broken weights do.
    """
    if not math.isfinite(log_prob):
        raise DivergedError(
            f"the model gives a log-probability of {log_prob}: its weights are damaged, or training diverged; "
            "use an earlier checkpoint"
        )
    return Hypothesis(tokens, log_prob, score, attention)
