"""Corpus scores through sacreBLEU: BLEU, chrF and TER, their signatures, intervals and paired tests; BLEU by length.

Every score is on the scale 0-100 and carries the signature that says how it was made (Post 2018, "A Call for Clarity in
Reporting BLEU Scores"). sacreBLEU's Python calls cut unequal numbers of lines to the shorter without a word (its own
command does not), so the counts are checked here. Text is scored as it stands: nothing is normalised, NFD is not NFC.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mtkit.errors import RequestError

if TYPE_CHECKING:
    import numpy as np
    from sacrebleu.metrics import BLEU
    from sacrebleu.metrics.base import Metric

METRICS = ("bleu", "chrf", "chrf++", "ter", "paper-bleu", "paper-bleu-split")
SMOOTH_METHODS = ("exp", "floor", "add-k", "none")
BOOTSTRAP_SAMPLES = 1000
"""Resamples of a confidence interval or a paired bootstrap test, sacreBLEU's own default."""
MIN_SEGMENTS = 50
"""Fewest segments whose BLEU is worth comparing; on fewer, resampling knows too little of what other text would do."""

PairedMethod = Literal["bootstrap", "approximate"]

# Languages written without blanks between words, or scored by morphemes by convention; codes of ISO 639-1 and 639-3.
_LANGUAGE_TOKENIZERS = {
    "zh": "zh",
    "zho": "zh",
    "cmn": "zh",
    "ja": "ja-mecab",
    "jpn": "ja-mecab",
    "ko": "ko-mecab",
    "kor": "ko-mecab",
}
_TOKENIZER_NEEDS = {
    "ja-mecab": "pip install 'sacrebleu[ja]'",
    "ko-mecab": "pip install 'sacrebleu[ko]'",
    "flores101": "pip install sentencepiece, and a connection at the first use, to download its model",
    "flores200": "pip install sentencepiece, and a connection at the first use, to download its model",
    "spBLEU-1K": "pip install sentencepiece, and a connection at the first use, to download its model",
}

# A few odd lines are no sign of a wrongly prepared file; real tokenised or segmented output shows far more than this.
_SUSPICIOUS_SHARE = 0.1
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_KANA = re.compile("[\u3041-\u30ff]")
_OTHER_WITHOUT_BLANKS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")  # Thai, Lao, Burmese, Khmer
_BLANK_TOKENIZERS = ("13a", "intl", "none")
_COUNTING_WORDS = {"ter": "TER", "paper-bleu": "paper BLEU", "paper-bleu-split": "paper BLEU (compounds split)"}

_LENGTH_LIMITS = (0, 1, 10, 20, 30, 40, 50, 60)


class NamedLines(NamedTuple):
    """The segments of one file, with the name that messages give it."""

    name: str
    lines: Sequence[str]


class ScoreSettings(NamedTuple):
    """How to score; all of it but `metrics` and `trg_lang` is about BLEU (`lowercase` also about chrF)."""

    metrics: Sequence[str] = ("bleu",)
    tokenize: str | None = None
    """A sacreBLEU tokenizer; None chooses by `trg_lang`."""
    lowercase: bool = False
    trg_lang: str | None = None
    smooth_method: str = "exp"
    smooth_value: float | None = None
    """For `floor` and `add-k`; None is sacreBLEU's default, 0.1 and 1."""
    max_ngram_order: int = 4


class BleuParts(NamedTuple):
    """What a BLEU score is made of."""

    precisions: tuple[float, ...]
    """Percent, unigrams first."""
    brevity_penalty: float
    hyp_length: int
    """Tokens, as cut by the tokenizer of the signature."""
    ref_length: int
    """Tokens; for each segment the reference whose length is closest, of two equally close ones the shorter."""


class Interval(NamedTuple):
    """95% confidence interval by bootstrap resampling: mean ± half_width."""

    mean: float
    half_width: float


