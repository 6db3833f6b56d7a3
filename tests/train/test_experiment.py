"""A recipe and a folder: what is started, what goes on, what is refused, and what is not written then."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtkit.checkpoint import checkpoints_folder, list_updates, load_model, read_state, read_tensors
from mtkit.errors import DataError, ModelError, RecipeError, RequestError
from mtkit.models import parse_config
from mtkit.recipe import Recipe, load_recipe
from mtkit.text.tokenizer import Tokenizers, learn
from mtkit.train import experiment, trainer
from mtkit.train.experiment import train
from mtkit.train.log import LOG_FILE, read_metrics

MakeRecipe = Callable[..., Recipe]
ONE = {"updates": 1}


@pytest.fixture
def run(make_recipe: MakeRecipe, tmp_path: Path) -> Path:
    """A finished run of two updates, each with a checkpoint."""
    train(make_recipe(train={"updates": 2, "save_every": 1}), tmp_path / "run", device="cpu")
    return tmp_path / "run"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def first_weights(run: Path) -> dict[str, torch.Tensor]:
    folder = checkpoints_folder(run) / f"update-{list_updates(run)[0]}"
    return read_tensors(folder, "model.safetensors", read_state(folder))


def test_a_run_leaves_what_a_user_needs(run: Path) -> None:
    files = set(content(run))
    assert {"recipe.yaml", "tokenizer/joint.model", "best", "last", "metrics.jsonl", "train.log"} <= files
    for update in (1, 2):
        for name in ("model.safetensors", "trainer.safetensors", "state.json"):
            assert f"checkpoints/update-{update}/{name}" in files
    assert not [name for name in files if name.endswith((".part", ".old"))]


def test_the_recipe_of_a_run_trains_the_same_model_again(run: Path, tmp_path: Path) -> None:
    again = load_recipe(run / "recipe.yaml", parse_model=parse_config)
    train(again, tmp_path / "again", device="cpu")
    found, expected = first_weights(tmp_path / "again"), first_weights(run)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    other = load_recipe(run / "recipe.yaml", ["train.seed=2"], parse_model=parse_config)
    train(other, tmp_path / "other", device="cpu")
    assert any(not torch.equal(tensor, expected[name]) for name, tensor in first_weights(tmp_path / "other").items())


def test_two_vocabularies_are_learned_where_the_recipe_says_so(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe(text={"shared_vocab": False}, model={"tied_embeddings": "two_way"}, train=ONE)
    train(recipe, tmp_path / "run", device="cpu")
    assert {path.name for path in (tmp_path / "run" / "tokenizer").iterdir()} == {"src.model", "trg.model"}
    assert load_model(tmp_path / "run").tokenizers.shared is False


# ---- a run that is there already ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"train": {"updates": 2, "save_every": 1, "lr": 0.5}}, "train.lr"),
        ({"train": {"updates": 2, "save_every": 1}, "model": {"d_ff": 8}}, "model.d_ff"),
        (
            {"train": {"updates": 2, "save_every": 1, "seed": 2}, "text": {"vocab_size": 14}},
            "text.vocab_size, train.seed",
        ),
        ({"train": {"updates": 2, "save_every": 1}, "data": {"filters": {"max_length": 9}}}, "data.filters.max_length"),
    ],
)
def test_a_run_of_another_recipe_is_refused_and_left_alone(
    make_recipe: MakeRecipe, run: Path, changes: dict[str, Any], keys: str
) -> None:
    before = content(run)
    with pytest.raises(RequestError) as caught:
        train(make_recipe(**changes), run, device="cpu")
    assert str(caught.value) == (
        f"{run}: holds a run of another recipe (it differs in {keys}); choose another --output, or --restart to train "
        "anew in its place"
    )
    assert content(run) == before


def test_a_later_end_continues_the_run(make_recipe: MakeRecipe, run: Path) -> None:
    outcome = train(make_recipe(train={"updates": 4, "save_every": 1}), run, resume=True, device="cpu")
    assert outcome.update == 4
    assert [entry["update"] for entry in read_metrics(run) if "loss_nats" in entry] == [1, 2, 3, 4]
    assert load_recipe(run / "recipe.yaml").train.updates == 4
    assert "going on after update 2" in (run / LOG_FILE).read_text(encoding="utf-8")


def test_a_run_from_before_the_other_optimizers_goes_on(make_recipe: MakeRecipe, run: Path) -> None:
    """Its recipe has an epsilon written out, and none of the keys that came with them."""
    later = ("rho", "momentum", "nesterov", "normalize", "batch_sentences", "decay_", "min_lr", "trg_vocab_size")
    lines = (run / "recipe.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not line.lstrip().startswith(later)]
    assert len(kept) == len(lines) - 10
    (run / "recipe.yaml").write_text("".join(kept), encoding="utf-8")
    assert any(line.split() == ["eps:", "1e-09"] for line in kept)
    assert train(make_recipe(train={"updates": 3, "save_every": 1}), run, device="cpu").update == 3


def test_two_vocabularies_may_differ_in_size(
    make_recipe: MakeRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the 160,000 and 80,000 words of Sutskever et al. (2014), §3.1; here 12 and 9 of the ten digits."""
    text = {"shared_vocab": False, "vocab_size": 12, "trg_vocab_size": 9}
    train(make_recipe(text=text, model={"tied_embeddings": "two_way"}, train=ONE), tmp_path / "run", device="cpu")
    tokenizers = load_model(tmp_path / "run").tokenizers
    assert (tokenizers.src.vocab_size, tokenizers.trg.vocab_size) == (12, 9)
    assert "learning two word vocabularies of 12 and 9 tokens" in capsys.readouterr().err


