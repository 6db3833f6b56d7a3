"""mtkit evaluate and mtkit info, on the run of a tiny model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mtkit.cli import app
from mtkit.models import parse_config
from mtkit.recipe import load_recipe
from mtkit.train.experiment import train

runner = CliRunner()
SOURCES = ["1 2 3 1 2 3 1", "", "2 3", "3"]


def write_pair(folder: Path, name: str, lines: list[str]) -> None:
    for side in ("a", "b"):
        (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `run` and its texts."""
    folder = tmp_path_factory.mktemp("evaluate")
    write_pair(folder, "train", ["1 2 3", "2 3", "3 1 2 1", "1 2"] * 5)
    write_pair(folder, "dev", ["1 3 2 1 3", "2 1"])
    write_pair(folder, "news", SOURCES)
    write_pair(folder, "short", ["1 2"])
    keys = {
        "name": "digits",
        "data": {"src": "a", "trg": "b", "train": "train", "dev": "dev", "test": {"news": "news", "short": "short"}},
        "text": {"subword": "word", "vocab_size": 12},
        "model": {"type": "transformer", "preset": "tiny"},
        "train": {"updates": 4, "validate_every": 2, "precision": "fp32", "lr": 1e-4},
        "search": {"beam_size": 3, "max_length_extra": 2},
    }
    (folder / "digits.yaml").write_text(json.dumps(keys), encoding="utf-8")
    train(load_recipe(folder / "digits.yaml", parse_model=parse_config), folder / "run", device="cpu")
    return folder


def evaluate(run: Path, *arguments: Any) -> Result:
    return runner.invoke(app, ["evaluate", str(run), "--device", "cpu", *map(str, arguments)])