class Score(NamedTuple):
    """One number with its provenance."""

    name: str
    """As sacreBLEU calls it: BLEU, chrF2, chrF2++, TER; `BLEU (order 2)` if n-grams do not go up to 4; paper BLEU,
    paper BLEU (compounds split)."""
    score: float
    """0-100; TER counts errors: lower is better, and it may exceed 100."""
    signature: str
    details: str = ""
    """For a reader: BLEU's precisions, brevity penalty and lengths; TER's edits."""
    bleu: BleuParts | None = None
    interval: Interval | None = None
    p_value: float | None = None
    """Of the difference to the first system, if a paired test was made."""

    def as_object(self) -> dict[str, Any]:
        """For JSON; a key is there if its value is."""
        item: dict[str, Any] = {"name": self.name, "score": self.score, "signature": self.signature}
        if self.details:
            item["details"] = self.details
        if self.bleu:
            item |= self.bleu._asdict()
        if self.p_value is not None:
            item["p_value"] = self.p_value
        return item | _interval_object(self.interval)


class LengthBucket(NamedTuple):
    """BLEU on the segments whose source has so many words."""

    words: str
    """`10-19`, or `60+`."""
    n_segments: int
    bleu: float | None
    """None without segments."""
    interval: Interval | None = None

    def as_object(self) -> dict[str, Any]:
        """For JSON; the interval is there if it was asked for."""
        item = {"words": self.words, "n_segments": self.n_segments, "bleu": self.bleu}
        return item | _interval_object(self.interval)


def _interval_object(interval: Interval | None) -> dict[str, float]:
    if interval is None:
        return {}
    return {"confidence_mean": interval.mean, "confidence_half_width": interval.half_width}


def check_settings(settings: ScoreSettings) -> None:
    """Finds what is wrong with the settings before there is anything to score.

    Raises:
        RequestError: an unknown metric, tokenizer or smoothing, a tokenizer whose package is missing, settings of BLEU
            without BLEU, or a seed that is none.
    """
    names = metric_names(settings)
    for name in names:
        _build_metric(name, settings)
    for key in ("tokenize", "smooth_method", "smooth_value", "max_ngram_order"):
        if "bleu" not in names and getattr(settings, key) != ScoreSettings._field_defaults[key]:
            raise RequestError(f"{key.replace('_', ' ')}: is a setting of bleu; the metrics are {', '.join(names)}")
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    if not seed.isdecimal() and seed.lower() != "none":
        raise RequestError(f"SACREBLEU_SEED: expected a whole number or none, got {seed!r}")


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    metrics: Sequence[str] = ("bleu",),
    tokenize: str | None = None,
    lowercase: bool = False,
    trg_lang: str | None = None,
    smooth_method: str = "exp",
    smooth_value: float | None = None,
    max_ngram_order: int = 4,
    n_bootstrap: int = 0,
) -> list[Score]:
    """Scores of one system, in the order of `metrics`.

    `references` holds one list for each reference file, each as long as `hypotheses`. `n_bootstrap` above 1 adds a
    confidence interval from so many resamples, with sacreBLEU's seed (12345, or the variable SACREBLEU_SEED).

    Raises:
        RequestError: unequal counts, no segments, an unknown metric or tokenizer, or one whose package is missing.
        TypeError: `references` is a list of strings, which would be taken for one reference file for each.
    """
    if any(isinstance(reference, str) for reference in references):
        raise TypeError("references must be a list of reference files, each a list of lines: [lines], not lines")
    settings = ScoreSettings(metrics, tokenize, lowercase, trg_lang, smooth_method, smooth_value, max_ngram_order)
    named = [NamedLines(f"reference {number}", lines) for number, lines in enumerate(references, start=1)]
    return system_scores([NamedLines("hypotheses", hypotheses)], named, settings, n_bootstrap=n_bootstrap)[0]


