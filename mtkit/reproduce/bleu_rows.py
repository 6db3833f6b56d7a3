"""BLEU of a sample of translations as a study's tables and figures show it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from mtkit.evaluate.bleu import (
    BOOTSTRAP_SAMPLES,
    MIN_SEGMENTS,
    NamedLines,
    ScoreSettings,
    bleu_by_length,
    corpus_scores,
)
from mtkit.evaluate.charts import Bar, Point, line_figure
from mtkit.reproduce.findings import Measured, Picture, Table
from mtkit.reproduce.verdict import Sample


def measured_bleu(sample: Sample, rows: Sequence[int] | None = None) -> Measured:
    """BLEU over the seeds, on all segments or on some rows, with its bootstrap interval."""
    kept = range(len(sample.references)) if rows is None else rows
    references = [sample.references[row] for row in kept]
    scores = [
        corpus_scores(
            [lines[row] for row in kept],
            [references],
            trg_lang=sample.trg_lang,
            n_bootstrap=BOOTSTRAP_SAMPLES if len(kept) > 1 else 0,
        )[0]
        for lines in sample.hypotheses
    ]
    half_widths = [score.interval.half_width for score in scores if score.interval is not None]
    return Measured(tuple(score.score for score in scores), statistics.fmean(half_widths) if half_widths else None)


class LengthRow(NamedTuple):
    """BLEU of one group of lengths."""

    words: str
    n_segments: int
    bleu: Measured


def signature(sample: Sample) -> str:
    """How its BLEU is made, in sacreBLEU's words."""
    return corpus_scores(sample.hypotheses[0], [sample.references], trg_lang=sample.trg_lang)[0].signature


def length_rows_of(sample: Sample, sources: Sequence[str]) -> list[LengthRow]:
    """BLEU by the words of the source, over the seeds; groups without segments are left out."""
    settings = ScoreSettings(trg_lang=sample.trg_lang)
    by_seed = [
        bleu_by_length(
            NamedLines(sample.label, lines),
            [NamedLines("reference", sample.references)],
            NamedLines("source", sources),
            settings,
            n_bootstrap=BOOTSTRAP_SAMPLES,
        )
        for lines in sample.hypotheses
    ]
    rows = []
    for buckets in zip(*by_seed, strict=True):
        values = tuple(bucket.bleu for bucket in buckets if bucket.bleu is not None)
        if not values:
            continue
        half_widths = [bucket.interval.half_width for bucket in buckets if bucket.interval is not None]
        half_width = statistics.fmean(half_widths) if half_widths else None
        rows.append(LengthRow(buckets[0].words, buckets[0].n_segments, Measured(values, half_width)))
    return rows


def by_length(samples: Sequence[Sample], sources: Sequence[str]) -> tuple[Table, Picture]:
    """BLEU by the length of the source: a table with a column for each system, and a line for each with bands."""
    columns = {sample.label: length_rows_of(sample, sources) for sample in samples}
    groups = list(zip(*columns.values(), strict=True))
    rows = [[group[0].words, group[0].n_segments, *(each.bleu for each in group)] for group in groups]
    note = f"Mean, half of the 95% bootstrap interval, standard deviation over the seeds. {signature(samples[0])}"
    title = "BLEU by the length of the source"
    table = Table("bleu-by-length", title, ("words in the source", "segments", *columns), rows, note)
    drawn = [place for place, group in enumerate(groups) if group[0].n_segments >= MIN_SEGMENTS]
    if len(drawn) < 2:
        drawn = list(range(len(groups)))
    lines = {name: [point(place, found[place].bleu) for place in drawn] for name, found in columns.items()}
    ticks = {float(place): f"{group[0].words}\n({group[0].n_segments})" for place, group in enumerate(groups)}
    figure = line_figure(lines, x_label="words in the source (segments)", y_label="BLEU", x_ticks=ticks)
    caption = "Bands: 95% bootstrap intervals of each group."
    if len(drawn) < len(groups):
        caption += f" Groups of fewer than {MIN_SEGMENTS} segments stand in the table alone."
    return table, Picture("bleu-by-length", title, figure, caption)


def bar(measured: Measured) -> Bar:
    """The mean as a bar, the interval as its whisker."""
    return Bar(measured.mean, measured.half_width or 0.0)


def point(x: float, measured: Measured) -> Point:
    """The mean as a point of a line, the interval as its band."""
    return Point(x, measured.mean, measured.half_width or 0.0)
