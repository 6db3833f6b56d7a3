"""Learning rates by hand, and the optimizer of a recipe."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from mtkit.errors import RecipeError
from mtkit.recipe import TrainSection
from mtkit.train.optimizer import build_optimizer, learning_rate, set_learning_rate


def section(**keys: Any) -> TrainSection:
    return TrainSection(**{"updates": 10_000, **keys})


@pytest.mark.parametrize(("update", "rate"), [(1, 1.747e-07), (4000, 6.988e-04), (5000, 6.25e-04)])
def test_noam_has_the_papers_rates(update: int, rate: float) -> None:
    """Vaswani et al. (2017), eq. 3, with d_model 512 and 4000 updates of warm-up."""
    noam = section(schedule="noam", lr=1.0, warmup_updates=4000)
    assert learning_rate(update, noam, 512) == pytest.approx(rate, rel=1e-3)
    assert learning_rate(update, section(schedule="noam", lr=2.0, warmup_updates=4000), 512) == pytest.approx(
        2 * rate, rel=1e-3
    )


def test_noam_needs_a_width() -> None:
    with pytest.raises(RecipeError, match="train.schedule: noam needs a model with a d_model"):
        learning_rate(1, section(schedule="noam"), None)


def test_noam_without_warm_up_falls_from_the_start() -> None:
    noam = section(schedule="noam", lr=1.0, warmup_updates=0)
    assert [learning_rate(update, noam, 100) for update in (1, 4)] == pytest.approx([0.1, 0.05])


@pytest.mark.parametrize("update", [1, 10, 11, 20, 9999])
def test_a_constant_rate_is_constant(update: int) -> None:
    constant = section(schedule="constant", lr=0.0005, warmup_updates=0)
    assert learning_rate(update, constant, None) == 0.0005


@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt", "cosine"])
def test_warm_up_is_a_straight_line_to_the_rate(schedule: str) -> None:
    warm = section(schedule=schedule, lr=0.8, warmup_updates=4)
    assert [learning_rate(update, warm, None) for update in (1, 2, 3, 4)] == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_inverse_square_root_by_hand() -> None:
    falling = section(schedule="inverse_sqrt", lr=0.8, warmup_updates=4)
    assert learning_rate(16, falling, None) == pytest.approx(0.4)
    assert learning_rate(400, falling, None) == pytest.approx(0.08)
    cold = section(schedule="inverse_sqrt", lr=0.8, warmup_updates=0)
    assert [learning_rate(update, cold, None) for update in (1, 4)] == pytest.approx([0.8, 0.4])


def test_cosine_falls_to_nothing_at_the_last_update() -> None:
    cosine = section(schedule="cosine", lr=0.8, warmup_updates=20, updates=120)
    assert learning_rate(45, cosine, None) == pytest.approx(0.4 * (1 + math.sqrt(0.5)))  # a quarter of the way
    assert learning_rate(70, cosine, None) == pytest.approx(0.4)
    assert learning_rate(120, cosine, None) == pytest.approx(0, abs=1e-12)
    assert learning_rate(500, cosine, None) == pytest.approx(0, abs=1e-12), "and stays there"


def test_one_update_of_adam_by_hand() -> None:
    """Kingma and Ba (2015), algorithm 1: the first step has the size of the rate in the direction of the sign."""
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 1.0]]))
    optimizer = build_optimizer(model, section(lr=1.0))
    set_learning_rate(optimizer, 0.25)
    model.weight.grad = torch.tensor([[3.0, -0.01]])
    optimizer.step()
    assert model.weight.flatten().tolist() == pytest.approx([0.75, 1.25], rel=1e-5)


def test_weight_decay_is_decoupled() -> None:
    """Loshchilov and Hutter (2019): the weight shrinks by rate x decay whatever the gradient."""
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(2.0)
    optimizer = build_optimizer(model, section(optimizer="adamw", lr=0.1, weight_decay=0.5))
    model.weight.grad = torch.zeros(1, 1)
    optimizer.step()
    assert model.weight.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5))


def test_the_recipes_numbers_reach_the_optimizer() -> None:
    optimizer = build_optimizer(nn.Linear(1, 1), section(betas=(0.8, 0.9), eps=1e-6))
    (group,) = optimizer.param_groups
    assert (group["betas"], group["eps"]) == ((0.8, 0.9), 1e-6)
