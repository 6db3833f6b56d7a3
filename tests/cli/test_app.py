"""The app: help, version, errors as one message, closed pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mtkit import __version__
from mtkit.cli import app, speaking_errors
from mtkit.errors import DataError, TrainingError

runner = CliRunner()


def commands(group: typer.Typer, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and group of commands, as it is typed."""
    for command in group.registered_commands:
        assert command.callback is not None
        yield (*path, command.name or command.callback.__name__)
    for each in group.registered_groups:
        assert each.name is not None
        assert each.typer_instance is not None
        yield (*path, each.name)
        yield from commands(each.typer_instance, (*path, each.name))


def test_the_help_names_every_command() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    for path in commands(app):
        if len(path) == 1:
            assert f" {path[0]} " in result.stdout


@pytest.mark.parametrize("path", list(commands(app)), ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    result = runner.invoke(app, [*path, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.stdout
    has_commands = any(longer[: len(path)] == path and len(longer) > len(path) for longer in commands(app))
    assert has_commands or re.search("Examples?:", result.stdout)


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["translate", "--help"], ["nosuch"]])
def test_help_and_typing_errors_need_no_heavy_import(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['mtkit', *{arguments}]\n"
        "from mtkit.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print(sorted({'torch', 'matplotlib', 'datasets', 'sacrebleu'} & sys.modules.keys()), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("[]\n"), done.stderr


def test_the_version_is_that_of_the_package() -> None:
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"mtkit {__version__}\n")


def test_an_unknown_command_or_option_is_a_wrong_request() -> None:
    result = runner.invoke(app, ["trian"])
    assert result.exit_code == 2
    assert "No such command 'trian'" in result.stderr
    assert "train" in result.stderr.replace("trian", "")
    assert result.stdout == ""
    result = runner.invoke(app, ["train", "--nosuch"])
    assert result.exit_code == 2
    assert "--nosuch" in result.stderr


def test_an_error_is_one_message_and_a_status() -> None:
    result = runner.invoke(app, ["info", "nosuch"])
    assert result.exit_code == 2
    assert result.stderr == "mtkit: nosuch: no such folder; a model is the folder that mtkit train wrote\n"
    assert result.stdout == ""


@pytest.mark.parametrize(("error", "status"), [(TrainingError("the disk is full"), 1), (DataError("x: empty"), 2)])
def test_failed_work_and_wrong_requests_differ_in_status(error: Exception, status: int) -> None:
    def fail() -> None:
        raise error

    small = typer.Typer()
    small.command()(speaking_errors(fail))
    result = runner.invoke(small, [])
    assert result.exit_code == status
    assert result.stderr == f"mtkit: {error}\n"


HALF_WRITTEN = """
import sys, time
from mtkit import __main__
from mtkit.text.lines import open_output

def write(prog_name):
    with open_output(sys.argv[1]) as stream:
        stream.write(b"half")
        print("begun", flush=True)
        time.sleep(60)

__main__.app = write
__main__.main()
"""


def test_sigterm_leaves_nothing_half_written(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HALF_WRITTEN, str(tmp_path / "out.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.terminate()
        assert process.wait(timeout=30) == 143
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_is_no_error_message() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    small = typer.Typer()
    small.command()(speaking_errors(interrupted))
    result = runner.invoke(small, [])
    assert (result.exit_code, result.stderr) == (130, "")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ZeroDivisionError("by\nzero"), "ZeroDivisionError: by; mtkit --debug shows where, and helps us to mend it"),
        (KeyError(), "KeyError: KeyError; mtkit --debug shows where, and helps us to mend it"),
        (RuntimeError("CUDA out of memory. Tried\nhard"), "out of memory (CUDA out of memory. Tried)"),
        (PermissionError(13, "Permission denied", "a.txt"), "a.txt: Permission denied"),
    ],
)
def test_an_error_that_no_one_foresaw_is_one_line_too(error: Exception, message: str) -> None:
    def broken() -> None:
        raise error

    small = typer.Typer()
    small.command()(speaking_errors(broken))
    result = runner.invoke(small, [])
    assert result.exit_code == 1
    assert result.stderr == f"mtkit: {message}\n"


def test_debug_shows_where_an_error_comes_from() -> None:
    command = [sys.executable, "-m", "mtkit", "--debug", "info", "nosuch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback (most recent call last)")
    assert "ModelError: nosuch: no such folder" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("mtkit: nosuch: no such folder")


CLOSED_PIPE = """
import sys, typer
from mtkit.cli import speaking_errors

def speak():
    for number in range(int(sys.argv[1])):
        print("a line of results")

small = typer.Typer()
small.command()(speaking_errors(speak))
small([])
"""


@pytest.mark.parametrize("n_lines", [1, 100_000])
def test_a_reader_that_has_left_is_no_error(n_lines: int) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        command = [sys.executable, "-c", CLOSED_PIPE, str(n_lines)]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
