"""Findings as files: every format tells the same, and nothing in a text breaks one."""

from __future__ import annotations

import csv
import html.parser
import json
import statistics
from pathlib import Path

import pytest

from mtkit.evaluate.charts import Bar, bar_figure
from mtkit.reproduce.findings import Findings, Measured, Picture, Table
from mtkit.reproduce.laboratory import Facts
from mtkit.reproduce.report import Origin, Trained, write_report
from mtkit.reproduce.verdict import Verdict

SCORES = Measured((20.0, 23.0, 21.5), 1.25)
TABLE = Table(
    "scores",
    "Scores <of> all",
    ("system", "parameters", "BLEU", "paper"),
    [["a | b", 1234567, SCORES, 28.4], ["<c>", 8, Measured((5.0,)), None]],
    "a note",
)
VERDICTS = [
    Verdict("CH-1", "a > b", "shown", "a 2 against b 1", "more is better"),
    Verdict("CH-2", "b > a", "contradicted", "b 1 against a 2", "more is better"),
]
ORIGIN = Origin(
    "study",
    "A & B",
    "What was done.",
    "toy",
    3,
    [Trained("a, seed 1", "runs/a", Facts(8, 2, 0.5, None, 3.0, 5.0), "2 updates")],
    1.5,
    "2020-01-02",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    picture = Picture("bars", "Bars", bar_figure({"a": [Bar(2.0, 0.5)], "b": [None]}, ["x"], y_label="BLEU"), "caption")
    assert write_report(Findings(VERDICTS, [TABLE], [picture], ["Mind this."]), ORIGIN, tmp_path / "out") == (
        tmp_path / "out" / "report.md"
    )
    return tmp_path / "out"


def test_a_measured_figure_tells_mean_interval_and_deviation() -> None:
    assert SCORES.mean == 21.5
    assert SCORES.deviation == statistics.stdev([20.0, 23.0, 21.5])
    assert str(SCORES) == "21.50 ± 1.25 (sd 1.50)"
    assert str(Measured((5.0,))) == "5.00"


def test_markdown_has_tables_verdicts_rules_and_pictures(folder: Path) -> None:
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# A & B\n\nWhat was done.\n\n*scale toy, 3 seeds; mtkit ")
    assert "2020-01-02, 2 min for this command*" in text
    assert "| CH-1 | a > b | ✔ shown | a 2 against b 1 |" in text
    assert "CH-1, CH-2: more is better." in text
    assert "| a \\| b | 1,234,567 | 21.50 ± 1.25 (sd 1.50) | 28.40 |\n| <c> | 8 | 5.00 | – |" in text
    assert "|---|--:|--:|--:|" in text
    assert "![Bars](bars.png)\n\ncaption" in text
    assert "## Notes\n\nMind this." in text
    assert (folder / "bars.png").read_bytes().startswith(b"\x89PNG")


def test_csv_and_json_hold_every_number_as_it_was_measured(folder: Path) -> None:
    with (folder / "scores.csv").open(encoding="utf-8", newline="") as stream:
        first, second = csv.DictReader(stream)
    assert first["system"] == "a | b"
    assert [first[f"BLEU{part}"] for part in ("", ": deviation", ": half width", ": seeds")] == [
        "21.5",
        "1.5",
        "1.25",
        "3",
    ]
    assert (second["BLEU"], second["BLEU: deviation"], second["paper"]) == ("5.0", "", "")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert report["tables"][0]["rows"][0][2]["values"] == [20.0, 23.0, 21.5]
    assert report["verdicts"][1]["outcome"] == "contradicted"
    assert report["trainings"][0]["trg_tokens_per_second"] is None


class _Texts(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells.append(data)


def test_the_page_is_well_formed_whatever_the_texts_hold(folder: Path) -> None:
    page = _Texts()
    page.feed((folder / "report.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert "<c>" in page.cells and "c" not in page.tags
    assert "✘ contradicted" in page.cells


def test_what_is_not_measured_is_a_dash(folder: Path) -> None:
    assert "| a, seed 1 | 8 | 2 | 0.50 | – | 3.00 |" in (folder / "report.md").read_text(encoding="utf-8")