def lines_of(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def test_all_test_sets_are_translated_and_scored(trained: Path) -> None:
    result = evaluate(trained / "run")
    assert result.exit_code == 0, result.stderr
    folder = trained / "run" / "evaluation"
    assert result.stdout == (folder / "report.txt").read_text(encoding="utf-8")
    assert "digits, update " in result.stdout
    assert ", beam 3\n" in result.stdout
    assert lines_of(folder / "news.src") == SOURCES == lines_of(folder / "news.ref")
    translations = lines_of(folder / "news.hyp")
    assert len(translations) == len(SOURCES)
    assert translations[1] == "", "an empty line stays empty"
    assert (folder / "news.attention.png").read_bytes().startswith(b"\x89PNG")
    assert not (folder / "short.attention.png").exists(), "no sentence of a readable length"
    assert (folder / "learning-curve.png").read_bytes().startswith(b"\x89PNG")

    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    assert [(each["set"], each["segments"], each["beam_size"]) for each in scores] == [("news", 4, 3), ("short", 1, 3)]
    assert [score["name"] for score in scores[0]["scores"]] == ["BLEU", "chrF2"]
    again = runner.invoke(
        app,
        ["bleu", str(folder / "news.hyp"), "--ref", str(folder / "news.ref"), "-m", "bleu,chrf", "--format", "json"],
    )
    for own, other in zip(scores[0]["scores"], json.loads(again.stdout), strict=True):
        assert own["score"] == pytest.approx(other["score"], abs=0.01)
        assert own["signature"] == other["signature"]
        assert f"{own['score']:.2f}" in result.stdout


def test_evaluate_writes_what_translate_writes(trained: Path, tmp_path: Path) -> None:
    assert evaluate(trained / "run", "--set", "news", "--output", tmp_path / "out").exit_code == 0
    translated = tmp_path / "translated"
    result = runner.invoke(
        app, ["translate", str(trained / "run"), str(trained / "news.a"), "-o", str(translated), "--device", "cpu"]
    )
    assert result.exit_code == 0, result.stderr
    assert translated.read_bytes() == (tmp_path / "out" / "news.hyp").read_bytes()


def test_an_ensemble_writes_what_it_translates_and_leaves_the_models_own_evaluation(
    trained: Path, tmp_path: Path
) -> None:
    first = shutil.copytree(trained / "run", tmp_path / "run")
    second = trained / "run" / "checkpoints" / "update-2"
    (first / "evaluation").mkdir(exist_ok=True)
    (first / "evaluation" / "report.txt").write_text("before", encoding="utf-8")
    result = evaluate(first, "--set", "news", "--ensemble", second)
    assert result.exit_code == 0, result.stderr
    folder = first / "evaluation-ensemble"
    assert result.stdout == (folder / "report.txt").read_text(encoding="utf-8")
    (report,) = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    assert report["ensemble"] == [{"system": "digits", "update": 2}]
    assert result.stdout.startswith(f"digits, update {report['update']}, digits, update 2, beam 3\n")
    assert (folder / "news.attention.png").is_file()
    assert not (folder / "learning-curve.png").exists(), "the curve of one model"
    assert (first / "evaluation" / "report.txt").read_text(encoding="utf-8") == "before"
    translated = runner.invoke(
        app, ["translate", str(first), str(trained / "news.a"), "--ensemble", str(second), "--device", "cpu"]
    )
    assert translated.stdout == (folder / "news.hyp").read_text(encoding="utf-8")


def test_sets_beam_metrics_and_folder_can_be_chosen(trained: Path, tmp_path: Path) -> None:
    result = evaluate(trained / "run", "--set", "dev", "--beam", 1, "--metrics", "chrf", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    scores = json.loads((tmp_path / "out" / "scores.json").read_text(encoding="utf-8"))
    assert [(each["set"], each["beam_size"]) for each in scores] == [("dev", 1)]
    assert [score["name"] for score in scores[0]["scores"]] == ["chrF2"]
    assert not (tmp_path / "out" / "news.hyp").exists()


def test_a_model_and_its_texts_may_have_moved(trained: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(trained / "run", tmp_path / "moved")
    write_pair(tmp_path, "short", ["3 2 1"])
    result = evaluate(moved, "--set", "short", "--data-root", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert lines_of(moved / "evaluation" / "short.src") == ["3 2 1"]
    result = evaluate(moved, "--set", "short", "--data-root", tmp_path / "nosuch")
    assert result.exit_code == 2
    assert "no such file" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "nosuch"], "mtkit: --set nosuch: the recipe has the test sets news, short (and dev)\n"),
        (["--metrics", "blue"], "mtkit: metrics: expected some of bleu, chrf, chrf++, ter, paper-bleu; got 'blue'\n"),
    ],
)
def test_a_wrong_request_is_told_before_anything_is_translated(
    trained: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = evaluate(trained / "run", *arguments, "--output", tmp_path / "out")
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", message)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_named(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = evaluate(trained / "run", "--output", tmp_path / "file")
    assert result.exit_code == 2
    assert result.stderr == f"mtkit: {tmp_path / 'file'}: cannot be made (File exists); --output names another folder\n"


def test_info_tells_what_the_model_is(trained: Path) -> None:
    result = runner.invoke(app, ["info", str(trained / "run"), "--format", "json"])
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["name"] == "digits"
    assert facts["languages"] == "a → b"
    assert facts["attention"] is True
    # vocabulary: 4 specials, 3 digits; width 16, inner width 32, 2 layers, pre-norm with two last norms
    attention, feed_forward, norm = 4 * (16 * 16 + 16), 2 * 16 * 32 + 32 + 16, 2 * 16
    layers = 2 * (attention + feed_forward + 2 * norm) + 2 * (2 * attention + feed_forward + 3 * norm)
    assert facts["parameters"] == layers + 2 * norm + 7 * 16
    assert facts["vocabulary"] == "word, 7 tokens"
    assert facts["search"] == "beam 3, length penalty 1.0 (power)"
    assert isinstance(facts["dev BLEU (greedy)"], float)

    text = runner.invoke(app, ["info", str(trained / "run")])
    assert text.exit_code == 0
    assert "languages" in text.stdout
    assert "a → b" in text.stdout


def test_info_bears_a_log_that_was_cut_by_a_kill(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained / "run", tmp_path / "run")
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"update": 5, "dev_bl')
    assert runner.invoke(app, ["info", str(run)]).exit_code == 0
    (run / "metrics.jsonl").unlink()
    result = runner.invoke(app, ["info", str(run), "--format", "json"])
    assert "dev BLEU (greedy)" not in json.loads(result.stdout)


def test_a_report_tells_length_repetition_and_known_sentences(trained: Path, tmp_path: Path) -> None:
    """Of the four lines of `news` one is empty; a line with a word that training never saw is left out of the known."""
    write_pair(trained, "odd", ["1 2 3", "1 9 2", "3 3 3"])
    recipe = trained / "run" / "recipe.yaml"
    before = recipe.read_text(encoding="utf-8")
    recipe.write_text(before.replace("short: short", "short: short\n    odd: odd"), encoding="utf-8")
    try:
        result = evaluate(trained / "run", "--set", "odd", "--output", tmp_path)
    finally:
        recipe.write_text(before, encoding="utf-8")
    assert result.exit_code == 0, result.stderr
    (report,) = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert report["known"]["n_segments"] == 2
    hypotheses = lines_of(tmp_path / "odd.hyp")
    assert report["length_ratio"] == pytest.approx(sum(len(line.split()) for line in hypotheses) / 9)
    assert report["repetition"]["references"] == pytest.approx(100 * 2 / 9)
    assert report["alignment_error"] is None
    assert "on the 2 without unknown words" in result.stdout
    assert "(references 22.2 %)" in result.stdout
