"""What an evaluation found: as text for a reader, and as JSON that tells which weights and which search made it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mtkit.checkpoint import LoadedModel, checkpoints_folder, weights_sum
from mtkit.evaluate.bleu import LengthBucket, Score
from mtkit.text.lines import open_output

SCORES_FILE = "scores.json"


class KnownScores(NamedTuple):
    """Scores of the sentences without an unknown word on either side."""

    n_segments: int
    scores: list[Score]


class SetReport(NamedTuple):
    """One test set, translated and scored."""

    name: str
    n_segments: int
    scores: list[Score]
    by_length: list[LengthBucket]  # empty if BLEU is not among the metrics
    known: KnownScores | None  # None where no sentence has an unknown word, or all have
    repetition: tuple[float, float]  # percent of repeated words, of the translations and of the references
    alignment_error: float | None  # of the attention on the references, where the right links are known
    seconds: float
    files: Path  # the common start of NAME.src, NAME.ref, NAME.hyp
    picture: Path | None
    samples: list[tuple[str, str, str]]  # source, reference, translation


def made_by(members: Sequence[LoadedModel], beam_size: int) -> dict[str, Any]:
    """Which weights and which search make a translation: two that agree in this are the same."""
    models = [
        {
            "system": member.recipe.name,
            "checkpoint": member.name,
            "weights": weights_sum(checkpoints_folder(member.folder) / member.name),
        }
        for member in members
    ]
    return {"models": models, "search": {**members[0].recipe.search.model_dump(mode="json"), "beam_size": beam_size}}


def read_scores(folder: Path) -> list[dict[str, Any]]:
    """What evaluations have written there, an object for each test set; nothing where there is none to be read."""
    try:
        return list(json.loads((folder / SCORES_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []


def write_scores(folder: Path, reports: Sequence[SetReport], made: dict[str, Any]) -> None:
    """Add test sets to those that are there; one of the same name is replaced, as its translations are."""
    names = {report.name for report in reports}
    before = [each for each in read_scores(folder) if each.get("set") not in names]
    objects = [*before, *(_as_object(report, made) for report in reports)]
    with open_output(folder / SCORES_FILE) as stream:
        stream.write((json.dumps(objects, indent=1, ensure_ascii=False) + "\n").encode("utf-8"))


def _as_object(report: SetReport, made: dict[str, Any]) -> dict[str, Any]:
    known = report.known and {
        "n_segments": report.known.n_segments,
        "scores": [score.as_object() for score in report.known.scores],
    }
    return {
        "set": report.name,
        **made,
        "segments": report.n_segments,
        "seconds": round(report.seconds, 2),
        "scores": [score.as_object() for score in report.scores],
        "by_length": [bucket.as_object() for bucket in report.by_length],
        "known": known,
        "repetition": dict(zip(("translations", "references"), report.repetition, strict=True)),
        "alignment_error": report.alignment_error,
    }


def as_text(members: Sequence[LoadedModel], reports: Sequence[SetReport], beam_size: int, curve: Path | None) -> str:
    """The report for a reader; `curve` is the picture of the learning curve."""
    lines = [", ".join([*(f"{each.recipe.name}, {_checkpoint(each)}" for each in members), f"beam {beam_size}"])]
    for report in reports:
        lines += ["", f"{report.name}: {report.n_segments:,} segments in {report.seconds:.1f} s"]
        for score in report.scores:
            lines.append(f"  {score.name:<10} {_with_interval(score):<14}  {score.signature}")
            lines += [f"  {'':<10} {score.details}"] if score.details else []
        if report.known:
            where = f"on the {report.known.n_segments:,} without unknown words"
            lines += [f"  {each.name:<10} {_with_interval(each):<14}  {where}" for each in report.known.scores]
        ours, theirs = report.repetition
        lines.append(f"  repeated words {ours:.1f} % (references {theirs:.1f} %)")
        if report.alignment_error is not None:
            lines.append(f"  alignment error rate of the attention {report.alignment_error:.3f}")
        lines += _length_lines(report.by_length)
        lines.append(f"  translations     {report.files}.hyp")
        if report.picture:
            lines.append(f"  attention        {report.picture}")
        for source, reference, hypothesis in report.samples:
            lines += ["", f"    source     {source}", f"    reference  {reference}", f"    mtkit      {hypothesis}"]
    if any(score.interval for report in reports for score in report.scores):
        lines += ["", "± half of the 95% bootstrap interval"]
    if curve:
        lines += ["", f"learning curve   {curve}"]
    return "\n".join(lines)


def _checkpoint(member: LoadedModel) -> str:
    return f"update {member.update:,}" if member.name.startswith("update-") else member.name


def _with_interval(score: Score | LengthBucket) -> str:
    """`38.40 ± 1.12`: the interval is centred on the mean of the resamples, which is nearly the score."""
    value = score.score if isinstance(score, Score) else score.bleu
    half_width = f" ± {score.interval.half_width:.2f}" if score.interval else ""
    return f"{value:6.2f}{half_width}"


def _length_lines(buckets: Sequence[LengthBucket]) -> list[str]:
    """BLEU by length, a line for each group that has segments; nothing where all are in one."""
    filled = [bucket for bucket in buckets if bucket.bleu is not None]
    if len(filled) < 2:
        return []
    lines = ["  BLEU by words in the source"]
    return lines + [f"    {each.words:<8} {_with_interval(each):<14}  {each.n_segments:,} segments" for each in filled]
