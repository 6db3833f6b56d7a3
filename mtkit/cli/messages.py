"""What commands tell on stderr beside their results; a progress bar that is there is not torn."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

_MOST_TOLD = 20


def warn(message: str) -> None:
    from tqdm import tqdm

    with suppress(OSError):  # a reader of stderr that has left stops no work
        tqdm.write(f"mtkit: warning: {message}", file=sys.stderr)


def report_kept(path: Path) -> None:
    """Tell where the part of a result is that was written before the work ended."""
    warn(f"not all was done; what was written before stays in {path}")


class InvalidLines:
    """Tells of lines with invalid UTF-8, as the readers of `mtkit.text.lines` find them: of the first ones."""

    def __init__(self) -> None:
        self._n_told = 0

    def __call__(self, name: str, number: int) -> None:
        self._n_told += 1
        if self._n_told <= _MOST_TOLD:
            warn(f"{name}:{number}: invalid UTF-8, replaced by U+FFFD")
        elif self._n_told == _MOST_TOLD + 1:
            warn(f"{name}:{number}: invalid UTF-8 again; of more lines nothing is told. Is it UTF-8 text?")
