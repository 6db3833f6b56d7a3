"""mtkit reproduce: a whole study on tiny models, stopped and repeated; what it refuses."""

from __future__ import annotations

import csv
import html.parser
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sacrebleu
from typer.testing import CliRunner, Result

from mtkit.cli import app
from mtkit.reproduce import study

runner = CliRunner()
TINY = [
    "--set",
    "data.train='synthetic:train,pairs=200,min_words=3,max_words=39'",
    "--set",
    "data.dev='synthetic:dev,pairs=4,min_words=3,max_words=9'",
    "--set",
    "data.test.all='synthetic:test,pairs=220,min_words=3,max_words=39'",
]
FILES = [
    *("bleu-by-length.csv", "bleu-by-length.png", "bleu.csv", "bleu.png"),
    *("picture-bleu-by-length.csv", "picture-bleu.csv", "report.html", "report.json", "report.md", "verdicts.csv"),
]


def write_recipes(folder: Path, *names: str, end: dict[str, float]) -> Path:
    """Recipes of the toy scale for tiny models; `end` says when their training ends."""
    (folder / "toy").mkdir(parents=True)
    for name in names:
        keys = {
            "name": name,
            "data": {"src": "en", "trg": "de", "train": "synthetic:train,pairs=10", "dev": "synthetic:dev,pairs=4"},
            "text": {"subword": "word", "vocab_size": 300, "shared_vocab": False},
            "model": {"type": name, "preset": "tiny"},
            "train": {**end, "batch_tokens": 300, "precision": "fp32", "save_every": 1},
            "search": {"beam_size": 1, "max_length_ratio": 0.0, "max_length_extra": 8},
        }
        (folder / "toy" / f"{name}.yaml").write_text(json.dumps(keys), encoding="utf-8")
    return folder


def reproduce(*arguments: object) -> Result:
    return runner.invoke(app, ["reproduce", *map(str, arguments)])


@pytest.fixture(scope="module")
def conducted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result, list[str]]:
    """The folder of the study, what the command said, and its arguments."""
    folder = tmp_path_factory.mktemp("reproduce")
    recipes = write_recipes(folder / "recipes", "rnnencdec", "rnnsearch", end={"updates": 2})
    arguments = ["table-1-1", "--recipes", str(recipes), "--output", str(folder / "out"), "--device", "cpu", *TINY]
    return folder / "out", reproduce(*arguments), arguments


def test_a_study_trains_measures_and_reports(conducted: tuple[Path, Result, list[str]]) -> None:
    folder, result, _ = conducted
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{folder / 'table-1-1' / 'report.md'}\n"
    assert "RNNencdec-15, seed 1  rnnencdec" in result.stderr
    assert "training 4 of 4: RNNsearch-25, seed 1" in result.stderr
    names = sorted(path.name for path in (folder / "table-1-1").iterdir())
    assert names == sorted([*FILES, "trainings.csv"])
    assert len(list((folder / "models").glob("*/seed-1.json"))) == 4


def test_the_report_judges_each_claim_by_a_stated_rule(conducted: tuple[Path, Result, list[str]]) -> None:
    folder, _, _ = conducted
    report = json.loads((folder / "table-1-1" / "report.json").read_text(encoding="utf-8"))
    assert [verdict["claim"] for verdict in report["verdicts"]] == ["CH-30", "CH-31", "CH-18", "CH-32"]
    assert report["corpus"] == [
        "train: synthetic:train,pairs=200,min_words=3,max_words=39 (en-de), 200 pairs",
        "dev: synthetic:dev,pairs=4,min_words=3,max_words=9 (en-de), 4 pairs",
        "scored on all: synthetic:test,pairs=220,min_words=3,max_words=39 (en-de), 220 pairs",
    ]
    outcomes = {"shown", "not shown", "contradicted", "cannot be tested at this scale"}
    assert all(verdict["outcome"] in outcomes and verdict["reason"] for verdict in report["verdicts"])
    markdown = (folder / "table-1-1" / "report.md").read_text(encoding="utf-8")
    for verdict in report["verdicts"]:
        assert verdict["reason"] in markdown
        assert verdict["rule"] in markdown


