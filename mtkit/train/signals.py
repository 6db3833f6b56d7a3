"""Ctrl-C and SIGTERM end a training run after the update or dev batch at work; a second Ctrl-C ends it at once."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType


class Stopped(Exception):
    """Work that has no result yet is given up, for a stop was asked for."""


class StopRequest:
    """A context in which both signals ask the trainer to stop instead of killing it."""

    def __init__(self) -> None:
        self.requested = False
        self.reason = ""
        self.exit_status = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def check(self) -> None:
        """Raises: Stopped when one has been asked for."""
        if self.requested:
            raise Stopped

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
        self.reason = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        self.exit_status = 128 + number
