"""Greedy search: the best token at each step."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from mtkit.models import Memory, TranslationModel, select_rows
from mtkit.search.hypothesis import Hypothesis, best_tokens, finished
from mtkit.search.penalties import LengthPenalty, coverage_penalty
from mtkit.text.tokenizer import BOS_ID, EOS_ID


@torch.inference_mode()
def greedy_search(
    model: TranslationModel,
    memory: Memory,
    max_lengths: Tensor,
    *,
    length_penalty: LengthPenalty | None = None,
    coverage_beta: float = 0.0,
    need_attention: bool = False,
    allow_unknown: bool = False,
) -> list[Hypothesis]:
    """The translation of each sentence that takes the most probable token at every step, up to the first EOS.

    Sentences that have ended leave the batch. A sentence that has reached its longest length ends there: its EOS
    counts with the probability that the model gives it.

    Args:
        model: in eval mode.
        memory: the sources, as `model.encode` reads them.
        max_lengths: [batch], the most tokens of each translation, EOS not counted.
        length_penalty, coverage_beta: only for the score of the result, see `beam_search`.
        need_attention: keep the attention of each step.
        allow_unknown: let UNK be chosen.

    Raises: MtkitError when the model's output is not finite.
    """
    src_pad_mask = memory.src_pad_mask
    n_sentences = len(src_pad_mask)
    if n_sentences == 0:
        return []
    length_penalty = length_penalty or LengthPenalty()
    src_lengths = (~src_pad_mask).sum(1).tolist()
    limits: list[int] = max_lengths.tolist()

    tokens: list[list[int]] = [[] for _ in range(n_sentences)]
    sums = [0.0] * n_sentences
    attention: list[list[Tensor]] = [[] for _ in range(n_sentences)]

    state = model.start(memory)
    prev = torch.full((n_sentences,), BOS_ID, device=src_pad_mask.device)
    live = list(range(n_sentences))  # row -> sentence
    for length in itertools.count():
        step = model.step(prev, state, memory, need_attention=need_attention or coverage_beta > 0)
        log_probs = step.logits.float().log_softmax(1)
        choices, choice_tokens = best_tokens(log_probs, 1, allow_unknown=allow_unknown)
        best, position = choices.max(1)
        prev = choice_tokens.gather(1, position[:, None]).squeeze(1)
        at_limit = [row for row, sentence in enumerate(live) if limits[sentence] <= length]
        if at_limit:
            rows = torch.tensor(at_limit, device=src_pad_mask.device)
            prev = prev.index_fill(0, rows, EOS_ID)
            best = best.index_copy(0, rows, log_probs[rows, EOS_ID])

        staying = []
        for row, (sentence, token, log_prob) in enumerate(zip(live, prev.tolist(), best.tolist(), strict=True)):
            sums[sentence] += log_prob
            if step.attention is not None:
                attention[sentence].append(step.attention[row, : src_lengths[sentence]])
            if token != EOS_ID and math.isfinite(log_prob):
                tokens[sentence].append(token)
                staying.append(row)
        if not staying:
            break
        state = step.state
        if len(staying) < len(live):
            rows = torch.tensor(staying, device=src_pad_mask.device)
            prev, state, memory = select_rows((prev, state, memory), rows)
            live = [live[row] for row in staying]

    def hypothesis(i: int) -> Hypothesis:
        stacked = torch.stack(attention[i]).cpu() if attention[i] else None
        score = sums[i] / length_penalty(len(tokens[i]) + 1)
        if coverage_beta and stacked is not None:
            score += coverage_penalty(stacked[:, :-1].sum(0), torch.ones(()).bool(), coverage_beta).item()
        return finished(tokens[i], sums[i], score, stacked if need_attention else None)

    return [hypothesis(i) for i in range(n_sentences)]