def test_the_verdicts_of_all_studies_are_collected(conducted: tuple[Path, Result, list[str]]) -> None:
    folder, _, _ = conducted
    again = reproduce("table-1-6", "--output", folder)
    assert again.exit_code == 0, again.stderr
    text = (folder / "verdicts.md").read_text(encoding="utf-8")
    assert text.startswith("# Verdicts, scale toy\n\n9 verdicts: ")
    claims = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| CH-")]
    assert claims == ["CH-18", "CH-30", "CH-31", "CH-32", "CH-112", "CH-113", "CH-114", "CH-115", "CH-126"]
    assert "| table-1-6 | none trained | – | – |" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| table-1-1 | 1 |")]
    scored, changed = [cell.strip() for cell in row.split("|")[-3:-1]]
    assert scored == "all: synthetic:test,pairs=220,min_words=3,max_words=39 (en-de), 220 pairs"
    assert changed == ", ".join(TINY[1::2])
    assert "| table-1-1 | 1 | 4 | " in text


def test_its_scores_are_those_of_the_kept_translations(conducted: tuple[Path, Result, list[str]]) -> None:
    folder, _, _ = conducted
    with (folder / "table-1-1" / "bleu.csv").open(encoding="utf-8", newline="") as stream:
        rows = {f"{row['system']}-{row['cap, tokens']}": row for row in csv.DictReader(stream)}
    assert list(rows) == ["RNNencdec-15", "RNNsearch-15", "RNNencdec-25", "RNNsearch-25"]
    assert [float(row["paper, all"]) for row in rows.values()] == [13.93, 21.50, 17.82, 26.75]
    scores = set()
    kept_files = list((folder / "translations").glob("*.json"))
    for file in kept_files:
        kept = json.loads(file.read_text(encoding="utf-8"))["translated"]
        scores.add(round(sacrebleu.corpus_bleu(kept["hypotheses"], [kept["references"]]).score, 9))
    assert {round(float(row["ours, all"]), 9) for row in rows.values()} <= scores
    searches = {json.loads(file.read_text(encoding="utf-8"))["key"]["search"]["unknown"] for file in kept_files}
    assert searches == {"keep", "forbid"}, "as the paper's two columns"


