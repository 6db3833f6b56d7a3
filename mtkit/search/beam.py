"""Beam search: expand, collect finished, keep alive what can still win."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from mtkit.errors import RequestError
from mtkit.models import Memory, TranslationModel, select_rows
from mtkit.search.greedy import greedy_search
from mtkit.search.hypothesis import Hypothesis, best_tokens, finished
from mtkit.search.penalties import LengthPenalty, counted_for_coverage, coverage_penalty
from mtkit.text.tokenizer import BOS_ID, EOS_ID


class Kept(NamedTuple):
    """The best finished hypotheses of each sentence, best first; a place that is still free scores -inf.

    A hypothesis is its last link: `slot` of the beam when it held `length` tokens. The history gives the rest.
    """

    score: Tensor  # [sentences, n_best]
    log_prob: Tensor  # [sentences, n_best]
    length: Tensor  # [sentences, n_best], tokens without EOS
    slot: Tensor  # [sentences, n_best]


class Generation(NamedTuple):
    """The beams that held the same number of tokens."""

    sentences: Tensor  # [live], the sentence of each row
    tokens: Tensor  # [live, width], the newest token
    parents: Tensor  # [live, width], slot in the generation before
    attention: Tensor | None  # [live, width, src_len], while the next token was chosen


class Candidates(NamedTuple):
    """The best continuations of each sentence, best first."""

    log_prob: Tensor  # [live, n], of all tokens so far; -inf = no continuation
    token: Tensor  # [live, n]
    parent: Tensor  # [live, n], slot in the beam


@torch.inference_mode()
def beam_search(
    model: TranslationModel,
    memory: Memory,
    max_lengths: Tensor,
    *,
    beam_size: int,
    length_penalty: LengthPenalty | None = None,
    coverage_beta: float = 0.0,
    n_best: int = 1,
    need_attention: bool = False,
    allow_unknown: bool = False,
) -> list[list[Hypothesis]]:
    """The `n_best` translations of each sentence with the best scores that a beam of `beam_size` meets, best first.

    Each step draws the best 2 x beam_size continuations of a sentence. Those that end with EOS are finished; the best
    beam_size of the others live on, so that EOS never narrows the beam. A sentence ends when nothing alive can still
    beat the worst of its `n_best` finished hypotheses: log-probabilities only fall, so the score of a live hypothesis
    is bounded by its log-probability over the penalty of the longest length, and coverage only takes away. Stopping
    early thus never changes the result. The beam narrows by the same bound, which is exact too: what can no longer win
    is behind in log-probability, and could only crowd out candidates that are further behind.

    A hypothesis of the longest length must end: its EOS counts with the probability that the model gives it.
    beam_size 1 is greedy search, which commits to the first EOS; fewer than n_best hypotheses come back when the beam
    finishes no more.

    Args:
        model: in eval mode.
        memory: the sources, as `model.encode` reads them.
        max_lengths: [batch], the most tokens of each translation, EOS not counted.
        length_penalty: by default the mean log-probability of a token.
        coverage_beta: weight of `coverage_penalty`, which is added to the score; above 0 it needs attention.
        need_attention: keep the attention of each step.
        allow_unknown: let UNK be chosen.

    Raises: RequestError when n_best is larger than beam_size; MtkitError when the model's output is not finite.
    """
    if not 1 <= n_best <= beam_size:
        raise RequestError(f"n-best {n_best} needs a beam of at least {n_best}, got {beam_size}")
    length_penalty = length_penalty or LengthPenalty()
    if beam_size == 1:
        best = greedy_search(
            model,
            memory,
            max_lengths,
            length_penalty=length_penalty,
            coverage_beta=coverage_beta,
            need_attention=need_attention,
            allow_unknown=allow_unknown,
        )
        return [[hypothesis] for hypothesis in best]
    src_pad_mask = memory.src_pad_mask
    n_sentences, device = len(src_pad_mask), src_pad_mask.device
    if n_sentences == 0:
        return []

    state = model.start(memory)
    sentences = torch.arange(n_sentences, device=device)  # live row -> sentence
    limits = max_lengths.to(device)
    longest_penalty = length_penalty((limits + 1).double())[:, None]
    tokens = torch.full((n_sentences, 1), BOS_ID, device=device)
    parents = torch.zeros_like(tokens)
    # Sums in double precision: their rounding could otherwise order near-ties by the way the batch is laid out.
    log_prob = torch.zeros(n_sentences, 1, dtype=torch.float64, device=device)
    coverage = torch.zeros(n_sentences, 1, src_pad_mask.shape[1], dtype=torch.float64, device=device)
    kept = _nothing_kept(n_sentences, n_best, device)
    history: list[Generation] = []

    for length in itertools.count():
        n_live, width = tokens.shape
        step = model.step(tokens.flatten(), state, memory, need_attention=need_attention or coverage_beta > 0)
        attention = None if step.attention is None else step.attention.view(n_live, width, -1)
        history.append(Generation(sentences, tokens, parents, attention if need_attention else None))

        candidates = _expand(step.logits, log_prob, limits <= length, beam_size, allow_unknown)
        is_eos = candidates.token == EOS_ID
        score = candidates.log_prob / length_penalty(length + 1)
        if coverage_beta and attention is not None:
            coverage = coverage + attention
            is_counted = counted_for_coverage(memory.src_pad_mask)[:, None]
            score = score + coverage_penalty(coverage, is_counted, coverage_beta).gather(1, candidates.parent)
        score = score.masked_fill(~is_eos, -math.inf)
        kept_here = _keep_best(select_rows(kept, sentences), score, candidates, length)
        kept = Kept(*(old.index_copy(0, sentences, new) for old, new in zip(kept, kept_here, strict=True)))

        alive = candidates.log_prob.masked_fill(is_eos, -math.inf)
        log_prob, order = alive.topk(min(beam_size, alive.shape[1]), dim=1)
        can_win = log_prob / longest_penalty > kept_here.score[:, -1:]  # false for -inf
        widths: list[int] = can_win.sum(1).tolist()
        if not any(widths):
            break
        # log_prob falls along a row, and so does the bound: those that can win stand first.
        order, log_prob = order[:, : max(widths)], log_prob[:, : max(widths)]
        tokens, parents = candidates.token.gather(1, order), candidates.parent.gather(1, order)
        state = step.state
        rows = torch.arange(n_live, device=device)
        if not all(widths):
            rows = torch.tensor([row for row, wide in enumerate(widths) if wide], device=device)
            live = (memory, sentences, limits, longest_penalty, tokens, parents, log_prob)
            memory, sentences, limits, longest_penalty, tokens, parents, log_prob = select_rows(live, rows)
        moved = (rows[:, None] * width + parents).flatten()
        if not torch.equal(moved, torch.arange(n_live * width, device=device)):
            state = select_rows(state, moved)
        if coverage_beta:
            coverage = coverage.flatten(0, 1)[moved].view(*tokens.shape, -1)

    return _read_back(kept, history, (~src_pad_mask).sum(1).tolist())


def _nothing_kept(n_sentences: int, n_best: int, device: torch.device) -> Kept:
    worst = torch.full((n_sentences, n_best), -math.inf, dtype=torch.float64, device=device)
    zeros = torch.zeros(n_sentences, n_best, dtype=torch.int64, device=device)
    return Kept(worst, worst, zeros, zeros)


def _expand(logits: Tensor, log_prob: Tensor, at_limit: Tensor, beam_size: int, allow_unknown: bool) -> Candidates:
    """The best 2 x beam_size continuations; a sentence at its longest length continues with EOS alone.

    Args:
        logits: [live * width, trg_vocab]
        log_prob: [live, width]
        at_limit: [live]
    """
    n_live, width = log_prob.shape
    log_probs = logits.float().log_softmax(1)
    best, tokens = best_tokens(log_probs, 2 * beam_size, allow_unknown=allow_unknown)
    must_end = at_limit.repeat_interleave(width)[:, None]
    eos = log_probs[:, EOS_ID, None]
    # One more column, the EOS that a hypothesis at its limit gets, however improbable.
    best = torch.cat([best.masked_fill(must_end, -math.inf), eos.masked_fill(~must_end, -math.inf)], dim=1)
    tokens = torch.cat([tokens, torch.full_like(tokens[:, :1], EOS_ID)], dim=1)
    per_slot = best.shape[1]
    total = (log_prob.flatten()[:, None] + best).view(n_live, width * per_slot)
    top, index = total.topk(min(2 * beam_size, total.shape[1]), dim=1)
    return Candidates(top, tokens.view(n_live, -1).gather(1, index), index // per_slot)


def _keep_best(kept: Kept, score: Tensor, candidates: Candidates, length: int) -> Kept:
    """The best of what was kept and the new ones (`score` [live, n], -inf = not finished); older first on a tie."""
    merged = Kept(
        torch.cat([kept.score, score], dim=1),
        torch.cat([kept.log_prob, candidates.log_prob], dim=1),
        torch.cat([kept.length, torch.full_like(candidates.parent, length)], dim=1),
        torch.cat([kept.slot, candidates.parent], dim=1),
    )
    order = merged.score.argsort(dim=1, descending=True, stable=True)[:, : kept.score.shape[1]]
    return Kept(*(column.gather(1, order) for column in merged))


def _read_back(kept: Kept, history: list[Generation], src_lengths: list[int]) -> list[list[Hypothesis]]:
    """Follow each kept hypothesis from its last token to its first."""
    row_of = [{sentence: row for row, sentence in enumerate(level.sentences.tolist())} for level in history]
    tokens = [level.tokens.tolist() for level in history]
    parents = [level.parents.tolist() for level in history]

    def hypothesis(sentence: int, score: float, log_prob: float, length: int, slot: int) -> Hypothesis:
        words: list[int] = []
        attention: list[Tensor] = []
        for depth in range(length, -1, -1):
            row = row_of[depth][sentence]
            weights = history[depth].attention
            if weights is not None:
                attention.append(weights[row, slot, : src_lengths[sentence]])
            if depth > 0:
                words.append(tokens[depth][row][slot])
                slot = parents[depth][row][slot]
        stacked = torch.stack(attention[::-1]).cpu() if attention else None
        return finished(words[::-1], log_prob, score, stacked)

    n_best = []
    for sentence, columns in enumerate(zip(*(column.tolist() for column in kept), strict=True)):
        found = [place for place in zip(*columns, strict=True) if place[0] != -math.inf]
        n_best.append([hypothesis(sentence, *place) for place in found or [(-math.inf, -math.inf, 0, 0)]])
    return n_best
