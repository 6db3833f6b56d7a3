"""mtkit translate as a filter, in real processes: locales, line ends, hard lines, readers that leave."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtkit.models import parse_config
from mtkit.recipe import load_recipe
from mtkit.train.experiment import train

RECIPE = """
name: pipes
data: {src: a, trg: b, train: train, dev: dev}
text: {subword: char, vocab_size: 60}
model: {type: transformer, preset: tiny}
train: {updates: 60, batch_tokens: 300, lr: 1e-2, warmup_updates: 5, precision: fp32, save_every: 60}
search: {beam_size: 2, max_length_ratio: 1, max_length_extra: 2, max_source_tokens: 50}
"""

HARD_LINES = [
    b"",
    b" \t ",
    "a\u2028b".encode(),
    "a\u0085b".encode(),
    b"a\x0cb",
    b"a\tb",
    b"a\x00b",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467".encode(),
    "\u05e9\u05dc\u05d5\u05dd \u202eabc\u202c\u200f".encode(),
    b" ".join([b"dog"] * 3000),
    "<s> </s> \u2581".encode(),
    b"bad \xff\xfe bytes",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of letters; what it says is of no interest here."""
    folder = tmp_path_factory.mktemp("pipes")
    lines = [f"{word} {other} caf\u00e9" for word in ("ab", "dog", "cat", "runs") for other in ("big", "old", "so")]
    for name in ("train", "dev"):
        for side in "ab":
            (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    train(load_recipe(folder / "recipe.yaml", parse_model=parse_config), folder / "run", device="cpu")
    return folder / "run"


def mtkit(*arguments: str, text: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "mtkit", *arguments]
    return subprocess.run(command, input=text, capture_output=True, env={**os.environ, **environment}, check=False)


def test_hard_lines_stay_lines(model: Path) -> None:
    done = mtkit("translate", str(model), text=b"\n".join(HARD_LINES) + b"\n")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split(b"\n")
    assert lines.pop() == b""
    assert len(lines) == 12
    assert lines[:2] == [b"", b""]
    alone = [mtkit("translate", str(model), text=HARD_LINES[row] + b"\n").stdout for row in (2, 4, 9)]
    assert alone == [lines[row] + b"\n" for row in (2, 4, 9)]
    assert b"<stdin>:12: invalid UTF-8" in done.stderr
    assert b"line 10" in done.stderr and b"cut to the first 50" in done.stderr


def test_the_locale_changes_nothing(model: Path) -> None:
    text = "ab caf\u00e9 dog\n".encode()
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert mtkit("translate", str(model), text=text).stdout == mtkit("translate", str(model), text=text, **plain).stdout
    told = mtkit("info", str(model), **plain)
    assert (told.returncode, told.stderr) == (0, b"")
    assert "a \u2192 b".encode() in told.stdout


def test_line_ends_change_nothing(model: Path) -> None:
    unix = mtkit("translate", str(model), text=b"ab dog\n\ncat so\n")
    assert mtkit("translate", str(model), text=b"ab dog\r\n\r\ncat so\r\n").stdout == unix.stdout
    assert unix.stdout.count(b"\n") == 3


def test_file_and_pipe_give_the_same_bytes(model: Path, tmp_path: Path) -> None:
    text = b"".join(b"%d dogs\n" % number for number in range(30))
    (tmp_path / "in").write_bytes(text)
    piped = mtkit("translate", str(model), text=text).stdout
    assert piped.count(b"\n") == 30
    assert mtkit("translate", str(model), str(tmp_path / "in")).stdout == piped
    assert mtkit("translate", str(model), str(tmp_path / "in"), "-o", str(tmp_path / "out")).stdout == b""
    assert (tmp_path / "out").read_bytes() == piped


def test_a_reader_that_leaves_ends_it_quietly(model: Path) -> None:
    script = f"yes 'a dog runs .' | {sys.executable} -m mtkit translate {model} | head -3; echo ${{PIPESTATUS[@]:1}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    lines = done.stdout.split(b"\n")
    assert lines[3] == b"0 0"
    assert len(set(lines[:3])) == 1
    assert done.stderr == b""


def test_a_full_disk_is_one_message(model: Path) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "mtkit", "translate", str(model)]
        done = subprocess.run(command, input=b"ab\n", stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [b"mtkit: No space left on device"]


def test_a_lost_stderr_stops_no_training(model: Path, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        command = [
            sys.executable,
            "-m",
            "mtkit",
            "train",
            str(model / "recipe.yaml"),
            "--output",
            str(tmp_path / "run"),
        ]
        command += ["--set", "train.updates=3", "--device", "cpu"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=write, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'run'}\n".encode())
    assert (tmp_path / "run" / "checkpoints" / "update-3").is_dir()
