"""mtkit average: the mean of the weights of a run's checkpoints, which is a model again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor
from torch.testing import assert_close
from typer.testing import CliRunner, Result

from mtkit.cli import app

MakeRun = Callable[..., Path]


@pytest.fixture
def made(make_run: MakeRun, tmp_path: Path) -> Path:
    return make_run(tmp_path, "transformer")


def average(run: Path, *arguments: object) -> Result:
    return CliRunner().invoke(app, ["average", str(run), *map(str, arguments)])


def weights_of(run: Path, name: str) -> dict[str, Tensor]:
    return load_file(run / "checkpoints" / name / "model.safetensors")


def assert_is_mean(run: Path, name: str, updates: list[int]) -> None:
    each = [weights_of(run, f"update-{update}") for update in updates]
    for key, mean in weights_of(run, name).items():
        assert_close(mean, sum(weights[key] for weights in each) / len(each))


def test_an_average_is_a_model(made: Path, tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.write_text("the dog\n", encoding="utf-8")
    result = average(made, "--last", 2)
    folder = made / "checkpoints" / "average-20-30"
    assert (result.exit_code, result.stdout) == (0, f"{folder}\n")
    assert_is_mean(made, "average-20-30", [20, 30])
    for command in (["score", folder, source, source], ["translate", folder, source]):
        result = CliRunner().invoke(app, [*map(str, command), "--device", "cpu"])
        assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1)
    assert (made / "best").read_text(encoding="utf-8") == "update-30\n"


def test_without_a_number_all_that_is_kept_is_averaged(made: Path) -> None:
    """A run keeps three checkpoints unless its recipe says otherwise."""
    assert average(made).exit_code == 0
    assert_is_mean(made, "average-10-30", [10, 20, 30])
    for update in (10, 20):
        shutil.rmtree(made / "checkpoints" / f"update-{update}")
    result = average(made)
    message = "holds 1 checkpoint, an average takes two; train with a higher train.keep"
    assert (result.exit_code, result.stderr) == (2, f"mtkit: {made}: {message}\n")


def test_updates_and_a_name_may_be_chosen(made: Path) -> None:
    assert average(made, "--updates", "30, 10,10", "--output", "average").exit_code == 0
    assert_is_mean(made, "average", [10, 30])
    assert average(made, "--updates", "10,20", "--output", "average").exit_code == 0, "the name was asked for"
    assert_is_mean(made, "average", [10, 20])


def test_the_average_that_training_made_is_not_replaced_unasked(made: Path) -> None:
    assert average(made, "--updates", "10,30").exit_code == 0
    assert average(made, "--updates", "10,30").exit_code == 0, "the same again"
    result = average(made, "--last", 3)
    assert result.exit_code == 2
    place = made / "checkpoints" / "average-10-30"
    message = "is there, the average of other updates; --output gives this one another name"
    assert result.stderr == f"mtkit: {place}: {message}\n"
    assert_is_mean(made, "average-10-30", [10, 30])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--last", "5"],
            "RUN: holds 3 checkpoints, fewer than --last 5; ask for fewer, or train with a higher train.keep",
        ),
        (["--updates", "10,15"], "RUN: holds no checkpoint of update 15; there are 10, 20, 30"),
        (["--updates", "10,x"], "--updates: expected numbers with commas between, got '10,x'"),
        (["--updates", "10"], "an average needs the updates of at least two checkpoints"),
        (["--last", "2", "--updates", "10,20"], "--last 2 and --updates 10,20 contradict each other"),
        (
            ["--last", "2", "--output", "update-20"],
            "the name of an average is average… in letters, digits, - and _; got 'update-20'",
        ),
    ],
)
def test_an_average_of_nothing_is_refused(made: Path, arguments: list[str], message: str) -> None:
    result = average(made, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"mtkit: {message.replace('RUN', str(made))}\n"
    assert not list((made / "checkpoints").glob("average*"))


def test_a_folder_that_is_no_run_is_told(made: Path, tmp_path: Path) -> None:
    result = average(tmp_path / "nosuch")
    assert result.exit_code == 2
    assert "nosuch: no such folder; a model is the folder that mtkit train wrote" in result.stderr
    result = average(made / "checkpoints" / "update-30")
    assert result.exit_code == 2
    assert "update-30: holds no model (no recipe.yaml in it)" in result.stderr


def test_a_damaged_checkpoint_is_named(made: Path) -> None:
    weights = made / "checkpoints" / "update-20" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    result = average(made, "--last", 3)
    assert result.exit_code == 2
    assert f"{weights}: damaged" in result.stderr
    shutil.rmtree(weights.parent)
    assert average(made, "--last", 2).exit_code == 0, "the two that are left"
    assert_is_mean(made, "average-10-30", [10, 30])
