"""Findings as files: every format tells the same, and nothing in a text breaks one."""

from __future__ import annotations

import csv
import html.parser
import json
import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from matplotlib.figure import Figure

from mtkit.evaluate.charts import Bar, Point, bar_figure, line_figure
from mtkit.reproduce.findings import Findings, Measured, Picture, Table
from mtkit.reproduce.laboratory import Facts
from mtkit.reproduce.report import Origin, Trained, write_report, write_summary
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
    [Trained("a, seed 1", "runs/a", Facts(8, 2, 0.25, 0.5, None, 3.0, 5.0), "2 updates")],
    1.5,
    "2020-01-02",
    corpus=["train: <a>_b* (3 pairs)", "dev: d|e (1 pair)"],
    overrides=["train.lr=0.1", "model.d_model=<8>"],
)
GFM = MarkdownIt("gfm-like", {"linkify": False})
# What Markdown and HTML take for markup, and what a run, a token or a file may be called.
ODD = [
    *("+ local-p, + <unk> replaced", "</s>", "<!-- a -->", "a < b > c", "&lt; & &#60; &c", "*a* **b**", "2 * 3 * 4"),
    *("_a_ __b__", "local_p and encoder.1.self_attention", "`a`", "``b", "[a](b) [c]: d ![e](f)", "~~a~~ ~b~", "a | b"),
    *("a\\", "\\*a\\*", "C:\\new\\|b", "# a #", "##", "- a", "---", "> a", "1. a", "2) b", "+", "a\n\n- b", "▁a_▁b"),
    *("    a", "<http://a.b>", "a  \nb", "=", "***"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    picture = Picture("bars", "Bars", bar_figure({"a": [Bar(2.0, 0.5)], "b": [None]}, ["x"], y_label="BLEU"), "caption")
    assert write_report(Findings(VERDICTS, [TABLE], [picture], ["Mind this."]), ORIGIN, tmp_path / "out") == (
        tmp_path / "out" / "report.md"
    )
    return tmp_path / "out"


def read_csv(file: Path) -> list[list[str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


def report_of(findings: Findings, folder: Path) -> dict:
    """What report.json holds, read as strictly as other programs read JSON."""
    write_report(findings, ORIGIN._replace(trainings=[]), folder)
    text = (folder / "report.json").read_text(encoding="utf-8")
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


class _Rendered(html.parser.HTMLParser):
    """The tags of a page with the text after each, and its pictures."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[list[str]] = []
        self.pictures: list[dict[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.pictures.append(dict(attrs))
        else:
            self.texts.append([tag, ""])

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1][1] += data

    def of(self, *tags: str) -> list[str]:
        return [text.strip() for tag, text in self.texts if tag in tags]


def check_markdown_shows(text: str, folder: Path, pictures: bool) -> None:
    """A report whose every text is this one shows it everywhere as it is, on one line."""

    def line(text: str) -> str:
        return " ".join(part.strip() for part in text.strip().split("\n") if part.strip())

    verdict, table = Verdict(text, text, "shown", text, text), Table("table", text, (text, text), [[text, text]], text)
    picture = [Picture("a (b)", text, Figure((1, 1)), text)] if pictures else []
    origin = Origin("study", text, text, "toy", 0, [], 1.0, "2020-01-02", [text], [text])
    report = write_report(Findings([verdict], [table], picture, [text]), origin, folder)
    page, shown = _Rendered(GFM.render(report.read_text(encoding="utf-8"))), line(text)
    assert page.of("h1", "h2") == [shown, "Verdicts", shown, *(shown for _ in picture), "Notes"]
    assert page.of("th") == ["claim", "statement", "verdict", "reason", shown, shown]
    assert page.of("td") == [shown, shown, "✔ shown", shown, shown, shown]
    assert page.of("li") == [shown, shown]
    lists, rule = ["Corpus:", "Changed with --set:"], line(f"{text}: {text}.")
    of_pictures = ["", shown] if pictures else []
    assert page.of("p") == [shown, "", *lists, rule, shown, *of_pictures, shown]
    assert [dict(each) for each in page.pictures] == [{"src": "a%20%28b%29.png", "alt": shown} for _ in picture]
    tags = {"h1", "h2", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "p", "em"}
    assert {tag for tag, _ in page.texts} <= tags and page.of("em")[0].startswith("no training; mtkit ")
    assert len(page.of("em")) == 1


@pytest.mark.parametrize("text", ODD)
def test_markdown_shows_what_looks_like_markup_as_it_is(text: str, tmp_path: Path) -> None:
    check_markdown_shows(text, tmp_path, pictures=True)


@given(st.text(st.sampled_from("a_*`~[]()<>/!&;#|\\ -+=.1:\n\"'"), min_size=1).filter(str.strip))
def test_markdown_shows_any_text_as_it_is(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    check_markdown_shows(text, tmp_path_factory.getbasetemp() / "any-text", pictures=False)


def test_markdown_leaves_plain_text_alone(tmp_path: Path) -> None:
    plain = "local_p & x86_64 at p < 0.05, -0.5 to +1 (2 * 3 = 6), n^2 #5: 1.5 BLEU > 0!"
    report = write_report(Findings([], [], [], [plain]), ORIGIN._replace(trainings=[]), tmp_path)
    assert f"\n\n{plain}\n" in report.read_text(encoding="utf-8")


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
    assert "| a \\| b | 1,234,567 | 21.50 ± 1.25 (sd 1.50) | 28.40 |\n| &lt;c> | 8 | 5.00 | – |" in text
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
        self.conditions: list[str] = []
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
        if self.open and self.open[-1] == "dd":
            self.conditions.append(data)


def test_the_page_is_well_formed_whatever_the_texts_hold(folder: Path) -> None:
    page = _Texts()
    page.feed((folder / "report.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert page.conditions == [*ORIGIN.corpus, *ORIGIN.overrides]
    assert "<c>" in page.cells and "c" not in page.tags
    assert "✘ contradicted" in page.cells


def test_what_is_not_measured_is_a_dash(folder: Path) -> None:
    assert "| a, seed 1 | 8 | 2 | 0.25 | 0.50 | – | 3.00 |" in (folder / "report.md").read_text(encoding="utf-8")


def test_the_report_names_its_corpus_and_what_was_set_by_hand(folder: Path) -> None:
    text = (folder / "report.md").read_text(encoding="utf-8")
    corpus = "Corpus:\n\n- train: &lt;a>\\_b\\* (3 pairs)\n- dev: d|e (1 pair)"
    assert f"{corpus}\n\nChanged with --set:\n\n- train.lr=0.1\n- model.d_model=<8>\n\n## Verdicts" in text
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert (report["corpus"], report["overrides"]) == (ORIGIN.corpus, ORIGIN.overrides)


def test_a_report_of_nothing_set_by_hand_says_nothing_of_it(tmp_path: Path) -> None:
    origin = ORIGIN._replace(corpus=(), overrides=())
    write_report(Findings([], [TABLE]), origin, tmp_path)
    for name in ("report.md", "report.html"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "Corpus" not in text and "--set" not in text
    assert not (tmp_path / "verdicts.csv").exists()


def test_the_numbers_of_a_chart_are_written_beside_it(tmp_path: Path) -> None:
    points = {"<a>": [Point(4.0, 20.123456789, 1.5), Point(8.0, 21.0)], "b": [Point(16.0, math.nan)], "none yet": []}
    lines = line_figure(points, x_label="heads", y_label="BLEU", x_ticks={4.0: "4\n(12)"})
    bars = bar_figure({"dot": [Bar(1.25, 0.5), None]}, ["global", "local\n-p"], y_label="BLEU", x_label="scope")
    pictures = [Picture("x", "X", lines, "of x"), Picture("y", "Y", bars), Picture("map", "Map", Figure((1, 1)))]
    report = report_of(Findings([], [TABLE._replace(name="x")], pictures), tmp_path)
    assert read_csv(tmp_path / "picture-x.csv") == [
        ["line", "x: heads", "tick", "y: BLEU", "half width"],
        ["<a>", "4.0", "4 (12)", "20.123456789", "1.5"],
        ["<a>", "8.0", "", "21.0", ""],
        ["b", "16.0", "", "nan", ""],
    ]
    bar_header, bar_rows = ["bar", "group: scope", "y: BLEU", "half width"], [["dot", "global"], ["dot", "local -p"]]
    assert read_csv(tmp_path / "picture-y.csv") == [
        bar_header,
        [*bar_rows[0], "1.25", "0.5"],
        [*bar_rows[1], "", ""],
    ]
    of_lines, of_bars, of_map = report["pictures"]
    assert of_lines["rows"][0] == ["<a>", 4.0, "4 (12)", 20.123456789, 1.5]
    assert of_lines["rows"][2] == ["b", 16.0, None, None, None], "JSON has no NaN"
    assert (of_lines["name"], of_lines["title"], of_lines["caption"]) == ("x", "X", "of x")
    assert (of_bars["header"], of_bars["rows"][1]) == (bar_header, [*bar_rows[1], None, None])
    assert of_map == {"name": "map", "title": "Map", "caption": ""}
    assert not (tmp_path / "picture-map.csv").exists()
    assert read_csv(tmp_path / "x.csv")[0][0] == "system", "a table of the same name is another file"


def test_a_column_may_have_more_decimals_than_its_table(tmp_path: Path) -> None:
    table = Table(
        "t", "T", ("run", "BLEU", "p"), [["a", 20.456, 0.0123456], ["b", 1.0, None]], column_decimals={"p": 3}
    )
    report = report_of(Findings([], [table]), tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "|---|--:|--:|\n| a | 20.46 | 0.012 |\n| b | 1.00 | – |" in text
    assert read_csv(tmp_path / "t.csv")[1:] == [["a", "20.456", "0.0123456"], ["b", "1.0", ""]]
    assert report["tables"][0]["rows"] == [["a", 20.456, 0.0123456], ["b", 1.0, None]]


def test_the_numbers_of_verdicts_are_columns(tmp_path: Path) -> None:
    numbers = [{"p": 0.0123, "low": -1.5}, {}, {"high": 2.5, "low": math.inf}]
    verdicts = [VERDICTS[number % 2]._replace(numbers=each) for number, each in enumerate(numbers)]
    report = report_of(Findings(verdicts, []), tmp_path)
    header, *rows = read_csv(tmp_path / "verdicts.csv")
    assert header == ["claim", "statement", "outcome", "reason", "rule", "p", "low", "high"]
    assert rows[0] == ["CH-1", "a > b", "shown", "a 2 against b 1", "more is better", "0.0123", "-1.5", ""]
    assert [row[5:] for row in rows[1:]] == [["", "", ""], ["", "inf", "2.5"]]
    assert [each["numbers"] for each in report["verdicts"]] == [*numbers[:2], {"high": 2.5, "low": None}]


def test_the_summary_passes_over_what_is_no_studys_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report(Findings(VERDICTS, []), ORIGIN, tmp_path / "study")
    write_report(Findings([], [TABLE]), ORIGIN._replace(name="comparison", scale=None), tmp_path / "comparison")
    for name, text in (("list", "[1]"), ("other", '{"scale": "linear"}'), ("text", '"study"')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(text, encoding="utf-8")
    text = write_summary(tmp_path).read_text(encoding="utf-8")
    assert text.startswith("# Verdicts, scale toy\n\n2 verdicts: 1 shown, 0 not shown, 1 contradicted, ")
    assert "| study | 3 | 1 | 30 s | 2020-01-02 |" in text and "comparison" not in text
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace('"verdicts"', '"verdict"'),
        lambda text: text.replace('"contradicted"', '"refuted"'),
        lambda text: text.replace("B", "\udcff"),
    ],
    ids=["truncated", "empty", "without verdicts", "unknown outcome", "not UTF-8"],
)
def test_the_summary_goes_without_a_damaged_report(damage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report(Findings(VERDICTS, []), ORIGIN, tmp_path / "study")
    write_report(Findings(VERDICTS, []), ORIGIN._replace(name="damaged"), tmp_path / "damaged")
    file = tmp_path / "damaged" / "report.json"
    text = damage(file.read_text(encoding="utf-8"))
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    summary = write_summary(tmp_path).read_text(encoding="utf-8")
    assert "| CH-1 | study |" in summary and "damaged" not in summary
    assert capsys.readouterr().err == f"mtkit: warning: {file}: unreadable or damaged; verdicts.md goes without it\n"


def test_the_summary_shows_what_looks_like_markup_as_it_is(tmp_path: Path) -> None:
    verdict = VERDICTS[0]._replace(statement="+ <unk> replaced beats *a*", reason="</s> | 1")
    write_report(Findings([verdict], []), ORIGIN, tmp_path / "study")
    page = _Rendered(GFM.render(write_summary(tmp_path).read_text(encoding="utf-8")))
    assert page.of("td")[:5] == ["CH-1", "study", "+ <unk> replaced beats *a*", "✔ shown", "</s> | 1"]
