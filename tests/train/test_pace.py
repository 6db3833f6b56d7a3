"""The time that a run still takes."""

from __future__ import annotations

import pytest

from mtkit.train.pace import Pace


def test_an_even_run_ends_when_its_pace_says() -> None:
    pace = Pace(3, 0, 0.0)
    assert pace.minutes_left(60, 0.25) == pytest.approx(3)
    assert pace.minutes_left(120, 0.5) == pytest.approx(2)
    assert pace.minutes_left(240, 1.0) == 0


def test_what_was_slow_before_the_run_went_on_does_not_count() -> None:
    """Ten hours for the first half elsewhere; here a tenth of the run takes a minute."""
    pace = Pace(3, 36_000, 0.5)
    assert pace.minutes_left(36_060, 0.6) == pytest.approx(4)


def test_a_slow_stretch_is_forgotten_after_some_reports() -> None:
    pace = Pace(2, 0, 0.0)
    pace.minutes_left(6_000, 0.1)
    pace.minutes_left(6_060, 0.2)
    assert pace.minutes_left(6_120, 0.3) == pytest.approx(7)


def test_nothing_is_said_before_anything_has_moved() -> None:
    assert Pace(3, 10, 0.2).minutes_left(20, 0.2) is None
