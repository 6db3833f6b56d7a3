"""A run that was stopped and goes on is the run that was never stopped, bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mtkit.checkpoint import (
    RECIPE_FILE,
    TRAINER_FILE,
    WEIGHTS_FILE,
    checkpoints_folder,
    list_updates,
    read_state,
    read_tensors,
)
from mtkit.errors import ModelError
from mtkit.recipe import Recipe
from mtkit.train.experiment import train
from mtkit.train.log import LOG_FILE, read_metrics
from mtkit.train.trainer import Trainer

MakeRecipe = Callable[..., Recipe]

# An epoch has about six batches: the run is stopped in the middle of its second one.
TRAIN = {"updates": 12, "save_every": 3, "validate_every": 4, "keep": 20, "seed": 7}

SIGNALLED = """
import os, sys
from mtkit.train.trainer import Trainer

update, number, sys.argv[1:] = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
loss = Trainer.loss

def signal_and_go_on(self, batch):
    if self.position.update + 1 == update:
        os.kill(os.getpid(), number)
    return loss(self, batch)

Trainer.loss = signal_and_go_on
from mtkit.__main__ import main
main()
"""


def run_signalled(update: int, number: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`mtkit …` in a process that sends itself a signal in the middle of an update."""
    command = [sys.executable, "-c", SIGNALLED, str(update), str(number), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def curve(run: Path) -> list[dict[str, Any]]:
    """All that was reported, without what depends on the clock."""
    clock = {"minutes", "trg_tokens_per_second"}
    return [{key: value for key, value in entry.items() if key not in clock} for entry in read_metrics(run)]


def everything_saved(run: Path, update: int) -> dict[str, torch.Tensor]:
    folder = checkpoints_folder(run) / f"update-{update}"
    state = read_state(folder)
    return read_tensors(folder, WEIGHTS_FILE, state) | read_tensors(folder, TRAINER_FILE, state)


def assert_same_run(stopped: Path, whole: Path) -> None:
    assert curve(stopped) == curve(whole)
    last = list_updates(whole)[-1]
    found, expected = everything_saved(stopped, last), everything_saved(whole, last)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert (stopped / "best").read_text() == (whole / "best").read_text()


def stop_at(monkeypatch: pytest.MonkeyPatch, update: int, number: int = signal.SIGTERM) -> None:
    loss = Trainer.loss

    def signalled(self: Trainer, batch: Any) -> Any:
        if self.position.update + 1 == update:
            os.kill(os.getpid(), number)
        return loss(self, batch)

    monkeypatch.setattr(Trainer, "loss", signalled)


@pytest.fixture
def whole(make_recipe: MakeRecipe, tmp_path: Path) -> Path:
    """The run that was never stopped."""
    train(make_recipe(train=TRAIN), tmp_path / "whole", device="cpu")
    return tmp_path / "whole"


def test_a_killed_run_goes_on_as_if_nothing_had_been(
    make_recipe: MakeRecipe, recipe_file: Callable[..., Path], tmp_path: Path, whole: Path
) -> None:
    epochs = {entry["update"]: entry["epoch"] for entry in curve(whole) if "epoch" in entry}
    assert all(epochs[update] % 1 for update in (7, 8)), "the kill comes within an epoch"
    file, run = recipe_file(train=TRAIN), tmp_path / "run"
    killed = run_signalled(8, signal.SIGKILL, "train", file, "--output", run, "--device", "cpu")
    assert killed.returncode == -signal.SIGKILL
    assert list_updates(run) == [3, 4, 6]
    assert [entry["update"] for entry in read_metrics(run) if "loss_nats" in entry][-1] == 7
    outcome = train(make_recipe(train=TRAIN), run, device="cpu")
    assert outcome.update == 12
    assert f"{run}: going on after update 6" in (run / LOG_FILE).read_text(encoding="utf-8")
    assert_same_run(run, whole)


def test_sigterm_saves_and_leaves_and_the_same_command_goes_on(
    recipe_file: Callable[..., Path], tmp_path: Path, whole: Path
) -> None:
    file, run = recipe_file(train=TRAIN), tmp_path / "run"
    command = ("train", file, "--output", run, "--device", "cpu")
    stopped = run_signalled(5, signal.SIGTERM, *command)
    assert stopped.returncode == 143
    assert stopped.stdout == ""
    assert f"{run}: stopped by SIGTERM after update 5; the same command goes on from there\n" in stopped.stderr
    assert list_updates(run)[-1] == 5
    again = run_signalled(1, signal.SIGTERM, *command)  # update 1 does not come again
    assert again.returncode == 0
    assert again.stdout == f"{run}\n"
    assert_same_run(run, whole)


def test_ctrl_c_saves_and_leaves(make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(monkeypatch, 2, signal.SIGINT)
    outcome = train(make_recipe(train=TRAIN), tmp_path / "run", device="cpu")
    assert (outcome.update, outcome.interrupted, outcome.reason, outcome.exit_status) == (2, True, "Ctrl-C", 130)
    assert list_updates(tmp_path / "run") == [2]


def test_a_run_that_stopped_between_two_checkpoints_ends_alike(
    make_recipe: MakeRecipe, tmp_path: Path, whole: Path
) -> None:
    """A full disk, out of memory: the error comes in the middle, and the run goes on from the checkpoint before."""
    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        loss = Trainer.loss

        def fail(self: Trainer, batch: Any) -> Any:
            if self.position.update == 10:
                raise OSError("the power went out")
            return loss(self, batch)

        patch.setattr(Trainer, "loss", fail)
        with pytest.raises(OSError, match="the power went out"):
            train(make_recipe(train=TRAIN), run, device="cpu")
    assert list_updates(run) == [3, 4, 6, 8, 9]
    train(make_recipe(train=TRAIN), run, device="cpu")
    assert_same_run(run, whole)


def test_more_updates_continue_the_curve(make_recipe: MakeRecipe, tmp_path: Path, whole: Path) -> None:
    """What a longer run reports is what two parts report; only the look at the end of the first part is added."""
    run = tmp_path / "run"
    assert train(make_recipe(train={**TRAIN, "updates": 8}), run, device="cpu").update == 8
    assert train(make_recipe(train=TRAIN), run, device="cpu").update == 12
    assert_same_run(run, whole)


@pytest.mark.parametrize("parts", ["stopped at 5 and 7", "ended at 7"])
def test_the_average_and_what_is_kept_are_those_of_a_run_in_one_go(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: str
) -> None:
    """Checkpoints come at 3, 6, 9, 12: one that a stop or an earlier end has left at 7 takes no one's place."""
    keys = {**TRAIN, "validate_every": 6, "keep": 3, "average_last": 3}
    train(make_recipe(train=keys), tmp_path / "whole", device="cpu")
    run = tmp_path / "run"
    if parts == "ended at 7":
        assert train(make_recipe(train={**keys, "updates": 7, "average_last": 0}), run, device="cpu").update == 7
        assert list_updates(run) == [3, 6, 7]
    else:
        for update in (5, 7):
            with monkeypatch.context() as patch:
                stop_at(patch, update)
                assert train(make_recipe(train=keys), run, device="cpu").interrupted
        assert list_updates(run) == [3, 6, 7]
    train(make_recipe(train=keys), run, device="cpu")
    checkpoints = [{entry.name for entry in checkpoints_folder(each).iterdir()} for each in (run, tmp_path / "whole")]
    if parts == "ended at 7" and (run / "best").read_text() == "update-7\n":
        checkpoints[0].remove("update-7")  # the look at that end is an addition, and may be the best
    assert checkpoints[0] == checkpoints[1]
    averages = [read_state(checkpoints_folder(each) / "average-6-12") for each in (run, tmp_path / "whole")]
    assert averages[0]["average_of"] == [6, 9, 12]
    assert averages[0]["sha256"] == averages[1]["sha256"]


def test_the_look_at_an_end_between_two_looks_uses_no_patience(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks at 2, 4, …, 12 and, at the end of the first part, 5. Without that one the looks at 6 and 12 are the best so
    far; if it counted, a patience of 3 would end the run at 10, and if it were the bar for the others, at 8.
    """
    from mtkit.train import trainer
    from mtkit.train.validation import DevScores

    coming = iter([10.0, 9.0, 12.0, 11.0, 10.5, 10.8, 11.5])
    monkeypatch.setattr(trainer, "validate", lambda *_: DevScores(1.0, next(coming), "scripted", ["x"] * 6))
    keys = {"validate_every": 2, "save_every": 5, "patience": 3}
    train(make_recipe(train={**keys, "updates": 5}), tmp_path / "run", device="cpu")
    outcome = train(make_recipe(train={**keys, "updates": 12}), tmp_path / "run", device="cpu")
    assert (outcome.update, outcome.best, outcome.reason) == (12, 12.0, "12 updates")
    assert outcome.best_name == "update-5", "what was the best look of all is still the best model"


def test_the_last_log_line_comes_once(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    """Updates 5 and 6 after the line at 4; then two more, and the run again."""
    keys = {**TRAIN, "report_every": 4, "save_every": 2, "validate_every": 2}
    for updates in (6, 6, 8, 8):
        train(make_recipe(train={**keys, "updates": updates}), tmp_path / "run", device="cpu")
    lines = [entry for entry in read_metrics(tmp_path / "run") if "loss_nats" in entry]
    assert [entry["update"] for entry in lines] == [4, 6, 8]
    train(make_recipe(train={**keys, "updates": 8, "report_every": 1}), tmp_path / "whole", device="cpu")
    each = [entry["trg_tokens"] for entry in read_metrics(tmp_path / "whole") if "loss_nats" in entry]
    assert [entry["trg_tokens"] for entry in lines] == [sum(each[:4]), sum(each[4:6]), sum(each[6:8])]


@pytest.mark.parametrize("work", ["dev_loss", "translate"])
@pytest.mark.parametrize("update", [8, 12])
def test_a_stop_within_a_look_at_the_dev_set_waits_for_no_more_than_a_batch(
    make_recipe: MakeRecipe, tmp_path: Path, whole: Path, update: int, work: str
) -> None:
    """Also at the last update, and the look comes when the run goes on."""
    from mtkit.search.translator import Translator
    from mtkit.train import validation

    place = Translator if work == "translate" else validation
    does, run, saw = getattr(place, work), tmp_path / "run", []

    def signalled(*arguments: Any, **named: Any) -> Any:
        if read_metrics(run)[-1]["update"] == update:
            os.kill(os.getpid(), signal.SIGTERM)
            saw.append(update)
        return does(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, work, signalled)
        outcome = train(make_recipe(train=TRAIN), run, device="cpu")
    assert saw == [update]
    assert (outcome.update, outcome.interrupted, outcome.exit_status) == (update, True, 143)
    assert not [entry for entry in read_metrics(run) if entry["update"] == update and "dev_bleu" in entry]
    assert list_updates(run)[-1] == update
    assert train(make_recipe(train=TRAIN), run, device="cpu").update == 12
    assert_same_run(run, whole)


def test_a_stop_while_the_average_is_looked_at_leaves_it_to_the_next_time(
    make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    keys = {**TRAIN, "updates": 6, "average_last": 2}
    train(make_recipe(train=keys), tmp_path / "whole", device="cpu")
    run, scores = tmp_path / "run", Trainer._dev_scores
    with pytest.MonkeyPatch.context() as patch:

        def signalled(self: Trainer, stop: Any) -> Any:
            if self.position.validated_update == 6:
                os.kill(os.getpid(), signal.SIGINT)
            return scores(self, stop)

        patch.setattr(Trainer, "_dev_scores", signalled)
        assert train(make_recipe(train=keys), run, device="cpu").exit_status == 130
    outcome = train(make_recipe(train=keys), run, device="cpu")
    assert (outcome.interrupted, outcome.exit_status) == (False, 0)
    assert_same_run(run, tmp_path / "whole")


def test_a_damaged_checkpoint_costs_the_average_and_not_the_run(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    keys, run = {**TRAIN, "updates": 6, "average_last": 3}, tmp_path / "run"
    train(make_recipe(train={**keys, "updates": 5}), run, device="cpu")
    weights = checkpoints_folder(run) / "update-3" / WEIGHTS_FILE
    weights.write_bytes(weights.read_bytes()[:-1])
    outcome = train(make_recipe(train=keys), run, device="cpu")
    assert (outcome.update, outcome.reason) == (6, "6 updates")
    log = (run / LOG_FILE).read_text(encoding="utf-8")
    assert f"{weights}: damaged" in log and "; the last 3 checkpoints are not averaged" in log


def test_a_project_that_was_moved_goes_on(make_recipe: MakeRecipe, tmp_path: Path, digits: Path, whole: Path) -> None:
    moved = Path(shutil.copytree(digits, tmp_path / "moved"))
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 7)
        train(make_recipe(train=TRAIN), tmp_path / "run", device="cpu")
    train(make_recipe(train=TRAIN, data={"root": str(moved)}), tmp_path / "run", device="cpu")
    assert_same_run(tmp_path / "run", whole)
    assert f"root: {moved}" in (tmp_path / "run" / RECIPE_FILE).read_text(encoding="utf-8")


@pytest.mark.parametrize(("text", "what"), [("train", "bitext"), ("dev", "dev text")])
def test_another_text_under_the_same_name_is_refused_and_nothing_is_written(
    make_recipe: MakeRecipe, tmp_path: Path, digits: Path, text: str, what: str
) -> None:
    run = tmp_path / "run"
    train(make_recipe(train=TRAIN), run, device="cpu")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    other = Path(shutil.copytree(digits, tmp_path / "other"))
    for side in "ab":
        with (other / f"{text}.{side}").open("a", encoding="utf-8") as stream:
            stream.write("1 2\n")
    with pytest.raises(ModelError, match=f"another content of the {what} than"):
        train(make_recipe(train={**TRAIN, "updates": 15}, data={"root": str(other)}), run, device="cpu")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_other_arithmetic_than_before_is_said(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    """precision: auto is another one on another machine."""
    run = tmp_path / "run"
    train(make_recipe(train={**TRAIN, "updates": 2, "precision": "auto"}), run, device="cpu")
    state = checkpoints_folder(run) / "update-2" / "state.json"
    made_with = json.loads(state.read_text(encoding="utf-8"))["made_with"]
    assert made_with["torch"] == torch.__version__
    now = made_with["arithmetic"]
    state.write_text(state.read_text(encoding="utf-8").replace(now, "fp16 on cuda"), encoding="utf-8")
    train(make_recipe(train={**TRAIN, "updates": 4, "precision": "auto"}), run, device="cpu")
    assert f"was trained in fp16 on cuda so far, goes on in {now}" in (run / LOG_FILE).read_text(encoding="utf-8")
    train(make_recipe(train={**TRAIN, "updates": 6, "precision": "auto"}), run, device="cpu")
    assert (run / LOG_FILE).read_text(encoding="utf-8").count("was trained in") == 1


def test_a_checkpoint_that_a_kill_left_beside_its_place_is_the_one_to_go_on_from(
    make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(make_recipe(train={**TRAIN, "updates": 2}), run, device="cpu")
    (checkpoints_folder(run) / "update-2").rename(checkpoints_folder(run) / ".update-2.old")
    train(make_recipe(train=TRAIN), run, device="cpu")
    assert f"{run}: going on after update 2" in (run / LOG_FILE).read_text(encoding="utf-8")


def test_a_log_line_covers_its_own_updates_also_after_a_stop(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe(train={**TRAIN, "updates": 8, "report_every": 4})
    train(recipe, tmp_path / "whole", device="cpu")
    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 6)
        assert train(recipe, run, device="cpu").interrupted
    train(recipe, run, device="cpu")
    assert_same_run(run, tmp_path / "whole")


def test_the_rate_goes_on_where_it_was(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    """Width 16 and 4 updates of warm-up (Vaswani et al. 2017, eq. 3): 1/4 of min(u^-0.5, u/8)."""
    noam = {"schedule": "noam", "lr": 1.0, "warmup_updates": 4}
    train(make_recipe(train={**noam, "updates": 3}), tmp_path / "run", device="cpu")
    train(make_recipe(train={**noam, "updates": 6}), tmp_path / "run", device="cpu")
    rates = [entry["lr"] for entry in read_metrics(tmp_path / "run") if "lr" in entry]
    assert rates == pytest.approx([min(update**-0.5, update / 8) / 4 for update in range(1, 7)])


def test_patience_is_not_renewed_by_a_stop(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mtkit.train import trainer
    from mtkit.train.validation import DevScores

    coming = iter([10.0, 9.0, 9.0, 9.0])

    def validate(*_: Any) -> DevScores:
        value = next(coming)
        return DevScores(1.0, value, "scripted", ["x"] * 6)

    monkeypatch.setattr(trainer, "validate", validate)
    keys = {"updates": 50, "validate_every": 2, "patience": 3}
    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 7)  # after the third validation
        assert train(make_recipe(train=keys), run, device="cpu").interrupted
    outcome = train(make_recipe(train=keys), run, device="cpu")
    assert outcome.update == 8
    assert (outcome.best, outcome.best_name) == (10.0, "update-2")
    assert outcome.reason == "3 validations without improvement"


@pytest.mark.parametrize(
    "optimizer",
    [
        {"optimizer": "adadelta", "lr": 1.0, "schedule": "halving", "decay_after": 0.5, "decay_every": 0.5},
        {
            "optimizer": "sgd",
            "lr": 0.1,
            "momentum": 0.9,
            "nesterov": True,
            "schedule": "plateau",
            "normalize": "sentences",
        },
        {"optimizer": "sgd", "lr": 0.7, "schedule": "constant", "batch_sentences": 7, "accumulate": 2},
        {"optimizer": "adamw", "weight_decay": 0.1},
    ],
    ids=["adadelta", "sgd-nesterov", "sgd", "adamw"],
)
def test_every_optimizer_and_schedule_goes_on_where_it_stopped(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: dict[str, Any]
) -> None:
    keys = {**TRAIN, "warmup_updates": 0, "validate_every": 2, **optimizer}
    train(make_recipe(train=keys), tmp_path / "whole", device="cpu")
    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        assert train(make_recipe(train=keys), tmp_path / "run", device="cpu").update == 7
    assert train(make_recipe(train=keys), tmp_path / "run", device="cpu").update == 12
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_plateau_goes_on_with_the_rate_and_the_loss_it_had(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dev losses 2, 3, 2.5 before the stop and 2.2, 1.9, 1.95 after it: each but 1.9 is not the lowest so far."""
    from mtkit.train import trainer
    from mtkit.train.validation import DevScores

    coming = iter([2.0, 3.0, 2.5, 2.2, 1.9, 1.95])
    monkeypatch.setattr(trainer, "validate", lambda *_: DevScores(next(coming), 1.0, "scripted", ["x"] * 6))
    keys = {"updates": 14, "validate_every": 2, "schedule": "plateau", "decay_factor": 0.5, "lr": 0.8}
    keys |= {"optimizer": "sgd", "warmup_updates": 0, "min_lr": 0.06}
    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 7)
        assert train(make_recipe(train=keys), run, device="cpu").interrupted
    outcome = train(make_recipe(train=keys), run, device="cpu")
    rates = [entry["lr"] for entry in read_metrics(run) if "lr" in entry]
    assert rates == pytest.approx([0.8, 0.8, 0.8, 0.8, 0.4, 0.4, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1])
    assert (outcome.update, outcome.reason) == (12, "a learning rate below 0.06")
    lower = train(make_recipe(train={**keys, "min_lr": 0.04, "updates": 12}), run, device="cpu")
    assert lower.reason == "12 updates", "another lowest rate is another end, not another run"