def system_scores(
    systems: Sequence[NamedLines], references: Sequence[NamedLines], settings: ScoreSettings, *, n_bootstrap: int = 0
) -> list[list[Score]]:
    """Scores of several systems against the same references: a list for each system, ordered as `settings.metrics`.

    Raises:
        RequestError: as `corpus_scores`; counts that differ are shown with the names of both files.
    """
    _check_counts(systems, references)
    # Each metric prepares the references once for all systems.
    metrics = [_build_metric(name, settings, references) for name in metric_names(settings)]
    return [[_score(metric, system, settings, n_bootstrap) for metric in metrics] for system in systems]


def paired_scores(
    systems: Sequence[NamedLines],
    references: Sequence[NamedLines],
    settings: ScoreSettings,
    *,
    method: PairedMethod,
    n_samples: int = 0,
    n_bootstrap: int = 0,
) -> list[list[Score]]:
    """Scores of several systems, each but the first with the p-value of its difference to the first, the baseline.

    `bootstrap` is paired bootstrap resampling (Koehn 2004), 1000 resamples, which gives intervals as well;
    `approximate` is approximate randomisation (Riezler and Maxwell 2005), 10000 trials, with intervals for
    `n_bootstrap` above 1. Both are two-sided. `n_samples` above 0 replaces the number of resamples or trials.
    Differs from sacreBLEU: a system with the baseline's very score has the p-value 1, not the smallest; so has a test
    on a single segment, whose every sample is the same.

    Raises:
        RequestError: as `system_scores`, or fewer than two systems.
    """
    from sacrebleu.significance import PairedTest

    if len(systems) < 2:
        raise RequestError("a paired test compares systems: give two hypothesis files or more, the baseline first")
    _check_counts(systems, references)
    # Under a running number: sacreBLEU looks names up nowhere, but two systems may well have the same one.
    metrics = {name: _build_metric(name, settings, references) for name in metric_names(settings)}
    test = PairedTest(
        [(str(number), system.lines) for number, system in enumerate(systems)],
        metrics,
        references=None,
        test_type={"bootstrap": "bs", "approximate": "ar"}[method],
        n_samples=n_samples,
        n_ar_confidence=n_bootstrap if method == "approximate" and n_bootstrap > 1 else -1,
    )
    signatures, results = test()
    scores: list[list[Score]] = [[] for _ in systems]
    for metric, (name, signature) in zip(metrics.values(), signatures.items(), strict=True):
        for system, row, result in zip(systems, scores, results[name], strict=True):
            assert not isinstance(result, str)  # only the column of system names holds text
            score = _score(metric, system, settings, 0)
            p_value = result.p_value
            # sacreBLEU counts the samples above the observed difference, so that a system against itself would have the
            # smallest p-value there is. No difference is the least surprising one.
            is_no_difference = row is not scores[0] and score.score == scores[0][-1].score
            if p_value is not None and (is_no_difference or len(system.lines) == 1):
                p_value = 1.0
            interval = _interval(result.mean, result.ci)
            row.append(score._replace(signature=str(signature), interval=interval, p_value=p_value))
    return scores


def bleu_by_length(
    system: NamedLines,
    references: Sequence[NamedLines],
    source: NamedLines,
    settings: ScoreSettings,
    *,
    n_bootstrap: int = 0,
) -> list[LengthBucket]:
    """BLEU by the number of words (between blanks) of the source: 1-9, 10-19, … 50-59, 60+; empty sources under 0.

    Every segment is in one bucket. The bucket 0 is left out where no source is empty. `n_bootstrap` above 1 adds a
    confidence interval to each bucket of two segments or more.

    Raises:
        RequestError: as `system_scores`; the source counts as one of the files.
    """
    _check_counts([system], [*references, source])
    metric = _build_metric("bleu", settings)
    buckets = []
    for words, low, rows in length_rows(source.lines):
        if not rows:
            if low > 0:
                buckets.append(LengthBucket(words, 0, None))
            continue
        n_samples = n_bootstrap if len(rows) > 1 else 0
        hypotheses = [system.lines[row] for row in rows]
        found = metric.corpus_score(
            hypotheses, [[ref.lines[row] for row in rows] for ref in references], n_bootstrap=n_samples
        )
        interval = _interval(found._mean, found._ci) if n_samples > 1 else None
        buckets.append(LengthBucket(words, len(rows), found.score, interval))
    return buckets


