"""What counts as an improvement, and when patience is over."""

from __future__ import annotations

import json
import math

import pytest

from mtkit.train.validation import EarlyStopping


def see_all(stopping: EarlyStopping, values: list[float], first: int = 1) -> list[bool]:
    return [stopping.see(value, f"update-{number}") for number, value in enumerate(values, start=first)]


def test_a_tie_is_no_improvement() -> None:
    stopping = EarlyStopping("bleu", 2)
    assert see_all(stopping, [10, 11, 11]) == [True, True, False]
    assert not stopping.is_over
    assert not stopping.see(10.9, "update-4")
    assert stopping.is_over
    assert (stopping.best, stopping.best_name) == (11, "update-2")


def test_patience_goes_on_after_a_restart() -> None:
    before = EarlyStopping("bleu", 3)
    see_all(before, [10, 9, 9])
    assert not before.is_over
    after = EarlyStopping("bleu", 3)
    after.restore(json.loads(json.dumps(before.to_state())))
    after.see(9, "update-4")
    assert after.is_over
    assert (after.best, after.best_name) == (10, "update-1")


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [
        ("loss", [3, 2, 4, 1], "update-4"),
        ("bleu", [3, 2, 4, 1], "update-3"),
        ("bleu", [0.1, 0.2, 0.3], "update-3"),
        ("loss", [0.3, 0.2, 0.1], "update-3"),
        ("bleu", [0.0, 0.0], "update-1"),
    ],
)
def test_loss_goes_down_and_bleu_goes_up(metric: str, values: list[float], best: str) -> None:
    stopping = EarlyStopping(metric, None)
    see_all(stopping, values)
    assert stopping.best_name == best


@pytest.mark.parametrize("metric", ["loss", "bleu"])
def test_what_is_no_number_is_never_better(metric: str) -> None:
    stopping = EarlyStopping(metric, 2)
    assert see_all(stopping, [math.nan, 5.0, math.nan]) == [False, True, False]
    assert (stopping.best, stopping.best_name, stopping.is_over) == (5.0, "update-2", False)
    stopping.see(math.nan, "update-4")
    assert stopping.is_over


def test_an_improvement_renews_patience() -> None:
    stopping = EarlyStopping("bleu", 2)
    see_all(stopping, [5, 4, 6, 5])
    assert not stopping.is_over


def test_without_patience_it_is_never_over() -> None:
    stopping = EarlyStopping("bleu", None)
    see_all(stopping, [5.0] + [1.0] * 50)
    assert not stopping.is_over


def test_an_average_may_be_the_best_but_renews_no_patience() -> None:
    stopping = EarlyStopping("bleu", 2)
    see_all(stopping, [10.0, 9.0, 9.0])
    assert stopping.is_over
    assert stopping.consider(11.0, "average-1-3")
    assert (stopping.best, stopping.best_name) == (11.0, "average-1-3")
    assert stopping.is_over
    assert not stopping.consider(11.0, "average-2-4")
    assert not stopping.consider(float("nan"), "average-2-4")
    assert stopping.best_name == "average-1-3"
