"""mtkit attention: maps in the terminal and as pictures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from mtkit.checkpoint import load_model, save_checkpoint, tokenizer_fingerprints, unique_tensors
from mtkit.cli import app
from mtkit.evaluate.plots import attention_text
from mtkit.models import parse_config
from mtkit.recipe import dump_recipe, load_recipe
from mtkit.text.tokenizer import UNK_ID

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
    title, blank, header, *rows, also_blank, key, legend = result.stdout.splitlines()
    assert (title, blank, also_blank) == ("attention: a man", "", "")
    assert header.split() == ["1", "2", "3", "4"]
    assert [row.split()[0] for row in rows] == ["▁a", "▁man", "</s>"]
    assert key.startswith("░░ from 0.") and "; the largest weight is 0." in key
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


def test_shades_go_by_fifths_of_the_largest_weight_or_of_its_powers_of_ten() -> None:
    """CH-93: 0.025 to 0.5 are five shades; on the log scale a tenth of 1 is three quarters of the way from 1e-4."""
    linear = attention_text([[0.025, 0.125, 0.225, 0.325, 0.5]], list("abcde"), ["x"]).splitlines()
    assert linear[1] == "x   ░░▒▒▓▓██"
    assert linear[3] == "░░ from 0.1, ▒▒ from 0.2, ▓▓ from 0.3, ██ from 0.4; the largest weight is 0.5"
    log = attention_text([[1e-5, 0.01, 0.1, 1.0]], list("abcd"), ["x"], scale="log").splitlines()
    assert log[1] == "x   ▒▒▓▓██"
    assert log[3] == "░░ from 0.00063, ▒▒ from 0.004, ▓▓ from 0.025, ██ from 0.16; the largest weight is 1"


def test_numbers_of_many_columns_stay_apart_over_their_columns() -> None:
    header = attention_text(np.eye(1, 105), ["a"] * 105, ["x"]).splitlines()[0]
    numbers = {int(found.group()): found.end() for found in re.finditer(r"\d+", header)}
    assert list(numbers) == [*range(1, 9), *range(10, 106, 5)]
    assert all(end == 2 + 2 * number for number, end in numbers.items())


def test_the_models_own_unknown_word_is_one_token(make_run: Callable[..., Path], tmp_path: Path) -> None:
    """The text `<unk>` would be cut into three."""
    run = make_run(tmp_path, "rnnsearch")
    recipe = load_recipe(run / "recipe.yaml", parse_model=parse_config)
    kept = recipe.model_copy(update={"search": recipe.search.model_copy(update={"unknown": "keep", "beam_size": 1})})
    (run / "recipe.yaml").write_text(dump_recipe(kept), encoding="utf-8")
    loaded = load_model(run)
    with torch.no_grad():
        loaded.model.output.bias[UNK_ID] += 1000
    weights = unique_tensors(loaded.model)
    state = {"update": 30, "tokenizers": tokenizer_fingerprints(loaded.tokenizers), "bitext": "x"}
    folder = save_checkpoint(run, "update-30", weights, {}, state)
    result = attention(folder, "the dog")
    assert result.exit_code == 0, result.stderr
    rows = result.stdout.split("\n\n")[1].splitlines()[1:]
    assert {row.split()[0] for row in rows} == {"<unk>", "</s>"}


def test_a_grid_names_its_sentence_and_its_axes(runs: dict[str, Path], tmp_path: Path) -> None:
    picture = tmp_path / "grid.svg"
    attention(runs["transformer"], "the dog", "a man", "--all", "--output", picture)
    text = picture.read_text(encoding="utf-8")
    assert ">the dog → a man<" in text and ">source<" in text and ">target<" in text
    assert text.count(">▁dog<") == 2, "below the lower two of four maps"
    assert text.count(">▁man<") == 2, "beside the left two"


def test_a_grid_of_the_only_map_is_that_map_with_its_tokens(runs: dict[str, Path], tmp_path: Path) -> None:
    picture = tmp_path / "grid.svg"
    result = attention(runs["rnnsearch"], "the dog " * 12, "a man", "--all", "--output", picture)
    assert result.exit_code == 0, result.stderr
    text = picture.read_text(encoding="utf-8")
    assert text.count(">▁dog<") == 12 and text.count(">▁man<") == 1
    assert text.count(">source<") == text.count(">target<") == 1


def test_a_picture_that_cannot_be_written_is_told_before_the_model_is_read(tmp_path: Path) -> None:
    result = attention(tmp_path / "no model", "the dog", "--output", tmp_path / "no folder" / "map.png")
    assert result.exit_code == 2
    assert "there is no folder" in result.stderr


def test_a_failing_picture_leaves_the_old_one(runs: dict[str, Path], tmp_path: Path, monkeypatch) -> None:
    picture = tmp_path / "map.png"
    picture.write_bytes(b"old")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: 1 / 0)
    attention(runs["rnnsearch"], "the dog", "--output", picture)
    assert picture.read_bytes() == b"old" and list(tmp_path.iterdir()) == [picture]


def test_chinese_rows_stay_in_line() -> None:
    shown = attention_text([[1.0], [1.0]], ["a"], ["苹果", "x"]).splitlines()
    assert shown[1] == "苹果 ██" and shown[2] == "x    ██"
