"""A study's findings as files: report.md, report.html (one file, opens from disk), PNG, CSV, report.json."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import math
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from mtkit import __version__
from mtkit.evaluate.charts import numbers_shown
from mtkit.evaluate.pictures import save_figure
from mtkit.reproduce.corpus import SCORED_ON
from mtkit.reproduce.findings import Findings, Measured, Picture, Table
from mtkit.text.lines import open_output
from mtkit.train.log import minutes_text, to_stderr

if TYPE_CHECKING:
    from mtkit.reproduce.laboratory import Facts

OUTCOME_MARKS = {"shown": "✔", "not shown": "○", "contradicted": "✘", "cannot be tested at this scale": "–"}


class Trained(NamedTuple):
    """One run that findings rest on."""

    name: str  # with its seed
    run: str  # folder
    facts: Facts
    end: str = ""  # why its training ended, if that is on record


class Origin(NamedTuple):
    """Where findings come from."""

    name: str
    title: str
    subject: str
    scale: str | None  # None: not a study's
    n_seeds: int  # 0: no model was trained for this
    trainings: Sequence[Trained]
    minutes: float  # of this command
    made: str  # the day, YYYY-MM-DD
    corpus: Sequence[str] = ()  # the texts learned from and tested on, a line for each
    overrides: Sequence[str] = ()  # KEY=VALUE, what the user has set in every recipe


def write_report(findings: Findings, origin: Origin, folder: Path) -> Path:
    """Write all files of a report into `folder`; its Markdown file.

    Raises: RequestError when a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for picture in findings.pictures:
        save_figure(picture.figure, folder / f"{picture.name}.png")
        if shown := numbers_shown(picture.figure):
            # Names of tables and pictures may end in a test set's, which may be any; they begin with a word of ours.
            _write(folder / f"picture-{picture.name}.csv", _csv_text(shown.header, shown.rows))
    tables = [*findings.tables, *([_training_table(origin)] if origin.trainings else [])]
    for table in tables:
        _write(folder / f"{table.name}.csv", _as_csv(table))
    if findings.verdicts:
        _write(folder / "verdicts.csv", _verdicts_as_csv(findings))
    report = _plain(_as_object(findings, origin, tables))
    _write(folder / "report.json", json.dumps(report, ensure_ascii=False, allow_nan=False, indent=1) + "\n")
    _write(folder / "report.html", _as_html(findings, origin, tables, folder))
    _write(folder / "report.md", _as_markdown(findings, origin, tables))
    return folder / "report.md"


def write_summary(folder: Path) -> Path:
    """Write `verdicts.md` into the folder of all reports: every verdict of every study conducted there, by claim.

    A damaged report is left out with a warning.
    """
    rows: list[list[str]] = []
    studies: list[list[str]] = []
    scales: set[str] = set()
    for file in sorted(folder.glob("*/report.json")):
        try:
            report = json.loads(file.read_text(encoding="utf-8"))
            # Only a study has a scale: a comparison of any runs or another program's file may lie here, too.
            if not (isinstance(report, dict) and "study" in report and isinstance(report.get("scale"), str)):
                continue
            study, verdicts = _summary_rows(report)
        except (OSError, ValueError, KeyError, TypeError):
            to_stderr(f"mtkit: warning: {file}: unreadable or damaged; verdicts.md goes without it")
            continue
        scales.add(report["scale"])
        studies.append(study)
        rows += verdicts
    rows.sort(key=lambda row: (_claim_number(row[0]), row[0], row[1]))
    counts = [f"{sum(mark in row[3] for row in rows)} {outcome}" for outcome, mark in OUTCOME_MARKS.items()]
    header = ["study", "seeds", "trainings", "training time", "made", "scored on"]
    if any(row[-1] for row in studies):
        header.append("changed with --set")
    parts = [
        f"# Verdicts, scale {' and '.join(sorted(scales))}",
        f"{len(rows)} verdicts: {', '.join(counts)}. Each study's report states its rules.",
        _markdown_rows(("claim", "study", "statement", "verdict", "reason"), rows, right=()),
        "## Studies",
        _markdown_rows(header, [row[: len(header)] for row in studies], right=()),
    ]
    _write(folder / "verdicts.md", "\n\n".join(parts) + "\n")
    return folder / "verdicts.md"


