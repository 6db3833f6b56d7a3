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
    """CH-116; Vaswani et al. (2017), eq. 3, with d_model 512 and 4000 updates of warm-up."""
    noam = section(schedule="noam", lr=1.0, warmup_updates=4000)
    assert learning_rate(update, noam, 512) == pytest.approx(rate, rel=1e-3)
    assert learning_rate(update, section(schedule="noam", lr=2.0, warmup_updates=4000), 512) == pytest.approx(
        2 * rate, rel=1e-3
    )


def test_noam_rises_in_a_straight_line_to_its_peak_and_falls_with_the_root() -> None:
    """CH-116; the peak is (512 x 4000)^-0.5 = 6.99e-4."""
    noam = section(schedule="noam", lr=1.0, warmup_updates=4000)
    rates = [learning_rate(update, noam, 512) for update in range(1, 16_001)]
    assert max(rates) == rates[3999] == pytest.approx(6.99e-4, rel=1e-3)
    assert rates[999] == pytest.approx(rates[3999] / 4)
    assert rates[15_999] == pytest.approx(rates[3999] / 2)


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


@pytest.mark.parametrize(("update", "factor"), [(45, 0.5 + math.sqrt(0.125)), (70, 0.5), (120, 0.0), (500, 0.0)])
def test_cosine_over_epochs_is_that_over_their_updates(update: int, factor: float) -> None:
    """Three epochs of 40 updates are 120 updates."""
    cosine = section(schedule="cosine", lr=0.8, warmup_updates=20, updates=None, epochs=3.0)
    assert learning_rate(update, cosine, None, epochs=(update - 1) / 40) == pytest.approx(0.8 * factor, abs=1e-12)


def test_cosine_over_minutes_is_that_over_their_updates() -> None:
    """At ten updates a minute, twelve minutes are 120 updates; epochs, where they are given, come before minutes."""
    cosine = section(schedule="cosine", lr=0.8, warmup_updates=20, updates=None, max_minutes=12.0)
    assert learning_rate(70, cosine, None, minutes=6.9) == pytest.approx(0.4)
    assert learning_rate(120, cosine, None, minutes=11.9) == pytest.approx(0, abs=1e-12)
    both = section(schedule="cosine", lr=0.8, warmup_updates=20, updates=None, epochs=3.0, max_minutes=1.0)
    assert learning_rate(70, both, None, epochs=69 / 40, minutes=0.9) == pytest.approx(0.4)


def test_cosine_over_epochs_begins_at_the_rate_without_a_warm_up() -> None:
    cosine = section(schedule="cosine", lr=0.8, warmup_updates=0, updates=None, epochs=3.0)
    assert learning_rate(1, cosine, None) == pytest.approx(0.8)


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


def weights_after(section: TrainSection, gradients: list[float], rate: float) -> list[float]:
    """A single weight, at first 1, after each gradient."""
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimizer = build_optimizer(model, section)
    set_learning_rate(optimizer, rate)
    found = []
    for gradient in gradients:
        model.weight.grad = torch.tensor([[gradient]])
        optimizer.step()
        found.append(model.weight.item())
    return found


def test_plain_gradient_descent_by_hand() -> None:
    assert weights_after(section(optimizer="sgd", lr=9), [2.0, -1.0], 0.1) == pytest.approx([0.8, 0.9])


def test_nesterovs_momentum_by_hand() -> None:
    """v = m v + g, then a step along g + m v: Gehring et al. (2017), §4.2, momentum 0.99."""
    by_hand, weight, velocity = [], 1.0, 0.0
    for gradient in (2.0, -1.0, 0.5):
        velocity = 0.99 * velocity + gradient
        weight -= 0.25 * (gradient + 0.99 * velocity)
        by_hand.append(weight)
    nesterov = section(optimizer="sgd", lr=9, momentum=0.99, nesterov=True)
    assert weights_after(nesterov, [2.0, -1.0, 0.5], 0.25) == pytest.approx(by_hand, rel=1e-5)


def test_momentum_by_hand() -> None:
    """v = m v + g, then a step along v."""
    plain = section(optimizer="sgd", lr=9, momentum=0.5)
    assert weights_after(plain, [2.0, -1.0, 0.5], 0.1) == pytest.approx([0.8, 0.8, 0.75])


def test_adadelta_by_hand() -> None:
    """Zeiler (2012), algorithm 1, with the constants of Cho et al. (2014): rho 0.95, epsilon 10^-6."""
    by_hand, weight, of_gradients, of_steps = [], 1.0, 0.0, 0.0
    for gradient in (2.0, -1.0, 0.5):
        of_gradients = 0.95 * of_gradients + 0.05 * gradient**2
        step = -math.sqrt((of_steps + 1e-6) / (of_gradients + 1e-6)) * gradient
        of_steps = 0.95 * of_steps + 0.05 * step**2
        weight += step
        by_hand.append(weight)
    assert weights_after(section(optimizer="adadelta"), [2.0, -1.0, 0.5], 1.0) == pytest.approx(by_hand, rel=1e-6)


def test_sutskevers_rate_is_halved_every_half_epoch_after_five() -> None:
    """Sutskever et al. (2014), §3.4: 0.7, and 7.5 epochs in all."""
    halving = section(schedule="halving", lr=0.7, warmup_updates=0, decay_after=5, decay_every=0.5)
    epochs = [0, 4.99, 5.0, 5.49, 5.5, 6.0, 6.5, 7.0, 7.49]
    halvings = [0, 0, 1, 1, 2, 3, 4, 5, 5]
    found = [learning_rate(1, halving, None, epochs=epoch) for epoch in epochs]
    assert found == pytest.approx([0.7 / 2**n for n in halvings])


@pytest.mark.parametrize(("after", "last"), [(5, 10), (8, 12)])
def test_luongs_rate_is_halved_every_epoch(after: int, last: int) -> None:
    """Luong et al. (2015), §4.1: rate 1, 10 epochs, halved after 5; with dropout 12 epochs, halved after 8."""
    halving = section(schedule="halving", lr=1.0, warmup_updates=0, decay_after=after)
    found = [learning_rate(1, halving, None, epochs=epoch + 0.5) for epoch in range(last)]
    assert found == pytest.approx([1.0] * after + [0.5**n for n in range(1, last - after + 1)])


def test_tenths_of_an_epoch_do_not_come_late_by_rounding() -> None:
    halving = section(schedule="halving", lr=1.0, warmup_updates=0, decay_after=0, decay_every=0.1)
    assert learning_rate(1, halving, None, epochs=0.1 + 0.2) == pytest.approx(0.5**4)
    assert learning_rate(1, halving, None, epochs=0.3) == pytest.approx(0.5**4)


def test_a_plateau_takes_a_tenth_for_every_decay() -> None:
    """Gehring et al. (2017), §4.2: 0.25, an order of magnitude at a time."""
    plateau = section(schedule="plateau", lr=0.25, warmup_updates=0, decay_factor=0.1)
    found = [learning_rate(1, plateau, None, n_decays=n) for n in range(4)]
    assert found == pytest.approx([0.25, 0.025, 0.0025, 0.00025])
