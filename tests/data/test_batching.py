"""Batches by length under a token budget, each pair once an epoch, in an order that can be had again."""

from __future__ import annotations

import numpy as np
import pytest

from mtkit.data.batching import EpochBatches


@pytest.fixture
def lengths() -> tuple[np.ndarray, np.ndarray]:
    """Lengths like those of a real bitext: target about as long as source, most sentences short."""
    random = np.random.default_rng(3)
    src = 2 + random.gamma(4.0, 3.0, size=3000).astype(np.int32)
    trg = np.maximum(2, src + random.normal(0, 2, size=3000)).astype(np.int32)
    return src, trg


@pytest.mark.parametrize("batch_tokens", [60, 300, 10**9])
def test_every_pair_comes_exactly_once_an_epoch(lengths, batch_tokens):
    for epoch in range(2):
        batches = EpochBatches(*lengths, batch_tokens, seed=1).epoch(epoch)
        assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(3000))


def test_no_side_of_a_batch_is_over_the_budget(lengths):
    src, trg = lengths
    for batch in EpochBatches(src, trg, 300, seed=1).epoch(0):
        assert src[batch].sum() <= 300
        assert trg[batch].sum() <= 300


def test_a_batch_ends_where_the_next_pair_would_be_over_the_budget():
    # sorted by length: 2 2 3 4 5; 2 + 2 + 3 fits into 8, 4 does not; 4 + 5 does not
    lengths = np.array([5, 2, 4, 2, 3], dtype=np.int32)
    batches = EpochBatches(lengths, lengths, 8, seed=1).epoch(0)
    assert sorted(sorted(lengths[batch].tolist()) for batch in batches) == [[2, 2, 3], [4], [5]]


def test_the_longer_side_decides():
    src, trg = np.array([2, 2, 2], dtype=np.int32), np.array([4, 4, 4], dtype=np.int32)
    for pair in ((src, trg), (trg, src)):
        assert sorted(len(batch) for batch in EpochBatches(*pair, 8, seed=1).epoch(0)) == [1, 2]


def test_pair_over_the_budget_is_a_batch_of_its_own():
    src, trg = np.array([2, 150, 2, 9], dtype=np.int32), np.array([2, 3, 2, 150], dtype=np.int32)
    batches = EpochBatches(src, trg, 100, seed=1).epoch(0)
    assert sorted(sorted(batch.tolist()) for batch in batches) == [[0, 2], [1], [3]]


def test_same_seed_and_epoch_give_the_same_batches_in_a_new_object(lengths):
    one, two = (EpochBatches(*lengths, 300, seed=7) for _ in range(2))
    one.epoch(0)  # what was asked before changes nothing
    for batch, same in zip(one.epoch(3), two.epoch(3), strict=True):
        assert np.array_equal(batch, same)


def first_rows(batches: list[np.ndarray]) -> list[int]:
    return [int(batch[0]) for batch in batches]


def test_order_differs_by_epoch_and_by_seed(lengths):
    batches = EpochBatches(*lengths, 300, seed=7)
    orders = [first_rows(batches.epoch(0)), first_rows(batches.epoch(1))]
    orders.append(first_rows(EpochBatches(*lengths, 300, seed=8).epoch(0)))
    assert len({tuple(order) for order in orders}) == 3


def test_training_does_not_go_from_short_to_long(lengths):
    mean_lengths = [lengths[1][batch].mean() for batch in EpochBatches(*lengths, 300, seed=7).epoch(0)]
    assert abs(np.corrcoef(mean_lengths, np.arange(len(mean_lengths)))[0, 1]) < 0.3


def test_pairs_of_a_batch_differ_from_epoch_to_epoch(lengths):
    batches = EpochBatches(*lengths, 300, seed=7)
    first, second = ({frozenset(batch.tolist()) for batch in batches.epoch(n)} for n in range(2))
    assert len(first & second) < len(first) / 2


def test_little_of_a_batch_is_padding_and_most_of_the_budget_is_used(lengths):
    batches = EpochBatches(*lengths, 1000, seed=7).epoch(0)
    real = sum(side.sum() for side in lengths)
    padded = sum(len(batch) * side[batch].max() for side in lengths for batch in batches)
    assert 1 - real / padded < 0.1
    assert max(side.sum() for side in lengths) / len(batches) > 0.9 * 1000


def test_pair_of_very_unequal_sides_does_not_pad_short_ones():
    # forty pairs of ten tokens a side, and one of ten target but two hundred source tokens
    src = np.array([10] * 40 + [200], dtype=np.int32)
    trg = np.full(41, 10, dtype=np.int32)
    padded = sum(len(batch) * src[batch].max() for batch in EpochBatches(src, trg, 250, seed=7).epoch(0))
    assert padded <= 2 * src.sum()


def test_one_pair_and_no_pair():
    one = np.array([5], dtype=np.int32)
    assert [batch.tolist() for batch in EpochBatches(one, one, 100, seed=1).epoch(0)] == [[0]]
    none = np.zeros(0, dtype=np.int32)
    assert EpochBatches(none, none, 100, seed=1).epoch(0) == []


def test_a_batch_holds_no_more_sentences_than_asked_for(lengths):
    batches = EpochBatches(*lengths, 10**9, seed=1, batch_sentences=128).epoch(0)
    assert sorted(map(len, batches), reverse=True) == [128] * 23 + [56]
    assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(3000))
    both = EpochBatches(*lengths, 300, seed=1, batch_sentences=20).epoch(0)
    assert max(map(len, both)) == 20
    assert max(lengths[0][batch].sum() for batch in both) <= 300
