"""Verdicts: whether our numbers show a claim, by a rule that is stated with each and applied here, never by hand."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from mtkit.errors import RequestError
from mtkit.evaluate.bleu import BOOTSTRAP_SAMPLES, MIN_SEGMENTS, NamedLines, ScoreSettings, paired_scores
from mtkit.evaluate.contrast import Contrast, Term, contrast
from mtkit.evaluate.length import LengthGroups

Outcome = Literal["shown", "not shown", "contradicted", "cannot be tested at this scale"]

SIGNIFICANT = 0.05
FLAT_SHARE = 0.8  # of its BLEU on short sentences that a system must keep on long ones to be called flat

SEED_MARGIN = 1.0
"""BLEU that two trainings alike may differ by; with a single seed a smaller difference shows nothing."""

_TESTED = (
    f"a higher BLEU with every seed, and p < {SIGNIFICANT} in a paired bootstrap test over the test sentences (the "
    "median over the seeds)"
)
_ONE_SEED = f"with a single seed also {SEED_MARGIN:g} BLEU or more, for the test knows nothing of the training's chance"
BEATS_RULE = f"shown: {_TESTED}, {_ONE_SEED}; contradicted: the same the other way round; otherwise not shown"
SAME_MODEL_RULE = (
    f"shown: {_TESTED}; contradicted: the same the other way round; otherwise not shown; the models are the same"
)
_EVERY_SEED = "and so does each seed's value"
FALLS_RULE = (
    f"shown: the 95% bootstrap interval of BLEU on short less BLEU on long sentences lies above 0, {_EVERY_SEED}; "
    "contradicted: the same below 0; otherwise not shown"
)
FLAT_RULE = (
    "shown: the fixed vector loses BLEU from short to long sentences (95% bootstrap interval above 0), and the other "
    f"system keeps {FLAT_SHARE:.0%} of its BLEU or more and a larger share than the fixed vector (interval of the "
    f"difference above 0, {_EVERY_SEED}); contradicted: the same below 0; otherwise not shown"
)
GAIN_RULE = (
    f"shown: the 95% bootstrap interval of the difference between the two gains lies above 0, {_EVERY_SEED}, "
    f"{_ONE_SEED}; contradicted: the same below 0; otherwise not shown"
)
EXACT_RULE = "shown: the computed values are as stated; contradicted: they are not"
LOSS_RULE = (
    f"shown: the 95% bootstrap interval of each loss lies below the limit, {_EVERY_SEED}; contradicted: the "
    "same above it for one; otherwise not shown"
)
LOSS_RULE_OF_TRAININGS = (
    f"{LOSS_RULE}; with a single seed also {SEED_MARGIN:g} BLEU or more from the limit, for the interval knows nothing "
    "of the training's chance"
)
INTERVAL_RULE = (
    f"shown: the 95% bootstrap interval of the mean over the sentences lies above 0, {_EVERY_SEED}; contradicted: "
    "the same below 0; otherwise not shown"
)
UNTESTABLE: Outcome = "cannot be tested at this scale"


class Verdict(NamedTuple):
    """What our numbers say to one claim of the chapter."""

    claim: str  # such as CH-30
    statement: str
    outcome: Outcome
    reason: str  # one sentence, with the numbers
    rule: str
    numbers: Mapping[str, float] = {}  # those of the reason, for programs


class Sample(NamedTuple):
    """One system's translations of one test set, with each seed."""

    label: str
    hypotheses: Sequence[Sequence[str]]  # one list for each seed
    references: Sequence[str]
    trg_lang: str
    cut_after: tuple[float | None, ...] = ()
    """Of each seed the minutes after which the clock stopped its training before its recipe's end; None: it did not."""
    has_diverged: bool = False  # a training of it, with some seed

    @property
    def is_empty(self) -> bool:
        """Whether nothing is translated, as by a model that diverged."""
        return not any(line.strip() for lines in self.hypotheses for line in lines)


class Comparison(NamedTuple):
    """Whether one system beats another, in numbers."""

    outcome: Outcome
    p_value: float  # the median over the seeds
    text: str  # `RNNsearch 26.3 against RNNencdec 14.1 BLEU, p 0.001`
    numbers: Mapping[str, float]


