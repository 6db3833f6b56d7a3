"""What is said of heads whose maps show a pattern by construction."""

from __future__ import annotations

import torch
from torch import Tensor

from mtkit.analyze.attention_maps import AttentionMap
from mtkit.reproduce.head_patterns import END, pattern_verdicts, repeated, specialised, traits_of_heads

N = 8
TOKENS = [[*(f"word{n}" for n in range(N - 1)), END], ["a", "b", ",", "c", "d", "e", "f", END]]


def diagonal() -> Tensor:
    return 0.9 * torch.eye(N) + 0.1 / N


def stripe(column: int) -> Tensor:
    weights = torch.full((N, N), 0.3 / N)
    weights[:, column] += 0.7
    return weights


def even() -> Tensor:
    return torch.full((N, N), 1 / N)


def encoder(*heads: list[Tensor]) -> list[list[AttentionMap]]:
    """The maps of two sentence pairs; a list of the two for each head."""
    return [
        [AttentionMap("encoder.0.self_attention", number, head[pair]) for number, head in enumerate(heads)]
        for pair in range(2)
    ]


def test_patterns_that_training_has_made_are_shown() -> None:
    """CH-94, CH-95, CH-96; the stripe stands on the last column, </s>, and on the third, a comma."""
    trained = encoder([diagonal()] * 2, [stripe(N - 1), stripe(2)], [even()] * 2)
    untrained = encoder(*[[even()] * 2] * 3)
    verdicts = pattern_verdicts(traits_of_heads(trained), traits_of_heads(untrained), trained, TOKENS)
    assert [verdict.claim for verdict in verdicts] == ["CH-94", "CH-95", "CH-96"]
    assert [verdict.outcome for verdict in verdicts] == ["shown"] * 3
    assert verdicts[0].reason == "1 of 3 heads of the encoder, untrained 0"
    assert verdicts[1].reason.endswith("head 2 of encoder.0.self_attention, at </s> or punctuation in 2 of 2 maps")
    assert verdicts[2].reason.startswith("33.3% of the rows of the encoder's heads, 100.0% of those of the head")


def test_patterns_that_were_there_before_training_show_nothing() -> None:
    """CH-94, CH-95"""
    maps = encoder([diagonal()] * 2, [stripe(1), stripe(2)])
    verdicts = pattern_verdicts(traits_of_heads(maps), traits_of_heads(maps), maps, TOKENS)
    assert [verdict.outcome for verdict in verdicts] == ["not shown"] * 3


def test_a_stripe_on_a_word_is_not_called_punctuation() -> None:
    """CH-95"""
    trained, untrained = encoder([stripe(0), stripe(1)]), encoder([even()] * 2)
    verdict = pattern_verdicts(traits_of_heads(trained), traits_of_heads(untrained), trained, TOKENS)[1]
    assert verdict.outcome == "shown" and verdict.reason.endswith("in 0 of 2 maps")


def test_heads_of_two_patterns_have_specialised() -> None:
    """CH-98"""
    assert specialised(traits_of_heads(encoder([diagonal()] * 2, [stripe(1)] * 2))).outcome == "shown"
    assert specialised(traits_of_heads(encoder([diagonal()] * 2, [even()] * 2))).outcome == "not shown"


def test_heads_that_look_at_the_same_places_repeat_each_other() -> None:
    """CH-99; even heads are alike and say nothing."""
    alike = encoder([diagonal()] * 2, [diagonal()] * 2, [stripe(1)] * 2)
    verdict = repeated(alike, traits_of_heads(alike))
    assert verdict.outcome == "shown" and verdict.reason.startswith("1 of 3 pairs")
    unlike = encoder([diagonal()] * 2, [stripe(1)] * 2, [even()] * 2, [even()] * 2)
    assert repeated(unlike, traits_of_heads(unlike)).outcome == "not shown"
