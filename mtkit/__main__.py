"""python -m mtkit, and the console script."""

import signal
from types import FrameType

from mtkit.cli import app


def main() -> None:
    signal.signal(signal.SIGTERM, _leave)
    app(prog_name="mtkit")


def _leave(number: int, frame: FrameType | None) -> None:
    """End as on any error: what is half written is taken away. Training saves a checkpoint instead."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
