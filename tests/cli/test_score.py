"""mtkit score and mtkit average, and ensembles in mtkit translate, on real runs of tiny models."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from mtkit import models
from mtkit.checkpoint import save_checkpoint, tokenizer_fingerprints, unique_tensors
from mtkit.cli import app
from mtkit.recipe import dump_recipe, load_recipe
from mtkit.text.tokenizer import PAD_ID, Tokenizers, learn

WORDS = ["the dog sees a man", "a man sees the dog", "the man"]
SOURCES, TARGETS = ["the dog", "", "a man sees"], ["a man", "the", ""]


def make_run(folder: Path, backend: str, text: list[str] = WORDS) -> Path:
    """A run folder with three checkpoints of untrained models."""
    run = folder / backend
    run.mkdir()
    keys = {
        "name": backend,
        "data": {"src": "a", "trg": "b", "train": "train", "dev": "dev"},
        "text": {"subword": "word", "vocab_size": 10},
        "model": {"type": backend, "preset": "tiny"},
        "train": {"updates": 1},
    }
    (folder / f"{backend}.yaml").write_text(json.dumps(keys), encoding="utf-8")
    recipe = load_recipe(folder / f"{backend}.yaml", parse_model=models.parse_config)
    (run / "recipe.yaml").write_text(dump_recipe(recipe), encoding="utf-8")
    joint = learn(text, kind="word", vocab_size=10)
    tokenizers = Tokenizers(joint, joint, True)
    tokenizers.save(run / "tokenizer")
    for update in (10, 20, 30):
        torch.manual_seed(update)
        model = models.build(recipe.model, joint.vocab_size, joint.vocab_size, PAD_ID)
        state = {"update": update, "tokenizers": tokenizer_fingerprints(tokenizers), "bitext": "x"}
        save_checkpoint(run, f"update-{update}", unique_tensors(model), {}, state)
    (run / "best").write_text("update-30\n", encoding="utf-8")
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for backend in ("rnnsearch", "transformer", "seq2seq"):
        make_run(folder, backend)
    (folder / "other").mkdir()
    make_run(folder / "other", "seq2seq", ["eins zwei drei vier"] * 2)
    for name, lines in (("src", SOURCES), ("trg", TARGETS)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"])


def test_a_pair_is_a_line_and_its_tokens_add_up(runs: Path) -> None:
    text = run("score", runs / "rnnsearch", runs / "src", runs / "trg").stdout.splitlines()
    full = [json.loads(line) for line in _jsonl(runs)]
    assert len(text) == len(full) == 3
    for line, each, target in zip(text, full, TARGETS, strict=True):
        assert float(line) == pytest.approx(each["log_prob"], abs=1e-4)
        assert sum(each["token_log_probs"]) == pytest.approx(each["log_prob"], abs=1e-3)
        assert len(each["tokens"]) == len(target.split()) + 1
        assert each["ppl"] == pytest.approx(math.exp(-each["log_prob"] / len(each["tokens"])), rel=1e-3)
        assert each["translation"] == target


def _jsonl(runs: Path) -> list[str]:
    return run("score", runs / "rnnsearch", runs / "src", runs / "trg", "--format", "jsonl").stdout.splitlines()


def test_the_pairs_of_an_alignment_are_those_of_the_given_text(runs: Path) -> None:
    lines = run("score", runs / "rnnsearch", runs / "src", runs / "trg", "--alignments").stdout.splitlines()
    assert [line.split(" ||| ")[1].count("-") for line in (lines[0],)] == [2]
    assert [pair.split("-")[1] for pair in lines[0].split(" ||| ")[1].split()] == ["0", "1"]
    assert lines[2].endswith(" ||| "), "an empty translation has no pairs"


def test_an_n_best_list_gets_its_own_scores_back(runs: Path, tmp_path: Path) -> None:
    """CH-17"""
    sources = tmp_path / "src"
    sources.write_text("the dog\na man sees\n", encoding="utf-8")
    found = run("translate", runs / "rnnsearch", sources, "--beam", 4, "--n-best", 2, "--format", "tsv")
    columns = [line.split("\t") for line in found.stdout.splitlines()]
    (tmp_path / "list").write_text("".join(f"{text}\n" for text, _ in columns), encoding="utf-8")
    scored = run("score", runs / "rnnsearch", sources, tmp_path / "list", "--n-best", 2, "--format", "tsv")
    again = [line.split("\t")[1] for line in scored.stdout.splitlines()]
    assert [float(score) for score in again] == pytest.approx([float(score) for _, score in columns], abs=2e-4)


def test_unequal_files_are_refused_with_both_counts(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "two").write_text("a\nb\n", encoding="utf-8")
    result = run("score", runs / "rnnsearch", runs / "src", tmp_path / "two")
    assert result.exit_code == 2
    assert result.stderr == f"mtkit: {runs / 'src'} has 3 lines and {tmp_path / 'two'} 2; they must be aligned\n"


def test_an_ensemble_scores_with_the_mean_of_probabilities(runs: Path) -> None:
    """One token, EOS after an empty translation: the mean of three probabilities."""
    empty = runs / "empty"
    empty.write_text("\n", encoding="utf-8")
    line = runs / "line"
    line.write_text("the dog\n", encoding="utf-8")
    names = ("rnnsearch", "transformer", "seq2seq")
    alone = [float(run("score", runs / name, line, empty).stdout) for name in names]
    others = [argument for name in names[1:] for argument in ("--ensemble", runs / name)]
    together = float(run("score", runs / names[0], line, empty, *others).stdout)
    assert together == pytest.approx(math.log(sum(map(math.exp, alone)) / 3), abs=2e-4)


def test_an_ensemble_translates(runs: Path) -> None:
    found = run("translate", runs / "rnnsearch", runs / "src", "--ensemble", runs / "transformer", "--alignments")
    assert (found.exit_code, len(found.stdout.splitlines())) == (0, 3)
    itself = run("translate", runs / "rnnsearch", runs / "src", "--ensemble", runs / "rnnsearch")
    assert itself.stdout == run("translate", runs / "rnnsearch", runs / "src").stdout


def test_models_of_other_vocabularies_make_no_ensemble(runs: Path) -> None:
    result = run("translate", runs / "rnnsearch", runs / "src", "--ensemble", runs / "other" / "seq2seq")
    assert result.exit_code == 2
    assert "an ensemble needs models of one target vocabulary" in result.stderr


def test_unknown_words_need_attention_to_be_replaced(runs: Path) -> None:
    result = run("translate", runs / "seq2seq", runs / "src", "--replace-unk")
    assert result.exit_code == 2
    assert result.stderr == f"mtkit: --replace-unk: {runs / 'seq2seq'} has no attention to follow (seq2seq)\n"


def test_an_average_is_a_model(tmp_path: Path) -> None:
    made = make_run(tmp_path, "transformer")
    source = tmp_path / "src"
    source.write_text("the dog\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["average", str(made), "--last", "2"])
    folder = made / "checkpoints" / "average-20-30"
    assert (result.exit_code, result.stdout) == (0, f"{folder}\n")
    weights = [checkpoint_weights(made, name) for name in ("update-20", "update-30", "average-20-30")]
    for name, mean in weights[2].items():
        torch.testing.assert_close(mean, (weights[0][name] + weights[1][name]) / 2)
    assert run("score", folder, source, source).exit_code == 0
    assert (made / "best").read_text(encoding="utf-8") == "update-30\n"


def checkpoint_weights(made: Path, name: str) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(made / "checkpoints" / name / "model.safetensors")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--last", "5"], "holds 3 checkpoints, fewer than --last 5; train.keep keeps more"),
        (["--updates", "10,15"], "holds no checkpoint of update 15; there are 10, 20, 30"),
        (["--updates", "10,x"], "--updates: expected numbers with commas between, got '10,x'"),
        (["--updates", "10"], "an average needs the updates of at least two checkpoints"),
        (
            ["--last", "2", "--output", "update-20"],
            "the name of an average is average… in letters, digits, - and _; got 'update-20'",
        ),
    ],
)
def test_an_average_of_nothing_is_refused(runs: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["average", str(runs / "rnnsearch"), *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list((runs / "rnnsearch" / "checkpoints").glob("average*"))
