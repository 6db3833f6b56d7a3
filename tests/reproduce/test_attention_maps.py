"""What the study of attention maps counts before it looks at any map, and what it says of several seeds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mtkit import models
from mtkit.analyze.attention_maps import attention_maps
from mtkit.data.batch import make_batch
from mtkit.reproduce.studies.attention_maps import _agreements, _Looked, negation_words, over_seeds
from mtkit.reproduce.verdict import Outcome, Verdict
from mtkit.text.tokenizer import PAD_ID


@pytest.mark.parametrize(
    ("src", "trg", "places"),
    [
        ("I do not know.", "Je ne sais pas.", (2, 1, 3)),
        ("It isn't here, he said.", "Il n\u2019est pas ici, dit-il.", (1, 1, 2)),
        ("This cannot be so.", "Cela ne peut pas être ainsi.", (1, 1, 3)),
        ("I know.", "Je sais.", None),
        ("I do not know, do not ask.", "Je ne sais pas, ne demande pas.", None),
        ("I do not know anybody.", "Je ne connais personne.", None),
        ("A walk of no step.", "Pas de pas, ne bouge.", None),
    ],
)
def test_negated_pairs_have_each_word_once(src: str, trg: str, places: tuple[int, int, int] | None) -> None:
    """CH-35: not, ne … pas."""
    assert negation_words(src, trg) == places


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["shown"], "shown"),
        (["shown", "shown"], "shown"),
        (["contradicted", "contradicted"], "contradicted"),
        (["shown", "contradicted"], "not shown"),
        (["shown", "not shown", "shown"], "not shown"),
        (["cannot be tested at this scale"] * 2, "cannot be tested at this scale"),
    ],
)
def test_what_maps_show_they_show_with_every_seed(outcomes: list[Outcome], expected: Outcome) -> None:
    verdicts = [
        Verdict("CH-94", "some heads", outcome, f"{number} heads", "shown: some", {"heads": number})
        for number, outcome in enumerate(outcomes, start=1)
    ]
    verdict = over_seeds(verdicts)
    assert verdict.outcome == expected
    if len(verdicts) > 1:
        assert verdict.reason.startswith("seed 1: 1 heads; seed 2: 2 heads")
        assert verdict.numbers["heads, seed 2"] == 2
        assert verdict.rule == "shown: some; of several seeds all must agree, otherwise not shown"


@pytest.mark.parametrize("kind", ["rnnsearch", "transformer"])
def test_a_long_sentence_among_others_changes_no_agreement(kind: str) -> None:
    """What the padding and the later predictions of a batch are costs time and nothing else."""
    torch.manual_seed(1)
    model = models.build({"type": kind, "preset": "tiny", "dropout": 0.0}, 30, 30, PAD_ID).eval()
    draw = np.random.default_rng(1)
    rows = [[draw.integers(4, 30, size=size).tolist() for size in draw.integers(4, 9, size=30)] for _ in range(2)]
    found = []
    for longer in ([], [[5] * 60]):
        batch = make_batch(*(side + longer for side in rows))
        tokens = [["x"] * (len(row) + 1) for row in rows[0]]
        loaded = SimpleNamespace(model=model)
        looked = _Looked("model", loaded, batch, tokens, tokens, attention_maps(model, batch))  # type: ignore[arg-type]
        found.append(_agreements(looked))
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    assert all(-1 < each < 1 for each in found[0])
