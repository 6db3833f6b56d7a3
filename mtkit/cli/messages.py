"""What commands tell on stderr beside their results; a progress bar that is there is not torn."""

from __future__ import annotations

import sys


def warn(message: str) -> None:
    from tqdm import tqdm

    tqdm.write(f"mtkit: warning: {message}", file=sys.stderr)


def report_invalid(name: str, number: int) -> None:
    """Tell of a line with invalid UTF-8, as the readers of `mtkit.text.lines` find it."""
    warn(f"{name}:{number}: invalid UTF-8, replaced by U+FFFD")
