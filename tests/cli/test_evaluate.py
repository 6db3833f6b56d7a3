"""mtkit evaluate and mtkit info, on the run of a tiny model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from typer.testing import CliRunner, Result

from mtkit.checkpoint import load_model
from mtkit.cli import app
from mtkit.evaluate.alignment import alignment_error_rate
from mtkit.models import parse_config
from mtkit.recipe import load_recipe
from mtkit.reproduce.word_alignment import reference_links
from mtkit.text.grammar import generate
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
    assert [(each["set"], each["segments"]) for each in scores] == [("news", 4), ("short", 1)]
    assert scores[0]["search"]["beam_size"] == 3
    assert [score["name"] for score in scores[0]["scores"]] == ["BLEU", "chrF2"]
    again = scored_by_mtkit_bleu(folder, "news", "bleu,chrf", "--by-length", str(folder / "news.src"))
    for own, other in zip(scores[0]["scores"], again, strict=True):
        assert {"system": str(folder / "news.hyp"), **own} == {key: other[key] for key in other if key != "by_length"}
        assert f"{own['score']:6.2f} ± {own['confidence_half_width']:.2f}" in result.stdout
    assert scores[0]["scores"][0]["details"] in result.stdout, "precisions, brevity penalty, lengths"
    filled = [bucket for bucket in scores[0]["by_length"] if bucket["n_segments"]]
    assert [bucket["words"] for bucket in filled] == ["0", "1-9"]
    assert scores[0]["by_length"] == again[0]["by_length"]
    assert "confidence_mean" not in scores[1]["scores"][0], "one sentence has no interval"


def scored_by_mtkit_bleu(folder: Path, name: str, metrics: str, *arguments: str) -> list[dict[str, Any]]:
    files = [str(folder / f"{name}.hyp"), "--ref", str(folder / f"{name}.ref")]
    result = runner.invoke(app, ["bleu", *files, "-m", metrics, "--confidence", "--format", "json", *arguments])
    assert result.exit_code == 0, result.stderr
    return list(json.loads(result.stdout))


def test_what_earlier_evaluations_found_is_kept(trained: Path, tmp_path: Path) -> None:
    """One set more replaces no other; a checkpoint has a folder of its own and leaves the run's alone."""
    run = shutil.copytree(trained / "run", tmp_path / "run")
    shutil.rmtree(run / "evaluation", ignore_errors=True)
    assert evaluate(run, "--set", "short").exit_code == 0
    assert evaluate(run, "--set", "news").exit_code == 0
    file = run / "evaluation" / "scores.json"
    before = file.read_bytes()
    assert [each["set"] for each in json.loads(before)] == ["short", "news"]
    result = evaluate(run / "checkpoints" / "update-2", "--set", "news", "--beam", 1)
    assert result.stdout.startswith("digits, update 2, beam 1\n")
    assert file.read_bytes() == before
    (report,) = json.loads((run / "evaluation-update-2" / "scores.json").read_text(encoding="utf-8"))
    assert (report["models"][0]["checkpoint"], report["search"]["beam_size"]) == ("update-2", 1)


