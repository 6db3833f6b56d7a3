"""The test sets of a recipe, translated and scored by its model."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from mtkit.checkpoint import LoadedModel
from mtkit.data.sources import Bitext, check_aligned, open_bitext
from mtkit.errors import RequestError
from mtkit.evaluate.alignment import alignment_error_rate
from mtkit.evaluate.bleu import (
    BOOTSTRAP_SAMPLES,
    LengthBucket,
    NamedLines,
    Score,
    ScoreSettings,
    bleu_by_length,
    check_settings,
    hints,
    metric_names,
    system_scores,
)
from mtkit.evaluate.plots import attention_heatmap, learning_curve
from mtkit.evaluate.repetition import repetition_rate
from mtkit.models import TranslationModel
from mtkit.reproduce.evaluation_report import KnownScores, SetReport, as_text, made_by, write_scores
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
    """Translate and score the recipe's test sets; the report as text, also written to `output`/report.txt, or
    report-NAME….txt where it is of some sets alone.

    `output`/scores.json keeps what earlier calls found of other sets. Without `output` a run's best model has its
    folder `evaluation`, a checkpoint `evaluation-CHECKPOINT` beside it, an ensemble `evaluation-ensemble`.

    ensemble: more models, which answer together with the first.

    Raises: ModelError, DataError; RequestError for a test set that the recipe does not name, an unknown metric, models
    that cannot answer together or a folder that cannot be made.
    """
    members, joined = load_ensemble([folder, *ensemble], device=resolve_device(device))
    system, loaded = System(members, joined.model, joined.src_tokenizers), members[0]
    settings = ScoreSettings(metrics=metrics, trg_lang=loaded.recipe.data.trg)
    check_settings(settings)
    bitexts = _open_sets(loaded, names, data_root)
    target = output or loaded.folder / _folder_name(folder, loaded, is_ensemble=bool(ensemble))
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"{target}: cannot be made ({error.strerror}); --output names another folder") from error
    beam = beam_size or loaded.recipe.search.beam_size
    reports = [
        _evaluate_set(system, name, bitext, beam, settings, target, N_SAMPLES if number == 0 else N_MORE_SAMPLES)
        for number, (name, bitext) in enumerate(bitexts.items())
    ]
    write_scores(target, reports, made_by(members, beam))
    curve = None if ensemble else _draw_learning_curve(loaded, target)
    text = as_text(members, reports, beam, curve)
    of_some = names if names and set(names) != set(loaded.recipe.data.test) else ()
    (target / f"{'-'.join(['report', *of_some])}.txt").write_text(text + "\n", encoding="utf-8", newline="\n")
    return text


def _folder_name(folder: Path, loaded: LoadedModel, *, is_ensemble: bool) -> str:
    """Where an evaluation goes that leaves the others alone."""
    if is_ensemble:
        return "evaluation-ensemble"
    return "evaluation" if folder.resolve() == loaded.folder.resolve() else f"evaluation-{loaded.name}"


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
    system: System, name: str, bitext: Bitext, beam: int, settings: ScoreSettings, target: Path, n_samples: int
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
    scored, source = _Scored(hypotheses, references, settings), NamedLines("source", sources)
    for hint in hints([scored.system], [scored.reference], settings, source if scored.has_bleu else None):
        _warner(name)(hint)
    samples = [(sources[row], references[row], hypotheses[row]) for row in spread(len(pairs), n_samples)]
    return SetReport(
        name,
        len(pairs),
        scored.scores(range(len(pairs))),
        scored.by_length(source),
        _known_scores(system, scored, sources),
        (repetition_rate(hypotheses, settings.trg_lang), repetition_rate(references, settings.trg_lang)),
        _alignment_error(system, bitext, sources, references, _warner(name)),
        seconds,
        target / name,
        _draw_attention(system, sources, target / f"{name}.attention.png"),
        samples,
    )


class _Scored(NamedTuple):
    """Translations beside their references."""

    hypotheses: list[str]
    references: list[str]
    settings: ScoreSettings

    @property
    def system(self) -> NamedLines:
        return NamedLines("translations", self.hypotheses)

    @property
    def reference(self) -> NamedLines:
        return NamedLines("references", self.references)

    @property
    def has_bleu(self) -> bool:
        return "bleu" in metric_names(self.settings)

    def scores(self, rows: Sequence[int]) -> list[Score]:
        """Of some segments, with their intervals where there are several."""
        ours, theirs = (
            NamedLines(each.name, [each.lines[row] for row in rows]) for each in (self.system, self.reference)
        )
        n_bootstrap = BOOTSTRAP_SAMPLES if len(rows) > 1 else 0
        return system_scores([ours], [theirs], self.settings, n_bootstrap=n_bootstrap)[0]

    def by_length(self, source: NamedLines) -> list[LengthBucket]:
        if not self.has_bleu:
            return []
        return bleu_by_length(self.system, [self.reference], source, self.settings, n_bootstrap=BOOTSTRAP_SAMPLES)


def _known_scores(system: System, scored: _Scored, sources: Sequence[str]) -> KnownScores | None:
    rows = known_rows(system.first.tokenizers, sources, scored.references)
    return KnownScores(len(rows), scored.scores(rows)) if 0 < len(rows) < len(sources) else None


def _alignment_error(
    system: System, bitext: Bitext, sources: Sequence[str], references: Sequence[str], warn: Callable[[str], None]
) -> float | None:
    """How far the attention is from the right word links; None where these are not known, and for an ensemble."""
    gold = bitext.alignments()
    if gold is None or len(system.members) > 1 or not system.model.has_attention:
        return None
    try:
        return alignment_error_rate(reference_links(system.first, sources, references), gold)
    except ValueError as error:
        warn(f"no alignment error rate: {error}")
        return None


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
