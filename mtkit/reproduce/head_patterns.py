"""What the heads of a Transformer do: the traits of each, and what they say to the chapter's claims (1.5.3)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from mtkit.analyze.attention_maps import AttentionMap
from mtkit.analyze.patterns import MAJORITY, NEARLY_UNIFORM, Traits, divergence, even_rows, label, traits
from mtkit.reproduce.findings import Cell, Table
from mtkit.reproduce.verdict import UNTESTABLE, Outcome, Verdict

Heads = dict[tuple[str, int], Traits]  # by layer and number
END = "</s>"

_MOST, _FEW_ZEROS = 0.6, 0.01  # weight on three keys, and weights that are 0, of attention that is sparse but dense
_EVEN_ROWS, _FEWEST_ROWS = 0.01, 100  # share of rows without preference, and rows that it is measured on
_PREFERS, _MANY = 0.7, 12  # evenness of a head below which it prefers something, and tokens that a row must see
_ALIKE = 0.1  # nats of Jensen-Shannon divergence below which two heads do the same
_N_REPEATED = 20  # sentences in which heads are compared with each other


def traits_of_heads(pairs: Sequence[Sequence[AttentionMap]]) -> Heads:
    """The traits of every head, from its maps of all sentence pairs."""
    return {head: traits(maps, causal=_is_causal(head[0])) for head, maps in _by_head(pairs).items()}


def _by_head(pairs: Sequence[Sequence[AttentionMap]]) -> dict[tuple[str, int], list[Tensor]]:
    """Each head's maps of all pairs."""
    maps: dict[tuple[str, int], list[Tensor]] = {}
    for pair in pairs:
        for each in pair:
            maps.setdefault((each.layer, each.head), []).append(each.weights)
    return maps


def _is_causal(layer: str) -> bool:
    return layer.startswith("decoder") and layer.endswith("self_attention")


def head_table(heads: Heads, untrained: Heads, n_pairs: int) -> Table:
    """A row for every head; n_pairs: the sentences that its maps are of."""
    rows: list[list[Cell]] = [
        [
            layer,
            head + 1,
            label(found),
            *(100 * share for share in (found.diagonal, found.adjacent, found.stripes)),
            found.evenness,
            untrained[layer, head].evenness,
            found.noticed,
            100 * found.top_3,
        ]
        for (layer, head), found in heads.items()
    ]
    header = (
        *("layer", "head", "pattern", "own place, %", "beside it, %", "one column, %", "evenness", "untrained"),
        *("keys above 0.1", "three largest, %"),
    )
    note = (
        "Pattern: what holds more than half of the weight; uniform: evenness (entropy over its maximum) above 0.9. "
        f"Means over the rows of the first {n_pairs} test sentences."
    )
    return Table("heads", "Every head of the Transformer", header, rows, note)


def sharpening(heads: Heads, untrained: Heads) -> Verdict:
    before, after = (float(np.mean([each.evenness for each in found.values()])) for found in (untrained, heads))
    n_sharper = sum(heads[head].evenness < untrained[head].evenness for head in heads)
    return Verdict(
        "CH-66",
        "attention begins near uniform and sharpens in training",
        "shown" if before > 0.9 and n_sharper == len(heads) else "not shown",
        f"evenness {before:.2f} untrained, {after:.2f} trained; {n_sharper} of {len(heads)} heads are sharper",
        "shown: untrained evenness above 0.9 on the mean, and every head is sharper after training",
    )


def sparsity(heads: Heads, untrained: Heads) -> Verdict:
    top, before, zeros = (
        float(np.mean([getattr(each, name) for each in found.values()]))
        for found, name in ((heads, "top_3"), (untrained, "top_3"), (heads, "zeros"))
    )
    return Verdict(
        "CH-67",
        "trained attention is dense but effectively sparse",
        "shown" if zeros < _FEW_ZEROS and top > max(_MOST, before) else "not shown",
        f"{top:.0%} of the weight on three keys (untrained {before:.0%}), {zeros:.1%} of the weights exactly 0, mean "
        "over heads and rows",
        f"shown: more than {_MOST:.0%} of the weight on three keys and more than untrained, on the mean over rows that "
        f"see six or more, and fewer than {_FEW_ZEROS:.0%} of the weights exactly 0",
    )


