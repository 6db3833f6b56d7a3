"""The training log: metrics.jsonl, train.log, the console line and the bar, all from the same numbers."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from mtkit.errors import TrainingError

METRICS_FILE = "metrics.jsonl"
LOG_FILE = "train.log"

_BAR = "{percentage:3.0f}% |{bar}| {postfix}"


def minutes_text(minutes: float) -> str:
    """A time that a reader takes in at once: `45 s`, `12 min`, `3 h 05 min`."""
    if minutes < 1:
        return f"{max(0, round(minutes * 60))} s"
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{int(minutes // 60)} h {int(minutes % 60):02d} min"


def to_stderr(text: str) -> None:
    """A message before there is a log; a reader of stderr that has left stops nothing."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


class TrainingLog:
    """Writes beside the run and to stderr; stdout stays free for results."""

    def __init__(self, run: Path, *, keep_until: int | None = None) -> None:
        """Open the log of a run; with `keep_until`, forget what was reported after that update."""
        self._metrics = run / METRICS_FILE
        self._log = run / LOG_FILE
        if keep_until is not None:
            _forget_after(run, keep_until)
        self._bar = tqdm(total=100, bar_format=_BAR, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False)

    def close(self) -> None:
        self._bar.close()

    def say(self, text: str) -> None:
        """One message for the reader, on stderr and in train.log."""
        with suppress(OSError):  # a reader of stderr that has left stops no training
            self._bar.write(text, file=sys.stderr)
        _append(self._log, f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")

    def record(self, entry: Mapping[str, Any]) -> None:
        """One object of metrics.jsonl; JSON has no infinity and no NaN, they become null."""
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in entry.items()
        }
        _append(self._metrics, json.dumps(finite, ensure_ascii=False, allow_nan=False) + "\n")

    def progress(self, fraction: float, minutes_left: float | None, loss_nats: float) -> None:
        """Move the bar: the part of the run that is done, and the time to its end."""
        left = f"{minutes_text(minutes_left)} left" if minutes_left is not None else "…"
        self._bar.n = round(100 * fraction, 1)
        self._bar.set_postfix_str(f"loss {loss_nats:.3f}, {left}", refresh=False)
        with suppress(OSError):
            self._bar.refresh()


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The objects of a run's metrics.jsonl, oldest first; none where there is no such file."""
    metrics = run / METRICS_FILE
    if not metrics.is_file():
        return []
    entries = []
    for line in metrics.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            entries.append(json.loads(line))
        except ValueError:  # the empty end, or a line cut by a kill
            continue
    return entries


def dev_curve(run: Path, against: Literal["minutes", "update"] = "minutes") -> list[tuple[float, float]]:
    """(minutes or update, dev BLEU) of a run's validations; an average of checkpoints is no point of the curve."""
    return [
        (float(entry[against]), float(entry["dev_bleu"]))
        for entry in read_metrics(run)
        if entry.get("checkpoint", "").startswith("update-")
    ]


def _append(path: Path, text: str) -> None:
    """Raises: TrainingError when the disk is full or refuses."""
    try:
        with path.open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except OSError as error:
        raise TrainingError(f"{path}: cannot be written ({error}); the checkpoints are intact") from error


def _forget_after(run: Path, update: int) -> None:
    """Drop what an interrupted run reported after its last checkpoint: those updates come again."""
    metrics = run / METRICS_FILE
    if not metrics.exists():
        return
    kept = [json.dumps(entry, ensure_ascii=False) + "\n" for entry in read_metrics(run) if entry["update"] <= update]
    aside = metrics.with_name(f".{metrics.name}.part")
    aside.write_text("".join(kept), encoding="utf-8", newline="\n")
    aside.replace(metrics)
