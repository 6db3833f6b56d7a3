"""What training is about to do, in one table, before the first update."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
import torch
from rich.table import Table

from mtkit.data.store import TokenStore
from mtkit.recipe import Recipe
from mtkit.train.log import minutes_text
from mtkit.train.memory import forget_peak_memory, peak_memory_mib
from mtkit.train.trainer import Trainer

_LENGTH_STEPS = (10, 20, 30, 40, 50, 100)


class Rehearsal(NamedTuple):
    """What an update with the largest batch and one with a middling batch cost."""

    peak_memory_mib: float
    seconds_per_update: float


def rehearse(trainer: Trainer) -> Rehearsal:
    """An update with the largest batch and one with a middling batch; weights and random numbers stay untouched.

    A batch that does not fit in memory, beside what the optimizer keeps, is found here and not in the middle of the
    first epoch.
    """
    forget_peak_memory(trainer.device)
    padded = [
        len(rows) * (int(trainer.store.src_lengths[rows].max()) + int(trainer.store.trg_lengths[rows].max()))
        for rows in trainer.epoch_batches
    ]
    by_size = np.argsort(padded)
    largest, middling = trainer.epoch_batches[by_size[-1]], trainer.epoch_batches[by_size[len(by_size) // 2]]
    with torch.random.fork_rng(devices=[trainer.device] if trainer.device.type == "cuda" else []):
        seconds_of_step = trainer.rehearse_step()
        trainer.gradients_of(largest)
        trainer.gradients_of(middling)  # the first pass over a shape is no measure: its kernels are made then
        trainer.wait_for_device()
        begun = time.monotonic()
        trainer.gradients_of(middling)
        trainer.wait_for_device()
        seconds = (time.monotonic() - begun) * trainer.section.accumulate + seconds_of_step
    trainer.forget_rehearsal()
    peak = peak_memory_mib(trainer.device)
    trainer.pages.allow(peak)
    return Rehearsal(peak, seconds)


def preflight_table(
    recipe: Recipe,
    store: TokenStore,
    trainer: Trainer,
    rehearsal: Rehearsal,
    overlap: dict[str, int],
    n_held_out: dict[str, int],
) -> Table:
    """The table of what was read, what will be trained and how long it will take here."""
    table = Table(title=f"{recipe.name}: before the first update", show_header=False, title_justify="left")
    table.add_column("what")
    table.add_column("figure")
    rows = [("pairs read", f"{store.read:,}")]
    rows += [(f"  dropped: {cause}", f"{count:,}") for cause, count in store.dropped.items() if count]
    rows.append(("pairs to train on", f"{len(store):,}"))
    if store.invalid:
        rows.append(("lines with invalid UTF-8", f"{store.invalid:,} (bad bytes replaced by U+FFFD)"))
    rows.append((f"length in tokens, {recipe.data.src}", _histogram(store.src_lengths)))
    rows.append((f"length in tokens, {recipe.data.trg}", _histogram(store.trg_lengths)))
    rows.append(("unknown tokens", " / ".join(f"{100 * rate:.2f} %" for rate in store.unknown_rate)))
    rows += [
        (f"pairs of {name} also in training", f"{count:,} of {n_held_out[name]:,}") for name, count in overlap.items()
    ]
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    rows.append(("parameters", f"{parameters:,}"))
    rows.append(("batches an epoch", f"{len(trainer.epoch_batches):,}"))
    rows.append(("padding", f"{100 * _padding(trainer):.1f} % of the tokens"))
    rows.append(("arithmetic", f"{trainer.precision} on {trainer.device}, {torch.get_num_threads()} threads"))
    rows.append(("gradient divided by", f"the {trainer.section.normalize} of an update"))
    rows.append(("memory with the largest batch", f"{rehearsal.peak_memory_mib:,.0f} MiB"))
    if math.isfinite(trainer.pages.limit_mib):
        rows.append(("memory kept at most", f"{trainer.pages.limit_mib:,.0f} MiB"))
    rows.append(("time to the end, estimated", _estimate(trainer, rehearsal)))
    for what, figure in rows:
        table.add_row(what, figure)
    return table


def _histogram(lengths: np.ndarray) -> str:
    edges = [1, *_LENGTH_STEPS, np.iinfo(np.int32).max]
    counts, _ = np.histogram(lengths, bins=edges)
    names = [f"{low}–{high - 1}" for low, high in zip((1, *_LENGTH_STEPS), _LENGTH_STEPS, strict=False)]
    names.append(f"{_LENGTH_STEPS[-1]}+")
    shown = [f"{name}: {count:,}" for name, count in zip(names, counts, strict=True) if count]
    return f"mean {lengths.mean():.1f}  ({', '.join(shown)})"


def _padding(trainer: Trainer) -> float:
    """Share of padding among all tokens of an epoch's batches, both sides."""
    real = padded = 0
    for lengths in (trainer.store.src_lengths, trainer.store.trg_lengths):
        real += int(lengths.sum())
        padded += sum(len(rows) * int(lengths[rows].max()) for rows in trainer.epoch_batches)
    return 1 - real / padded


def _estimate(trainer: Trainer, rehearsal: Rehearsal) -> str:
    section = trainer.section
    per_epoch = -(-len(trainer.epoch_batches) // section.accumulate)
    minutes = []
    if section.updates is not None:
        minutes.append(section.updates * rehearsal.seconds_per_update / 60)
    if section.epochs is not None:
        minutes.append(section.epochs * per_epoch * rehearsal.seconds_per_update / 60)
    if section.max_minutes is not None:
        minutes.append(section.max_minutes)
    return f"{minutes_text(min(minutes))}, without validation; {rehearsal.seconds_per_update:.2f} s an update"