def check_same_text(*samples: Sample) -> None:
    """Raises: RequestError when the samples translate unlike test sets, which no test compares."""
    first = samples[0]
    for other in samples[1:]:
        if other.trg_lang != first.trg_lang or list(other.references) != list(first.references):
            raise RequestError(
                f"{first.label} and {other.label} translate other test sets; give both the same data with --set data.…"
            )


def why_untestable(*samples: Sample) -> str:
    """Why nothing can be said of these: too few sentences, or some learned as long as they should and others not.

    Empty if something can. Trainings that a budget has cut alike may be compared: all had as much time.
    """
    n_sentences = len(samples[0].references)
    if n_sentences < MIN_SEGMENTS:
        return f"{n_sentences} sentences are too few, {MIN_SEGMENTS} are needed"
    if len({cut for sample in samples for cut in sample.cut_after}) < 2:
        return ""
    cut = [(sample.label, minutes) for sample in samples for minutes in sample.cut_after if minutes is not None]
    stopped = ", ".join(f"{label} after {minutes:g} minutes" for label, minutes in dict.fromkeys(cut))
    return f"the clock has stopped trainings before their recipe's end, not all alike: {stopped}"


def compare(better: Sample, worse: Sample, *, same_model: bool = False, n_tried: int = 1) -> Comparison:
    """Whether `better`, which a claim puts first, beats `worse`: see BEATS_RULE.

    Seeds are paired in their order; both must have been run with as many.

    Args:
        same_model: they differ in search alone: see SAME_MODEL_RULE.
        n_tried: comparisons that this is the extreme one of; p is multiplied by it (Bonferroni).

    Raises: RequestError for samples of unlike test sets.
    """
    check_same_text(better, worse)
    firsts, seconds, p_values = [], [], []
    settings = ScoreSettings(trg_lang=better.trg_lang)
    for ours, theirs in zip(better.hypotheses, worse.hypotheses, strict=True):
        systems = [NamedLines(worse.label, theirs), NamedLines(better.label, ours)]
        low, high = paired_scores(systems, [NamedLines("reference", better.references)], settings, method="bootstrap")
        seconds.append(low[0].score)
        firsts.append(high[0].score)
        p_values.append(high[0].p_value if high[0].p_value is not None else 1.0)
    p_value = min(1.0, n_tried * statistics.median(p_values))
    signs = {(ours > theirs) - (ours < theirs) for ours, theirs in zip(firsts, seconds, strict=True)}
    is_wide = same_model or len(firsts) > 1 or abs(firsts[0] - seconds[0]) >= SEED_MARGIN
    outcome: Outcome = "not shown"
    if p_value < SIGNIFICANT and signs in ({1}, {-1}) and is_wide:
        outcome = "shown" if signs == {1} else "contradicted"
    seeds = " (one seed)" if len(firsts) == 1 else f" (means of {len(firsts)} seeds)"
    numbers = {"first BLEU": statistics.fmean(firsts), "second BLEU": statistics.fmean(seconds), "p": p_value}
    text = (
        f"{better.label} {numbers['first BLEU']:.2f} against {worse.label} {numbers['second BLEU']:.2f} BLEU{seeds}, "
        f"p {p_value:.3f}"
    )
    text += "".join(f"; {each.label} has diverged" for each in (better, worse) if each.has_diverged)
    if obstacle := why_untestable(better, worse):
        outcome, text = UNTESTABLE, f"{text}; {obstacle}"
    return Comparison(outcome, p_value, text, numbers)