def length_rows(sources: Sequence[str]) -> list[tuple[str, int, list[int]]]:
    """The groups of `bleu_by_length`: name, fewest words, and the rows whose source has so many."""
    lengths = [len(line.split()) for line in sources]
    groups = []
    for low, high in zip(_LENGTH_LIMITS, (*_LENGTH_LIMITS[1:], None), strict=True):
        words = f"{low}+" if high is None else str(low) if high == low + 1 else f"{low}-{high - 1}"
        rows = [row for row, length in enumerate(lengths) if low <= length and (high is None or length < high)]
        groups.append((words, low, rows))
    return groups


def segment_counts(hypotheses: Sequence[str], references: Sequence[str], settings: ScoreSettings) -> np.ndarray:
    """What BLEU needs of each segment, [segments, 10]: matches and n-grams of the orders 1-4, both lengths in tokens.

    Their sums over any segments give BLEU of those, see `total_bleu`: resampling need not count again.

    Raises:
        RequestError: as `corpus_scores`.
    """
    import numpy as np

    systems, others = [NamedLines("hypotheses", hypotheses)], [NamedLines("reference", references)]
    _check_counts(systems, others)
    metric = _build_metric("bleu", settings)
    found = [metric.corpus_score([ours], [[theirs]]) for ours, theirs in zip(hypotheses, references, strict=True)]
    return np.array([[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in found], dtype=np.int64)


def total_bleu(counts: np.ndarray) -> float:
    """BLEU of summed `segment_counts`, [10], with exp smoothing, sacreBLEU's default."""
    from sacrebleu.metrics import BLEU

    numbers = counts.tolist()
    return float(BLEU.compute_bleu(numbers[:4], numbers[4:8], numbers[8], numbers[9], smooth_method="exp").score)


def words_of(lines: Sequence[str], trg_lang: str | None) -> list[list[str]]:
    """The words of each line: what stands between blanks, or what BLEU counts in a language that is written without.

    Raises:
        RequestError: a tokenizer whose package is missing.
    """
    settings = ScoreSettings(trg_lang=trg_lang)
    if _tokenizer(settings) in _BLANK_TOKENIZERS:
        return [line.split() for line in lines]
    cut = _build_bleu(settings, None).tokenizer
    return [cut(line).split() for line in lines]


def hints(
    systems: Sequence[NamedLines],
    references: Sequence[NamedLines],
    settings: ScoreSettings,
    source: NamedLines | None = None,
) -> list[str]:
    """What looks wrong, a sentence each: a text still tokenised or segmented, a tokenizer that cannot fit.

    `source` is the text that `bleu_by_length` counts words in, if it does.
    """
    found = [f"{each.name}: {sign}" for each in (*systems, *references) if (sign := _sign_of_pieces(each.lines))]
    if source and _fitting_tokenizer(source.lines):
        found.append(f"{source.name}: written without blanks between words, so its lines have few words to count")
    fitting = _fitting_tokenizer(references[0].lines) if references else None
    if fitting is None:
        return found
    name, metrics = references[0].name, metric_names(settings)
    if "bleu" in metrics and (tokenizer := _tokenizer(settings)) in _BLANK_TOKENIZERS:
        found.append(
            f"{name}: written without blanks between words, which tokenizer {tokenizer} takes for single words; "
            f"use --tokenize {fitting}"
        )
    others = [own for key, own in _COUNTING_WORDS.items() if key in metrics]
    found += [f"{name}: written without blanks between words, which {other} takes for single words" for other in others]
    return found


def metric_names(settings: ScoreSettings) -> list[str]:
    """The metrics asked for, in small letters and each once.

    Raises:
        RequestError: one that is not in `METRICS`, or none.
    """
    names = list(dict.fromkeys(name.strip().lower() for name in settings.metrics))
    for name in names:
        if name not in METRICS:
            raise RequestError(f"metrics: expected some of {', '.join(METRICS)}; got {name!r}")
    if not names:
        raise RequestError(f"metrics: expected some of {', '.join(METRICS)}; got none")
    return names


def _tokenizer(settings: ScoreSettings) -> str:
    """The sacreBLEU tokenizer to use: the one asked for, else the one of the target language (`zh-TW` is `zh`)."""
    from sacrebleu.metrics import BLEU

    if settings.tokenize is None:
        language = re.split("[-_]", settings.trg_lang or "")[0].lower()
        return _LANGUAGE_TOKENIZERS.get(language, BLEU.TOKENIZER_DEFAULT)
    if settings.tokenize not in BLEU.TOKENIZERS:
        raise RequestError(f"tokenize: expected one of {', '.join(BLEU.TOKENIZERS)}; got {settings.tokenize!r}")
    # `spm` is sacreBLEU's older name of flores101, with the same signature, and a warning at each use.
    return "flores101" if settings.tokenize == "spm" else settings.tokenize


def _build_metric(name: str, settings: ScoreSettings, references: Sequence[NamedLines] | None = None) -> Metric:
    """The sacreBLEU metric, with prepared `references` if given."""
    from sacrebleu.metrics import CHRF, TER

    lines = None if references is None else [reference.lines for reference in references]
    if name == "bleu":
        return _build_bleu(settings, lines)
    if name == "ter":
        return _with_plain_floats(TER(references=lines))
    if name.startswith("paper-bleu"):
        from mtkit.evaluate.paper_bleu import PaperBLEU

        splits, lang = name == "paper-bleu-split", settings.trg_lang or "en"
        return PaperBLEU(lang, split_compounds=splits, lowercase=settings.lowercase, references=lines)
    word_order = 2 if name == "chrf++" else 0
    return _with_plain_floats(CHRF(word_order=word_order, lowercase=settings.lowercase, references=lines))


def _with_plain_floats(metric: Metric) -> Metric:
    """sacreBLEU 2.6 ends in a TypeError where some scores of its resamples are numpy's float32 and some a plain 0.0."""
    compute = metric._compute_score_from_stats
    metric._compute_score_from_stats = lambda stats: compute([float(n) for n in stats])  # type: ignore[method-assign]
    return metric


def _build_bleu(settings: ScoreSettings, references: Sequence[Sequence[str]] | None) -> BLEU:
    """sacreBLEU's BLEU after a check of everything it would only assert."""
    from sacrebleu.metrics import BLEU

    smooth_method, smooth_value = settings.smooth_method, settings.smooth_value
    if smooth_method not in SMOOTH_METHODS:
        raise RequestError(f"smoothing: expected one of {', '.join(SMOOTH_METHODS)}; got {smooth_method!r}")
    if smooth_value is not None and smooth_method not in ("floor", "add-k"):
        raise RequestError(f"smoothing value: only floor and add-k take one, not {smooth_method}")
    if smooth_value is not None and not smooth_value > 0:
        raise RequestError(f"smoothing value: expected a number above 0; got {smooth_value}")
    if settings.max_ngram_order < 1:
        raise RequestError(f"n-gram order: expected 1 or more; got {settings.max_ngram_order}")
    tokenizer = _tokenizer(settings)
    try:
        return BLEU(
            lowercase=settings.lowercase,
            force=True,  # no warning about tokenised text: hints() gives its own, also for short files
            tokenize=tokenizer,
            smooth_method=smooth_method,
            smooth_value=smooth_value,
            max_ngram_order=settings.max_ngram_order,
            references=references,
        )
    # sacreBLEU: RuntimeError and ImportError without the package, AssertionError for a wrong dictionary, OSError or
    # SystemExit when a download fails.
    except (RuntimeError, ImportError, AssertionError, OSError, SystemExit) as error:
        if tokenizer not in _TOKENIZER_NEEDS:
            raise
        reason = "" if isinstance(error, RuntimeError | ImportError) else f" ({' '.join(str(error).split())})"
        raise RequestError(
            f"tokenizer {tokenizer}: cannot be used here{reason}; it needs: {_TOKENIZER_NEEDS[tokenizer]}"
        ) from error


def _score(metric: Metric, system: NamedLines, settings: ScoreSettings, n_bootstrap: int) -> Score:
    """One metric on one system, against the references that the metric has prepared."""
    from sacrebleu.metrics.bleu import BLEUScore
    from sacrebleu.metrics.ter import TERScore

    found = metric.corpus_score(system.lines, None, n_bootstrap=n_bootstrap)
    bleu, details = None, ""
    if isinstance(found, BLEUScore):
        bleu = BleuParts(tuple(found.precisions), found.bp, found.sys_len, found.ref_len)
        details = (
            f"{found.prec_str} (BP = {found.bp:.3f} ratio = {found.ratio:.3f} "
            f"hyp_len = {found.sys_len} ref_len = {found.ref_len})"
        )
    elif isinstance(found, TERScore):
        details = f"(edits = {found.num_edits} ref_len = {found.ref_length:.1f})"
    # sacreBLEU 2.6 hands its interval out through these two alone, or rounded in a string.
    interval = _interval(found._mean, found._ci) if n_bootstrap > 1 else None
    name = _display_name(found.name, settings)
    return Score(name, found.score, str(metric.get_signature()), details, bleu, interval)


def _display_name(name: str, settings: ScoreSettings) -> str:
    """The name of the score; sacreBLEU's signature does not show an unusual n-gram order, so the name must."""
    return f"BLEU (order {settings.max_ngram_order})" if name == "BLEU" and settings.max_ngram_order != 4 else name


def _interval(mean: float | None, half_width: float | None) -> Interval | None:
    return None if mean is None or half_width is None else Interval(float(mean), float(half_width))


def _check_counts(systems: Sequence[NamedLines], others: Sequence[NamedLines]) -> None:
    """Refuses what sacreBLEU would cut short or stumble over."""
    if not others:
        raise RequestError("no reference given; a score needs one or more")
    for system in systems:
        for other in others:
            if len(system.lines) != len(other.lines):
                raise RequestError(
                    f"{system.name} has {_counted(len(system.lines))}, {other.name} has {_counted(len(other.lines))}; "
                    "line N of each must be the same segment"
                )
        if not system.lines:
            raise RequestError(f"{system.name}: no lines, nothing to score")


def _counted(n_lines: int) -> str:
    return "1 line" if n_lines == 1 else f"{n_lines} lines"


def _sign_of_pieces(lines: Sequence[str]) -> str | None:
    """The sign that a text is still split into pieces or words, if enough of its lines show one."""
    filled = [line for line in lines if line.strip()]
    signs = (
        ("pieces marked @@; join them before scoring", lambda line: "@@ " in line or line.rstrip().endswith("@@")),
        ("pieces marked ▁ (U+2581); decode them before scoring", lambda line: "▁" in line),
        ("stops set off by a blank, so it looks tokenised; detokenise it before scoring", _ends_in_separate_stop),
    )
    for sign, shows in signs:
        n_shown = sum(map(shows, filled))
        if n_shown > _SUSPICIOUS_SHARE * len(filled):
            return f"{n_shown} of {_counted(len(filled))} with {sign}"
    return None


def _ends_in_separate_stop(line: str) -> bool:
    return line.rstrip().endswith(" .")


def _fitting_tokenizer(lines: Sequence[str]) -> str | None:
    """The tokenizer for a text written without blanks between words; None for other scripts."""
    n_suspicious = _SUSPICIOUS_SHARE * len(lines)
    n_kana = sum(bool(_KANA.search(line)) for line in lines)
    if n_kana > n_suspicious:
        return "ja-mecab"
    if sum(bool(_HAN.search(line)) for line in lines) > n_suspicious:
        return "zh"
    if sum(bool(_OTHER_WITHOUT_BLANKS.search(line)) for line in lines) > n_suspicious:
        return "flores200"
    return None
