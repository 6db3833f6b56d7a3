"""metrics.jsonl, train.log and times that a reader takes in at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtkit.errors import TrainingError
from mtkit.train.log import LOG_FILE, METRICS_FILE, TrainingLog, minutes_text, read_metrics


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path)
    log.record({"update": 1, "loss_nats": 2.5})
    log.record({"update": 2, "of": "Größe\u2028x"})
    log.close()
    assert read_metrics(tmp_path) == [{"update": 1, "loss_nats": 2.5}, {"update": 2, "of": "Größe\u2028x"}]
    assert b"\r" not in (tmp_path / METRICS_FILE).read_bytes()


def test_what_is_said_goes_to_stderr_and_into_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = TrainingLog(tmp_path)
    log.say("source  größer [bold]")
    log.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "source  größer [bold]\n"
    assert (tmp_path / LOG_FILE).read_text(encoding="utf-8").endswith("  source  größer [bold]\n")


def test_a_run_that_goes_on_forgets_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    entries = [f'{{"update": {update}}}\n' for update in (1, 2, 3, 4)]
    (tmp_path / METRICS_FILE).write_text("".join(entries) + '{"upda', encoding="utf-8")  # killed while writing
    log = TrainingLog(tmp_path, keep_until=2)
    log.record({"update": 3, "again": True})
    log.close()
    assert read_metrics(tmp_path) == [{"update": 1}, {"update": 2}, {"update": 3, "again": True}]


def test_a_line_cut_by_a_kill_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).write_bytes(b'{"update": 1}\n{"update": 2, "of": "\xc3')
    assert read_metrics(tmp_path) == [{"update": 1}]


def test_a_run_without_metrics_has_none(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []


def test_a_log_that_cannot_be_written_ends_the_run_with_a_message(tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).mkdir()
    log = TrainingLog(tmp_path)
    with pytest.raises(TrainingError, match=r"metrics.jsonl: cannot be written \(.*\); the checkpoints are intact"):
        log.record({"update": 1})
    log.close()


@pytest.mark.parametrize(
    ("minutes", "text"),
    [(-1, "0 s"), (0.75, "45 s"), (1, "1 min"), (12.4, "12 min"), (89.4, "89 min"), (185, "3 h 05 min")],
)
def test_times_are_short(minutes: float, text: str) -> None:
    assert minutes_text(minutes) == text
