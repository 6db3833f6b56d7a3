"""Optimizer and learning-rate schedule from the recipe."""

from __future__ import annotations

import math

import torch
from torch import nn

from mtkit.errors import RecipeError
from mtkit.recipe import TrainSection


def build_optimizer(model: nn.Module, section: TrainSection) -> torch.optim.Optimizer:
    """Adam (Kingma and Ba 2015), AdamW (Loshchilov and Hutter 2019), SGD (with momentum as Sutskever et al. 2013) or
    Adadelta (Zeiler 2012).
    """
    if section.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=section.lr, momentum=section.momentum, nesterov=section.nesterov, fused=True
        )
    if section.optimizer == "adadelta":
        return torch.optim.Adadelta(model.parameters(), lr=section.lr, rho=section.rho, eps=section.eps)
    kind = torch.optim.AdamW if section.optimizer == "adamw" else torch.optim.Adam
    return kind(
        model.parameters(),
        lr=section.lr,
        betas=section.betas,
        eps=section.eps,
        weight_decay=section.weight_decay,
        fused=True,
    )


def learning_rate(
    update: int,
    section: TrainSection,
    d_model: int | None,
    *,
    epochs: float = 0.0,
    minutes: float = 0.0,
    n_decays: int = 0,
) -> float:
    """The rate of update 1, 2, 3, …, before which `epochs` and `minutes` have passed and validations have called for
    `n_decays`.

    - constant: lr after the warm-up.
    - noam: lr · d_model^-0.5 · min(update^-0.5, update · warmup^-1.5) (Vaswani et al. 2017, eq. 3; lr is a factor, 1 in
      the paper).
    - inverse_sqrt: lr at the end of the warm-up, then falling with update^-0.5.
    - cosine: from lr at the end of the warm-up to 0 at the last of `updates` or, without them, of `epochs` or else
      `max_minutes`, whose number of updates is reckoned from the pace so far.
    - halving: lr, times decay_factor once `decay_after` epochs are done, and again every `decay_every` epochs
      (Sutskever et al. 2014, §3.4: 5 and 0.5; Luong et al. 2015, §4.1: 5 and 1).
    - plateau: lr times decay_factor for every decay (Gehring et al. 2017, §4.2: 0.1).

    All but noam begin with a linear warm-up.
    """
    warmup = section.warmup_updates
    if section.schedule == "noam":
        if d_model is None:
            raise RecipeError("train.schedule: noam needs a model with a d_model")
        rise = update * warmup**-1.5 if warmup else math.inf
        return section.lr * d_model**-0.5 * min(update**-0.5, rise)
    if update < warmup:
        return section.lr * update / warmup
    if section.schedule == "inverse_sqrt":
        return section.lr * math.sqrt(max(warmup, 1) / update)
    if section.schedule == "cosine":
        progress = min(1.0, (update - warmup) / max(1, _last_update(update, section, epochs, minutes) - warmup))
        return section.lr * 0.5 * (1 + math.cos(math.pi * progress))
    if section.schedule == "halving":
        # Without the tiny number, 0.3 epochs after would count as less than three times 0.1.
        n_decays = 1 + math.floor((epochs - section.decay_after) / section.decay_every + 1e-9)
        return section.lr * section.decay_factor ** max(0, n_decays)
    if section.schedule == "plateau":
        return section.lr * section.decay_factor**n_decays
    return section.lr


def _last_update(update: int, section: TrainSection, epochs: float, minutes: float) -> float:
    """The update that ends the training."""
    end: float = getattr(section, section.ends_by)
    passed = {"updates": update - 1, "epochs": epochs, "max_minutes": minutes}[section.ends_by]
    return (update - 1) * end / passed if passed else math.inf


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
