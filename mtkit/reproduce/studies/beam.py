"""Beam search: beam sizes, length penalties, single models and ensembles; scores, search errors, decoder steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from mtkit.evaluate.bleu import words_of
from mtkit.evaluate.charts import line_figure
from mtkit.evaluate.contrast import Term, contrast
from mtkit.reproduce.bleu_rows import measured_bleu, point, signature
from mtkit.reproduce.findings import Cell, Findings, Measured, Picture, Table
from mtkit.reproduce.laboratory import Laboratory, Search, Translated
from mtkit.reproduce.study import Settings, Training
from mtkit.reproduce.verdict import (
    UNTESTABLE,
    Outcome,
    Sample,
    Verdict,
    beats,
    compare,
    exactly,
    outcome_above,
    why_untestable,
)

TITLE = "Beam search: how wide, with which length penalty, with how many models"
SUBJECT = (
    "Five Seq2Seq of different seeds, one alone and all together, decoded with beams of 1 to 12 hypotheses. A search "
    "error is a sentence for which some other beam of the same model found a translation with a better score."
)
N_MEMBERS = 5
BEAMS = (1, 2, 4, 8, 12)
PENALTIES = (0.0, 0.6, 1.0)
_JUDGED = 0.0  # the penalty of the verdicts: the paper's search divides by no length
_AS_THERE = "without a length penalty, as in the paper"
_SCORE_MARGIN = 1e-5  # scores of one hypothesis from two searches differ by rounding

# Table 1, newstest2014 English to French: an ensemble of five; a single model has a figure for a beam of 12 alone.
_PAPER_ENSEMBLE = {1: 33.00, 2: 34.50, 12: 34.81}
_PAPER_SINGLE = {12: 30.59}
_CHAPTER_ENSEMBLE = {12: 34.81}
_CHAPTER_SINGLE = {12: 30.59}


def trainings(settings: Settings) -> list[Training]:
    scale = settings.scale
    folder = "wmt14" if scale == "paper" else scale
    return [Training(f"Seq2Seq {n + 1}", f"{folder}/seq2seq.yaml", member=n) for n in range(N_MEMBERS)]


class _Decoded:
    """What one system found with every search, over the seeds."""

    def __init__(self, laboratory: Laboratory, label: str, members: Sequence[Training]) -> None:
        set_name = laboratory.test_set(members[0])
        self.label = label
        self.trg_lang = laboratory.place(members[0], laboratory.seeds[0]).recipe.data.trg
        self._cut_after = tuple(laboratory.place(each, seed).cut_after for seed in laboratory.seeds for each in members)
        self._bleu: dict[tuple[int, float], Measured] = {}
        self.found: dict[tuple[int, float], list[Translated]] = {}
        for beam in BEAMS:
            for penalty in PENALTIES:
                search = Search(beam_size=beam, length_penalty=penalty)
                self.found[beam, penalty] = [
                    laboratory.translate([(each, seed) for each in members], set_name, search)
                    for seed in laboratory.seeds
                ]

    def sample(self, beam: int, penalty: float) -> Sample:
        found = self.found[beam, penalty]
        label = f"{self.label}, beam {beam}"
        hypotheses = [each.hypotheses for each in found]
        return Sample(label, hypotheses, found[0].references, self.trg_lang, self._cut_after)

    def bleu(self, beam: int, penalty: float) -> Measured:
        """BLEU with its interval, resampled once."""
        if (beam, penalty) not in self._bleu:
            self._bleu[beam, penalty] = measured_bleu(self.sample(beam, penalty))
        return self._bleu[beam, penalty]

    def steps(self, beam: int, penalty: float) -> int:
        """Decoder steps of the first seed, every model's."""
        return self.found[beam, penalty][0].decoder_steps

    def search_errors(self, beam: int, penalty: float) -> float:
        """Percent of the sentences, first seed."""
        best = [max(scores) for scores in zip(*(self.found[each, penalty][0].scores for each in BEAMS), strict=True)]
        own = self.found[beam, penalty][0].scores
        n_errors = sum(score < top - _SCORE_MARGIN for score, top in zip(own, best, strict=True))
        return 100 * n_errors / len(own)


