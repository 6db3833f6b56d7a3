"""mtkit in a terminal, a real one of the system: bars, tables, a word to who types."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

RECIPE = """
name: terminal
data: {src: en, trg: de, root: ., train: "synthetic:train,pairs=60", dev: "synthetic:dev,pairs=4"}
text: {subword: word, vocab_size: 60}
model: {type: rnnencdec, preset: tiny}
train: {updates: 3, report_every: 1, precision: fp32}
search: {max_length_ratio: 0, max_length_extra: 3}
"""
BAR, DRAWN = "% |", "┃"


class Terminal:
    """One side of a pseudo-terminal; what a process writes to the other is read here."""

    def run(self, *arguments: object, stdout: bool, typed: str | None = None) -> tuple[int, str, str]:
        """Exit status, what stood on the terminal, and what stdout gave, if that was none."""
        here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))  # rows and columns
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "mtkit", *map(str, arguments)],
                stdin=subprocess.DEVNULL if typed is None else there,
                stdout=there if stdout else subprocess.PIPE,
                stderr=there,
                env={**os.environ, "TERM": "xterm"},
            )
        finally:
            os.close(there)
        if typed is not None:
            os.write(here, typed.encode())
        shown = self._read(here)
        piped = ""
        if process.stdout:
            with process.stdout:
                piped = process.stdout.read().decode()
        return process.wait(), shown, piped

    def _read(self, here: int) -> str:
        """All that comes until the process has left: then reading is an error, or gives nothing."""
        parts = []
        try:
            while part := os.read(here, 65536):
                parts.append(part)
        except OSError:
            pass
        finally:
            os.close(here)
        return b"".join(parts).decode()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[int, str, str]]:
    """A run that was trained before the eyes of a user, and what that user saw."""
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    arguments = ("train", folder / "recipe.yaml", "--output", folder / "run", "--device", "cpu")
    return folder / "run", Terminal().run(*arguments, stdout=False)


def test_training_shows_a_bar_and_gives_out_the_folder_alone(trained: tuple[Path, tuple[int, str, str]]) -> None:
    run, (exit_status, shown, piped) = trained
    assert exit_status == 0, shown
    assert piped == f"{run}\n"
    assert BAR in shown and "update 3" in shown
    assert BAR not in (run / "train.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("to_file", [True, False])
def test_translating_a_file_shows_a_bar_unless_results_scroll_by(
    trained: tuple[Path, tuple[int, str, str]], tmp_path: Path, to_file: bool
) -> None:
    (tmp_path / "source").write_text("The old dog sees the cat.\n" * 3, encoding="utf-8")
    output = ("--output", tmp_path / "out") if to_file else ()
    arguments = ("translate", trained[0], tmp_path / "source", *output, "--device", "cpu")
    exit_status, shown, _ = Terminal().run(*arguments, stdout=True)
    assert exit_status == 0, shown
    assert (" lines" in shown) is to_file
    assert len((tmp_path / "out").read_text(encoding="utf-8").splitlines() if to_file else shown.splitlines()) == 3


def test_who_is_awaited_to_type_is_told_so(trained: tuple[Path, tuple[int, str, str]]) -> None:
    arguments = ("translate", trained[0], "--device", "cpu")
    exit_status, shown, piped = Terminal().run(*arguments, stdout=False, typed="The dog sleeps.\n\x04")
    assert exit_status == 0, shown
    assert "mtkit: type a line to translate; Ctrl-D ends" in shown
    assert len(piped.splitlines()) == 1


@pytest.mark.parametrize("stdout", [True, False])
@pytest.mark.parametrize("arguments", [("data", "stats", "synthetic:train,pairs=20"), ("models",)])
def test_tables_are_drawn_on_a_terminal_and_plain_in_a_pipe(arguments: tuple[str, ...], stdout: bool) -> None:
    exit_status, shown, piped = Terminal().run(*arguments, stdout=stdout)
    assert exit_status == 0, shown
    assert (DRAWN in shown) is stdout
    assert DRAWN not in piped and bool(piped) is not stdout
