"""`mtkit bleu`: scores of translations against references."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mtkit.cli.tables import aligned
from mtkit.errors import RequestError

if TYPE_CHECKING:
    from mtkit.evaluate.bleu import LengthBucket, NamedLines, Score

_SIGNIFICANT = 0.05


def bleu(
    hypotheses: Annotated[
        list[Path],
        typer.Argument(metavar="HYP", help="Translations, a file for each system; - is standard input."),
    ],
    references: Annotated[
        list[Path],
        typer.Option("--ref", "-r", metavar="REF", help="Reference translations; repeat it for several references."),
    ],
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            "-m",
            metavar="LIST",
            help="Of bleu, chrf, chrf++, ter, paper-bleu (on Moses tokens, as papers of 2014-2017 printed it), "
            "paper-bleu-split (compounds split too, as Vaswani et al. 2017); joined by commas. (default: bleu)",
        ),
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="T",
            help="sacreBLEU tokenizer for BLEU: 13a, intl, zh, ja-mecab, ko-mecab, char, none, flores200, … "
            "(default: by --trg-lang, else 13a)",
        ),
    ] = None,
    trg_lang: Annotated[
        str | None, typer.Option(metavar="L", help="Target language, such as zh or ja: chooses the tokenizer.")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", "-l", help="Ignore case in BLEU and chrF.")] = False,
    smooth: Annotated[Literal["exp", "floor", "add-k", "none"], typer.Option(help="Smoothing of BLEU.")] = "exp",
    smooth_value: Annotated[
        float | None, typer.Option(metavar="X", help="Value for floor and add-k. (default: 0.1 and 1)")
    ] = None,
    max_order: Annotated[int, typer.Option(metavar="N", help="Longest n-grams that BLEU counts.")] = 4,
    by_length: Annotated[
        Path | None, typer.Option(metavar="SOURCE", help="Also give BLEU by the number of words in this source text.")
    ] = None,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Add 95% confidence intervals by bootstrap resampling.")
    ] = False,
    paired: Annotated[
        bool,
        typer.Option(
            "--paired", help="Test each system's difference to the first one (paired bootstrap); gives p-values."
        ),
    ] = False,
    paired_test: Annotated[
        Literal["bootstrap", "approximate"] | None,
        typer.Option(help="The test that --paired makes; implies it. (default: bootstrap)"),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(metavar="N", min=2, help="Resamples or trials. (default: 1000; approximate tests: 10000)"),
    ] = None,
    output_format: Annotated[Literal["text", "json"], typer.Option("--format", help="How to print.")] = "text",
    width: Annotated[int, typer.Option("--width", "-w", min=0, help="Decimals of a printed score, in text.")] = 2,
) -> None:
    """Score translations with sacreBLEU: BLEU, chrF, chrF++, TER, with signatures.

    Files are plain or compressed text, a segment a line; line N of each belongs together. Give detokenised text.
    Random resampling always starts from the same seed, so that results can be had again.

    Examples:

      mtkit bleu out.de --ref test.de

      mtkit translate runs/base test.en | mtkit bleu - --ref test.de --metrics bleu,chrf --confidence

      mtkit bleu baseline.de new.de --ref a.de --ref b.de --paired --by-length test.en --format json
    """
    from mtkit.evaluate.bleu import (
        BOOTSTRAP_SAMPLES,
        MIN_SEGMENTS,
        ScoreSettings,
        bleu_by_length,
        check_settings,
        hints,
        metric_names,
        paired_scores,
        system_scores,
    )

    is_paired = paired or paired_test is not None
    if samples is not None and not (is_paired or confidence):
        raise RequestError("--samples: only --confidence and --paired draw samples; add one of them")
    paths = [*hypotheses, *references, *([by_length] if by_length else [])]
    if sum(str(path) == "-" for path in paths) > 1:
        raise RequestError("-: standard input can be read only once; give the other text as a file")
    settings = ScoreSettings(
        metrics=[name for item in metrics or ["bleu"] for name in item.split(",")],
        tokenize=tokenize,
        lowercase=lowercase,
        trg_lang=trg_lang,
        smooth_method=smooth,
        smooth_value=smooth_value,
        max_ngram_order=max_order,
    )
    check_settings(settings)
    if by_length and "bleu" not in metric_names(settings):
        raise RequestError("--by-length: it gives BLEU; add bleu to --metrics")
    systems = [_read(path) for path in hypotheses]
    reference_lines = [_read(path) for path in references]
    source = _read(by_length) if by_length else None
    n_bootstrap = (samples or BOOTSTRAP_SAMPLES) if confidence else 0

    if is_paired:
        scores = paired_scores(
            systems,
            reference_lines,
            settings,
            method=paired_test or "bootstrap",
            n_samples=samples or 0,
            n_bootstrap=n_bootstrap,
        )
    else:
        scores = system_scores(systems, reference_lines, settings, n_bootstrap=n_bootstrap)
    buckets = None
    if source:
        buckets = [
            bleu_by_length(system, reference_lines, source, settings, n_bootstrap=n_bootstrap) for system in systems
        ]

    for hint in hints(systems, reference_lines, settings, source):
        _warn(hint)
    if is_paired and len(systems[0].lines) < MIN_SEGMENTS:
        _warn(f"a paired test on fewer than {MIN_SEGMENTS} segments tells little; there are {len(systems[0].lines)}")
    names = [system.name for system in systems]
    if output_format == "json":
        _print(json.dumps(_as_objects(names, scores, buckets), ensure_ascii=False, indent=1).split("\n"))
    else:
        _print(_as_text(names, scores, buckets, width))


def _read(path: Path) -> NamedLines:
    """All lines of a file or of standard input; invalid UTF-8 is reported once, with the first line that has it."""
    from mtkit.evaluate.bleu import NamedLines
    from mtkit.text.lines import read_blocks, read_lines

    invalid: list[int] = []

    def note_invalid(_name: str, line_number: int) -> None:
        invalid.append(line_number)

    if str(path) == "-":
        name = "<stdin>"
        lines = [line for block in read_blocks(sys.stdin.buffer, on_invalid=note_invalid) for line in block]
    else:
        # A file name need not be UTF-8, the output is.
        name = os.fsencode(path).decode("utf-8", errors="replace")
        lines = list(read_lines(path, on_invalid=note_invalid))
    if invalid:
        _warn(f"{name}:{invalid[0]}: invalid UTF-8, replaced by U+FFFD (lines affected: {len(invalid)})")
    return NamedLines(name, lines)


def _warn(message: str) -> None:
    typer.echo(f"mtkit: warning: {message}", err=True)


def _print(lines: Sequence[str]) -> None:
    from mtkit.text.lines import open_output, write_line

    with open_output(None) as stream:
        for line in lines:
            write_line(stream, line)


def _as_objects(
    names: Sequence[str], scores: Sequence[Sequence[Score]], buckets: Sequence[Sequence[LengthBucket]] | None
) -> list[dict[str, Any]]:
    """One object for each system and metric; a key is there if its value was asked for."""
    objects = []
    for index, name in enumerate(names):
        for score in scores[index]:
            item = {"system": name, **score.as_object()}
            if score.p_value is not None:
                item["baseline"] = names[0]
            if buckets and score.name.startswith("BLEU"):
                item["by_length"] = [bucket.as_object() for bucket in buckets[index]]
            objects.append(item)
    return objects


def _as_text(
    names: Sequence[str],
    scores: Sequence[Sequence[Score]],
    buckets: Sequence[Sequence[LengthBucket]] | None,
    width: int,
) -> list[str]:
    """sacreBLEU's own lines for one system; a table and the signatures for several."""
    if len(names) == 1:
        lines = [
            f"{score.name}|{score.signature} = {_value(score, width)} {score.details}".rstrip() for score in scores[0]
        ]
    else:
        header = ["system", *(score.name for score in scores[0])]
        rows = [[name, *(_value(score, width) for score in row)] for name, row in zip(names, scores, strict=True)]
        lines = [*aligned([header, *rows]), ""]
        lines += [f"{score.name}|{score.signature}" for score in scores[0]]
        if any(score.p_value is not None for row in scores for score in row):
            lines.append(f"p: chance of such a difference to {names[0]} by luck alone; * is p < {_SIGNIFICANT}")
    if buckets:
        lines += ["", "BLEU by words in the source"]
        header = ["words", "segments", *(["BLEU"] if len(names) == 1 else names)]
        rows = [
            [row[0].words, str(row[0].n_segments), *(_bucket_value(bucket, width) for bucket in row)]
            for row in zip(*buckets, strict=True)
        ]
        lines += aligned([header, *rows])
    return lines


def _bucket_value(bucket: LengthBucket, width: int) -> str:
    """`37.79 ± 0.80`, as much of it as there is."""
    if bucket.bleu is None:
        return "-"
    interval = f" ± {bucket.interval.half_width:.{width}f}" if bucket.interval else ""
    return f"{bucket.bleu:.{width}f}{interval}"


def _value(score: Score, width: int) -> str:
    """`37.79 (μ = 37.78 ± 0.80) (p = 0.0123)*`, as much of it as there is."""
    text = f"{score.score:.{width}f}"
    if score.interval:
        text += f" (μ = {score.interval.mean:.{width}f} ± {score.interval.half_width:.{width}f})"
    if score.p_value is not None:
        text += f" (p = {score.p_value:.4f}){'*' if score.p_value < _SIGNIFICANT else ''}"
    return text
