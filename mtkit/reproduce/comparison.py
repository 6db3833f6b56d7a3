"""Any runs side by side: sizes, times, scores with tests against the first, curves. The report is a study's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mtkit.checkpoint import check_run, load_model
from mtkit.errors import RequestError
from mtkit.evaluate.bleu import BOOTSTRAP_SAMPLES, NamedLines, ScoreSettings, hints
from mtkit.evaluate.charts import Point, line_figure
from mtkit.recipe import DataSection
from mtkit.reproduce.bleu_rows import by_length, measured_bleu, signature
from mtkit.reproduce.corpus import learned_from, text_name
from mtkit.reproduce.evaluation import evaluate_model
from mtkit.reproduce.evaluation_report import made_by, read_scores
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
    data: DataSection
    sets: dict[str, Sample]
    sources: dict[str, list[str]]
    scores: dict[str, dict[str, Any]]  # as its evaluation has written them


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
    tables, pictures, notes = [], [], []
    for name in names:
        samples = [run.sets[name] for run in runs]
        tables += [_scores(name, samples), _other_figures(name, runs)]
        notes += [f"{name}: {hint}" for hint in _hints(samples, runs[0].sources[name])]
        table, picture = by_length(samples, runs[0].sources[name])
        tables.append(_named(table, name))
        pictures.append(_renamed(picture, name))
    findings = Findings((), tables, [*_curves(runs), *pictures], notes)
    origin = Origin(
        "comparison",
        "Comparison of " + ", ".join(run.label for run in runs),
        f"Each run is tested against {runs[0].label}, the first.",
        None,
        0,
        [Trained(run.label, str(run.folder), run.facts) for run in runs],
        (time.monotonic() - begun) / 60,
        time.strftime("%Y-%m-%d"),
        corpus=_corpus(runs, names),
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
    """A run with its evaluation: of its best model, with its recipe's search; what is missing of it is made."""
    loaded = load_model(folder)
    evaluation = folder / "evaluation"
    made = made_by([loaded], loaded.recipe.search.beam_size)
    scores = _made_so(evaluation, made)
    missing = [name for name in loaded.recipe.data.test if name not in scores]
    if missing or not scores:
        to_stderr(f"{folder}: evaluating")
        evaluate_model(folder, names=missing, device=device)
        scores = _made_so(evaluation, made)
    sets, sources = {}, {}
    for name in scores:
        hypotheses, references = (list(read_lines(evaluation / f"{name}.{side}")) for side in ("hyp", "ref"))
        sets[name] = Sample(label, [hypotheses], references, loaded.recipe.data.trg)
        sources[name] = list(read_lines(evaluation / f"{name}.src"))
    return Run(label, folder, facts_of(folder), loaded.recipe.data, sets, sources, scores)


def _made_so(evaluation: Path, made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The scores there that these weights and this search have made: others are no fair opponents."""
    return {each["set"]: each for each in read_scores(evaluation) if made.items() <= each.items()}


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


def _corpus(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """The texts learned from and the test sets with their sizes."""
    lines = learned_from([(run.label, run.data) for run in runs])
    first = runs[0]
    sets = {**first.data.test, "dev": first.data.dev}
    for name in names:
        text = f"{text_name(sets[name], first.data)}, " if name in sets else ""
        lines.append(f"{name}: {text}{len(first.sources[name]):,} segments")
    return lines


def _scores(name: str, samples: Sequence[Sample]) -> Table:
    baseline = samples[0]
    bleus = [measured_bleu(sample) for sample in samples]
    rows: list[list[Cell]] = []
    for sample, bleu in zip(samples, bleus, strict=True):
        found = None if sample is baseline else compare(sample, baseline)
        difference = None if found is None else bleu.mean - bleus[0].mean
        rows.append([sample.label, bleu, difference, None if found is None else found.p_value])
    header = ("run", "BLEU", f"difference to {baseline.label}", "p")
    note = (
        f"±: half of the 95% bootstrap interval; p: paired bootstrap test against the first run; {BOOTSTRAP_SAMPLES} "
        "resamples of the test sentences. How much another seed would change is in neither. "
        f"{signature(baseline)}"
    )
    return Table(f"bleu-{name}", f"{name}: BLEU", header, rows, note, column_decimals={"p": 3})


def _other_figures(name: str, runs: Sequence[Run]) -> Table:
    """What the evaluations have found beside BLEU; a gap where one of them has not looked for it."""
    rows: list[list[Cell]] = []
    for run in runs:
        found = run.scores[name]
        scores = {score["name"]: score for score in found["scores"]}
        bleu = scores.get("BLEU", {})
        known = {score["name"]: score["score"] for score in (found["known"] or {}).get("scores", ())}
        ratio = bleu["hyp_length"] / bleu["ref_length"] if bleu.get("ref_length") else None
        rows.append(
            [
                run.label,
                scores.get("chrF2", {}).get("score"),
                ratio,
                bleu.get("brevity_penalty"),
                found["repetition"]["translations"],
                known.get("BLEU"),
                found["alignment_error"],
            ]
        )
    references = runs[0].scores[name]["repetition"]["references"]
    header = (
        *("run", "chrF2", "length ratio", "brevity penalty", "repeated words, %"),
        *("BLEU without unknown words", "alignment error rate"),
    )
    note = f"Length ratio: tokens to tokens of the references, in which {references:.1f}% of the words are repeated."
    return Table(f"figures-{name}", f"{name}: other figures", header, rows, note, 3)


def _hints(samples: Sequence[Sample], sources: Sequence[str]) -> list[str]:
    """What looks wrong with the texts."""
    systems = [NamedLines(sample.label, sample.hypotheses[0]) for sample in samples]
    references, settings = NamedLines("references", samples[0].references), ScoreSettings(trg_lang=samples[0].trg_lang)
    return hints(systems, [references], settings, NamedLines("source", sources))


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
