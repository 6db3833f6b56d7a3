"""mtkit train: options, messages, exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mtkit.checkpoint import list_updates
from mtkit.cli import app
from mtkit.recipe import load_recipe

runner = CliRunner()


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe for one update of a tiny model."""
    for name, lines in (("train", ["1 2 3", "2 3", "3 1 2 1"] * 5), ("dev", ["1 3 2", "2 1"])):
        for side in ("a", "b"):
            (tmp_path / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    keys = {
        "name": "digits",
        "data": {"src": "a", "trg": "b", "train": "train", "dev": "dev"},
        "text": {"subword": "word", "vocab_size": 12},
        "model": {"type": "transformer", "preset": "tiny", "n_layers": 1},
        "train": {"updates": 1, "precision": "fp32"},
    }
    path = tmp_path / "digits.yaml"
    path.write_text(json.dumps(keys), encoding="utf-8")
    return path


def train(recipe: Path, *arguments: Any) -> Result:
    return runner.invoke(app, ["train", str(recipe), "--device", "cpu", *map(str, arguments)])


def test_the_folder_of_the_run_is_the_result(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "dir ü, x" / "run"
    result = train(recipe, "--output", run)
    assert (result.exit_code, result.stdout) == (0, f"{run}\n")
    assert "before the first update" in result.stderr
    assert f"{run}: done after update 1 (1 updates); best: update-1, dev " in result.stderr
    assert list_updates(run) == [1]


def test_the_folder_is_named_after_the_recipe(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = train(recipe)
    assert (result.exit_code, result.stdout) == (0, f"{Path('runs') / 'digits'}\n")
    assert list_updates(tmp_path / "runs" / "digits") == [1]


def test_keys_can_be_overridden_and_the_same_command_goes_on(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(recipe, "-o", run, "--set", "train.lr=0.5", "--set", "model.d_ff=8").exit_code == 0
    saved = load_recipe(run / "recipe.yaml")
    assert (saved.train.lr, saved.model["d_ff"]) == (0.5, 8)
    result = train(recipe, "-o", run, "--set", "train.lr=0.5", "--set", "model.d_ff=8", "--set", "train.updates=2")
    assert result.exit_code == 0
    assert f"{run}: going on after update 1\n" in result.stderr
    refused = train(recipe, "-o", run)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"mtkit: {run}: holds a run of another recipe (it differs in model.d_ff, train.lr); choose another --output, "
        "or --restart to train anew in its place\n"
    )
    assert train(recipe, "-o", run, "--restart").exit_code == 0
    assert list_updates(run) == [1]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.optimzer=adam", "train.optimzer: unknown key; did you mean 'optimizer'?"),
        ("model.n_headz=2", "model.n_headz: unknown key; did you mean 'n_heads'?"),
        ("model.n_heads=7", "model.n_heads: 7 does not divide d_model 16"),
        ("train.updates=ten", "train.updates: expected an integer, got 'ten'"),
        ("model.type=tranformer", "did you mean 'transformer'?"),
        ("data.dev=nosuch", "no such file"),
    ],
)
def test_a_mistake_in_the_recipe_is_told_and_nothing_is_written(
    recipe: Path, tmp_path: Path, override: str, message: str
) -> None:
    result = train(recipe, "--output", tmp_path / "run", "--set", override)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("mtkit: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "there is no run to resume\n"),
        (["--resume", "--restart"], "mtkit: --resume and --restart contradict each other\n"),
        (["--device", "gpu"], "mtkit: --device: expected auto, cpu, cuda or cuda:N; got 'gpu'\n"),
    ],
)
def test_an_option_that_cannot_be_followed_is_a_wrong_request(
    recipe: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = train(recipe, "--output", tmp_path / "run", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith(message)
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = train(tmp_path / "nosuch.yaml")
    assert (result.exit_code, result.stderr) == (2, f"mtkit: {tmp_path / 'nosuch.yaml'}: no such file\n")


def test_unequal_sides_are_a_wrong_request(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "train.b").write_text("1\n2\n", encoding="utf-8")
    result = train(recipe, "--output", tmp_path / "run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(tmp_path / "train.a") in result.stderr
    assert str(tmp_path / "train.b") in result.stderr
    assert "15" in result.stderr
    assert not (tmp_path / "run").exists()