def test_what_looks_tokenised_is_told(trained: Path, tmp_path: Path) -> None:
    write_pair(tmp_path, "news", ["1 2 ."])
    result = evaluate(trained / "run", "--set", "news", "--data-root", tmp_path, "--output", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "mtkit: warning: news: references: 1 of 1 line with stops set off by a blank" in result.stderr


def test_evaluate_writes_what_translate_writes(trained: Path, tmp_path: Path) -> None:
    assert evaluate(trained / "run", "--set", "news", "--output", tmp_path / "out").exit_code == 0
    translated = tmp_path / "translated"
    result = runner.invoke(
        app, ["translate", str(trained / "run"), str(trained / "news.a"), "-o", str(translated), "--device", "cpu"]
    )
    assert result.exit_code == 0, result.stderr
    assert translated.read_bytes() == (tmp_path / "out" / "news.hyp").read_bytes()


def test_the_report_of_some_sets_leaves_that_of_all(trained: Path, tmp_path: Path) -> None:
    """As scores.json, which keeps what was found of the others."""
    options = ("--beam", 1, "--output", tmp_path)
    assert evaluate(trained / "run", *options).exit_code == 0
    whole = (tmp_path / "report.txt").read_text(encoding="utf-8")
    assert "news: " in whole and "short: " in whole
    assert evaluate(trained / "run", "--set", "short", *options).exit_code == 0
    assert (tmp_path / "report.txt").read_text(encoding="utf-8") == whole
    some = (tmp_path / "report-short.txt").read_text(encoding="utf-8")
    assert "short: " in some and "news: " not in some
    assert evaluate(trained / "run", "--set", "short", "--set", "news", *options).exit_code == 0
    assert sorted(path.name for path in tmp_path.glob("report*")) == ["report-short.txt", "report.txt"]


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
    assert result.stdout == (folder / "report-news.txt").read_text(encoding="utf-8")
    (report,) = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    best, other = (model["checkpoint"] for model in report["models"])
    assert other == "update-2"
    assert result.stdout.startswith(f"digits, {best.replace('-', ' ')}, digits, update 2, beam 3\n")
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
    assert [(each["set"], each["search"]["beam_size"]) for each in scores] == [("dev", 1)]
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
        (
            ["--metrics", "blue"],
            "mtkit: metrics: expected some of bleu, chrf, chrf++, ter, paper-bleu, paper-bleu-split; got 'blue'\n",
        ),
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


def test_a_report_tells_repetition_and_known_sentences(trained: Path, tmp_path: Path) -> None:
    """Of the four lines of `news` one is empty; a line with a word that training never saw is left out of the known."""
    write_pair(trained, "odd", ["1 2 3", "1 9 2", "3 3 3"])
    recipe = trained / "run" / "recipe.yaml"
    before = recipe.read_text(encoding="utf-8")
    recipe.write_text(before.replace("short: short", "short: short\n    odd: odd"), encoding="utf-8")
    try:
        result = evaluate(trained / "run", "--set", "odd", "--output", tmp_path, "--metrics", "chrf,ter")
    finally:
        recipe.write_text(before, encoding="utf-8")
    assert result.exit_code == 0, result.stderr
    (report,) = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert report["known"]["n_segments"] == 2
    known = [[lines_of(tmp_path / f"odd.{side}")[row] for row in (0, 2)] for side in ("hyp", "ref")]
    assert [score["name"] for score in report["known"]["scores"]] == ["chrF2", "TER"], "the metrics asked for"
    assert report["known"]["scores"][0]["score"] == pytest.approx(sacrebleu.corpus_chrf(known[0], [known[1]]).score)
    assert report["by_length"] == []
    assert report["repetition"]["references"] == pytest.approx(100 * 2 / 9)
    assert report["alignment_error"] is None
    assert "on the 2 without unknown words" in result.stdout
    assert "(references 22.2 %)" in result.stdout


def test_alignment_error_is_told_where_the_right_links_are_known(tmp_path: Path) -> None:
    """The synthetic bitext has them. They are those of one model's attention; of an ensemble none are told."""
    keys = {
        "name": "made",
        "data": {
            **{"src": "en", "trg": "de", "train": "synthetic:train,pairs=20", "dev": "synthetic:dev,pairs=3"},
            "test": {"links": "synthetic:test,pairs=6"},
        },
        "text": {"subword": "word", "vocab_size": 60},
        "model": {"type": "rnnsearch", "preset": "tiny"},
        "train": {"updates": 1, "precision": "fp32"},
        "search": {"beam_size": 1, "max_length_ratio": 0, "max_length_extra": 3},
    }
    (tmp_path / "made.yaml").write_text(json.dumps(keys), encoding="utf-8")
    run = tmp_path / "run"
    train(load_recipe(tmp_path / "made.yaml", parse_model=parse_config), run, device="cpu")
    result = evaluate(run)
    assert result.exit_code == 0, result.stderr
    (report,) = json.loads((run / "evaluation" / "scores.json").read_text(encoding="utf-8"))
    pairs = list(generate(split="test", pairs=6))
    links = reference_links(load_model(run), [pair.src for pair in pairs], [pair.trg for pair in pairs])
    expected = alignment_error_rate(links, [list(pair.alignment) for pair in pairs])
    assert report["alignment_error"] == pytest.approx(expected) and 0 < expected <= 1
    assert f"alignment error rate of the attention {expected:.3f}" in result.stdout
    together = evaluate(run, "--ensemble", run)
    assert together.exit_code == 0, together.stderr
    assert "alignment error rate" not in together.stdout


def test_bleu_is_that_of_the_target_language(tmp_path: Path) -> None:
    write_pair(tmp_path, "train", ["1 2 3", "2 3", "3 1 2 1"] * 5)
    write_pair(tmp_path, "dev", ["1 3 2 1 3"])
    for name in ("train", "dev"):
        (tmp_path / f"{name}.b").rename(tmp_path / f"{name}.zh")
    keys = {
        "name": "digits",
        "data": {"src": "a", "trg": "zh", "train": "train", "dev": "dev"},
        "text": {"subword": "word", "vocab_size": 12},
        "model": {"type": "rnnencdec", "preset": "tiny"},
        "train": {"updates": 1, "precision": "fp32"},
    }
    (tmp_path / "digits.yaml").write_text(json.dumps(keys), encoding="utf-8")
    train(load_recipe(tmp_path / "digits.yaml", parse_model=parse_config), tmp_path / "run", device="cpu")
    result = evaluate(tmp_path / "run", "--set", "dev", "--output", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    (report,) = json.loads((tmp_path / "out" / "scores.json").read_text(encoding="utf-8"))
    assert "|tok:zh|" in report["scores"][0]["signature"]
