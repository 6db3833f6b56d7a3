"""The test sets of a recipe, translated and scored by its model."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from mtkit.checkpoint import LoadedModel
from mtkit.data.sources import Bitext, check_aligned, open_bitext
from mtkit.errors import RequestError
from mtkit.evaluate.alignment import alignment_error_rate
from mtkit.evaluate.bleu import Score, ScoreSettings, check_settings, corpus_scores
from mtkit.evaluate.plots import attention_heatmap, learning_curve
from mtkit.evaluate.repetition import repetition_rate
from mtkit.models import TranslationModel
from mtkit.reproduce.known import known_rows
from mtkit.reproduce.word_alignment import reference_links
from mtkit.search.ensemble import load_ensemble
from mtkit.search.translator import Translation, Translator
from mtkit.text.lines import open_output, write_line
from mtkit.text.tokenizer import Tokenizer
from mtkit.train.log import dev_curve
from mtkit.train.precision import resolve_device
from mtkit.train.validation import spread

N_SAMPLES, N_MORE_SAMPLES = 10, 3  # translations shown of the first test set, and of each other
_BLOCK = 500  # lines translated between two moves of the bar
_PICTURE_WORDS = range(6, 15)  # a sentence of this many words makes a readable attention picture


class System(NamedTuple):
    """What is evaluated: a model, or several as one."""

    members: list[LoadedModel]  # the first one's recipe names the test sets and the search
    model: TranslationModel
    src_tokenizers: list[Tokenizer]  # of each member

    @property
    def first(self) -> LoadedModel:
        return self.members[0]

    def translator(
        self, beam_size: int, *, need_attention: bool = False, warn: Callable[[str], None] | None = None
    ) -> Translator:
        return Translator.of(
            self.model,
            self.first.tokenizers,
            self.first.recipe.search,
            beam_size=beam_size,
            src_tokenizers=self.src_tokenizers,
            device=next(self.model.parameters()).device,
            need_attention=need_attention,
            warn=warn,
        )


class KnownScore(NamedTuple):
    """BLEU of the sentences without an unknown word on either side."""

    n_segments: int
    bleu: float


class SetReport(NamedTuple):
    """One test set, translated and scored."""

    name: str
    n_segments: int
    scores: list[Score]
    known: KnownScore | None  # None where no sentence has an unknown word
    length_ratio: float  # words of the translations to words of the references
    repetition: tuple[float, float]  # percent of repeated words, of the translations and of the references
    alignment_error: float | None  # of the attention on the references, where the right links are known
    seconds: float
    files: Path  # the common start of NAME.src, NAME.ref, NAME.hyp
    picture: Path | None
    samples: list[tuple[str, str, str]]  # source, reference, translation


def evaluate_model(
    folder: Path,
    *,
    ensemble: Sequence[Path] = (),
    names: Sequence[str] | None = None,
    beam_size: int | None = None,
    metrics: Sequence[str] = ("bleu", "chrf"),
    output: Path | None = None,
    data_root: Path | None = None,
    device: str = "auto",
) -> str:
    """Translate and score the recipe's test sets; the report as text, also written to `output`/report.txt.

    ensemble: more models, which answer together with the first.

    Raises: ModelError, DataError; RequestError for a test set that the recipe does not name, an unknown metric, models
    that cannot answer together or a folder that cannot be made.
    """
    members, joined = load_ensemble([folder, *ensemble], device=resolve_device(device))
    system, loaded = System(members, joined.model, joined.src_tokenizers), members[0]
    check_settings(ScoreSettings(metrics=metrics, trg_lang=loaded.recipe.data.trg))
    bitexts = _open_sets(loaded, names, data_root)
    target = output or loaded.folder / ("evaluation-ensemble" if ensemble else "evaluation")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"{target}: cannot be made ({error.strerror}); --output names another folder") from error
    beam = beam_size or loaded.recipe.search.beam_size
    reports = [
        _evaluate_set(system, name, bitext, beam, metrics, target, N_SAMPLES if number == 0 else N_MORE_SAMPLES)
        for number, (name, bitext) in enumerate(bitexts.items())
    ]
    (target / "scores.json").write_text(
        json.dumps([_as_json(system, report, beam) for report in reports], indent=1, ensure_ascii=False) + "\n",
        encoding="utf-8",
        newline="\n",
    )
    curve = None if ensemble else _draw_learning_curve(loaded, target)
    text = _render(system, reports, beam, curve)
    (target / "report.txt").write_text(text + "\n", encoding="utf-8", newline="\n")
    return text


def _open_sets(loaded: LoadedModel, names: Sequence[str] | None, data_root: Path | None) -> dict[str, Bitext]:
    data = loaded.recipe.data
    sources = dict(data.test)
    if names and "dev" in names:
        sources["dev"] = data.dev
    for name in names or ():
        if name not in sources:
            raise RequestError(f"--set {name}: the recipe has the test sets {', '.join(data.test) or 'none'} (and dev)")
    wanted = {name: sources[name] for name in (names or data.test)}
    if not wanted:
        raise RequestError(f"{loaded.folder}: the recipe names no test set (data.test); --set dev scores the dev set")
    root = data_root or Path(data.root or ".")
    bitexts = {name: open_bitext(source, src=data.src, trg=data.trg, root=root) for name, source in wanted.items()}
    for bitext in bitexts.values():
        check_aligned(bitext)
    return bitexts


def _warner(name: str) -> Callable[[str], None]:
    return lambda message: tqdm.write(f"mtkit: warning: {name}: {message}", file=sys.stderr)


def _evaluate_set(
    system: System, name: str, bitext: Bitext, beam: int, metrics: Sequence[str], target: Path, n_samples: int
) -> SetReport:
    pairs = list(bitext.pairs())
    sources, references = [src for src, _ in pairs], [trg for _, trg in pairs]
    translator = system.translator(beam, warn=_warner(name))
    if bitext.invalid:
        _warner(name)(f"{bitext.invalid:,} lines with invalid UTF-8, bad bytes replaced by U+FFFD")
    translations, seconds = translate_all(translator, sources, name)
    hypotheses = [translation.text for translation in translations]
    for suffix, lines in (("src", sources), ("ref", references), ("hyp", hypotheses)):
        with open_output(target / f"{name}.{suffix}") as stream:
            for line in lines:
                write_line(stream, line)
    scores = corpus_scores(hypotheses, [references], metrics=metrics, trg_lang=system.first.recipe.data.trg)
    samples = [(sources[row], references[row], hypotheses[row]) for row in spread(len(pairs), n_samples)]
    return SetReport(
        name,
        len(pairs),
        scores,
        _known_score(system, sources, references, hypotheses),
        _n_words(hypotheses) / max(1, _n_words(references)),
        (repetition_rate(hypotheses), repetition_rate(references)),
        _alignment_error(system, bitext, sources, references),
        seconds,
        target / name,
        _draw_attention(system, sources, target / f"{name}.attention.png"),
        samples,
    )


def _known_score(
    system: System, sources: Sequence[str], references: Sequence[str], hypotheses: Sequence[str]
) -> KnownScore | None:
    rows = known_rows(system.first.tokenizers, sources, references)
    if not rows or len(rows) == len(sources):
        return None
    chosen = [[lines[row] for row in rows] for lines in (hypotheses, references)]
    bleu = corpus_scores(chosen[0], [chosen[1]], trg_lang=system.first.recipe.data.trg)[0].score
    return KnownScore(len(rows), bleu)


def _n_words(lines: Sequence[str]) -> int:
    return sum(len(line.split()) for line in lines)


def _alignment_error(system: System, bitext: Bitext, sources: Sequence[str], references: Sequence[str]) -> float | None:
    """How far the attention is from the right word links; None where these are not known, and for an ensemble."""
    gold = bitext.alignments()
    if gold is None or len(system.members) > 1 or not system.model.has_attention:
        return None
    return alignment_error_rate(reference_links(system.first, sources, references), gold)


def translate_all(translator: Translator, sources: Sequence[str], label: str) -> tuple[list[Translation], float]:
    """The translation of each line, behind a bar on a terminal, and the seconds that it took."""
    begun = time.monotonic()
    translations: list[Translation] = []
    with tqdm(total=len(sources), desc=label, unit=" lines", leave=False, disable=not sys.stderr.isatty()) as bar:
        for start in range(0, len(sources), _BLOCK):
            block = translator.translate(sources[start : start + _BLOCK], first_line=start + 1)
            translations += block
            bar.update(len(block))
    return translations, time.monotonic() - begun


def _draw_attention(system: System, sources: Sequence[str], path: Path) -> Path | None:
    """The attention picture of the first sentence of readable length; None without attention or such a sentence."""
    if not system.model.has_attention:
        return None
    source = next((line for line in sources if len(line.split()) in _PICTURE_WORDS), None)
    if source is None:
        return None
    translation = system.translator(1, need_attention=True).translate([source])[0]
    best = translation.hypotheses[0]
    if best.attention is None:
        return None
    src_tokens, trg_tokens = [*translation.source_tokens, "</s>"], [*best.tokens, "</s>"]
    undrawn = attention_heatmap(best.attention.float().numpy(), src_tokens, trg_tokens, path)
    if undrawn:
        _warner(path.name)(f"no font here has the characters {undrawn}")
    return path


def _draw_learning_curve(loaded: LoadedModel, target: Path) -> Path | None:
    points = dev_curve(loaded.folder)
    if len(points) < 2:
        return None
    path = target / "learning-curve.png"
    learning_curve({loaded.recipe.name: points}, path, y_label="dev BLEU (greedy)")
    return path


def _as_json(system: System, report: SetReport, beam: int) -> dict[str, Any]:
    others = [{"system": member.recipe.name, "update": member.update} for member in system.members[1:]]
    return {
        "system": system.first.recipe.name,
        "update": system.first.update,
        **({"ensemble": others} if others else {}),
        "set": report.name,
        "segments": report.n_segments,
        "beam_size": beam,
        "seconds": round(report.seconds, 2),
        "scores": [score._asdict() for score in report.scores],
        "known": None if report.known is None else report.known._asdict(),
        "length_ratio": report.length_ratio,
        "repetition": dict(zip(("translations", "references"), report.repetition, strict=True)),
        "alignment_error": report.alignment_error,
    }


def _render(system: System, reports: Sequence[SetReport], beam: int, curve: Path | None) -> str:
    lines = [", ".join([*(f"{each.recipe.name}, update {each.update:,}" for each in system.members), f"beam {beam}"])]
    for report in reports:
        lines += ["", f"{report.name}: {report.n_segments:,} segments in {report.seconds:.1f} s"]
        lines += [f"  {score.name:<10} {score.score:6.2f}  {score.signature}" for score in report.scores]
        if report.known:
            lines.append(
                f"  {'BLEU':<10} {report.known.bleu:6.2f}  on the {report.known.n_segments:,} without unknown words"
            )
        ours, theirs = report.repetition
        lines.append(
            f"  length ratio {report.length_ratio:.3f}, repeated words {ours:.1f} % (references {theirs:.1f} %)"
        )
        if report.alignment_error is not None:
            lines.append(f"  alignment error rate of the attention {report.alignment_error:.3f}")
        lines.append(f"  translations     {report.files}.hyp")
        if report.picture:
            lines.append(f"  attention        {report.picture}")
        for source, reference, hypothesis in report.samples:
            lines += ["", f"    source     {source}", f"    reference  {reference}", f"    mtkit      {hypothesis}"]
    if curve:
        lines += ["", f"learning curve   {curve}"]
    return "\n".join(lines)
