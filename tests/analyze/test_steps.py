"""Decoder steps are counted where they are made."""

from __future__ import annotations

import torch

from mtkit import models
from mtkit.analyze.steps import counted_steps
from mtkit.data.batch import make_source
from mtkit.search.ensemble import Ensemble
from mtkit.search.greedy import greedy_search
from mtkit.text.tokenizer import EOS_ID, PAD_ID


def never_ending(seed: int) -> models.TranslationModel:
    """A model that will not write EOS, so that a search runs to its limit."""
    torch.manual_seed(seed)
    model = models.build({"type": "seq2seq", "preset": "tiny"}, 12, 12, PAD_ID).eval()
    with torch.no_grad():
        model.output.bias[EOS_ID] = -1e4
    return model


def test_each_row_of_each_step_counts_and_nothing_after() -> None:
    model = never_ending(1)
    memory = model.encode(*make_source([[5, 6], [7], [8, 9, 5]]))
    with counted_steps([model]) as count:
        greedy_search(model, memory, torch.tensor([4, 4, 4]))
    assert (count.rows, count.calls) == (15, 5)  # four tokens and EOS
    model.step(torch.tensor([5, 5, 5]), model.start(memory), memory)
    assert count.rows == 15


def test_an_ensemble_takes_a_step_with_every_member() -> None:
    members = [never_ending(1), never_ending(2)]
    ensemble = Ensemble(members)
    memory = ensemble.encode(*make_source([[5, 6]]))
    with counted_steps(members) as count:
        greedy_search(ensemble, memory, torch.tensor([3]))
    assert (count.rows, count.calls) == (8, 8)