def test_restart_leaves_nothing_of_the_old_run(make_recipe: MakeRecipe, run: Path) -> None:
    for name in ("evaluation", "evaluation-ensemble"):
        (run / name).mkdir()
        (run / name / "report.txt").write_text("old", encoding="utf-8")
    train(make_recipe(train={"updates": 1, "lr": 0.5}), run, restart=True, device="cpu")
    assert list_updates(run) == [1]
    assert [entry["update"] for entry in read_metrics(run) if "loss_nats" in entry] == [1]
    assert not list(run.glob("evaluation*"))
    assert load_recipe(run / "recipe.yaml").train.lr == 0.5


def test_resume_needs_a_run(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"run: there is no run to resume$"):
        train(make_recipe(), tmp_path / "run", resume=True, device="cpu")
    assert not (tmp_path / "run").exists()


def test_resume_and_restart_contradict_each_other(make_recipe: MakeRecipe, run: Path) -> None:
    before = content(run)
    with pytest.raises(RequestError, match="--resume and --restart contradict each other"):
        train(make_recipe(), run, resume=True, restart=True, device="cpu")
    assert content(run) == before


def test_a_folder_of_something_else_is_refused(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work", encoding="utf-8")
    for restart in (False, True):
        with pytest.raises(RequestError, match="holds something else than a run; choose another --output"):
            train(make_recipe(), folder, restart=restart, device="cpu")
    assert content(folder) == {"thesis.tex": b"years of work"}
    with pytest.raises(RequestError, match="is a file; --output names the folder of the run"):
        train(make_recipe(), folder / "thesis.tex", device="cpu")


def test_a_second_trainer_is_refused(make_recipe: MakeRecipe, run: Path) -> None:
    before = content(run)
    with (run / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for restart in (False, True):
            with pytest.raises(RequestError, match="run: another trainer is at work in this folder"):
                train(make_recipe(train={"updates": 2, "save_every": 1}), run, restart=restart, device="cpu")
    assert content(run) == before


def test_a_trainer_that_was_overtaken_does_not_wipe_out_the_other(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one starts and ends in the same folder while this one still learns its vocabulary."""
    from mtkit.train import experiment

    learn = experiment.learn_tokenizers

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(experiment, "learn_tokenizers", learn)
        train(make_recipe(train=ONE), tmp_path / "run", device="cpu")
        return learn(*arguments)

    monkeypatch.setattr(experiment, "learn_tokenizers", overtaken)
    with pytest.raises(RequestError, match="another trainer has been at work in this folder; give the command again"):
        train(make_recipe(train=ONE), tmp_path / "run", device="cpu")
    assert list_updates(tmp_path / "run") == [1]


# ---- damaged checkpoints ------------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(
    make_recipe: MakeRecipe, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = checkpoints_folder(run) / "update-2" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    outcome = train(make_recipe(train={"updates": 3, "save_every": 1}), run, device="cpu")
    said = capsys.readouterr().err
    assert f"mtkit: warning: {weights}: damaged, its content does not match state.json" in said
    assert "update-2 is put aside as update-2.damaged; going back to update-1" in said
    assert f"{run}: going on after update 1" in said
    assert outcome.update == 3
    assert list_updates(run) == [1, 2, 3]
    assert [entry["update"] for entry in read_metrics(run) if "loss_nats" in entry] == [1, 2, 3]


def test_a_run_whose_checkpoints_are_all_damaged_is_not_started_anew_by_itself(
    make_recipe: MakeRecipe, run: Path
) -> None:
    for update in (1, 2):
        (checkpoints_folder(run) / f"update-{update}" / "state.json").write_text("{", encoding="utf-8")
    recipe = make_recipe(train={"updates": 3, "save_every": 1})
    for _ in range(2):
        with pytest.raises(ModelError, match="none of its checkpoints can be read; --restart trains anew"):
            train(recipe, run, device="cpu")
    assert train(recipe, run, restart=True, device="cpu").update == 3


def test_a_run_stopped_before_its_first_checkpoint_starts_from_its_beginning(
    make_recipe: MakeRecipe, run: Path
) -> None:
    expected = first_weights(run)
    shutil.rmtree(checkpoints_folder(run))
    train(make_recipe(train={"updates": 2, "save_every": 1}), run, device="cpu")
    found = first_weights(run)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [entry["update"] for entry in read_metrics(run) if "loss_nats" in entry] == [1, 2]


# ---- wrong requests write nothing ---------------------------------------------------------------------------------


def write(folder: Path, **files: list[str]) -> None:
    for name, lines in files.items():
        (folder / name.replace("_", ".")).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"train_a": ["a", "b", "c"], "train_b": ["A", "B"]}, ["train.a", "train.b", "3", "2"]),
        ({"dev_a": ["a", "b"], "dev_b": ["A"]}, ["dev.a", "dev.b", "2", "1"]),
        ({"dev_b": []}, ["dev.b"]),
        ({"dev_a": [], "dev_b": []}, ["dev.a"]),
        ({"train_a": [], "train_b": []}, ["train.a"]),
    ],
)
def test_a_text_that_cannot_be_used_is_named_and_nothing_is_written(
    make_recipe: MakeRecipe, tmp_path: Path, files: dict[str, list[str]], words: list[str]
) -> None:
    write(tmp_path, **{"train_a": ["a"], "train_b": ["A"], "dev_a": ["a"], "dev_b": ["A"], **files})
    with pytest.raises(DataError) as caught:
        train(make_recipe(data={"root": str(tmp_path)}), tmp_path / "run", device="cpu")
    message = str(caught.value).replace(str(tmp_path), "")
    assert all(re.search(rf"\b{re.escape(word)}\b", message) for word in words), message
    assert caught.value.exit_status == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("section", [{"dev": "nosuch"}, {"train": "nosuch"}, {"test": {"news": "nosuch"}}])
def test_a_missing_file_is_named_before_anything_is_read(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: dict[str, Any]
) -> None:
    from mtkit.train import corpus

    def count(bitext: object) -> int:
        raise AssertionError("a text was counted before all were found")

    monkeypatch.setattr(corpus, "check_aligned", count)
    with pytest.raises(DataError, match=r"nosuch.*no such file"):
        train(make_recipe(data=section), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_corpus_of_which_nothing_is_left_is_refused(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    write(tmp_path, train_a=["x y", "y x", ""], train_b=["y", "x", "y"], dev_a=["x"], dev_b=["y"])
    recipe = make_recipe(data={"root": str(tmp_path), "filters": {"max_length": 1}})
    with pytest.raises(DataError, match="no sentence pair is left of 3: "):
        train(recipe, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"text": {"shared_vocab": False}},
            "model.tied_embeddings: three_way needs text.shared_vocab: true; use two_way or none",
        ),
        ({"train": {"updates": 1, "precision": "fp16"}}, "train.precision: fp16 needs a CUDA device"),
    ],
)
def test_relations_between_parts_of_the_recipe_are_checked_first(
    make_recipe: MakeRecipe, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        train(make_recipe(**changes), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_noam_is_for_models_with_a_width(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe(train={"updates": 1, "schedule": "noam"}).model_copy(update={"model": {"type": "rnnsearch"}})
    with pytest.raises(RecipeError, match="train.schedule: noam needs a model with a d_model, which rnnsearch has not"):
        train(recipe, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_language_that_cannot_be_scored_is_refused_before_training(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe()
    japanese = recipe.model_copy(update={"data": recipe.data.model_copy(update={"trg": "ja"})})
    with pytest.raises(RequestError, match="ja-mecab"):
        train(japanese, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("place", ["file/run", "file"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    monkeypatch.setattr(experiment, "open_corpora", lambda data: pytest.fail("the text was read first"))
    with pytest.raises(RequestError, match="is a file"):
        train(make_recipe(), tmp_path / place, device="cpu")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_a_name_that_is_no_utf_8_is_refused_before_the_work(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    """safetensors would write its files there and find none of them again."""
    run = tmp_path / os.fsdecode(b"l\xe4uft")
    with pytest.raises(RequestError, match="no UTF-8, in which safetensors finds no file"):
        train(make_recipe(), run, device="cpu")
    assert not run.exists()


def test_a_run_does_not_go_on_with_another_tokenizer(make_recipe: MakeRecipe, run: Path) -> None:
    """Its weights are for the old ids, also where the number of tokens is the same."""
    lines = ["9 8 7 6 5", "4 3 2 1 0"] * 50
    other = learn(lines, kind="word", vocab_size=14)
    Tokenizers(other, other, True).save(run / "tokenizer")
    with pytest.raises(ModelError, match="another content of the tokenizers"):
        train(make_recipe(train={"updates": 3, "save_every": 1}), run, device="cpu")


def test_a_model_without_a_checkpoint_to_go_on_from_is_left_alone(make_recipe: MakeRecipe, run: Path) -> None:
    for folder in (run / "checkpoints").iterdir():
        folder.rename(run / "checkpoints" / "average-1-2")
        break
    for folder in (run / "checkpoints").glob("update-*"):
        shutil.rmtree(folder)
    before = content(run)
    with pytest.raises(RequestError, match="no checkpoint to go on from"):
        train(make_recipe(train={"updates": 3, "save_every": 1}), run, device="cpu")
    assert content(run) == before


def test_with_cosine_the_number_of_updates_makes_another_curve(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    keys = {"save_every": 1, "schedule": "cosine"}
    train(make_recipe(train={"updates": 2, **keys}), tmp_path / "run", device="cpu")
    with pytest.raises(RequestError, match="train.updates"):
        train(make_recipe(train={"updates": 3, **keys}), tmp_path / "run", device="cpu")


def test_with_cosine_that_ends_by_the_clock_the_minutes_make_another_curve(
    make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**6, 20))  # 20 seconds between two looks
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    keys = {"updates": None, "save_every": 1, "schedule": "cosine"}
    train(make_recipe(train={"max_minutes": 10, **keys}), tmp_path / "run", device="cpu")
    for change in ({"max_minutes": 20}, {"max_minutes": 10, "epochs": 9}):
        with pytest.raises(RequestError, match=f"train.{list(change)[-1]}"):
            train(make_recipe(train={**change, **keys}), tmp_path / "run", device="cpu")


def test_with_cosine_the_number_of_epochs_makes_another_curve(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    keys = {"updates": None, "save_every": 1, "schedule": "cosine"}
    train(make_recipe(train={"epochs": 1, **keys}), tmp_path / "run", device="cpu")
    with pytest.raises(RequestError, match="train.epochs"):
        train(make_recipe(train={"epochs": 2, **keys}), tmp_path / "run", device="cpu")


@pytest.mark.parametrize(
    "model",
    [{"type": "seq2seq"}, {"type": "luong", "attention": "none", "input_feeding": False}],
    ids=lambda model: model["type"],
)
@pytest.mark.parametrize(
    ("search", "key"), [({"unknown": "replace"}, "unknown: replace"), ({"coverage_penalty": 0.2}, "coverage_penalty")]
)
def test_a_search_that_follows_attention_needs_a_model_that_has_it(
    make_recipe: MakeRecipe, tmp_path: Path, model: dict[str, Any], search: dict[str, Any], key: str
) -> None:
    """It is said before anything is trained, not after; with attention there is nothing to say."""
    recipe = make_recipe(model={"n_layers": 1, **model}, search=search)
    with pytest.raises(RecipeError) as caught:
        train(recipe, tmp_path / "run", device="cpu")
    message = f"search.{key}: needs a model with attention, which this {model['type']} has not"
    assert str(caught.value) == message
    assert not (tmp_path / "run").exists()
    experiment.check_recipe(make_recipe(search=search))


def test_dev_bleu_is_that_of_the_target_language(make_recipe: MakeRecipe, tmp_path: Path, digits: Path) -> None:
    for name in ("train", "dev"):
        for side, other in (("a", "a"), ("b", "zh")):
            shutil.copy(digits / f"{name}.{side}", tmp_path / f"{name}.{other}")
    train(make_recipe(data={"root": str(tmp_path), "trg": "zh"}, train=ONE), tmp_path / "run", device="cpu")
    (looked,) = (entry for entry in read_metrics(tmp_path / "run") if "dev_bleu" in entry)
    assert "|tok:zh|" in looked["dev_signature"]
