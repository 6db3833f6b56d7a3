"""A study's findings as files: report.md, report.html (one file, opens from disk), PNG, CSV, report.json."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mtkit import __version__
from mtkit.evaluate.pictures import save_figure
from mtkit.reproduce.findings import Cell, Findings, Measured, Picture, Table
from mtkit.text.lines import open_output
from mtkit.train.log import minutes_text

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


def write_report(findings: Findings, origin: Origin, folder: Path) -> Path:
    """Write all files of a report into `folder`; its Markdown file.

    Raises: RequestError when a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for picture in findings.pictures:
        save_figure(picture.figure, folder / f"{picture.name}.png")
    tables = [*findings.tables, *([_training_table(origin)] if origin.trainings else [])]
    for table in tables:
        _write(folder / f"{table.name}.csv", _as_csv(table))
    _write(folder / "report.json", json.dumps(_as_json(findings, origin, tables), ensure_ascii=False, indent=1) + "\n")
    _write(folder / "report.html", _as_html(findings, origin, tables, folder))
    _write(folder / "report.md", _as_markdown(findings, origin, tables))
    return folder / "report.md"


def write_summary(folder: Path) -> Path:
    """Write `verdicts.md` into the folder of all reports: every verdict of every study conducted there, by claim."""
    rows, studies, scales = [], [], set()
    for file in sorted(folder.glob("*/report.json")):
        report = json.loads(file.read_text(encoding="utf-8"))
        if "study" not in report:
            continue
        name = report["study"]
        scales.add(report["scale"])
        seeds = f"{report['seeds']}" if report["seeds"] else "none trained"
        minutes = sum(training["minutes"] or 0 for training in report["trainings"])
        trained = [str(len(report["trainings"])), minutes_text(minutes)] if report["trainings"] else ["–", "–"]
        studies.append([name, seeds, *trained, report["made"]])
        for each in report["verdicts"]:
            outcome = f"{OUTCOME_MARKS[each['outcome']]} {each['outcome']}"
            rows.append([each["claim"], name, each["statement"], outcome, each["reason"]])
    rows.sort(key=lambda row: (_claim_number(row[0]), row[0], row[1]))
    counts = [f"{sum(mark in row[3] for row in rows)} {outcome}" for outcome, mark in OUTCOME_MARKS.items()]
    parts = [
        f"# Verdicts, scale {' and '.join(sorted(scales))}",
        f"{len(rows)} verdicts: {', '.join(counts)}. Each study's report states its rules.",
        _markdown_rows(("claim", "study", "statement", "verdict", "reason"), rows, right=()),
        "## Studies",
        _markdown_rows(("study", "seeds", "trainings", "training time", "made"), studies, right=()),
    ]
    _write(folder / "verdicts.md", "\n\n".join(parts) + "\n")
    return folder / "verdicts.md"


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
            *(each.name, each.facts.parameters, each.facts.updates, each.facts.minutes),
            *(each.facts.trg_tokens_per_second, each.facts.dev_ppl, each.end or None),
        )
        for each in origin.trainings
    ]
    header = (
        *("training", "parameters", "updates", "minutes", "target tokens/s", "dev perplexity, of a token"),
        "ended after",
    )
    note = "Target tokens count </s> and no padding. Perplexities of unequal vocabularies cannot be compared."
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


def _as_markdown(findings: Findings, origin: Origin, tables: Sequence[Table]) -> str:
    parts = [f"# {origin.title}", origin.subject, f"*{_origin_text(origin)}*"]
    if findings.verdicts:
        parts.append("## Verdicts")
        parts.append(_markdown_rows(_VERDICT_HEADER, _verdict_rows(findings), right=()))
        parts += [f"{rule_claims}: {rule}." for rule_claims, rule in _rules(findings)]
    for table in tables:
        parts.append(f"## {table.title}")
        parts.append(_markdown_rows(table.header, _shown_rows(table), right=_number_columns(table)))
        parts += [table.note] if table.note else []
    for picture in findings.pictures:
        parts.append(f"## {picture.title}")
        parts.append(f"![{picture.title}]({picture.name}.png)")
        parts += [picture.caption] if picture.caption else []
    if findings.notes:
        parts += ["## Notes", *findings.notes]
    return "\n\n".join(parts) + "\n"


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


def _shown_rows(table: Table) -> list[list[str]]:
    return [[table.shown(cell) for cell in row] for row in table.rows]


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
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    rule = "|" + "|".join("--:" if number in right else "---" for number in range(len(header))) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 72rem; margin: 2rem auto;
  padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
.origin, .note { color: #555 }
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
    if findings.verdicts:
        parts.append("<h2>Verdicts</h2>")
        parts.append(_html_table(_VERDICT_HEADER, _verdict_rows(findings), right=(), outcome_column=2))
        parts += [
            f'<p class="note">{html.escape(claims)}: {html.escape(rule)}.</p>' for claims, rule in _rules(findings)
        ]
    for table in tables:
        parts.append(f"<h2>{html.escape(table.title)}</h2>")
        parts.append(_html_table(table.header, _shown_rows(table), right=_number_columns(table)))
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
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        cells: list[Any] = []
        for number, cell in enumerate(row):
            if number not in spread:
                cells.append(cell)
            elif isinstance(cell, Measured):
                cells += [cell.mean, cell.deviation, cell.half_width, len(cell.values)]
            else:
                cells += [cell, None, None, None]
        writer.writerow(["" if cell is None else cell for cell in cells])
    return stream.getvalue()


def _as_json(findings: Findings, origin: Origin, tables: Sequence[Table]) -> dict[str, Any]:
    return {
        "study": origin.name,
        "title": origin.title,
        "scale": origin.scale,
        "seeds": origin.n_seeds,
        "mtkit": __version__,
        "made": origin.made,
        "minutes": round(origin.minutes, 2),
        "trainings": [
            {"name": each.name, "run": each.run, "end": each.end, **each.facts._asdict()} for each in origin.trainings
        ],
        "verdicts": [each._asdict() for each in findings.verdicts],
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "header": list(table.header),
                "rows": [[_plain(cell) for cell in row] for row in table.rows],
                "note": table.note,
            }
            for table in tables
        ],
        "notes": list(findings.notes),
    }


def _plain(cell: Cell) -> Any:
    if isinstance(cell, Measured):
        return {
            "mean": cell.mean,
            "deviation": cell.deviation,
            "half_width": cell.half_width,
            "values": list(cell.values),
        }
    return cell