def _summary_rows(report: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The row of a study, and those of its verdicts.

    Raises: KeyError or TypeError for an object that `write_report` has not written so.
    """
    name, trainings = report["study"], report["trainings"]
    seeds = f"{report['seeds']}" if report["seeds"] else "none trained"
    minutes = sum(training["minutes"] or 0 for training in trainings)
    trained = [str(len(trainings)), minutes_text(minutes)] if trainings else ["–", "–"]
    verdicts = [
        [each["claim"], name, each["statement"], f"{OUTCOME_MARKS[each['outcome']]} {each['outcome']}", each["reason"]]
        for each in report["verdicts"]
    ]
    texts = [line.removeprefix(SCORED_ON) for line in report.get("corpus", ()) if line.startswith(SCORED_ON)]
    return [name, seeds, *trained, report["made"], "; ".join(texts), ", ".join(report.get("overrides", ()))], verdicts


def _claim_number(claim: str) -> int:
    """18 of CH-18; what has no number comes last."""
    number = claim.removeprefix("CH-")
    return int(number) if number.isdigit() else 1000


def _write(path: Path, text: str) -> None:
    with open_output(path) as stream:
        stream.write(text.encode("utf-8"))


def _training_table(origin: Origin) -> Table:
    rows = [
        (
            *(each.name, each.facts.parameters, each.facts.updates, each.facts.passes, each.facts.minutes),
            *(each.facts.trg_tokens_per_second, each.facts.dev_ppl, each.end.partition(";")[0] or None),
        )
        for each in origin.trainings
    ]
    header = (
        *("training", "parameters", "updates", "passes", "minutes", "target tokens/s"),
        *("dev perplexity, of a token", "ended after"),
    )
    note = (
        "Passes: over the pairs that the filters, such as a cap of the length, have left of the training text. Target "
        "tokens count </s> and no padding. Perplexities of unequal vocabularies cannot be compared."
    )
    return Table("trainings", "Trainings", header, rows, note)


def _origin_text(origin: Origin) -> str:
    seeds = f"{origin.n_seeds} seed{'s' if origin.n_seeds > 1 else ''}"
    scale = ""
    if origin.scale:
        scale = f"scale {origin.scale}, {seeds}; " if origin.n_seeds else "no training; "
    return (
        f"{scale}mtkit {__version__}, {platform.machine()}, {origin.made}, "
        f"{minutes_text(origin.minutes)} for this command"
    )


def _conditions(origin: Origin) -> list[tuple[str, Sequence[str]]]:
    """What findings hold for: lists with their names, those that have lines."""
    found = [("Corpus", origin.corpus), ("Changed with --set", origin.overrides)]
    return [(name, lines) for name, lines in found if lines]


def _as_markdown(findings: Findings, origin: Origin, tables: Sequence[Table]) -> str:
    parts = [f"# {_markdown(origin.title)}", _paragraph(origin.subject), f"*{_markdown(_origin_text(origin))}*"]
    for name, lines in _conditions(origin):
        parts += [f"{name}:", "\n".join(f"- {_paragraph(line)}" for line in lines)]
    if findings.verdicts:
        parts.append("## Verdicts")
        parts.append(_markdown_rows(_VERDICT_HEADER, _verdict_rows(findings), right=()))
        parts += [_paragraph(f"{rule_claims}: {rule}.") for rule_claims, rule in _rules(findings)]
    for table in tables:
        parts.append(f"## {_markdown(table.title)}")
        parts.append(_markdown_rows(table.header, table.shown_rows(), right=_number_columns(table)))
        parts += [_paragraph(table.note)] if table.note else []
    for picture in findings.pictures:
        parts.append(f"## {_markdown(picture.title)}")
        parts.append(f"![{_markdown(picture.title)}]({quote(picture.name)}.png)")
        parts += [_paragraph(picture.caption)] if picture.caption else []
    if findings.notes:
        parts += ["## Notes", *map(_paragraph, findings.notes)]
    return "\n\n".join(parts) + "\n"


_MARKUP = re.compile(
    r"""[`~\[\]]                     # code, struck out text, links
    | (?<![ ])\* | \*(?![ ])         # emphasis; not the sign between two factors
    | (?<![^\W_])_ | _(?![^\W_])     # emphasis; not inside a word
    | (?<!\S)\#(?=\#*$)              # the closing of a heading
    | \\(?=[!-/:-@\[-`{-~]|$)        # what would escape the next character
    """,
    re.VERBOSE,
)


def _markdown(text: str) -> str:
    """A text as one line of Markdown that shows it; what CommonMark leaves alone stays, for the source is read, too."""
    text = re.sub(r"\s*[\r\n]\s*", " ", text).strip()
    text = _MARKUP.sub(r"\\\g<0>", text)
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", text)


def _paragraph(text: str) -> str:
    """The same at the beginning of a line, where some characters would begin a list, a heading or a quotation."""
    text = re.sub(r"^(?=>|[-+#](?:[-+#\s]|$))", r"\\", _markdown(text))
    return re.sub(r"^(\d+)(?=[.)](?:\s|$))", r"\1\\", text)


_VERDICT_HEADER = ("claim", "statement", "verdict", "reason")


def _verdict_rows(findings: Findings) -> list[list[str]]:
    return [
        [each.claim, each.statement, f"{OUTCOME_MARKS[each.outcome]} {each.outcome}", each.reason]
        for each in findings.verdicts
    ]


def _rules(findings: Findings) -> list[tuple[str, str]]:
    """Each rule once, after the claims that it decided."""
    claims: dict[str, list[str]] = {}
    for each in findings.verdicts:
        claims.setdefault(each.rule, []).append(each.claim)
    return [(", ".join(dict.fromkeys(names)), rule) for rule, names in claims.items()]


def _number_columns(table: Table) -> list[int]:
    """Columns that hold numbers: they are aligned at the right."""
    columns = list(zip(*table.rows, strict=True)) if table.rows else []
    return [
        number
        for number, column in enumerate(columns)
        if all(cell is None or not isinstance(cell, str) for cell in column)
    ]


def _markdown_rows(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_markdown(cell).replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "|".join("--:" if number in right else "---" for number in range(len(header))) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 72rem; margin: 2rem auto;
  padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
.origin, .note { color: #555 }
dl.origin { font-size: .85rem; overflow-wrap: anywhere } dd { margin-left: 1.5rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .92rem }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top }
th { vertical-align: bottom }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
td.number { white-space: nowrap }
img { max-width: min(100%, 56rem); height: auto }
.shown { color: #176b2c } .contradicted { color: #a3191f } .open { color: #7a5b00 }
td.outcome, td.claim { white-space: nowrap }
"""


def _as_html(findings: Findings, origin: Origin, tables: Sequence[Table], folder: Path) -> str:
    """One file with its pictures inside: it opens from the disk and asks no network for anything."""
    parts = [
        f"<h1>{html.escape(origin.title)}</h1>",
        f"<p>{html.escape(origin.subject)}</p>",
        f'<p class="origin">{html.escape(_origin_text(origin))}</p>',
    ]
    if conditions := _conditions(origin):
        parts.append('<dl class="origin">')
        for name, lines in conditions:
            parts += [f"<dt>{html.escape(name)}</dt>", *(f"<dd>{html.escape(line)}</dd>" for line in lines)]
        parts.append("</dl>")
    if findings.verdicts:
        parts.append("<h2>Verdicts</h2>")
        parts.append(_html_table(_VERDICT_HEADER, _verdict_rows(findings), right=(), outcome_column=2))
        parts += [
            f'<p class="note">{html.escape(claims)}: {html.escape(rule)}.</p>' for claims, rule in _rules(findings)
        ]
    for table in tables:
        parts.append(f"<h2>{html.escape(table.title)}</h2>")
        parts.append(_html_table(table.header, table.shown_rows(), right=_number_columns(table)))
        parts += [f'<p class="note">{html.escape(table.note)}</p>'] if table.note else []
    parts += [_html_picture(picture, folder) for picture in findings.pictures]
    if findings.notes:
        parts += ["<h2>Notes</h2>", *(f"<p>{html.escape(note)}</p>" for note in findings.notes)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(origin.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _html_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], outcome_column: int | None = None
) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        found = []
        for number, cell in enumerate(row):
            kind = "number" if number in right else ""
            if outcome_column is not None and number == 0:
                kind = "claim"
            if number == outcome_column and tag == "td":
                outcome = cell.partition(" ")[2]
                kind = f"outcome {outcome if outcome in ('shown', 'contradicted') else 'open'}"
            found.append(f"<{tag}{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{html.escape(cell)}</{tag}>")
        return "<tr>" + "".join(found) + "</tr>"

    body = "\n".join(cells(row, "td") for row in rows)
    return f'<div class="wide"><table>\n<thead>{cells(header, "th")}</thead>\n<tbody>\n{body}\n</tbody></table></div>'


def _html_picture(picture: Picture, folder: Path) -> str:
    data = base64.b64encode((folder / f"{picture.name}.png").read_bytes()).decode("ascii")
    caption = f'<p class="note">{html.escape(picture.caption)}</p>' if picture.caption else ""
    return (
        f"<h2>{html.escape(picture.title)}</h2>\n"
        f'<img alt="{html.escape(picture.title)}" src="data:image/png;base64,{data}">\n{caption}'
    )


def _as_csv(table: Table) -> str:
    """The table with numbers as they were measured; a figure over seeds has columns for its parts."""
    spread = [
        number for number in range(len(table.header)) if any(isinstance(row[number], Measured) for row in table.rows)
    ]
    header: list[str] = []
    for number, name in enumerate(table.header):
        header += [name, *(f"{name}: {part}" for part in ("deviation", "half width", "seeds"))][
            : 4 if number in spread else 1
        ]
    rows: list[list[Any]] = []
    for row in table.rows:
        cells: list[Any] = []
        for number, cell in enumerate(row):
            if number not in spread:
                cells.append(cell)
            elif isinstance(cell, Measured):
                cells += [cell.mean, cell.deviation, cell.half_width, len(cell.values)]
            else:
                cells += [cell, None, None, None]
        rows.append(cells)
    return _csv_text(header, rows)


def _verdicts_as_csv(findings: Findings) -> str:
    """The verdicts, with a column for each kind of number that one of them rests on."""
    fields = ("claim", "statement", "outcome", "reason", "rule")
    names = list(dict.fromkeys(name for each in findings.verdicts for name in each.numbers))
    rows = [
        [*(getattr(each, field) for field in fields), *(each.numbers.get(name) for name in names)]
        for each in findings.verdicts
    ]
    return _csv_text([*fields, *names], rows)


def _csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A missing cell is empty, and a number has all its digits."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue()


def _as_object(findings: Findings, origin: Origin, tables: Sequence[Table]) -> dict[str, Any]:
    return {
        "study": origin.name,
        "title": origin.title,
        "scale": origin.scale,
        "seeds": origin.n_seeds,
        "mtkit": __version__,
        "made": origin.made,
        "minutes": origin.minutes,
        "corpus": origin.corpus,
        "overrides": origin.overrides,
        "trainings": [
            {"name": each.name, "run": each.run, "end": each.end, **each.facts._asdict()} for each in origin.trainings
        ],
        "verdicts": [each._asdict() for each in findings.verdicts],
        "tables": [
            {"name": each.name, "title": each.title, "header": each.header, "rows": each.rows, "note": each.note}
            for each in tables
        ],
        "pictures": [_picture_object(each) for each in findings.pictures],
        "notes": findings.notes,
    }


def _picture_object(picture: Picture) -> dict[str, Any]:
    """A picture with the numbers that it shows, if it is a chart."""
    shown = numbers_shown(picture.figure)
    numbers = {"header": shown.header, "rows": shown.rows} if shown else {}
    return {"name": picture.name, "title": picture.title, "caption": picture.caption, **numbers}


def _plain(value: Any) -> Any:
    """A value as JSON can hold it, which has no infinity and no NaN: they become null."""
    if isinstance(value, Measured):
        parts = {"mean": value.mean, "deviation": value.deviation, "half_width": value.half_width}
        return _plain({**parts, "values": value.values})
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