def report(laboratory: Laboratory) -> Findings:
    members = trainings(laboratory.settings)
    single = _Decoded(laboratory, "single", members[:1])
    ensemble = _Decoded(laboratory, f"ensemble of {N_MEMBERS}", members)
    judged = Search(beam_size=12, length_penalty=_JUDGED)
    every = [laboratory.sample(each, laboratory.test_set(each), judged) for each in members]
    cheap, dear = ensemble.steps(2, _JUDGED), single.steps(12, _JUDGED)
    verdicts = [
        beats(
            "CH-14",
            f"a beam of 12 beats greedy search, alone and in the ensemble, {_AS_THERE}",
            (single.sample(12, _JUDGED), single.sample(1, _JUDGED)),
            (ensemble.sample(12, _JUDGED), ensemble.sample(1, _JUDGED)),
            same_model=True,
        ),
        _early_gain([ensemble.sample(beam, _JUDGED) for beam in (1, 2, 12)]),
        beats(
            "CH-15",
            f"an ensemble of {N_MEMBERS} beats each of its models, {_AS_THERE}",
            *((ensemble.sample(12, _JUDGED), alone) for alone in every),
        ),
        exactly(
            "CH-16",
            f"an ensemble of {N_MEMBERS} with a beam of 2 takes fewer decoder steps than one model with a beam of 12",
            0 < cheap < dear,
            f"{cheap:,} steps against {dear:,}",
        ),
    ]
    tables = [
        _table("single", single, _CHAPTER_SINGLE, _PAPER_SINGLE),
        _table("ensemble", ensemble, _CHAPTER_ENSEMBLE, _PAPER_ENSEMBLE),
    ]
    alone = measured_bleu(every[0]._replace(hypotheses=[lines for each in every for lines in each.hypotheses]))
    note = f"The {len(alone.values)} models one by one, with a beam of 12 and {_AS_THERE}: {alone} BLEU."
    return Findings(verdicts, tables, [_curves("single", single), _curves("ensemble", ensemble)], [note])


def _early_gain(samples: Sequence[Sample]) -> Verdict:
    """Of beams 1, 2 and 12: has the second more than half of what the third gains over the first?"""
    statement, rule = (
        f"a beam of 2 has most of the gain of 12, {_AS_THERE}",
        "shown: a beam of 12 beats greedy search, and BLEU with a beam of 2 lies above the middle between the two (95% "
        "bootstrap interval, and with every seed); contradicted: below; otherwise not shown",
    )
    greedy, _, wide = samples
    gain = compare(wide, greedy, same_model=True)
    every = range(len(greedy.references))
    terms = [Term(weight, each.hypotheses, every) for weight, each in zip((-0.5, 1, -0.5), samples, strict=True)]
    found = contrast(terms, greedy.references, trg_lang=greedy.trg_lang)
    first, second, third = found.scores
    reason = (
        f"ensemble: {first:.2f}, {second:.2f}, {third:.2f} BLEU with a beam of 1, 2, 12; above the middle by "
        f"{found.value:.2f} (95% interval {found.low:.2f} to {found.high:.2f}); p of the whole gain {gain.p_value:.3f}"
    )
    outcome: Outcome = "not shown"
    if gain.outcome == "shown":
        outcome = outcome_above(found)
    elif gain.outcome == UNTESTABLE:
        outcome, reason = UNTESTABLE, f"{reason}; {why_untestable(*samples)}"
    return Verdict("CH-14", statement, outcome, reason, rule)


def length_ratio(sample: Sample) -> float:
    """Words of the translations to words of the references, the mean over the seeds."""
    texts = [*sample.hypotheses, sample.references]
    *found, references = (sum(map(len, words_of(lines, sample.trg_lang))) for lines in texts)
    return statistics.fmean(found) / references


def _table(name: str, decoded: _Decoded, chapter: dict[int, float], paper: dict[int, float]) -> Table:
    """A row for each search; `chapter` and `paper` are by beam."""
    rows: list[list[Cell]] = []
    for penalty in PENALTIES:
        for beam in BEAMS:
            sample = decoded.sample(beam, penalty)
            seconds = Measured(tuple(each.seconds for each in decoded.found[beam, penalty]), None, 1)
            rows.append(
                [
                    penalty,
                    beam,
                    *(printed.get(beam) if penalty == PENALTIES[0] else None for printed in (chapter, paper)),
                    decoded.bleu(beam, penalty),
                    length_ratio(sample),
                    decoded.search_errors(beam, penalty),
                    decoded.steps(beam, penalty),
                    seconds,
                ]
            )
    header = (
        *("length penalty", "beam", "chapter, BLEU", "paper, BLEU", "BLEU", "length ratio"),
        *("search errors, %", "decoder steps", "seconds"),
    )
    note = (
        "The paper divides by no length, so its figures stand with the penalty 0; they are tokenised BLEU on "
        "newstest2014, English to French. The chapter adds re-ranking from left to right to the ensemble's 34.81: in "
        "the paper that is beam search from left to right alone, and rescoring the n-best lists of a phrase-based "
        "system is another experiment, with 36.5. Length ratio: words of the translations to words of the references. "
        f"{signature(decoded.sample(1, 0.0))}"
    )
    return Table(name, decoded.label, header, rows, note)


def _curves(name: str, decoded: _Decoded) -> Picture:
    lines = {
        f"penalty {penalty:g}": [point(place, decoded.bleu(beam, penalty)) for place, beam in enumerate(BEAMS)]
        for penalty in PENALTIES
    }
    ticks = {float(place): str(beam) for place, beam in enumerate(BEAMS)}
    figure = line_figure(lines, x_label="beam", y_label="BLEU", x_ticks=ticks)
    return Picture(f"beam-{name}", f"BLEU by beam, {decoded.label}", figure, "Bands: 95% bootstrap intervals.")
