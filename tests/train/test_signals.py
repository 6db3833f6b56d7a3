"""Ctrl-C and SIGTERM: the first asks, a second Ctrl-C insists."""

from __future__ import annotations

import os
import signal

import pytest

from mtkit.train.signals import StopRequest


@pytest.mark.parametrize(
    ("number", "reason", "status"), [(signal.SIGINT, "Ctrl-C", 130), (signal.SIGTERM, "SIGTERM", 143)]
)
def test_a_signal_is_a_wish(number: int, reason: str, status: int) -> None:
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert (stop.requested, stop.exit_status) == (False, 0)
        os.kill(os.getpid(), number)
        assert stop.requested
        assert (stop.reason, stop.exit_status) == (reason, status)
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_leaves_at_once() -> None:
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_second_sigterm_of_an_impatient_system_still_saves() -> None:
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