def pattern_verdicts(
    heads: Heads, untrained: Heads, pairs: Sequence[Sequence[AttentionMap]], src_rows: Sequence[Sequence[str]]
) -> list[Verdict]:
    """The patterns of the chapter's heat maps, in the heads of the encoder.

    Args:
        pairs: the maps of every sentence pair.
        src_rows: the source tokens of each, with </s>.
    """
    maps = {head: found for head, found in _by_head(pairs).items() if head[0].startswith("encoder")}
    even = traits([torch.full_like(each, 1 / each.size(1)) for each in next(iter(maps.values()))])

    def verdict(claim: str, statement: str, what: str, share: Callable[[Traits], float]) -> Verdict:
        limit = max(MAJORITY, 2 * share(even))
        trained, before = (sum(share(found[head]) > limit for head in maps) for found in (heads, untrained))
        return Verdict(
            claim,
            statement,
            "shown" if trained > before else "not shown",
            f"{trained} of {len(maps)} heads, untrained {before}; even attention would have {share(even):.0%} there",
            f"shown: more heads of the encoder than before training have more than half of their weight on {what}, and "
            "more than twice as much as even attention would",
        )

    stripes = verdict("CH-95", "some heads look at one column", "one column of each map", lambda each: each.stripes)
    return [
        verdict(
            "CH-94",
            "some heads look along the diagonal",
            "each row's own place and beside it",
            lambda each: each.diagonal + each.adjacent,
        ),
        stripes._replace(reason=f"{stripes.reason}; {_stripe(heads, maps, src_rows)}"),
        _rows_without_preference([each for head, each in maps.items() if heads[head].evenness < _PREFERS]),
    ]


def _stripe(heads: Heads, maps: Mapping[tuple[str, int], list[Tensor]], src_rows: Sequence[Sequence[str]]) -> str:
    """Which tokens stand in the column of the head with the strongest stripe."""
    layer, head = max(maps, key=lambda each: heads[each].stripes)
    n_marks = 0
    for weights, tokens in zip(maps[layer, head], src_rows, strict=True):
        token = tokens[int(weights.mean(0).argmax())]
        n_marks += token == END or not any(letter.isalnum() for letter in token)
    return f"the strongest, head {head + 1} of {layer}, at {END} or punctuation in {n_marks} of {len(src_rows)} maps"


def _rows_without_preference(by_head: Sequence[Sequence[Tensor]]) -> Verdict:
    """CH-96, of the heads that prefer some places on the mean."""
    n_even, n_rows = even_rows([weights for maps in by_head for weights in maps], _MANY)
    outcome: Outcome = "shown" if n_rows and n_even / n_rows >= _EVEN_ROWS else "not shown"
    return Verdict(
        "CH-96",
        "some rows have no preference",
        outcome if n_rows >= _FEWEST_ROWS else UNTESTABLE,
        f"{n_even} of {n_rows} rows that see {_MANY} tokens or more; heads with a preference: {len(by_head)}",
        f"shown: {_EVEN_ROWS:.0%} or more of these rows, at least {_FEWEST_ROWS}, have an entropy above "
        f"{NEARLY_UNIFORM} of the greatest; the heads are those of the encoder with less than {_PREFERS} of it on the "
        "mean",
    )


def specialised(heads: Heads) -> Verdict:
    counts: dict[str, int] = {}
    for each in heads.values():
        counts[label(each)] = counts.get(label(each), 0) + 1
    places = {"local" if name in ("diagonal", "adjacent") else name for name in counts}
    return Verdict(
        "CH-98",
        "heads specialise",
        "shown" if len(places - {"mixed", "uniform"}) >= 2 else "not shown",
        "found: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1])),
        "shown: heads that look at their own place or beside it (diagonal, adjacent) and heads that look at one column "
        "(stripes)",
    )


def repeated(pairs: Sequence[Sequence[AttentionMap]], untrained_pairs: Sequence[Sequence[AttentionMap]]) -> Verdict:
    """Heads of one kind of attention that look at the same places, in any layer, more often than before training."""
    apart, apart_before = (_distances(each[:_N_REPEATED]) for each in (pairs, untrained_pairs))
    n_alike, n_before = (sum(value < _ALIKE for value in found) for found in (apart, apart_before))
    is_more = bool(n_alike) and n_alike * len(apart_before) > n_before * len(apart)
    nearest = f"; the nearest by {min(apart):.3f}" if apart else ""
    return Verdict(
        "CH-99",
        "some heads repeat each other",
        "shown" if is_more else "not shown",
        f"{n_alike} of {len(apart)} pairs of heads differ by less than {_ALIKE} nats{nearest}; untrained {n_before} of "
        f"{len(apart_before)}",
        f"shown: a larger share of the pairs than before training has a mean Jensen-Shannon divergence below {_ALIKE} "
        f"(at most {math.log(2):.2f}), of the heads that are not uniform",
    )


def _distances(pairs: Sequence[Sequence[AttentionMap]]) -> list[float]:
    """The mean divergence of each two heads of one kind of attention; even ones say nothing and are left out."""
    kinds: dict[str, list[tuple[tuple[str, int], list[Tensor]]]] = {}
    for (layer, head), maps in _by_head(pairs).items():
        if label(traits(maps, causal=_is_causal(layer))) != "uniform":
            kind = layer.partition(".")[0] + layer.rpartition(".")[2]
            kinds.setdefault(kind, []).append(((layer, head), maps))
    return [
        float(np.mean([divergence(a, b, causal=_is_causal(layer)) for a, b in zip(one, other, strict=True)]))
        for members in kinds.values()
        for ((layer, _), one), (_, other) in itertools.combinations(members, 2)
    ]
