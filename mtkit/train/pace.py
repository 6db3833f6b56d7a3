"""How long the rest of a run takes."""

from __future__ import annotations

from collections import deque


class Pace:
    """The time left at the pace of late.

    The mean over the whole run would be wrong for hours after a run has gone on on a faster machine, or one that
    others have used meanwhile.
    """

    def __init__(self, n_reports: int, seconds: float, fraction: float) -> None:
        """Where the run stands now, as in `minutes_left`; the pace is that of the last `n_reports` reports."""
        self._seen: deque[tuple[float, float]] = deque([(seconds, fraction)], maxlen=n_reports + 1)

    def minutes_left(self, seconds: float, fraction: float) -> float | None:
        """To the end of the run; None while nothing tells.

        Args:
            seconds: spent on the run so far.
            fraction: of the run that is done, 0 to 1.
        """
        self._seen.append((seconds, fraction))
        then, fraction_then = self._seen[0]
        if fraction <= fraction_then:
            return None
        return (seconds - then) / 60 * (1 - fraction) / (fraction - fraction_then)
