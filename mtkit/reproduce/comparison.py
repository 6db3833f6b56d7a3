"""Any runs side by side: sizes, times, scores with tests against the first, curves. The report is a study's."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mtkit.checkpoint import check_run, load_model
from mtkit.errors import RequestError
from mtkit.evaluate.charts import Point, line_figure
from mtkit.reproduce.bleu_rows import by_length, measured_bleu, signature
from mtkit.reproduce.evaluation import evaluate_model
from mtkit.reproduce.findings import Cell, Findings, Picture, Table
from mtkit.reproduce.laboratory import Facts, facts_of
from mtkit.reproduce.report import Origin, Trained, write_report
from mtkit.reproduce.verdict import Sample, compare
from mtkit.text.lines import read_lines
from mtkit.train.log import dev_curve, to_stderr


class Run(NamedTuple):
    """One run and its translations, by test set."""

    label: str
    folder: Path
    facts: Facts
    sets: dict[str, Sample]
    sources: dict[str, list[str]]


def compare_runs(folders: Sequence[Path], output: Path, *, device: str = "auto") -> Path:
    """Write the report of some runs into `output`; its Markdown file. A run that was not evaluated is evaluated first.

    Raises: RequestError for fewer than two runs or runs without a test set in common; ModelError; DataError.
    """
    if len(folders) < 2:
        raise RequestError("a comparison needs two runs or more; the first is what the others are compared with")
    for folder in folders:
        check_run(folder)
    begun = time.monotonic()
    runs = [_read(folder, label, device) for folder, label in zip(folders, _labels(folders), strict=True)]
    names = _sets_in_common(runs)
    tables, pictures = [], []
    for name in names:
        samples = [run.sets[name]._replace(label=run.label) for run in runs]
        tables.append(_scores(name, samples))
        table, picture = by_length(samples, runs[0].sources[name])
        tables.append(_named(table, name))
        pictures.append(_renamed(picture, name))
    findings = Findings((), tables, [*_curves(runs), *pictures])
    origin = Origin(
        "comparison",
        "Comparison of " + ", ".join(run.label for run in runs),
        f"Each run is tested against {runs[0].label}, the first.",
        None,
        0,
        [Trained(run.label, str(run.folder), run.facts) for run in runs],
        (time.monotonic() - begun) / 60,
        time.strftime("%Y-%m-%d"),
    )
    return write_report(findings, origin, output)


def _labels(folders: Sequence[Path]) -> list[str]:
    """Names of folders, with as much of the path as keeps them apart."""
    for depth in range(1, 20):
        labels = ["/".join(folder.resolve().parts[-depth:]) for folder in folders]
        if len(set(labels)) == len(labels):
            return labels
    raise RequestError("the same run is given twice")


def _read(folder: Path, label: str, device: str) -> Run:
    """A run with its evaluation, which is made where there is none of its best checkpoint with its recipe's beam."""
    loaded = load_model(folder)
    evaluation = folder / "evaluation"
    reports = _reports(evaluation)
    # A set that was translated by an older checkpoint or with another beam is no fair opponent.
    made = {(report["update"], report["beam_size"]) for report in reports}
    as_now = {(loaded.update, loaded.recipe.search.beam_size)}
    if made != as_now or _lacks_a_set(reports, loaded.recipe.data.test):
        to_stderr(f"{folder}: evaluating")
        evaluate_model(folder, device=device)
        reports = _reports(evaluation)
    sets, sources = {}, {}
    for report in reports:
        name = report["set"]
        hypotheses, references = (list(read_lines(evaluation / f"{name}.{side}")) for side in ("hyp", "ref"))
        sets[name] = Sample(label, [hypotheses], references, loaded.recipe.data.trg)
        sources[name] = list(read_lines(evaluation / f"{name}.src"))
    return Run(label, folder, facts_of(folder), sets, sources)


def _reports(evaluation: Path) -> list[dict[str, Any]]:
    file = evaluation / "scores.json"
    try:
        return list(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []


def _lacks_a_set(reports: Sequence[dict[str, Any]], tests: dict[str, Any]) -> bool:
    return bool(set(tests) - {report["set"] for report in reports})


def _sets_in_common(runs: Sequence[Run]) -> list[str]:
    """Test sets that all runs have translated, with the same sources and references.

    Raises: RequestError when there is none.
    """
    first = runs[0]
    names = [
        name
        for name, sample in first.sets.items()
        if all(
            name in run.sets
            and run.sets[name].references == sample.references
            and run.sources[name] == first.sources[name]
            for run in runs
        )
    ]
    if not names:
        raise RequestError("these runs have no test set in common: same name, same sentences")
    return names


def _scores(name: str, samples: Sequence[Sample]) -> Table:
    baseline = samples[0]
    bleus = [measured_bleu(sample) for sample in samples]
    rows: list[list[Cell]] = []
    for sample, bleu in zip(samples, bleus, strict=True):
        found = None if sample is baseline else compare(sample, baseline)
        difference = None if found is None else bleu.mean - bleus[0].mean
        p_value = None if found is None else f"{found.p_value:.3f}"
        rows.append([sample.label, bleu, difference, p_value])
    header = ("run", "BLEU", f"difference to {baseline.label}", "p")
    note = (
        "p: paired bootstrap test against the first run, over the test sentences; how much another seed would change "
        f"is not in it. {signature(baseline)}"
    )
    return Table(f"bleu-{name}", f"{name}: BLEU", header, rows, note)


def _named(table: Table, name: str) -> Table:
    return table._replace(name=f"{table.name}-{name}", title=f"{name}: {table.title}")


def _renamed(picture: Picture, name: str) -> Picture:
    return picture._replace(name=f"{picture.name}-{name}", title=f"{name}: {picture.title}")


def _curves(runs: Sequence[Run]) -> list[Picture]:
    """Dev BLEU against time and against updates."""
    pictures = []
    axes: tuple[tuple[Literal["minutes", "update"], str], ...] = (
        ("minutes", "training time (minutes)"),
        ("update", "updates"),
    )
    for key, label in axes:
        lines = {}
        for run in runs:
            points = [Point(x, bleu) for x, bleu in dev_curve(run.folder, key)]
            if points:
                lines[run.label] = points
        if lines:
            figure = line_figure(lines, x_label=label, y_label="dev BLEU (greedy)")
            pictures.append(Picture(f"dev-bleu-{key}", f"Dev BLEU against {label}", figure))
    return pictures
