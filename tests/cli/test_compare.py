"""mtkit compare: runs side by side."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
import sacrebleu
from typer.testing import CliRunner, Result

from mtkit.cli import app
from mtkit.models import parse_config
from mtkit.recipe import dump_recipe, load_recipe
from mtkit.reproduce.evaluation_report import read_scores
from mtkit.train.experiment import train
from mtkit.train.log import dev_curve

runner = CliRunner()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two short runs with one test set in common, and another set of the second alone."""
    folder = tmp_path_factory.mktemp("compare")
    for name, lines in (
        ("train", ["1 2 3", "2 3", "3 1 2 1", "1 2"] * 5),
        ("dev", ["1 3 2 1 3"]),
        ("news", ["1 2"] * 3),
    ):
        for side in ("a", "b"):
            (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    found = []
    for backend, tests in (("rnnencdec", {"news": "news"}), ("rnnsearch", {"more": "dev", "news": "news"})):
        keys = {
            "name": backend,
            "data": {"src": "a", "trg": "b", "train": "train", "dev": "dev", "test": tests},
            "text": {"subword": "word", "vocab_size": 12},
            "model": {"type": backend, "preset": "tiny"},
            "train": {"updates": 4, "validate_every": 2, "precision": "fp32"},
            "search": {"beam_size": 2, "max_length_extra": 2},
        }
        (folder / f"{backend}.yaml").write_text(json.dumps(keys), encoding="utf-8")
        train(load_recipe(folder / f"{backend}.yaml", parse_model=parse_config), folder / backend, device="cpu")
        found.append(folder / backend)
    return found


def compare(*arguments: object) -> Result:
    return runner.invoke(app, ["compare", *map(str, arguments), "--device", "cpu"])


def test_runs_are_evaluated_and_set_side_by_side(runs: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "report"
    result = compare(*runs, "--output", output)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{output / 'report.md'}\n"
    report = json.loads((output / "report.json").read_text(encoding="utf-8"))
    tables = {table["name"]: table for table in report["tables"]}
    of_news = {"bleu-news", "figures-news", "bleu-by-length-news"}
    assert set(tables) == {*of_news, "trainings"}, "the set that one run lacks is left out"
    expected = []
    for run in runs:
        hypotheses, references = news_of(run)
        expected.append(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    rows = tables["bleu-news"]["rows"]
    assert [row[0] for row in rows] == ["rnnencdec", "rnnsearch"]
    assert [row[1]["mean"] for row in rows] == pytest.approx(expected)
    figures = tables["figures-news"]["rows"]
    for run, row in zip(runs, figures, strict=True):
        hypotheses, references = news_of(run)
        n_words = [sum(len(line.split()) for line in lines) for lines in (hypotheses, references)]
        assert row[1:4] == pytest.approx(
            [
                sacrebleu.corpus_chrf(hypotheses, [references]).score,
                n_words[0] / n_words[1],
                sacrebleu.corpus_bleu(hypotheses, [references]).bp,
            ]
        )
    assert rows[0][2] is None and rows[1][2] == pytest.approx(expected[1] - expected[0])
    assert [row[1] for row in tables["trainings"]["rows"]] == [sum(p.numel() for p in _parameters(run)) for run in runs]
    data = runs[0].parent
    assert report["corpus"] == [f"{name}: {data / name} (a-b)" for name in ("train", "dev")] + [
        f"news: {data / 'news'} (a-b), 3 segments"
    ]
    assert (output / "dev-bleu-minutes.png").is_file() and (output / "bleu-by-length-news.png").is_file()


def news_of(run: Path) -> tuple[list[str], list[str]]:
    hypotheses, references = (
        (run / "evaluation" / f"news.{side}").read_text(encoding="utf-8").splitlines() for side in ("hyp", "ref")
    )
    return hypotheses, references


def test_p_is_a_number_shown_in_three_decimals(runs: list[Path], tmp_path: Path) -> None:
    assert compare(*runs, "--output", tmp_path).exit_code == 0
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    (table,) = [table for table in report["tables"] if table["name"] == "bleu-news"]
    (first, second), place = table["rows"], table["header"].index("p")
    assert first[place] is None and isinstance(second[place], float) and 0 < second[place] <= 1
    line = next(
        line for line in (tmp_path / "report.md").read_text(encoding="utf-8").splitlines() if "| rnnsearch |" in line
    )
    assert line.endswith(f" | {second[place]:.3f} |")


def test_the_points_of_the_curves_are_written(runs: list[Path], tmp_path: Path) -> None:
    assert compare(*runs, "--output", tmp_path).exit_code == 0
    with (tmp_path / "picture-dev-bleu-update.csv").open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["line", "x: updates", "tick", "y: dev BLEU (greedy)", "half width"]
    measured = [(run.name, *point) for run in runs for point in dev_curve(run, "update")]
    assert [(row[0], float(row[1]), float(row[3])) for row in rows] == measured
    assert [row[1] for row in rows] == ["2.0", "4.0"] * 2


def test_texts_that_not_all_runs_have_learned_from_name_those_that_did(runs: list[Path], tmp_path: Path) -> None:
    copies = [shutil.copytree(run, tmp_path / run.name) for run in runs]
    data = runs[0].parent
    changed = load_recipe(copies[1] / "recipe.yaml", ["data.share=0.25"])
    (copies[1] / "recipe.yaml").write_text(dump_recipe(changed), encoding="utf-8")
    assert compare(*copies, "--output", tmp_path / "out").exit_code == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["corpus"] == [
        f"train: {data / 'train'} (a-b), for rnnencdec",
        f"dev: {data / 'dev'} (a-b)",
        f"train: {data / 'train'} (a-b), 25% of it, for rnnsearch",
        f"news: {data / 'news'} (a-b), 3 segments",
    ]


def _parameters(run: Path) -> list:
    from mtkit.checkpoint import load_model

    return list(load_model(run).model.parameters())


def test_an_evaluation_that_is_there_is_not_made_again(runs: list[Path], tmp_path: Path) -> None:
    compare(*runs, "--output", tmp_path / "one")
    times = [(run / "evaluation" / "scores.json").stat().st_mtime_ns for run in runs]
    result = compare(*runs, "--output", tmp_path / "two")
    assert result.exit_code == 0 and "evaluating" not in result.stderr
    assert times == [(run / "evaluation" / "scores.json").stat().st_mtime_ns for run in runs]


def test_only_what_the_best_model_has_made_with_the_recipes_search_is_compared(
    runs: list[Path], tmp_path: Path
) -> None:
    """An average has its newest member's update, and another length penalty the same beam: neither is the run's."""
    copies = [shutil.copytree(run, tmp_path / run.name) for run in runs]
    assert compare(*copies, "--output", tmp_path / "before").exit_code == 0
    search = load_recipe(copies[0] / "recipe.yaml", ["search.length_penalty=0.5"])
    (copies[0] / "recipe.yaml").write_text(dump_recipe(search), encoding="utf-8")
    average = runner.invoke(app, ["average", str(copies[1]), "--last", "2"])
    assert average.exit_code == 0, average.stderr
    newest = copies[1] / "checkpoints" / "average-2-4"
    (copies[1] / "best").write_text(f"{newest.name}\n", encoding="utf-8")
    result = compare(*copies, "--output", tmp_path / "after")
    assert [line for line in result.stderr.splitlines() if line.endswith(": evaluating")] == [
        f"{copy}: evaluating" for copy in copies
    ]
    (made,) = [each for each in read_scores(copies[1] / "evaluation") if each["set"] == "news"]
    assert made["models"][0]["checkpoint"] == "average-2-4"


def test_what_cannot_be_compared_is_said(runs: list[Path], tmp_path: Path) -> None:
    for arguments, message in (
        ([runs[0]], "a comparison needs two runs or more"),
        ([runs[0], runs[0]], "the same run is given twice"),
        ([runs[0], tmp_path], "holds no model"),
    ):
        result = compare(*arguments, "--output", tmp_path / "out")
        assert result.exit_code == 2
        assert message in result.stderr
        assert not (tmp_path / "out").exists()
