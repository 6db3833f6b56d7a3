"""What is told on stderr beside results."""

from __future__ import annotations

import io
import sys

import pytest

from mtkit.cli.messages import InvalidLines, warn


def test_of_many_invalid_lines_the_first_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    report = InvalidLines()
    for number in range(1, 1001):
        report("a.txt", number)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 21
    assert told[0] == "mtkit: warning: a.txt:1: invalid UTF-8, replaced by U+FFFD"
    assert told[-1].startswith("mtkit: warning: a.txt:21: invalid UTF-8 again; of more lines nothing is told")


def test_a_reader_of_warnings_that_has_left_stops_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Left(io.StringIO):
        n_written = 0

        def write(self, text: str) -> int:
            self.n_written += 1
            raise BrokenPipeError

    left = Left()
    monkeypatch.setattr(sys, "stderr", left)
    warn("no one reads this")
    assert left.n_written > 0
