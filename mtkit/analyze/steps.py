"""How much work a search does: decoder steps, counted where they are made."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mtkit.models import Step, TranslationModel


@dataclass
class StepCount:
    """What has been counted so far."""

    rows: int = 0  # hypotheses that a model has read one more token of
    calls: int = 0  # of any number of rows


@contextmanager
def counted_steps(models: Sequence[TranslationModel]) -> Iterator[StepCount]:
    """Count every step of these models, each model for itself, while the context lasts."""
    count = StepCount()

    def counting(step: Any) -> Any:
        @functools.wraps(step)
        def counted(prev: Tensor, *rest: Any, **named: Any) -> Step:
            count.rows += len(prev)
            count.calls += 1
            return step(prev, *rest, **named)

        return counted

    for model in models:
        model.step = counting(model.step)  # type: ignore[method-assign]
    try:
        yield count
    finally:
        for model in models:
            del model.step