class _Links(html.parser.HTMLParser):
    """What a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.n_pictures = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.n_pictures += tag == "img"
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_fetches_nothing(conducted: tuple[Path, Result, list[str]]) -> None:
    folder, _, _ = conducted
    page = _Links()
    page.feed((folder / "table-1-1" / "report.html").read_text(encoding="utf-8"))
    assert page.n_pictures == 2
    assert page.found and all(link.startswith("data:image/png;base64,") for link in page.found)


def test_the_same_command_again_trains_and_translates_nothing(conducted: tuple[Path, Result, list[str]]) -> None:
    folder, _, arguments = conducted
    before = {
        path: path.stat().st_mtime_ns for part in ("models", "translations") for path in (folder / part).rglob("*")
    }
    result = reproduce(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "training 1 of" not in result.stderr
    assert result.stderr.count("finished") == 4
    after = {
        path: path.stat().st_mtime_ns for part in ("models", "translations") for path in (folder / part).rglob("*")
    }
    assert after == before


def test_another_seed_keeps_the_first_ones_models(conducted: tuple[Path, Result, list[str]]) -> None:
    folder, _, arguments = conducted
    result = reproduce(*arguments, "--seeds", 2)
    assert result.exit_code == 0, result.stderr
    assert "training 4 of 4: RNNsearch-25, seed 2" in result.stderr
    report = json.loads((folder / "table-1-1" / "report.json").read_text(encoding="utf-8"))
    (bleu,) = (table for table in report["tables"] if table["name"] == "bleu")
    assert all(len(row[5]["values"]) == 2 for row in bleu["rows"])


def test_a_study_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    """The first training is stopped by Ctrl-C; the same command ends it and all others, from its checkpoint."""
    recipes = write_recipes(tmp_path / "recipes", "rnnencdec", "rnnsearch", end={"updates": 5000})
    output = tmp_path / "out"
    command = [
        *(sys.executable, "-m", "mtkit", "reproduce", "table-1-1", "--recipes", str(recipes)),
        *("--output", str(output), "--device", "cpu", *TINY),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"})
    deadline = time.monotonic() + 120
    while not list((output / "models").glob("*/seed-1/checkpoints/update-*")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stopped; 0 of 4 trainings are finished. The same command goes on" in stderr
    (run,) = (output / "models").glob("rnnencdec-*/seed-1")
    update = int(re.search(r"update-(\d+)", (run / "last").read_text(encoding="utf-8"))[1])

    result = reproduce(*command[4:], "--set", "train.max_minutes=0.005")
    assert result.exit_code == 0, result.stderr
    assert f"going on after update {update:,}" in result.stderr
    assert len(list((output / "models").glob("*/seed-1.json"))) == 4


def test_a_budget_cuts_trainings_short_says_so_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    recipes = write_recipes(tmp_path / "recipes", "rnnencdec", "rnnsearch", end={"updates": 100_000})
    command = ["table-1-1", "--recipes", recipes, "--output", tmp_path / "out", "--device", "cpu", *TINY]
    report = tmp_path / "out" / "table-1-1" / "report.json"

    def updates() -> list[int]:
        return [each["updates"] for each in json.loads(report.read_text(encoding="utf-8"))["trainings"]]

    assert reproduce(*command, "--budget-minutes", 0.1).exit_code == 0
    told = json.loads(report.read_text(encoding="utf-8"))["notes"][-1]
    assert told.startswith("Stopped by the clock before the last update that the recipe asks for: RNNencdec-15, seed 1")
    first = updates()
    again = reproduce(*command, "--budget-minutes", 0.1)
    assert again.exit_code == 0 and "going on" not in again.stderr
    assert updates() == first
    assert reproduce(*command, "--budget-minutes", 0.2).exit_code == 0
    assert all(after > before for before, after in zip(first, updates(), strict=True))


def test_an_override_that_takes_the_difference_away_is_refused(tmp_path: Path) -> None:
    """With one number of heads for all there is nothing to compare."""
    for name, override, labels in (
        ("heads", "model.n_heads=4", "1 head and 2 heads"),
        ("table-1-1", "data.filters.max_length=20", "RNNencdec-15 and RNNencdec-25"),
    ):
        result = reproduce(name, "--set", override, "--output", tmp_path / "out")
        assert (result.exit_code, result.stderr) == (
            2,
            f"mtkit: --set: makes {labels} one and the same model; their difference is what this study measures\n",
        )
        assert not (tmp_path / "out").exists()


def test_the_share_of_the_text_is_the_leagues_own_to_set(tmp_path: Path) -> None:
    """Half of it for all of them would leave a tenth in the label alone."""
    result = reproduce("league", "--set", "data.share=0.5", "--output", tmp_path / "out")
    assert (result.exit_code, result.stderr) == (
        2,
        "mtkit: --set: data.share is what trainings of this study differ in; give all less with data.train\n",
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["2016", "a: b", "a #b", "[z]", "my corpus"])
def test_any_name_of_the_data_folder_will_do(tmp_path: Path, name: str) -> None:
    """It is looked into, whatever YAML would make of the name."""
    result = reproduce("table-1-1", "--scale", "multi30k", "--data", tmp_path / name, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert f"{tmp_path / name}/" in result.stderr.splitlines()[-1]
    result = reproduce("table-1-1", "--scale", "multi30k", "--output", tmp_path / "out")
    assert (result.exit_code, result.stderr) == (
        2,
        "mtkit: --data: is needed by --scale multi30k; name the folder of the corpus\n",
    )


def test_what_a_corpus_cannot_test_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    """Sentences of three words: no cap leaves one out, and none is long. A test set that is null is missed at once."""
    for name in ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"):
        for side in ("en", "de"):
            (tmp_path / f"{name}.{side}").write_text("a b c\n" * 60, encoding="utf-8")
    command = ["table-1-1", "--scale", "multi30k", "--data", tmp_path, "--output", tmp_path / "out"]
    result = reproduce(*command, "--set", "data.dev=nosuch")  # so that nothing is trained
    assert result.exit_code == 2
    said = [line for line in result.stderr.splitlines() if line.startswith("this corpus cannot test ")]
    assert said == [
        "this corpus cannot test CH-30, CH-31: a cap of 30 tokens leaves out 0.0% of the training pairs; 5% or more "
        "are needed",
        "this corpus cannot test CH-18, CH-32: of 60 sentences 0 have 30 words or more, too few for two groups",
    ]
    none = "data.test={flickr2016: null, flickr2017: null, mscoco2017: null}"
    result = reproduce(*command, "--set", none)
    assert result.exit_code == 2
    assert "names no test set" in result.stderr and "training 1" not in result.stderr


def test_a_budget_cuts_no_training_that_ends_by_the_clock(tmp_path: Path) -> None:
    """Two budgets would make two models of one name."""
    result = reproduce("league", "--match", "time", "--output", tmp_path / "out", "--budget-minutes", 11)
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "mtkit: --budget-minutes: leaves 1 minutes for Seq2Seq, seed 1, which trains for 3; say how long each trains "
        "with --set train.max_minutes=M instead"
    )
    assert not (tmp_path / "out").exists()


def test_a_training_that_diverges_is_a_finding(tmp_path: Path) -> None:
    """Steps of 1e30 leave no finite loss: each training ends, is told of, and is measured with what it had."""
    recipes = write_recipes(tmp_path / "recipes", "rnnencdec", "rnnsearch", end={"updates": 30})
    wild = ["train.lr=1e18", "train.warmup_updates=0", "train.max_bad_updates=2", "train.schedule=constant"]
    command = ["table-1-1", "--recipes", recipes, "--output", tmp_path / "out", "--device", "cpu", *TINY]
    result = reproduce(*command, *(part for key in wild for part in ("--set", key)))
    assert result.exit_code == 0, result.stderr
    assert "RNNencdec-15, seed 1: diverged" in result.stderr
    report = json.loads((tmp_path / "out" / "table-1-1" / "report.json").read_text(encoding="utf-8"))
    told = [note for note in report["notes"] if "diverged" in note]
    assert told[0].startswith("RNNencdec-15, seed 1 diverged: update ")
    assert "updates in a row without a finite loss. The best checkpoint" in told[0]


def test_the_studies_are_listed() -> None:
    result = reproduce()
    assert result.exit_code == 0
    listed = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert list(listed) == study.available()
    assert listed["table-1-1"].strip() == study.load("table-1-1").TITLE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["leage"], "mtkit: leage: no such study; did you mean 'league'?"),
        (
            ["table-1-1", "--data", "x"],
            "mtkit: --data: the toy scale makes its own text; choose --scale multi30k or paper",
        ),
        (
            ["beam", "--match", "time"],
            "mtkit: --match: is for the study league; beam compares its systems as their recipes have them",
        ),
        (
            ["league", "--match", "time", "--scale", "paper"],
            "mtkit: --match: the recipes of --scale paper train as the papers did, each for its own time",
        ),
        (["table-1-1", "--set", "train.optimzer=adam"], "train.optimzer: unknown key; did you mean 'optimizer'?"),
    ],
)
def test_a_wrong_request_leaves_nothing_behind(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = reproduce(*arguments, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_published_size_waits_for_a_yes(tmp_path: Path) -> None:
    result = reproduce("table-1-1", "--scale", "paper", "--data", tmp_path, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert "add --yes to start" in result.stderr
    assert "RNNsearch-50, seed 1" in result.stderr
    assert "one GPU, 4.6 days (table 2)" in result.stderr, "111 hours"
    # 109 + 113 + 108 + 111 hours
    assert "took the papers' authors 18 GPU-days together, on GPUs" in result.stderr.replace("\n", " ")
    assert not (tmp_path / "out").exists()
