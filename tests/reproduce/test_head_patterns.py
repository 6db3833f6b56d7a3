"""What is said of heads whose maps show a pattern by construction."""

from __future__ import annotations

import torch
from torch import Tensor

from mtkit.analyze.attention_maps import AttentionMap
from mtkit.reproduce.head_patterns import END, pattern_verdicts, repeated, specialised, traits_of_heads

N, N_PAIRS = 12, 10
WORDS = [f"word{n}" for n in range(N - 1)]
TOKENS = [[*WORDS, END] if pair % 2 else [*WORDS[:2], ",", *WORDS[3:], END] for pair in range(N_PAIRS)]


def diagonal() -> Tensor:
    return 0.9 * torch.eye(N) + 0.1 / N


def stripe(column: int) -> Tensor:
    weights = torch.full((N, N), 0.3 / N)
    weights[:, column] += 0.7
    return weights


def even() -> Tensor:
    return torch.full((N, N), 1 / N)


def encoder(*heads: list[Tensor]) -> list[list[AttentionMap]]:
    """The maps of all sentence pairs; of each head a map for even and one for odd numbers of pairs."""
    return [
        [AttentionMap("encoder.0.self_attention", number, head[pair % 2]) for number, head in enumerate(heads)]
        for pair in range(N_PAIRS)
    ]


def test_patterns_that_training_has_made_are_shown() -> None:
    """CH-94, CH-95; the stripe stands on the comma where there is one, else on </s>. Even rows have 3 of 12 columns on
    and beside the diagonal, at the ends 2: (10 x 3 + 2 x 2) / 144, and one of 12 in any column.
    """
    trained = encoder([diagonal()] * 2, [stripe(2), stripe(N - 1)], [even()] * 2)
    untrained = encoder(*[[even()] * 2] * 3)
    found = pattern_verdicts(traits_of_heads(trained), traits_of_heads(untrained), trained, TOKENS)
    assert [verdict.claim for verdict in found] == ["CH-94", "CH-95", "CH-96"]
    assert [verdict.outcome for verdict in found[:2]] == ["shown", "shown"]
    assert found[0].reason == "1 of 3 heads, untrained 0; even attention would have 24% there"
    assert found[1].reason == (
        "1 of 3 heads, untrained 0; even attention would have 8% there; the strongest, head 2 of "
        "encoder.0.self_attention, at </s> or punctuation in 10 of 10 maps"
    )


def test_patterns_that_were_there_before_training_show_nothing() -> None:
    """CH-94, CH-95"""
    maps = encoder([diagonal()] * 2, [stripe(1), stripe(2)])
    found = pattern_verdicts(traits_of_heads(maps), traits_of_heads(maps), maps, TOKENS)
    assert [verdict.outcome for verdict in found] == ["not shown"] * 3


def test_a_stripe_on_a_word_is_not_called_punctuation() -> None:
    """CH-95"""
    trained, untrained = encoder([stripe(0), stripe(1)]), encoder([even()] * 2)
    verdict = pattern_verdicts(traits_of_heads(trained), traits_of_heads(untrained), trained, TOKENS)[1]
    assert verdict.outcome == "shown" and verdict.reason.endswith("in 0 of 10 maps")


def test_single_rows_without_preference_are_shown_among_others() -> None:
    """CH-96: one row of twelve, of a head that looks at one place everywhere else. A head that is even all over has no
    preference to make an exception from.
    """
    weights = diagonal()
    weights[5] = 1 / N
    trained = encoder([weights] * 2, [even()] * 2)
    verdict = pattern_verdicts(traits_of_heads(trained), traits_of_heads(trained), trained, TOKENS)[2]
    assert verdict.outcome == "shown"
    assert verdict.reason == "10 of 120 rows that see 12 tokens or more; heads with a preference: 1"
    alone = encoder([even()] * 2)
    verdict = pattern_verdicts(traits_of_heads(alone), traits_of_heads(alone), alone, TOKENS)[2]
    assert verdict.outcome == "cannot be tested at this scale"


def test_heads_of_two_patterns_have_specialised() -> None:
    """CH-98"""
    assert specialised(traits_of_heads(encoder([diagonal()] * 2, [stripe(1)] * 2))).outcome == "shown"
    assert specialised(traits_of_heads(encoder([diagonal()] * 2, [even()] * 2))).outcome == "not shown"
    beside = torch.cat([diagonal()[1:], diagonal()[-1:]])  # one place further: local too
    assert specialised(traits_of_heads(encoder([diagonal()] * 2, [beside] * 2))).outcome == "not shown"


def test_heads_that_look_at_the_same_places_repeat_each_other() -> None:
    """CH-99; even heads are alike and say nothing, and what chance gives before training is no finding."""
    alike = encoder([diagonal()] * 2, [diagonal()] * 2, [stripe(1)] * 2)
    unlike = encoder([diagonal()] * 2, [stripe(1)] * 2, [even()] * 2, [even()] * 2)
    verdict = repeated(alike, unlike)
    assert verdict.outcome == "shown" and verdict.reason.startswith("1 of 3 pairs")
    assert verdict.reason.endswith("untrained 0 of 1")
    assert repeated(unlike, unlike).outcome == "not shown"
    assert repeated(alike, alike).outcome == "not shown"
