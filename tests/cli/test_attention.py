"""mtkit attention: maps in the terminal and as pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mtkit.cli import app
from mtkit.evaluate.plots import attention_text

runner = CliRunner()


def attention(*arguments: object) -> Result:
    return runner.invoke(app, ["attention", *map(str, arguments), "--device", "cpu"])


@pytest.fixture(scope="module")
def runs(make_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("attention")
    return {backend: make_run(folder, backend) for backend in ("transformer", "rnnsearch", "seq2seq")}


def test_a_given_pair_is_shaded_row_by_row(runs: dict[str, Path]) -> None:
    result = attention(runs["rnnsearch"], "the dog sees", "a man")
    assert result.exit_code == 0, result.stderr
    title, blank, header, *rows, also_blank, legend = result.stdout.splitlines()
    assert (title, blank, also_blank) == ("attention: a man", "", "")
    assert header.split() == ["1", "2", "3", "4"]
    assert [row.split()[0] for row in rows] == ["▁a", "▁man", "</s>"]
    assert legend == "1 ▁the 2 ▁dog 3 ▁sees 4 </s>"


def test_without_a_target_the_models_own_translation_is_shown(runs: dict[str, Path]) -> None:
    translated = runner.invoke(app, ["translate", str(runs["rnnsearch"]), "-"], input="the dog\n").stdout.strip()
    assert attention(runs["rnnsearch"], "the dog").stdout.splitlines()[0] == f"attention: {translated}"


@pytest.mark.parametrize(
    ("arguments", "title", "columns"),
    [
        ([], "layer 1, mean of the heads", "1 ▁the 2 ▁dog 3 </s>"),
        (["--layer", 2, "--head", 1], "layer 2, head 1", "1 ▁the 2 ▁dog 3 </s>"),
        (["--part", "encoder", "--head", 2], "layer 1, head 2", "1 ▁the 2 ▁dog 3 </s>"),
        (["--part", "decoder"], "layer 1, mean of the heads", "1 <s> 2 ▁a 3 ▁man"),
    ],
)
def test_a_layer_and_head_of_a_part_can_be_chosen(
    runs: dict[str, Path], arguments: list[object], title: str, columns: str
) -> None:
    result = attention(runs["transformer"], "the dog", "a man", *arguments)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0] == f"{title}: a man"
    assert result.stdout.splitlines()[-1] == columns


@pytest.mark.parametrize("name", ["map.png", "map.svg", "map.pdf"])
def test_a_map_is_drawn_to_a_file(runs: dict[str, Path], tmp_path: Path, name: str) -> None:
    for arguments in ([], ["--all"], ["--scale", "log"]):
        result = attention(runs["transformer"], "the dog", "--output", tmp_path / name, *arguments)
        assert (result.exit_code, result.stdout) == (0, f"{tmp_path / name}\n")
        start = (tmp_path / name).read_bytes()[:400]
        assert {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}[name[-3:]] in start
        (tmp_path / name).unlink()


def test_an_svg_holds_the_tokens_of_both_axes(runs: dict[str, Path], tmp_path: Path) -> None:
    attention(runs["transformer"], "the dog", "a man", "--part", "encoder", "--output", tmp_path / "map.svg")
    text = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert text.count(">▁dog<") == 2 and "▁man" not in text
    assert text.count(">source<") == 2


@pytest.mark.parametrize(
    ("backend", "arguments", "message"),
    [
        ("seq2seq", ["the dog"], "seq2seq has no attention to show"),
        ("rnnsearch", [" "], "the source is empty"),
        ("rnnsearch", ["the dog", "--part", "encoder"], "attends to the source alone"),
        ("transformer", ["the dog", "--layer", "3"], "--layer 3: there are the layers 1 to 2"),
        ("transformer", ["the dog", "--head", "3"], "--head 3: there are the heads 1 to 2"),
        ("transformer", ["the dog", "--all"], "name its file with --output"),
        ("transformer", ["the dog", "--all", "--head", "1", "-o", "x.png"], "leave --layer and --head out"),
        ("transformer", ["the dog", "-o", "x.gif"], "expected a file name ending in one of .png, .svg, .pdf"),
    ],
)
def test_what_cannot_be_shown_is_said(runs: dict[str, Path], backend: str, arguments: list[str], message: str) -> None:
    result = attention(runs[backend], *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_shades_go_by_fifths_or_by_powers_of_ten() -> None:
    """CH-93: 0.05, 0.25, 0.45, 0.65 and 1 are five shades; on the log scale a hundredth is half the way to 1e-4."""
    linear = attention_text([[0.05, 0.25, 0.45, 0.65, 1.0]], list("abcde"), ["x"])
    assert linear.splitlines()[1] == "x   ░░▒▒▓▓██"
    log = attention_text([[1e-5, 0.01, 1.0]], list("abc"), ["x"], scale="log")
    assert log.splitlines()[1] == "x   ▒▒██"


def test_chinese_rows_stay_in_line() -> None:
    shown = attention_text([[1.0], [1.0]], ["a"], ["苹果", "x"]).splitlines()
    assert shown[1] == "苹果 ██" and shown[2] == "x    ██"