def beats(
    claim: str, statement: str, *pairs: tuple[Sample, Sample], same_model: bool = False, n_tried: int = 1
) -> Verdict:
    """The verdict on a claim that in each pair the first system beats the second; see `compare`."""
    found = [compare(better, worse, same_model=same_model, n_tried=n_tried) for better, worse in pairs]
    rule = SAME_MODEL_RULE if same_model else BEATS_RULE
    if n_tried > 1:
        rule += f"; the second is the best of {n_tried}, and p is multiplied by as many"
    reason, numbers = "; ".join(each.text for each in found), _numbered([each.numbers for each in found])
    return Verdict(claim, statement, together([each.outcome for each in found]), reason, rule, numbers)


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome for several that a claim needs all: shown if all are, contradicted if one is."""
    for outcome in ("contradicted", UNTESTABLE, "not shown"):
        if outcome in outcomes:
            return outcome
    return "shown"


def falls_with_length(claim: str, statement: str, sample: Sample, groups: LengthGroups) -> Verdict:
    """The verdict on a claim that a system gets worse with the length of the source: see FALLS_RULE."""
    if groups.shortage:
        return Verdict(claim, statement, UNTESTABLE, groups.shortage, FALLS_RULE)
    fall = contrast(_fall(sample, groups), sample.references, trg_lang=sample.trg_lang)
    outcome = outcome_above(fall)
    reason = (
        f"{sample.label}: {fall.scores[0]:.2f} BLEU on {groups.short_words} words, {fall.scores[1]:.2f} on "
        f"{groups.long_words}; fall {fall.value:.2f} (95% interval {fall.low:.2f} to {fall.high:.2f})"
    )
    return Verdict(claim, statement, outcome, reason, FALLS_RULE, _numbers_of(fall))


def stays_flat(claim: str, statement: str, flat: Sample, steep: Sample, groups: LengthGroups) -> Verdict:
    """The verdict on a claim that `steep` falls with length and `flat` does not: see FLAT_RULE."""
    if groups.shortage:
        return Verdict(claim, statement, UNTESTABLE, groups.shortage, FLAT_RULE)
    check_same_text(flat, steep)
    terms = [*_fall(flat, groups), *_fall(steep, groups)]
    found = contrast(terms, flat.references, trg_lang=flat.trg_lang, value_of=_more_kept)
    fall = contrast(_fall(steep, groups), steep.references, trg_lang=steep.trg_lang)
    flat_short, flat_long, steep_short, steep_long = found.scores
    kept, steep_kept = _kept(flat_short, flat_long).item(), _kept(steep_short, steep_long).item()
    outcome = outcome_above(found)
    if outcome == "shown" and (outcome_above(fall) != "shown" or kept < FLAT_SHARE):
        outcome = "not shown"
    reason = (
        f"from {groups.short_words} to {groups.long_words} words {steep.label} goes from {steep_short:.2f} to "
        f"{steep_long:.2f} BLEU ({steep_kept:.0%} kept), {flat.label} from {flat_short:.2f} to {flat_long:.2f} "
        f"({kept:.0%} kept); the shares differ by {100 * found.value:.0f} points (95% interval {100 * found.low:.0f} "
        f"to {100 * found.high:.0f})"
    )
    return _unless_untestable(
        Verdict(claim, statement, outcome, reason, FLAT_RULE, {**_numbers_of(found), "kept": kept}), flat, steep
    )


def gains_more(claim: str, statement: str, more: tuple[Sample, Sample], less: tuple[Sample, Sample]) -> Verdict:
    """The verdict on a claim that the step from the second to the first sample of `more` gains more BLEU than the same
    step in `less`: see GAIN_RULE.

    Raises: RequestError for samples of unlike test sets.
    """
    check_same_text(*more, *less)
    every = range(len(more[0].references))
    terms = [
        Term(weight, sample.hypotheses, every)
        for weight, sample in ((1, more[0]), (-1, more[1]), (-1, less[0]), (1, less[1]))
    ]
    found = contrast(terms, more[0].references, trg_lang=more[0].trg_lang)
    outcome: Outcome = "not shown"
    if len(more[0].hypotheses) > 1 or abs(found.value) >= SEED_MARGIN:
        outcome = outcome_above(found)
    first, second, third, fourth = found.scores
    reason = (
        f"{more[0].label} gains {first - second:+.2f} BLEU over {more[1].label}, {less[0].label} {third - fourth:+.2f} "
        f"over {less[1].label}; the gains differ by {found.value:.2f} (95% interval {found.low:.2f} to "
        f"{found.high:.2f})"
    )
    return _unless_untestable(Verdict(claim, statement, outcome, reason, GAIN_RULE, _numbers_of(found)), *more, *less)


def loses_less_than(
    claim: str, statement: str, whole: Sample, others: Sequence[Sample], limit: float, *, same_model: bool = False
) -> Verdict:
    """The verdict on a claim that no other system loses as much as `limit` BLEU to `whole`: see LOSS_RULE.

    same_model: they are one training: see LOSS_RULE, else LOSS_RULE_OF_TRAININGS.

    Raises: RequestError for samples of unlike test sets.
    """
    check_same_text(whole, *others)
    every = range(len(whole.references))
    outcomes: list[Outcome] = []
    parts, numbers = [], []
    margin = 0.0 if same_model or len(whole.hypotheses) > 1 else SEED_MARGIN
    for other in others:
        terms = [Term(1, whole.hypotheses, every), Term(-1, other.hypotheses, every)]
        found = contrast(terms, whole.references, trg_lang=whole.trg_lang)
        is_far = abs(found.value - limit) >= margin
        outcomes.append(_opposite(outcome_above(found, limit)) if is_far else "not shown")
        numbers.append(_numbers_of(found))
        parts.append(f"{other.label} loses {found.value:.2f} ({found.low:.2f} to {found.high:.2f})")
    reason = f"of {whole.label}: {'; '.join(parts)}; BLEU with 95% intervals, the limit is {limit:g}"
    rule = LOSS_RULE if same_model else LOSS_RULE_OF_TRAININGS
    return _unless_untestable(
        Verdict(claim, statement, together(outcomes), reason, rule, _numbered(numbers)), whole, *others
    )


def exactly(claim: str, statement: str, holds: bool, reason: str) -> Verdict:
    """The verdict on a claim that arithmetic decides."""
    return Verdict(claim, statement, "shown" if holds else "contradicted", reason, EXACT_RULE)


def interval_above_zero(claim: str, statement: str, values: np.ndarray, what: str, *samples: Sample) -> Verdict:
    """The verdict on a claim that a quantity is above 0: see INTERVAL_RULE.

    Args:
        values: measured once for each sentence, or once with each seed; [sentences] or [seeds, sentences].
        samples: of the models that it was measured on, where they were trained.
    """
    by_seed = np.atleast_2d(values)
    values = by_seed.mean(axis=0)
    if len(values) < MIN_SEGMENTS:
        reason = f"{what}: {len(values)} sentences to measure it on are too few, {MIN_SEGMENTS} are needed"
        return Verdict(claim, statement, UNTESTABLE, reason, INTERVAL_RULE)
    random = np.random.default_rng(12345)
    means = random.choice(values, size=(BOOTSTRAP_SAMPLES, len(values))).mean(axis=1)
    low, high = map(float, np.percentile(means, [2.5, 97.5]))
    found = Contrast((), float(values.mean()), low, high, tuple(by_seed.mean(axis=1).tolist()))
    reason = f"{what}: mean {found.value:.3f} over {len(values)} sentences (95% interval {low:.3f} to {high:.3f})"
    verdict = Verdict(claim, statement, outcome_above(found), reason, INTERVAL_RULE, _numbers_of(found))
    return _unless_untestable(verdict, *samples) if samples else verdict


def _fall(sample: Sample, groups: LengthGroups) -> list[Term]:
    """BLEU on short less BLEU on long sentences."""
    return [Term(1, sample.hypotheses, groups.short_rows), Term(-1, sample.hypotheses, groups.long_rows)]


def _unless_untestable(verdict: Verdict, *samples: Sample) -> Verdict:
    obstacle = why_untestable(*samples)
    return verdict._replace(outcome=UNTESTABLE, reason=f"{verdict.reason}; {obstacle}") if obstacle else verdict


def _more_kept(scores: np.ndarray) -> np.ndarray:
    """How much larger a share of its BLEU on short sentences the first system keeps on long ones than the second;
    `scores` are [first short, first long, second short, second long].
    """
    return _kept(scores[0], scores[1]) - _kept(scores[2], scores[3])


def _kept(short: np.ndarray | float, long: np.ndarray | float) -> np.ndarray:
    return np.divide(long, short, out=np.zeros(np.shape(short)), where=np.greater(short, 0))


def outcome_above(found: Contrast, limit: float = 0.0) -> Outcome:
    """On which side of a limit a value lies with its interval and with every seed: shown above, contradicted below."""
    if found.low > limit and min(found.by_seed) > limit:
        return "shown"
    if found.high < limit and max(found.by_seed) < limit:
        return "contradicted"
    return "not shown"


def _opposite(outcome: Outcome) -> Outcome:
    opposites: dict[Outcome, Outcome] = {"shown": "contradicted", "contradicted": "shown"}
    return opposites.get(outcome, outcome)


def _numbers_of(found: Contrast) -> dict[str, float]:
    return {"difference": found.value, "low": found.low, "high": found.high}


def _numbered(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Numbers of the same names in one: those of the second are `p (2)`, and so on."""
    return {
        key if number == 1 else f"{key} ({number})": value
        for number, numbers in enumerate(several, start=1)
        for key, value in numbers.items()
    }
